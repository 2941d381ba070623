"""Chooses the checkpoint that a run resumes, and compares its configuration and data with those of the run; loads the
initial weights from another run."""

from __future__ import annotations

import logging
import platform
from collections.abc import Iterator, Mapping
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from core import checkpoint
from core.config.former_keys import with_current_keys
from core.config.overrides import differences
from core.config.schema import AnyConfig
from core.data.identity import changes
from core.errors import CheckpointError
from core.packages import version_of
from core.runlog import read_status

log = logging.getLogger(__name__)

# Configuration that may differ between a checkpoint and the run that resumes it without changing what is learned.
_FREE_TO_CHANGE = (
    *("logging.", "device.", "distributed.", "hardware.", "dqvl.", "scoring.", "data.score_stride", "data.store_"),
    *("devices", "precision", "deterministic", "cudnn_benchmark", "max_threads", "timeout_hours", "pythonhashseed"),
    *("enabled", "log_device_info", "profile_runtime", "model.size", "training.resume", "training.recoveries"),
    *("training.gradient_checkpointing", "training.allow_changes", "training.checkpoint_every_minutes"),
    *("training.keep", "training.promote", "training.start_from"),
    # Positions in an epoch are counted in windows; these decide the windows of a step, and how they are computed.
    *("training.batch_size", "training.accumulate", "training.effective_batch", "training.min_steps"),
)  # fmt: skip
# Facts that affect the last digits of a step, and their names in messages.
_DECIDES_DIGITS = {
    "name": "device",
    "precision": "precision",
    "x64": "float64",
    "compiled": "compiled",
    "threads": "threads",
    "processes": "processes",
    "batch.effective": "global batch size",
    "batch.micro": "micro-batch",
    "batch.gradient_checkpointing": "gradient checkpointing",
    "versions.torch": "torch",
    "versions.numpy": "numpy",
}
# Configuration that decides the shape of a weight.
_SHAPES = ("model.", "data.window", "scalogram.image_size")
# Name of the weights with one row per channel.
CHANNEL_WEIGHTS = "channel_c1d"


# ------------------------------------------------------------------------------------------------------------- choosing
def checkpoint_to_resume(
    config: AnyConfig, root: Path, run_id: str | None, *, is_restarted: bool = False
) -> Path | None:
    """The checkpoint to resume, as `training.resume` says: `auto` is the newest valid state, `unfinished` the same if
    its run was not completed or is the requested one, a path is that file. None if there is no state to resume.

    is_restarted: this process replaces one that died, and resumes the run of that process.
    Raises CheckpointError if states exist but none is valid, and for a requested file that is not valid.
    """
    choice = config.training.resume
    if is_restarted and choice != "auto" and (own := _saved_by_this_job(config, root, run_id)):
        return own
    if choice == "never":
        return None
    if choice not in ("auto", "unfinished"):
        _refuse_unusable(root / choice)
        return root / choice
    path = _newest_valid(checkpoint.last_path(root / config.logging.checkpoint_path))
    if path is None:
        log.info("no state to resume; starting from the beginning")
    elif choice == "unfinished" and not _is_unfinished(path, config, root, run_id):
        path = None
    return path


def _saved_by_this_job(config: AnyConfig, root: Path, run_id: str | None) -> Path | None:
    """The newest state of the run that torchrun restarted."""
    choice = config.training.resume
    path = _newest_valid(checkpoint.last_path(root / config.logging.checkpoint_path))
    run = run_id if choice in ("never", "unfinished") else checkpoint.describe(root / choice)["run_id"]
    return path if path is not None and checkpoint.describe(path)["run_id"] == run else None


def _newest_valid(last: Path) -> Path | None:
    """The newest valid state; damaged or missing newer ones are logged as warnings. None if there is no state. Raises
    CheckpointError if all states are damaged."""
    damaged: list[CheckpointError] = []
    for path in (last, *_older(last)):
        try:
            _refuse_unusable(path)
        except CheckpointError as error:
            damaged.append(error)
            continue
        for error in damaged:
            log.warning("%s; using the state before it, %s", error.message, path.name)
        return path
    if last.is_file() or len(damaged) > 1:
        raise damaged[0]
    return None


def _older(last: Path) -> Iterator[Path]:
    """The states before the last one, newest first."""
    paths = (checkpoint.previous_path(last, age) for age in count(1))
    return takewhile(Path.is_file, paths)


def _refuse_unusable(path: Path) -> None:
    if not path.is_file():
        raise CheckpointError(path, "does not exist", hint="set training.resume to auto or never")
    described = checkpoint.verify(path)
    if "batch" not in described.get("hardware", {}):
        raise CheckpointError(path, "has no batch size in its sidecar", hint="restart with --resume never")


def _is_unfinished(path: Path, config: AnyConfig, root: Path, run_id: str | None) -> bool:
    """Whether the run of the state was stopped, failed or died; with a `run_id`, whether it is that run, even if it was
    completed."""
    saved = checkpoint.describe(path)["run_id"]
    if run_id is not None:
        return run_id == saved
    status = read_status(root / config.logging.log_dir / saved)
    return status is not None and status["state"] != "completed"


# -------------------------------------------------------------------------------------------------------------- fitting
def check_fit(
    path: Path, state: Mapping[str, Any], *, config: Mapping[str, Any], data: Mapping[str, Any], allow_changes: bool
) -> None:
    """Compares the training state at `path` with the run that would resume it.

    config: of the run; data: the identity of its splits (`core.data.identity`).
    Raises CheckpointError if configuration or data differ and that is not allowed, or if there is a model but no
    training state.
    """
    if "optimizer" not in state:
        hint = f"resume from {checkpoint.last_path(path).name}"
        raise CheckpointError(path, "contains a model but no training state", hint=hint)
    if "data" not in state:
        hint = "restart with --resume never"
        raise CheckpointError(
            path, "has no digests of its training data: it is from an older version of Landfall", hint=hint
        )
    differing = [*config_changes(state["config"], config), *_data_changes(state["data"], data)]
    if not differing:
        return
    problem = f"was trained with another configuration or other data: {'; '.join(differing)}"
    if not allow_changes:
        hint = "restore them, resume nevertheless with --allow-changes, or restart with --resume never"
        raise CheckpointError(path, problem, hint=hint)
    log.warning("%s %s; resuming, because training.allow_changes = true", path.name, problem)


def config_changes(saved: Mapping[str, Any], current: Mapping[str, Any]) -> Iterator[str]:
    """The differences of two configurations that change what is learned: `key was …, is …`."""
    found = differences(*(with_current_keys(each)[0] for each in (saved, current)))
    yield from (f"{key} {change}" for key, change in found.items() if not key.startswith(_FREE_TO_CHANGE))


def _data_changes(saved: Mapping[str, Any], current: Mapping[str, Any]) -> Iterator[str]:
    for split in current:
        for change in changes(saved[split], current[split]):
            yield f"data.splits.{split}: {change}"


# ----------------------------------------------------------------------------------------------------------- exactness
def versions() -> dict[str, str | None]:
    """Versions of the software that trains."""
    return {
        "landfall": version_of("landfall"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def report_exactness(saved: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """Logs whether the run resumes bit-exactly, given the hardware in two checkpoints' sidecars."""
    found = differences(saved, current)
    differing = [f"{name} {found[key]}" for key, name in _DECIDES_DIGITS.items() if key in found]
    if not differing:
        log.info("resuming bit-exactly, as far as the device is deterministic")
    else:
        log.warning(
            "resuming, but not bit-exactly: %s. Each window of the epoch is still used exactly once",
            "; ".join(differing),
        )


# ------------------------------------------------------------------------------------------------------ other weights
def start_from(path: Path, model: nn.Module, config: AnyConfig) -> dict[str, Any]:
    """Loads the weights of the checkpoint at `path` into `model`, and nothing else: scaling, schedule, masks and the
    order of windows are those of the new run. If the number of channels differs, their embeddings stay random, with the
    spread of those that the other weights were trained with. Returns the origin, for the run's record.

    Raises CheckpointError if it is damaged, or of another stream or another shape of model.
    """
    state, described = checkpoint.load_described(path)
    if state["stream"] != config.stream:
        raise CheckpointError(
            path, f"is a model of the stream {state['stream']}, not {config.stream}", hint="name one of this stream"
        )
    weights, own = dict(state["model"]), model.state_dict()
    both = CHANNEL_WEIGHTS in weights and CHANNEL_WEIGHTS in own
    if both and len(weights[CHANNEL_WEIGHTS]) != len(own[CHANNEL_WEIGHTS]):
        spread = float(weights[CHANNEL_WEIGHTS].std() / own[CHANNEL_WEIGHTS].std())
        weights[CHANNEL_WEIGHTS] = own[CHANNEL_WEIGHTS] * spread
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        current = config.model_dump(mode="json")
        differing = [change for change in config_changes(state["config"], current) if change.startswith(_SHAPES)]
        misfit = "; ".join(differing) or str(error).splitlines()[-1].strip()
        hint = "set the same here (model.size=auto takes its size), or train without training.start_from"
        raise CheckpointError(path, f"has weights of another model: {misfit}", hint=hint) from error
    log.info("starting from the weights of %s: run %s, epoch %d", path.name, state["run_id"], state["epoch"])
    return {"file": path.name, "run_id": state["run_id"], "epoch": state["epoch"], "sha256": described["sha256"]}
