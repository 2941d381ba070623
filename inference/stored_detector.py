"""Which detector judges: the one beside the checkpoint, where it fits, else one that is fitted anew and kept there."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from math import isclose
from pathlib import Path

from core.checkpoint import describe, detector_path
from core.config.compose import LoadedConfig
from core.config.schema import AnyConfig
from core.data.dataset import PART_NAMES, PartName, StreamData, load_stream_data
from core.data.files import matches
from core.data.overlap import shared_rows
from core.data.recording import RATE_TOLERANCE
from core.data.windows import WindowSet
from core.devices import threads
from core.devices.batching import size_as_trained
from core.devices.manager import DeviceManager
from core.devices.profiles import seed_and_fix
from core.devices.tables import load_tiers
from core.errors import DataError, OutputError
from inference.detector import Detector, fit
from inference.groups import normal_of
from inference.scoring import ScoringModel, load_scoring_model
from inference.stream_scores import normal_errors

log = logging.getLogger(__name__)

_NUM_NAMED = 3


def open_model(loaded: LoadedConfig, *, root: Path, checkpoint: Path | str | None) -> tuple[AnyConfig, ScoringModel]:
    """The model of a checkpoint, ready to score, and the configuration with its size. `root` / checkpoint; default: the
    configuration's.

    Raises CheckpointError for a checkpoint that is missing, torn or of another configuration.
    """
    path = root / (checkpoint or loaded.config.logging.checkpoint_path)
    config = size_as_trained(loaded, describe(path)["config"], load_tiers(root))
    plan = DeviceManager(config).plan(processes=1)
    threads.use(plan.threads, is_fixed=config.deterministic)
    seed_and_fix(config)
    scoring = load_scoring_model(path, plan, config=config)
    log.info("scoring with run %s on %s in 32 bit", scoring.run_id, plan.name)
    return config, scoring


def detector_and_data(config: AnyConfig, scoring: ScoringModel, *, root: Path) -> tuple[Detector, StreamData]:
    """The detector of a model, and the data with its test part loaded.

    One that `landfall calibrate` made serves until it is called back, and so does any where the calibration data is not
    at hand: only the test part is then loaded. Else the stored one serves as long as the data is what it was made of.
    Raises DataError for data that cannot be scored, or too little of it to fit a detector.
    """
    stored, reason = load_stored(detector_path(scoring.path))
    kept = stored
    if stored is not None and (reason := stored.fault(config, scoring.sha256)):
        stored = None
    here = parts_at_hand(config, root)
    if stored is not None and (stored.change or "calibration" not in here):
        _tell(stored)
        data = load_parts(config, scoring, ("test",), root=root)
    elif "calibration" not in here:
        raise DataError(
            f"the files of data.parts.calibration are not here to fit a detector: {reason}",
            hint=f"bring {detector_path(scoring.path).name} from the place of training, or these files",
        )
    else:
        data = load_parts(config, scoring, (*here, "test"), root=root)
        refuse_training_rows(config, scoring, data.parts["calibration"])
        reason = reason or stored.change_of_data(normal_of(data.parts))
        if reason:
            log.info("fitting a detector: %s", reason)
            stored = fit_from(config, scoring, data)
            _keep(stored, scoring, before=kept)
        else:
            log.info("judging by the detector of %s: its data is what it was", stored.made_at)
    return stored.with_alarms(config.scoring), data


def fit_from(config: AnyConfig, scoring: ScoringModel, data: StreamData) -> Detector:
    """A detector of the configuration's own normal parts, as far as they are loaded."""
    normal = normal_of(data.parts)
    missing = [name for name in learning_parts(config) if name not in normal]
    if missing:
        log.warning(
            "the files of %s are not here: the statistics of a score learn from fewer normal rows than at the place of "
            "training, and its threshold is another",
            " and ".join(missing),
        )
    errors = normal_errors(config, scoring, normal)
    return fit(config, scoring.sha256, normal, errors)


def refuse_training_rows(config: AnyConfig, scoring: ScoringModel, calibration: WindowSet) -> None:
    """Raises DataError for calibration rows that the model was trained on; `scoring.allow_training_rows` makes that a
    warning."""
    if scoring.training_rows is None:
        log.warning(
            "%s does not say which rows it was trained on: whether calibration rows are among them is not checked",
            scoring.path.name,
        )
        return
    shared = shared_rows(scoring.training_rows, calibration)
    if not shared:
        return
    named = ", ".join(f"rows {each}" for each in shared[:_NUM_NAMED])
    more = f" and {len(shared) - _NUM_NAMED} more ranges" if len(shared) > _NUM_NAMED else ""
    problem = (
        f"the model was trained on calibration data, {named}{more}: it errs less there than on new rows, so the "
        "threshold would be too low"
    )
    if not config.scoring.allow_training_rows:
        raise DataError(
            problem,
            path=shared[0].recording.path,
            hint="name other rows in data.parts.calibration (files, start, stop); scoring.allow_training_rows=true "
            "accepts such a threshold",
        )
    log.warning("%s; accepted, as scoring.allow_training_rows = true", problem)


def load_stored(path: Path) -> tuple[Detector | None, str]:
    """The detector of a file, or None and why there is none."""
    if not path.is_file():
        return None, f"there is no {path.name} yet"
    try:
        return Detector.load(path), ""
    except OutputError as error:
        return None, error.message


def learning_parts(config: AnyConfig) -> tuple[PartName, ...]:
    """The statistics learn from every normal row there is, so the parts of training are wanted too."""
    if config.scoring.model_weight == 1.0 and config.stream == "swinmae":
        return ("calibration",)
    return tuple(name for name in PART_NAMES if name != "test")


def parts_at_hand(config: AnyConfig, root: Path) -> tuple[PartName, ...]:
    """The parts to learn from whose files are here: a model may have been trained elsewhere."""
    data_root = (root / config.data.root).resolve()
    return tuple(
        name
        for name in learning_parts(config)
        if any(matches(pattern, data_root) for pattern in getattr(config.data.parts, name).files)
    )


def load_parts(config: AnyConfig, scoring: ScoringModel, parts: Sequence[PartName], *, root: Path) -> StreamData:
    """Raises DataError for vibration of another rate: the frequencies of a scalogram are fixed to the training's."""
    data = load_stream_data(config, root=root, parts=parts, scaler=scoring.scaler, run_id=scoring.run_id)
    found, trained = data.sampling_rate_hz, scoring.sampling_rate_hz
    if scoring.stream == "swinmae" and not isclose(found, trained, rel_tol=RATE_TOLERANCE):
        raise DataError(
            f"the data is sampled at {found:g} Hz, the model was trained at {trained:g} Hz",
            hint=f"set data.resample_hz={trained:g}, or train on data of this rate",
        )
    return data


def _tell(detector: Detector) -> None:
    files = detector.recordings
    told = f"{files[0]} and {len(files) - 1} more recordings" if len(files) > 1 else files[0]
    if detector.change:
        log.info(
            "judging by what `landfall calibrate` learned at %s from %s, not by data.parts.calibration; "
            "`landfall calibrate --from-config` returns to that",
            detector.made_at, told,
        )  # fmt: skip
    else:
        log.info("judging by the detector of %s, learned from %s: its data is not here", detector.made_at, told)


def _keep(detector: Detector, scoring: ScoringModel, *, before: Detector | None) -> None:
    """A calibration somebody asked for is not replaced by a scoring with other settings."""
    path = detector_path(scoring.path)
    if before is not None and before.change:
        if before.checkpoint_sha256 == scoring.sha256:
            log.warning("%s stays what `landfall calibrate` made it; this scoring goes without it", path.name)
            return
        log.warning("what `landfall calibrate` learned at %s was for another model: calibrate anew", before.made_at)
    try:
        detector.save(path)
    except OSError as error:
        log.warning("the detector is not kept in %s: %s", path.parent, error)
