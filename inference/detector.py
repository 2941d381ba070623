"""A detector: all that was learned from normal data and turns a model's errors into scores and alarms.

It is fitted once and kept beside the checkpoint, so that new files are judged where none of the training's are at hand,
by the same measure. The file is one `.npz` without pickles: arrays, a JSON header, and the sha256 of both.
"""

from __future__ import annotations

import hashlib
import json
import logging
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from core.config.renames import current_key
from core.config.schema import AnyConfig, Scoring, Stream
from core.data.dataset import PartName
from core.data.identity import digest_of_recording
from core.data.windows import WindowSet
from core.errors import DataError, OutputError
from core.reading import parse_json, refuse_packed
from core.workspace import atomic_file, json_text, utc_now
from inference.calibration import restricted, second_half
from inference.groups import POOLED, Levels, fit_levels, keys_of, lengths_of, level_of, recordings_in
from inference.part_scores import PartErrors, PartScores, channel_baseline, score_part
from inference.score_table import recordings_of, times_of
from inference.stream_scores import (
    STATISTICS,
    ReferenceFeatures,
    Statistics,
    alone_in,
    fit_statistics,
    reference_features,
)
from inference.thresholds import CalibratedThreshold, CalibrationSample, FalseAlarms, calibrate

log = logging.getLogger(__name__)

FORMAT_VERSION = 4
_NS_PER_S = 1e9
# Settings that decide which scores are alarms, and which alarms are events.
_ALARM_SETTINGS = {"threshold", "event_gap", "event_release", "event_min_length", "event_min_seconds"}
_OF_STATISTICS, _DIGEST, _HEADER = "statistics.", "sha256", "header"


@dataclass(frozen=True)
class Detector:
    """What makes scores of a model's errors, and alarms of scores.

    checkpoint_sha256: of the model whose errors it knows. settings: what it was made with, by their keys in a
    configuration; alarm_settings: those of the threshold and of events, which the sample can be asked for anew.
    baseline_c: the model's normal error of each channel, float64 (C,). statistics: None where only the model speaks.
    levels, alone: of recordings that are each judged by their own past (`inference.groups`). sample: the scores of the
    calibration data. halves: those of the first half, and of the second by a detector of the first; None where half is
    too little. data: an identity of the rows and windows of each normal part. recordings: those of calibration.
    change: what an explicit calibration changed; None where the configuration's own parts were learned from.
    """

    stream: Stream
    checkpoint_sha256: str
    settings: Mapping[str, Any]
    alarm_settings: Scoring
    baseline_c: np.ndarray
    statistics: Statistics | None
    levels: Levels
    alone: tuple[str, ...]
    sample: CalibrationSample
    halves: tuple[CalibrationSample, CalibrationSample] | None
    threshold: CalibratedThreshold
    data: Mapping[str, str]
    recordings: tuple[str, ...]
    made_at: str = field(default_factory=utc_now)
    change: Mapping[str, Any] | None = None

    def score(self, errors: PartErrors, windows: WindowSet) -> PartScores:
        """Scores of a part. errors: the model's, of these windows."""
        if self.alone and (unknown := [name for name in recordings_in(windows) if name not in self.alone]):
            log.warning(
                "%d recordings, such as %s, are unknown to the detector, which judges each recording by its own past: "
                "they are judged by that of all, and less sharply; `landfall calibrate` makes them known",
                len(unknown), unknown[0],
            )  # fmt: skip
        statistic_sc = self.statistics.errors(windows) if self.statistics else None
        return self.levels.alike(_scores(errors, self.baseline_c, statistic_sc, self.settings), windows)

    def with_alarms(self, settings: Scoring) -> Detector:
        """The same with another threshold or other events. Raises DataError where the sample cannot support it."""
        settings = alarm_settings(settings)
        if settings == self.alarm_settings:
            return self
        return replace(self, alarm_settings=settings, threshold=_calibrated(self.sample, self.halves, settings))

    # ------------------------------------------------------------------------------------------------------ fits here?
    def fault(self, config: AnyConfig, checkpoint_sha256: str) -> str | None:
        """Why it cannot judge for this model and configuration, in words; None where it can."""
        if checkpoint_sha256 != self.checkpoint_sha256:
            return "the one that is stored belongs to another model"
        asked = settings_of(config)
        differing = [f"{key} = {self.settings.get(key)}, now {asked[key]}" for key in asked
                     if self.settings.get(key) != asked[key]]  # fmt: skip
        return f"the one that is stored was made with {'; '.join(differing)}" if differing else None

    def change_of_data(self, normal: Mapping[PartName, WindowSet]) -> str | None:
        """What is no longer as it was learned from, in words; None where all that is at hand is."""
        changed = [name for name, part in normal.items() if identity(part) != self.data.get(name)]
        if changed:
            return f"the data of {' and '.join(changed)} is not what the one that is stored was made of"
        return None

    # ------------------------------------------------------------------------------------------------------- the file
    def save(self, path: Path) -> None:
        statistics = self.statistics.to_arrays() if self.statistics else {}
        arrays = {
            "baseline_c": self.baseline_c,
            **_sample_arrays("", self.sample),
            **{
                name: array
                for number, half in enumerate(self.halves or ())
                for name, array in _sample_arrays(f"half.{number}.", half).items()
            },
            "level_g": np.array(list(self.levels.level.values()), dtype=np.float32),
            "usual_level": self.levels.usual,
            **{_OF_STATISTICS + name: array for name, array in statistics.items()},
        }
        header = {
            "format_version": FORMAT_VERSION,
            "stream": self.stream,
            "checkpoint_sha256": self.checkpoint_sha256,
            "settings": dict(self.settings),
            "alarm_settings": self.alarm_settings.model_dump(mode="json", include=_ALARM_SETTINGS),
            "threshold": self.threshold.to_json(),
            "seconds_per_score": [each.seconds_per_score for each in (self.sample, *(self.halves or ()))],
            "span": self.sample.span,
            "groups": list(self.levels.level),
            "alone": list(self.alone),
            "data": dict(self.data),
            "recordings": list(self.recordings),
            "made_at": self.made_at,
            "change": self.change,
        }
        arrays[_HEADER] = np.frombuffer(json_text(header).encode("utf-8"), dtype=np.uint8)
        arrays[_DIGEST] = np.array(_digest(arrays))
        with atomic_file(path) as part, part.open("wb") as file:
            np.savez(file, **arrays)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Raises OutputError for a file that is missing, torn, or of another Landfall."""
        try:
            with path.open("rb") as file:
                refuse_packed(file)
                with np.load(file, allow_pickle=False) as held:
                    arrays = dict(held)
            digest = str(arrays.pop(_DIGEST))
            header = parse_json(arrays[_HEADER].tobytes())
            version = header["format_version"]
        except (OSError, ValueError, EOFError, KeyError, TypeError, zipfile.BadZipFile) as error:
            raise _Unusable(path, f"cannot be read: {error}") from error
        if version != FORMAT_VERSION:
            raise _Unusable(path, f"has format version {version}, this Landfall reads {FORMAT_VERSION}")
        if digest != _digest(arrays):
            raise _Unusable(path, "is torn or was changed: its sha256 is not the one it holds")
        try:
            return cls._of(header, arrays)
        except (KeyError, ValueError, TypeError) as error:
            raise _Unusable(path, f"is no detector: {error}") from error

    @classmethod
    def _of(cls, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        statistics = {
            name.removeprefix(_OF_STATISTICS): array
            for name, array in arrays.items()
            if name.startswith(_OF_STATISTICS)
        }
        threshold = dict(header["threshold"])
        threshold["expected"] = FalseAlarms(**threshold["expected"])
        if threshold["achieved"] is not None:
            threshold["achieved"] = FalseAlarms(**threshold["achieved"])
        sample, *halves = (
            CalibrationSample(arrays[f"{of}sample_n"], arrays[f"{of}segment_n"], seconds, header["span"])
            for of, seconds in zip(("", "half.0.", "half.1."), header["seconds_per_score"], strict=False)
        )
        return cls(
            stream=header["stream"],
            checkpoint_sha256=header["checkpoint_sha256"],
            settings={current_key(key): value for key, value in header["settings"].items()},
            alarm_settings=Scoring(**header["alarm_settings"]),
            baseline_c=arrays["baseline_c"],
            statistics=STATISTICS[header["stream"]].from_arrays(statistics) if statistics else None,
            levels=Levels(dict(zip(header["groups"], arrays["level_g"], strict=True)), arrays["usual_level"][()]),
            alone=tuple(header["alone"]),
            sample=sample,
            halves=tuple(halves) or None,
            threshold=CalibratedThreshold(**threshold),
            data=header["data"],
            recordings=tuple(header["recordings"]),
            made_at=header["made_at"],
            change=header["change"],
        )


class _Unusable(OutputError):
    def __init__(self, path: Path, problem: str):
        super().__init__(f"detector {path}: {problem}", hint="remove it; scoring makes a new one of normal data")


# -------------------------------------------------------------------------------------------------------------- learned
def fit(
    config: AnyConfig,
    checkpoint_sha256: str,
    normal: Mapping[PartName, WindowSet],
    errors: Mapping[PartName, PartErrors],
) -> Detector:
    """Learns from the normal parts, `calibration` among them. errors: the model's, of that and perhaps of others.

    Calibration scores are made by what was learned without them, as those of new data will be. The whole is then
    fitted once more to the first half of the calibration data and tested on the second.
    Raises DataError where the calibration data cannot support a threshold.
    """
    features = reference_features(config, normal)
    detector, _ = fit_with_scores(config, checkpoint_sha256, normal, errors, features)
    halves = _halves(config, checkpoint_sha256, normal, errors, features, detector.alone)
    threshold = _calibrated(detector.sample, halves, detector.alarm_settings)
    return replace(detector, halves=halves, threshold=threshold)


def fit_with_scores(
    config: AnyConfig,
    checkpoint_sha256: str,
    normal: Mapping[PartName, WindowSet],
    errors: Mapping[PartName, PartErrors],
    features: ReferenceFeatures | None = None,
) -> tuple[Detector, np.ndarray]:
    """As `fit`, without the test on the second half; and the scores (S,) of the part `calibration`. features: of the
    normal parts of vibration, where they are known."""
    calibration, settings = normal["calibration"], settings_of(config)
    alone = alone_in(config.stream, normal.values())
    second_s = second_half(calibration, errors["calibration"], alone)
    learn = settings["scoring.model_weight"] < 1.0

    def judged_by(past_of: tuple[str, ...]) -> tuple[Statistics | None, np.ndarray]:
        """Statistics, and calibration scores (S,), those of each half without its own model errors."""
        statistics, statistic_sc = fit_statistics(config, normal, past_of, features) if learn else (None, None)
        of_half = [
            _scores(errors["calibration"], channel_baseline(errors, without_s=half_s), statistic_sc, settings).score_s
            for half_s in (~second_s, second_s)
        ]
        return statistics, np.where(second_s, of_half[1], of_half[0])

    statistics, score_s = judged_by(alone)
    score_s, levels = fit_levels(score_s, second_s, calibration, alone)
    if alone:
        of_all, score_of_all_s = judged_by(())
        statistics = statistics.joined(of_all) if learn else None
        pooled = level_of(score_of_all_s)
        levels = replace(
            levels, level={**levels.level, POOLED: levels.usual if np.isnan(pooled) else np.float32(pooled)}
        )
        is_alone_s = np.repeat([key != POOLED for key in keys_of(calibration, alone)], lengths_of(calibration))
        score_s = np.where(is_alone_s, score_s, score_of_all_s * (levels.usual / levels.level[POOLED]))
    sample = calibration_sample(score_s, errors["calibration"], calibration, config.scoring.smoothing_span)
    detector = Detector(
        stream=config.stream,
        checkpoint_sha256=checkpoint_sha256,
        settings=settings,
        alarm_settings=alarm_settings(config.scoring),
        baseline_c=channel_baseline(errors),
        statistics=statistics,
        levels=levels,
        alone=alone,
        sample=sample,
        halves=None,
        threshold=calibrate(sample, config.scoring),
        data={name: identity(part) for name, part in normal.items()},
        recordings=tuple(recordings_in(calibration)),
    )
    return detector, score_s


def _halves(
    config: AnyConfig,
    checkpoint_sha256: str,
    normal: Mapping[PartName, WindowSet],
    errors: Mapping[PartName, PartErrors],
    features: ReferenceFeatures,
    alone: tuple[str, ...],
) -> tuple[CalibrationSample, CalibrationSample] | None:
    """The sample of a detector that is fitted to the first half of the calibration data, and its scores of the second
    half; None where half is too little."""
    whole = normal["calibration"], errors["calibration"]
    second_s = second_half(*whole, alone)
    if not second_s.any() or second_s.all():
        return None
    (first, first_errors), (second, second_errors) = (restricted(*whole, half_s) for half_s in (~second_s, second_s))
    normal, errors = {**normal, "calibration": first}, {**errors, "calibration": first_errors}
    try:
        with _without_messages():  # they were logged for the whole
            rehearsed, _ = fit_with_scores(config, checkpoint_sha256, normal, errors, features.restricted(~second_s))
            score_s = rehearsed.score(second_errors, second).score_s
    except DataError:
        return None
    sample = calibration_sample(score_s, second_errors, second, config.scoring.smoothing_span)
    return (rehearsed.sample, sample) if len(sample.score_n) else None


def _calibrated(
    sample: CalibrationSample, halves: tuple[CalibrationSample, CalibrationSample] | None, settings: Scoring
) -> CalibratedThreshold:
    """The threshold, and the false alarms on the second half of one that is set by the first."""
    threshold, achieved = calibrate(sample, settings), None
    if halves is not None:
        first, second = halves
        with suppress(DataError):
            achieved = second.false_alarms(calibrate(first, settings).value, settings)
    return threshold.with_achieved(achieved)


def _sample_arrays(prefix: str, sample: CalibrationSample) -> dict[str, np.ndarray]:
    return {f"{prefix}sample_n": sample.score_n, f"{prefix}segment_n": sample.segment_n}


@contextmanager
def _without_messages() -> Iterator[None]:
    package = logging.getLogger("inference")
    before = package.level
    package.setLevel(logging.ERROR)
    try:
        yield
    finally:
        package.setLevel(before)


def alarm_settings(settings: Scoring) -> Scoring:
    """Only what decides which scores are alarms, and which alarms are events; the rest by default."""
    return Scoring(**settings.model_dump(include=_ALARM_SETTINGS))


def settings_of(config: AnyConfig) -> dict[str, Any]:
    """What decides how errors become scores, by its keys in the configuration."""
    return {
        "scoring.model_weight": config.scoring.model_weight,
        "scoring.smoothing_span": config.scoring.smoothing_span,
        "scoring.look_ahead": config.scoring.look_ahead,
        "scoring.operating_context": config.scoring.operating_context,
        "scoring.charts": config.scoring.charts.model_dump(mode="json"),
        "data.context_channels": list(config.data.context_channels),
        "data.score_stride": config.score_stride,
    }


def _scores(
    errors: PartErrors, baseline_c: np.ndarray, statistic_sc: np.ndarray | None, settings: Mapping[str, Any]
) -> PartScores:
    share, span = settings["scoring.model_weight"], settings["scoring.smoothing_span"]
    return score_part(errors, baseline_c, smoothing_span=span, statistic_sc=statistic_sc, share=share)


def calibration_sample(score_s: np.ndarray, errors: PartErrors, windows: WindowSet, span: int) -> CalibrationSample:
    """Scores (S,) of normal data as a sample, without entries that have none. span: of the means in the scores."""
    series = windows.series
    known_s = ~np.isnan(score_s)
    row_s = errors.row_s[known_s]
    recording_s = recordings_of(series, row_s)
    step_m = np.diff(times_of(series, row_s))[np.diff(recording_s) == 0] if len(row_s) else np.empty(0)
    stamps = {series.recordings[index].time_source for index in np.unique(recording_s)}
    return CalibrationSample(
        score_s[known_s].astype(np.float32),
        errors.stretch_s[known_s],
        seconds_per_score=float(np.median(step_m)) / _NS_PER_S if len(step_m) and "index" not in stamps else None,
        span=span,
    )


# ------------------------------------------------------------------------------------------------------------- identity
def identity(windows: WindowSet) -> str:
    """Digest of the rows and windows of a part: the fingerprints of its recordings, where it lies in each, and where
    its windows begin; not where the files lie."""
    segments, recordings = windows.segments, windows.series.recordings
    made_of = {
        "recordings": [digest_of_recording(recordings[index]) for index in segments.recordings],
        "stretches": segments.local_k2.tolist(),
        "window": windows.window,
        "starts": hashlib.sha256(windows.local_starts().tobytes()).hexdigest(),
    }
    return hashlib.sha256(json.dumps(made_of).encode("utf-8")).hexdigest()


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    found = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        found.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()
