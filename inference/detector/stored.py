"""Selects the detector for scoring: the stored one if it matches model, configuration and data, otherwise a newly
fitted one.

The detector of a model is stored next to its checkpoint. A detector of the control charts alone is not stored: scoring
fits it each time.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from math import isclose
from pathlib import Path

import torch

from core.checkpoint import describe, detector_path
from core.config.compose import LoadedConfig
from core.config.hardware import load_tiers, size_as_trained
from core.config.schema import AnyConfig
from core.data.dataset import StreamData, load_stream_data
from core.data.in_use import has_files
from core.data.overlap import shared_rows
from core.data.recording import RATE_TOLERANCE
from core.data.splits import SPLIT_NAMES, SplitName
from core.data.windows import WindowSet
from core.devices.manager import DeviceManager
from core.devices.plan import DevicePlan
from core.errors import DataError
from core.reproducibility import make_reproducible
from inference.detector.detector import Detector
from inference.detector.file import load_stored, save_detector
from inference.detector.fitted_charts import fitted_charts, of_charts_alone
from inference.detector.fitting import fit
from inference.groups import reference_of
from inference.model_errors import model_errors, reference_errors
from inference.scoring import ScoringModel, load_scoring_model

log = logging.getLogger(__name__)

_NUM_NAMED = 3


def open_model(loaded: LoadedConfig, *, root: Path) -> tuple[AnyConfig, ScoringModel]:
    """The configuration with the size of its model, and the model, ready to score.

    Raises CheckpointError for a checkpoint that is missing, damaged or of another configuration.
    """
    path = root / loaded.config.logging.checkpoint_path
    config = size_as_trained(loaded, describe(path)["config"], load_tiers(root))
    plan = _prepared(config)
    scoring = load_scoring_model(path, plan, config=config)
    log.info("model of run %s, on %s in float32", scoring.run_id, plan.name)
    return config, scoring


def _prepared(config: AnyConfig) -> DevicePlan:
    """The device. Sets threads and seeds from the configuration."""
    plan = DeviceManager(config).plan(processes=1)
    torch.set_num_threads(plan.threads)
    make_reproducible(config)
    return plan


# -------------------------------------------------------------------------------------------------------- charts alone
def charts_and_data(config: AnyConfig, *, root: Path) -> tuple[Detector, StreamData, DevicePlan]:
    """`fitted_charts`, and the device, which is the CPU."""
    plan = _prepared(of_charts_alone(config))
    return *fitted_charts(config, root=root), plan


# -------------------------------------------------------------------------------------------------- detector of a model
def detector_and_data(config: AnyConfig, scoring: ScoringModel, *, root: Path) -> tuple[Detector, StreamData]:
    """The detector of a model, and the data with its test split loaded.

    A detector that `landfall calibrate` fitted is used until that is undone. If the calibration data is missing, the
    stored detector is used, and only the test split is loaded. Otherwise the stored detector is used unless the
    reference data has changed.
    Raises DataError for data that cannot be scored, or is too small to fit a detector.
    """
    stored, reason = load_stored(detector_path(scoring.path))
    kept = stored
    if stored is not None and (reason := stored.mismatch(config, scoring.sha256)):
        stored = None
    available = available_splits(config, root)
    if stored is not None and (stored.change or "calibration" not in available):
        _log_use(stored)
        data = load_splits(config, scoring, ("test",), root=root)
    elif "calibration" not in available:
        raise DataError(
            f"the files of data.splits.calibration are not here to fit a detector: {reason}",
            hint=f"copy {detector_path(scoring.path).name}, or these files, from the machine of the training",
        )
    else:
        data = load_splits(config, scoring, (*available, "test"), root=root)
        refuse_training_rows(config, scoring, data.splits["calibration"])
        reason = reason or stored.change_of_data(reference_of(data.splits))
        if reason:
            log.info("fitting a detector: %s", reason)
            stored = fit_from(config, scoring, data)
            _keep(stored, scoring, before=kept)
        else:
            log.info("scoring with the detector of %s: its data has not changed", stored.made_at)
    return stored.with_alarms(config.scoring), data


def fit_from(config: AnyConfig, scoring: ScoringModel, data: StreamData) -> Detector:
    """A detector fitted to the loaded reference splits. Logs a warning for those that are missing."""
    reference = reference_of(data.splits)
    missing = [name for name in SPLIT_NAMES if name != "test" and name not in reference]
    if missing:
        log.warning(
            "the files of %s are missing: control charts are fitted to fewer reference rows than on the training "
            "machine, and the threshold differs",
            " and ".join(missing),
        )
    errors = reference_errors(config, scoring, reference)
    errors_of = partial(model_errors, config, scoring, label="injected faults")
    return fit(config, scoring.sha256, reference, errors, errors_of)


def refuse_training_rows(config: AnyConfig, scoring: ScoringModel, calibration: WindowSet) -> None:
    """Raises DataError for calibration rows that the model was trained on; with `scoring.allow_training_rows`, logs a
    warning instead."""
    if scoring.training_rows is None:
        log.warning(
            "%s does not contain the rows it was trained on, so it is not checked whether calibration rows are among "
            "them",
            scoring.path.name,
        )
        return
    shared = shared_rows(scoring.training_rows, calibration)
    if not shared:
        return
    named = ", ".join(f"rows {each}" for each in shared[:_NUM_NAMED])
    more = f" and {len(shared) - _NUM_NAMED} more ranges" if len(shared) > _NUM_NAMED else ""
    problem = (
        f"the model was trained on calibration data, {named}{more}: its errors are smaller there than on new rows, so "
        "the threshold would be too low"
    )
    if not config.scoring.allow_training_rows:
        raise DataError(
            problem,
            path=shared[0].recording.path,
            hint="select other rows in data.splits.calibration (files, start, stop); scoring.allow_training_rows=true "
            "accepts such a threshold",
        )
    log.warning("%s; accepted, because scoring.allow_training_rows = true", problem)


def available_splits(config: AnyConfig, root: Path) -> tuple[SplitName, ...]:
    """The reference splits whose files are available: a model may have been trained on another machine."""
    return tuple(name for name in SPLIT_NAMES if name != "test" and has_files(config, name, root))


def load_splits(config: AnyConfig, scoring: ScoringModel, splits: Sequence[SplitName], *, root: Path) -> StreamData:
    """The data of some splits, with the scaler of the model.

    Raises DataError for vibration with another sampling rate than in training, which fixes the scalogram's frequencies.
    """
    data = load_stream_data(config, root=root, splits=splits, scaler=scoring.scaler, run_id=scoring.run_id)
    found, trained = data.sampling_rate_hz, scoring.sampling_rate_hz
    if scoring.stream == "swinmae" and not isclose(found, trained, rel_tol=RATE_TOLERANCE):
        raise DataError(
            f"the data is sampled at {found:g} Hz, the model was trained at {trained:g} Hz",
            hint=f"correct the sampling rate if it is wrong; if not, set data.resample_hz={trained:g}, or train on "
            "data of this rate",
        )
    return data


def _log_use(detector: Detector) -> None:
    files = detector.recordings
    named = f"{files[0]} and {len(files) - 1} more recordings" if len(files) > 1 else files[0]
    if detector.change:
        log.info(
            "scoring with the detector that `landfall calibrate` fitted at %s to %s, not to data.splits.calibration; "
            "`landfall calibrate --from-config` fits one to that",
            detector.made_at, named,
        )  # fmt: skip
    else:
        log.info("scoring with the detector of %s, fitted to %s: its data is missing", detector.made_at, named)


def _keep(detector: Detector, scoring: ScoringModel, *, before: Detector | None) -> None:
    """Stores a detector. Scoring with other settings does not replace a detector of `landfall calibrate`."""
    path = detector_path(scoring.path)
    if before is not None and before.change:
        if before.checkpoint_sha256 == scoring.sha256:
            log.warning("%s is kept, because `landfall calibrate` fitted it; this scoring does not use it", path.name)
            return
        log.warning("the detector of %s was calibrated for another model: calibrate again", before.made_at)
    try:
        save_detector(detector, path)
    except OSError as error:
        log.warning("the detector is not stored in %s: %s", path.parent, error)
