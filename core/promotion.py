"""Promotion: the weights of one run are the model of a stream.

Every run keeps its best weights in its own folder, `runs/<stream>_ssl/<run-id>/model.pt`. The promoted model, the file
`logging.checkpoint_path`, is a copy of one of them: scoring, calibration and export use it. Promoting another run first
stores the weights that are replaced, so that every promotion can be undone.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import checkpoint
from core.config.compose import config_from_dict, flatten, recorded
from core.config.schema import AnyConfig
from core.errors import CheckpointError, ConfigError
from core.names import run_folder
from core.workspace import atomic_file, relative, remove_abandoned

log = logging.getLogger(__name__)

WEIGHTS_FILE = "model.pt"
# Settings that define the validation loss; if one of these differs, two losses cannot be compared.
_DEFINES_LOSS = (
    *("data.window", "data.scaling.", "scalogram."),
    *("model.patch", "model.mask", "model.instance_norm"),
)


def weights_path(root: Path, config: AnyConfig, run_id: str) -> Path:
    """The file with the best weights of a run. Raises ValueError for a name that is not valid."""
    return run_folder(root / config.logging.log_dir, run_id) / WEIGHTS_FILE


def promoted(root: Path, config: AnyConfig) -> dict[str, Any] | None:
    """The description of the promoted model; None if it is missing or damaged."""
    path = root / config.logging.checkpoint_path
    try:
        return checkpoint.verify(path)
    except CheckpointError as error:
        if path.exists():
            log.warning("%s; it is replaced", error.message)
        return None


@dataclass(frozen=True)
class Comparison:
    """Whether a run's model replaces the promoted one, and why."""

    replaces: bool
    reason: str


def compare(new: Mapping[str, Any], old: Mapping[str, Any] | None) -> Comparison:
    """new, old: descriptions of a run's model and of the promoted one (`core.checkpoint.describe`).

    A model replaces one of its own run, one with the same or a larger validation loss, and one whose loss cannot be
    compared with its own because it was trained on other data or predicts other values.
    """
    if old is None:
        return Comparison(True, "there was no model")
    if old["run_id"] == new["run_id"]:
        return Comparison(True, "it is a better epoch of the same run")
    if differing := _incomparable(new, old):
        return Comparison(True, f"the losses cannot be compared with run {old['run_id']}: {differing} differs")
    losses = f"validation loss {new['val_loss']:.5f}, run {old['run_id']} has {old['val_loss']:.5f}"
    return Comparison(new["val_loss"] <= old["val_loss"], losses)


def is_same(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool:
    """Whether two descriptions are of the same weights."""
    return one is not None and other is not None and one["sha256"] == other["sha256"]


def _incomparable(new: Mapping[str, Any], old: Mapping[str, Any]) -> str | None:
    """The first setting, or the validation data, that makes the losses of two models incomparable."""
    if old.get("val_loss") is None or new.get("data", {}).get("validation") != old.get("data", {}).get("validation"):
        return "the validation data"
    ours, theirs = _settings(new), _settings(old)
    keys = sorted(key for key in ours | theirs if key.startswith(_DEFINES_LOSS))
    return next((key for key in keys if ours.get(key) != theirs.get(key)), None)


def _settings(description: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a model. Keys that are newer than the model have their defaults, which is how it was trained."""
    try:
        return dict(flatten(recorded(config_from_dict(description["config"], source=description["run_id"]))))
    except ConfigError:
        return dict(flatten(description["config"]))


def promote(root: Path, config: AnyConfig, run_id: str) -> str | None:
    """Makes the weights of a run the model of its stream, together with the run's detector. Returns the previously
    promoted run.

    Raises CheckpointError if the run has no weights, or damaged ones.
    """
    source, target = weights_path(root, config, run_id), root / config.logging.checkpoint_path
    checkpoint.verify(source)
    before = keep_promoted(root, config)
    checkpoint.copy(source, target)
    detector, kept = checkpoint.detector_path(target), checkpoint.detector_path(source)
    if before == run_id:
        return before
    if kept.is_file():
        _copy(kept, detector)
    else:
        detector.unlink(missing_ok=True)  # it belongs to the previous model
    return before


def keep_promoted(root: Path, config: AnyConfig) -> str | None:
    """Copies the promoted model and its detector to the folder of their run. Returns the run; None if none is
    promoted."""
    path, description = root / config.logging.checkpoint_path, promoted(root, config)
    if description is None:
        return None
    own = weights_path(root, config, description["run_id"])
    if not _holds(own, description["sha256"]):
        checkpoint.copy(path, own)
    if (detector := checkpoint.detector_path(path)).is_file():
        _copy(detector, checkpoint.detector_path(own))
    return description["run_id"]


def remove_old_weights(root: Path, config: AnyConfig) -> None:
    """Removes the weights of all runs but the newest `training.keep_runs` and the promoted one; their logs stay. Also
    removes temporary files of killed runs."""
    limit, runs = config.training.keep_runs, root / config.logging.log_dir
    for folder in runs.iterdir():
        remove_abandoned(folder)
    found = (path for path in runs.glob(f"*/{WEIGHTS_FILE}") if not path.parent.is_symlink())  # such as `latest`
    held = sorted(found, key=lambda path: path.stat().st_mtime_ns)
    current = promoted(root, config)
    removable = [path for path in held if current is None or path.parent.name != current["run_id"]]
    for path in removable[: max(0, len(held) - limit)] if limit else ():
        log.info("removing %s: the weights of the newest %d runs are kept (training.keep_runs)",
                 relative(path, root), limit)  # fmt: skip
        for file in (path, checkpoint.sidecar_path(path), checkpoint.detector_path(path)):
            file.unlink(missing_ok=True)


def _holds(path: Path, sha256: str) -> bool:
    try:
        return checkpoint.verify(path)["sha256"] == sha256
    except CheckpointError:
        return False


def _copy(source: Path, target: Path) -> None:
    with atomic_file(target) as part:
        shutil.copyfile(source, part)
