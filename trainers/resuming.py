"""Which checkpoint a run goes on from, and whether it can: what was trained, on what, against what the run has."""

from __future__ import annotations

import logging
import platform
from collections.abc import Iterator, Mapping
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from core import checkpoint
from core.config.compose import flatten
from core.config.schema import AnyConfig
from core.data.identity import changes
from core.environment import version_of
from core.errors import CheckpointError
from core.runlog import read_status

log = logging.getLogger(__name__)

# Configuration that may differ between a checkpoint and the run that resumes it without changing what is learned.
_FREE_TO_CHANGE = (
    *("logging.", "device.", "distributed.", "hardware.", "dqvl.", "scoring.", "data.score_stride", "data.store_"),
    *("devices", "precision", "deterministic", "cudnn_benchmark", "max_threads", "timeout_hours", "pythonhashseed"),
    *("log_device_info", "profile_runtime", "model.size", "training.resume", "training.recoveries"),
    *("training.gradient_checkpointing", "training.allow_changes", "training.checkpoint_every_minutes"),
    *("training.keep", "training.start_from"),
    # A place in an epoch is counted in windows; these say how many of them make a step, and how they are computed.
    *("training.batch_size", "training.accumulate", "training.effective_batch", "training.min_steps"),
)  # fmt: skip
# What decides the last digits of a step, and what to call it.
_DECIDES_DIGITS = {
    "name": "device",
    "precision": "precision",
    "x64": "64 bit",
    "compiled": "compiled",
    "threads": "threads",
    "processes": "processes",
    "batch.effective": "windows a step",
    "batch.micro": "windows at once",
    "batch.gradient_checkpointing": "gradient checkpointing",
    "versions.torch": "torch",
    "versions.numpy": "numpy",
}


# ------------------------------------------------------------------------------------------------------------- choosing
def checkpoint_to_resume(
    config: AnyConfig, root: Path, run_id: str | None, *, is_restarted: bool = False
) -> Path | None:
    """`auto` takes the newest state that is whole, `unfinished` too if its run has not ended, or is the one asked for;
    None where there is nothing to go on from.

    is_restarted: this process is in the place of one that died; whatever the choice, it goes on where that was.
    Raises CheckpointError where none of the states there are is whole, and for a file that is not.
    """
    choice = config.training.resume
    if is_restarted and choice != "auto" and (own := _saved_by_this_job(config, root, run_id)):
        return own
    if choice == "never":
        return None
    if choice not in ("auto", "unfinished"):
        _refuse_unusable(root / choice)
        return root / choice
    path = _newest_whole(checkpoint.last_path(root / config.logging.checkpoint_path))
    if path is None:
        log.info("nothing to resume; starting anew")
    elif choice == "unfinished" and not _is_unfinished(path, config, root, run_id):
        path = None
    return path


def _saved_by_this_job(config: AnyConfig, root: Path, run_id: str | None) -> Path | None:
    """The newest state of the run that processes were training until torchrun started them again."""
    choice = config.training.resume
    path = _newest_whole(checkpoint.last_path(root / config.logging.checkpoint_path))
    run = run_id if choice in ("never", "unfinished") else checkpoint.describe(root / choice)["run_id"]
    return path if path is not None and checkpoint.describe(path)["run_id"] == run else None


def _newest_whole(last: Path) -> Path | None:
    """Older states take the place of missing or damaged newer ones, loudly. Raises CheckpointError where all are."""
    damaged: list[CheckpointError] = []
    for path in (last, *_older(last)):
        try:
            _refuse_unusable(path)
        except CheckpointError as error:
            damaged.append(error)
            continue
        for error in damaged:
            log.warning("%s; going back to the state before it, %s", error.message, path.name)
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
    told = checkpoint.verify(path)
    if "batch" not in told.get("hardware", {}):
        raise CheckpointError(path, "does not say what its steps are made of", hint="train anew with --resume never")


def _is_unfinished(path: Path, config: AnyConfig, root: Path, run_id: str | None) -> bool:
    """Whether the run of the state was stopped, failed or died; with a `run_id`, whether it is that one, which then has
    nothing left to do if it was completed."""
    saved = checkpoint.describe(path)["run_id"]
    if run_id is not None:
        return run_id == saved
    status = read_status(root / config.logging.log_dir / saved)
    return status is not None and status["state"] != "completed"


# -------------------------------------------------------------------------------------------------------------- fitting
def check_fit(
    path: Path, state: Mapping[str, Any], *, config: Mapping[str, Any], data: Mapping[str, Any], allow_changes: bool
) -> None:
    """Holds the training state at `path` against the run that would go on with it.

    config: of the run; data: of what its parts are made (`core.data.identity`).
    Raises CheckpointError where configuration or data differ and that is not allowed, or where there is a model but no
    training state.
    """
    if "optimizer" not in state:
        hint = f"resume from {checkpoint.last_path(path).name}"
        raise CheckpointError(path, "holds a model but no training state", hint=hint)
    if "data" not in state:
        hint = "train anew with --resume never"
        raise CheckpointError(path, "does not say what data it was trained on: an older Landfall wrote it", hint=hint)
    differing = [*config_changes(state["config"], config), *_data_changes(state["data"], data)]
    if not differing:
        return
    told = f"was trained with another configuration or other data: {'; '.join(differing)}"
    if not allow_changes:
        hint = "go back to those, go on all the same with --allow-changes, or start anew with --resume never"
        raise CheckpointError(path, told, hint=hint)
    log.warning("%s %s; going on, as training.allow_changes = true", path.name, told)


def config_changes(saved: Mapping[str, Any], current: Mapping[str, Any]) -> Iterator[str]:
    """What two configurations differ in that decides what is learned: `key was …, is …`."""
    old, new = dict(flatten(saved)), dict(flatten(current))
    for key in sorted(old | new):
        if not key.startswith(_FREE_TO_CHANGE) and old.get(key) != new.get(key):
            yield f"{key} was {old.get(key)}, is {new.get(key)}"


def _data_changes(saved: Mapping[str, Any], current: Mapping[str, Any]) -> Iterator[str]:
    for part in current:
        for change in changes(saved[part], current[part]):
            yield f"data.parts.{part}: {change}"


# ----------------------------------------------------------------------------------------------------------- exactness
def versions() -> dict[str, str | None]:
    """Of what trains."""
    return {
        "landfall": version_of("landfall"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def tell_exactness(saved: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """Says whether the run goes on bit for bit, given what two checkpoints' sidecars say of their hardware."""
    old, new = dict(flatten(saved)), dict(flatten(current))
    differing = [
        f"{name} was {old.get(key)}, is {new.get(key)}"
        for key, name in _DECIDES_DIGITS.items()
        if old.get(key) != new.get(key)
    ]
    if not differing:
        log.info("going on bit for bit, as far as the device computes alike twice")
    else:
        log.warning(
            "going on, but not bit for bit: %s. Each window of the epoch is still seen exactly once",
            "; ".join(differing),
        )
