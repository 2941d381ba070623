"""Fits the detector to newer reference data: `python -m inference.recalibrate --stream patchtst [key=value …]`.

The model does not change. Baselines, control charts and threshold are fitted to the rows of `data.splits.calibration`,
and are used until `--undo` or `--from-config`.
"""

from __future__ import annotations

import argparse
import logging
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.checkpoint import describe, detector_path
from core.cli import (
    add_checkpoint_argument,
    add_config_arguments,
    print_json,
    root_of,
    root_words,
    run_command,
    with_config,
)
from core.config.compose import LoadedConfig
from core.config.data import Splits
from core.config.former_keys import current_key
from core.config.schema import STREAMS, AnyConfig
from core.errors import EXIT_OK, OutputError, UsageError
from core.lock import Lock
from core.numbers import ratio_in_words
from core.reproducibility import prepare_process
from core.switching import finish
from core.workspace import relative, write_bytes

if TYPE_CHECKING:
    from core.data.windows import WindowSet
    from inference.detector.detector import Detector
    from inference.entries import SplitErrors
    from inference.false_alarms import FalseAlarms

log = logging.getLogger(__name__)

_SPLIT = "data.splits.calibration"
# The process has become quieter if high scores are below this share of the old ones. The share of alarms alone does not
# show this, because a threshold may be high by chance.
_QUIETER = 0.8
# The quantile of scores that is compared: half of the scores of a chart may be next to zero.
_HIGH = 0.9


def recalibrate(loaded: LoadedConfig, *, root: Path) -> dict[str, Any]:
    """Fits a detector to the rows of `data.splits.calibration` alone, and stores it. Returns stream, file, time,
    threshold and change of the detector.

    Raises CheckpointError and DataError as scoring does; then nothing is replaced.
    """
    from core.devices import memory
    from inference.detector.file import load_stored
    from inference.detector.fitting import fit
    from inference.detector.stored import load_splits, open_model, refuse_training_rows
    from inference.model_errors import model_errors

    config, scoring = open_model(loaded, root=root)
    path = detector_path(scoring.path)
    before, _ = load_stored(path)
    if before is not None and before.checkpoint_sha256 != scoring.sha256:
        before = None
    reference = load_splits(_calibration_alone(config), scoring, ("calibration",), root=root).splits
    windows, split = reference["calibration"], config.data.splits.calibration
    refuse_training_rows(config, scoring, windows)
    log.info(
        "calibrating run %s with %s to %s of the files of data.splits.calibration",
        scoring.run_id, split.start, split.stop,
    )  # fmt: skip
    with memory.applied(scoring.plan):
        errors = model_errors(config, scoring, windows, "calibration")
        errors_of = partial(model_errors, config, scoring, label="injected faults")
        detector = fit(config, scoring.sha256, reference, {"calibration": errors}, errors_of)
        known = before if before is not None and before.mismatch(config, scoring.sha256) is None else None
        change = {"learned_from": list(detector.recordings), **_change(known, detector, errors, windows)}
    return _replace(path, replace(detector, change=change), root=root)


def from_config(loaded: LoadedConfig, *, root: Path) -> dict[str, Any]:
    """Stores a detector of the splits of the configuration again: a newly fitted one if their files are available,
    otherwise the one from before the first calibration. Returns and raises as `recalibrate`."""
    from core.devices import memory
    from inference.detector.file import load_detector
    from inference.detector.stored import available_splits, fit_from, load_splits, open_model, refuse_training_rows

    config, scoring = open_model(loaded, root=root)
    path = detector_path(scoring.path)
    available = available_splits(config, root)
    if "calibration" not in available and (original := original_path(path)).is_file():
        detector = load_detector(original)
        if detector.mismatch(config, scoring.sha256) is None:
            return _replace(path, detector, root=root)
    splits = dict.fromkeys((*available, "calibration", "test"))
    data = load_splits(config, scoring, tuple(splits), root=root)
    refuse_training_rows(config, scoring, data.splits["calibration"])
    with memory.applied(scoring.plan):
        detector = fit_from(config, scoring, data)
    return _replace(path, detector, root=root)


def undo(loaded: LoadedConfig, *, root: Path) -> dict[str, Any]:
    """Restores the detector from before the latest calibration; the latest becomes the previous one. No data is
    needed. Returns as `recalibrate`.

    Raises UsageError if nothing was calibrated, OutputError for a previous detector that is damaged or of another
    model.
    """
    from inference.detector.file import load_detector

    model = root / loaded.config.logging.checkpoint_path
    path = detector_path(model)
    previous = previous_detector_path(path)
    if not previous.is_file():
        raise UsageError(f"there is no {previous.name}: nothing was calibrated", hint="`landfall calibrate` first")
    before = load_detector(previous)
    if before.checkpoint_sha256 != describe(model).get("sha256"):
        raise OutputError(
            f"{relative(previous, root)} belongs to another model", hint="`landfall calibrate --from-config` fits one"
        )
    restored, undone = previous.read_bytes(), path.read_bytes() if path.is_file() else None
    with _writing(path):
        write_bytes(path, restored)
        if undone is not None:
            write_bytes(previous, undone)
    return _report(path, before, root=root)


def previous_detector_path(path: Path) -> Path:
    """The file of a detector that a calibration replaced."""
    return path.with_name(path.name.replace(".detector.", ".detector.previous."))


def original_path(path: Path) -> Path:
    """The file of the newest detector that was not fitted by `landfall calibrate`. Calibrations do not replace it."""
    return path.with_name(path.name.replace(".detector.", ".detector.original."))


def _calibration_alone(config: AnyConfig) -> AnyConfig:
    """The configuration without the other splits, so that no other split uses rows of the calibration split."""
    splits = Splits(calibration=config.data.splits.calibration)
    return config.model_copy(update={"data": config.data.model_copy(update={"splits": splits})})


def _replace(path: Path, detector: Detector, *, root: Path) -> dict[str, Any]:
    from inference.detector.file import load_stored, save_detector

    replaced, _ = load_stored(path)
    with _writing(path):
        if replaced is not None:  # an unreadable detector does not replace a readable one
            for kept in (previous_detector_path(path), *([original_path(path)] if replaced.change is None else [])):
                write_bytes(kept, path.read_bytes())
        save_detector(detector, path)
    return _report(path, detector, root=root)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error}", hint="check its permissions, and the disk") from error


def _report(path: Path, detector: Detector, *, root: Path) -> dict[str, Any]:
    log.info("%s is used from now on, threshold %.3g", relative(path, root), detector.threshold.value)
    said = detector.change["sentence"] if detector.change else detector.threshold.statement
    for line in said.splitlines():
        log.info("%s", line)
    return {
        "stream": detector.stream,
        "detector": relative(path, root),
        "made_at": detector.made_at,
        "threshold": detector.threshold.to_json(),
        "change": detector.change,
    }


# ---------------------------------------------------------------------------------------------------------------- drift
def _change(before: Detector | None, now: Detector, errors: SplitErrors, windows: WindowSet) -> dict[str, Any]:
    """Compares the new reference data with the old, by scores of the old detector.

    threshold: old and new threshold. old_on_new: share of the new reference scores above the old threshold.
    high_score_ratio: 90 % quantile of the new reference scores, divided by that of the old ones. The last two describe
    the process. The new threshold does not, because its scores are relative to the new reference data.
    """
    import numpy as np

    from inference.detector.detector import calibration_sample

    if before is None:
        return {"sentence": "There was no earlier detector for this model and these settings: drift is unknown."}
    sample = calibration_sample(before.score(errors, windows).score_s, errors, windows, before.sample.span)
    achieved = sample.false_alarms(before.threshold.value, before.alarm_settings)
    ratio = float(np.quantile(sample.score_n, _HIGH) / np.quantile(before.sample.score_n, _HIGH))
    return {
        "before_made_at": before.made_at,
        "threshold": {"old": before.threshold.value, "new": now.threshold.value},
        "old_on_new": asdict(achieved),
        "high_score_ratio": ratio,
        "sentence": drift_in_words(achieved, before.threshold.false_alarm_rate, ratio),
    }


def drift_in_words(achieved: FalseAlarms, rate: float, ratio: float) -> str:
    """The drift as a sentence. achieved: false alarms of the old threshold on the new data. rate: the limit for which
    the threshold was set. ratio: new high scores divided by old ones."""
    from inference.calibrated_threshold import percent, rate_in_words

    found = "No clear drift"
    if achieved.low > rate:
        found = "The process has drifted"
    elif achieved.high < rate and ratio < _QUIETER:
        found = "The process has become quieter"
    return (
        f"{found}: with the old threshold {rate_in_words(achieved)} of the new reference scores would have been false "
        f"alarms (limit: {percent(rate)}); high scores (90 % quantile) are {ratio_in_words(ratio)} times the "
        "old ones"
    )


# --------------------------------------------------------------------------------------------------------- command line
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="landfall calibrate", description="Fits the detector to newer reference data; the model does not change."
    )
    parser.add_argument("--stream", choices=STREAMS, required=True, help="stream of the detector")
    add_checkpoint_argument(parser)
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--undo", action="store_true", help="restore the detector from before the latest calibration")
    instead.add_argument("--from-config", action="store_true", help="fit to the configuration's own splits again")
    add_config_arguments(parser, example="data.splits.calibration.files=[data/fdc/newer_*.csv]")
    return run_command(with_config(_calibrate), parser, argv)


def _calibrate(arguments: argparse.Namespace, loaded: LoadedConfig) -> int:
    calibrate = undo if arguments.undo else from_config if arguments.from_config else recalibrate
    root, loaded = root_of(arguments), loaded.with_checkpoint(arguments.checkpoint)
    if calibrate is recalibrate and not _names_newer_data(arguments, loaded, root):
        raise UsageError(
            "no newer data was passed",
            hint=f"{_SPLIT}.files=[data/newer_*.csv] {_SPLIT}.start=0.0, or --from-config for the configuration's own",
        )
    if arguments.owns_process and not arguments.undo:
        prepare_process(loaded.config)
    with Lock(command="landfall calibrate") as lock:
        lock.take(root / loaded.config.logging.checkpoint_path, key="--checkpoint")
        finish(root)
        outcome = calibrate(loaded, root=root)
    print_json(outcome, indent=2)
    named = ["--config", arguments.config] if arguments.config else []
    checkpoint = ["--checkpoint", arguments.checkpoint] if arguments.checkpoint else []
    others = [override for override in arguments.overrides if not current_key(override).startswith(_SPLIT)]
    words = ["--stream", arguments.stream, *named, *checkpoint, *root_words(arguments), *others]
    log.info("next: %s", shlex.join(["landfall", "score", *words]))
    return EXIT_OK


def _names_newer_data(arguments: argparse.Namespace, loaded: LoadedConfig, root: Path) -> bool:
    """Whether the calibration split is another one than in training: fitted to that one alone, a detector would have
    less reference data than before."""
    if any(current_key(override).startswith(_SPLIT) for override in arguments.overrides):
        return True
    if not arguments.config:
        return False
    trained = describe(root / loaded.config.logging.checkpoint_path).get("config", {}).get("data", {})
    before, now = trained.get("splits", {}).get("calibration", {}), loaded.config.data.splits.calibration
    same = {"files": list(now.files), "start": now.start, "stop": now.stop}
    return trained.get("root") != loaded.config.data.root or any(before.get(key) != same[key] for key in same)


if __name__ == "__main__":
    sys.exit(main())
