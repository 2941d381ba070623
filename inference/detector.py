"""A detector: all that was learned from normal data and turns a model's errors into scores and alarms.

It is fitted once and kept beside the checkpoint, so that new files are judged where none of the training's are at hand,
by the same measure. The file is one `.npz` without pickles: arrays, a JSON header, and the sha256 of both.
"""

from __future__ import annotations

import hashlib
import json
import logging
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from core.config.schema import AnyConfig, Stream, Threshold
from core.data.dataset import PartName
from core.data.identity import digest_of_recording
from core.data.windows import Series, WindowSet
from core.errors import OutputError
from core.workspace import atomic_file, json_text, utc_now
from inference.groups import POOLED, Levels, fit_levels, keys_of, lengths_of, level_of, recordings_in
from inference.part_scores import PartErrors, PartScores, channel_baseline, score_part
from inference.score_table import recordings_of, starts_of, times_of
from inference.stream_scores import STATISTICS, Statistics, fit_statistics
from inference.thresholds import Achieved, CalibratedThreshold, CalibrationSample

log = logging.getLogger(__name__)

FORMAT_VERSION = 3
_NS_PER_S = 1e9
_OF_STATISTICS, _DIGEST, _HEADER = "statistics.", "sha256", "header"


@dataclass(frozen=True)
class Detector:
    """What makes scores of a model's errors, and alarms of scores.

    checkpoint_sha256: of the model whose errors it knows. settings: what it was made with, by their keys in a
    configuration; `threshold_settings` those of the threshold, which the sample can be asked for anew.
    baseline_c: the model's normal error of each channel, float64 (C,). statistics: None where only the model speaks.
    levels, alone: of recordings that are each judged by their own past (`inference.groups`). sample: the scores of the
    calibration data. data: an identity of the rows and windows of each normal part. recordings: those of calibration.
    change: what an explicit calibration changed; None where the configuration's own parts were learned from.
    """

    stream: Stream
    checkpoint_sha256: str
    settings: Mapping[str, Any]
    threshold_settings: Threshold
    baseline_c: np.ndarray
    statistics: Statistics | None
    levels: Levels
    alone: tuple[str, ...]
    sample: CalibrationSample
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

    def with_threshold(self, settings: Threshold) -> Detector:
        """The same with another kind of threshold. Raises DataError where the sample cannot support it."""
        if settings == self.threshold_settings:
            return self
        return replace(self, threshold_settings=settings, threshold=self.sample.threshold(settings))

    # ------------------------------------------------------------------------------------------------------ fits here?
    def fault(self, config: AnyConfig, checkpoint_sha256: str) -> str | None:
        """Why it cannot judge for this model and configuration, in words; None where it can."""
        if checkpoint_sha256 != self.checkpoint_sha256:
            return "the one that is stored belongs to another model"
        asked = settings_of(config)
        differing = [f"{key} = {self.settings.get(key)}, now {asked[key]}" for key in asked
                     if self.settings.get(key) != asked[key]]  # fmt: skip
        return f"the one that is stored was made with {'; '.join(differing)}" if differing else None

    def change_of_data(self, normal: Mapping[PartName, WindowSet], alone: Collection[str]) -> str | None:
        """What is no longer as it was learned from, in words; None where all that is at hand is."""
        changed = [name for name, part in normal.items() if identity(part) != self.data.get(name)]
        if changed:
            return f"the data of {' and '.join(changed)} is not what the one that is stored was made of"
        if normal.keys() == self.data.keys() and tuple(alone) != self.alone:
            return "other recordings than then are judged each by its own past"
        return None

    # ------------------------------------------------------------------------------------------------------- the file
    def save(self, path: Path) -> None:
        statistics = self.statistics.to_arrays() if self.statistics else {}
        arrays = {
            "baseline_c": self.baseline_c,
            "sample_n": self.sample.score_n,
            "level_g": np.array(list(self.levels.level.values()), dtype=np.float32),
            "usual_level": self.levels.usual,
            **{_OF_STATISTICS + name: array for name, array in statistics.items()},
        }
        header = {
            "format_version": FORMAT_VERSION,
            "stream": self.stream,
            "checkpoint_sha256": self.checkpoint_sha256,
            "settings": dict(self.settings),
            "threshold_settings": self.threshold_settings.model_dump(mode="json"),
            "threshold": asdict(self.threshold),
            "seconds_per_score": self.sample.seconds_per_score,
            "in_time": self.sample.in_time,
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
            with np.load(path, allow_pickle=False) as held:
                arrays = dict(held)
            digest = str(arrays.pop(_DIGEST))
            header = json.loads(arrays[_HEADER].tobytes().decode("utf-8"))
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
        if threshold["achieved"] is not None:
            threshold["achieved"] = Achieved(**threshold["achieved"])
        return cls(
            stream=header["stream"],
            checkpoint_sha256=header["checkpoint_sha256"],
            settings=header["settings"],
            threshold_settings=Threshold(**header["threshold_settings"]),
            baseline_c=arrays["baseline_c"],
            statistics=STATISTICS[header["stream"]].from_arrays(statistics) if statistics else None,
            levels=Levels(dict(zip(header["groups"], arrays["level_g"], strict=True)), arrays["usual_level"][()]),
            alone=tuple(header["alone"]),
            sample=CalibrationSample(arrays["sample_n"], header["seconds_per_score"], header["in_time"]),
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
    *,
    alone: Collection[str] = (),
) -> Detector:
    """Learns from the normal parts, `calibration` among them. errors: the model's, of that and perhaps of others.

    alone: the recordings that are each judged by their own past. Where there are such, others are judged by the past of
    all, at the level of its own; so are their calibration scores.
    Raises DataError where the calibration data cannot support the threshold.
    """
    calibration, settings = normal["calibration"], settings_of(config)
    baseline_c = channel_baseline(errors.values())
    learn = settings["scoring.model_share"] < 1.0

    def judged_by(past_of: Collection[str]) -> tuple[Statistics | None, PartScores]:
        statistics, statistic_sc = fit_statistics(config, normal, past_of) if learn else (None, None)
        return statistics, _scores(errors["calibration"], baseline_c, statistic_sc, settings)

    statistics, scores = judged_by(alone)
    scores, levels = fit_levels(scores, calibration, alone)
    if alone:
        of_all, scores_of_all = judged_by(())
        statistics = statistics.joined(of_all) if learn else None
        pooled = level_of(scores_of_all.score_s)
        levels = replace(levels, level={**levels.level, POOLED: levels.usual if np.isnan(pooled) else pooled})
        others_s = levels.alike(scores_of_all, calibration).score_s
        is_alone_s = np.repeat([key != POOLED for key in keys_of(calibration, alone)], lengths_of(calibration))
        scores = replace(scores, score_s=np.where(is_alone_s, scores.score_s, others_s))
    sample = _sample(scores, calibration.series)
    return Detector(
        stream=config.stream,
        checkpoint_sha256=checkpoint_sha256,
        settings=settings,
        threshold_settings=config.scoring.threshold,
        baseline_c=baseline_c,
        statistics=statistics,
        levels=levels,
        alone=tuple(alone),
        sample=sample,
        threshold=sample.threshold(config.scoring.threshold),
        data={name: identity(part) for name, part in normal.items()},
        recordings=tuple(recordings_in(calibration)),
    )


def settings_of(config: AnyConfig) -> dict[str, Any]:
    """What decides how errors become scores, by its keys in the configuration."""
    return {
        "scoring.model_share": config.scoring.model_share,
        "scoring.smoothing_span": config.scoring.smoothing_span,
        "scoring.look_ahead": config.scoring.look_ahead,
        "scoring.operating_context": config.scoring.operating_context,
        "scoring.charts": config.scoring.charts.model_dump(mode="json"),
        "data.context_channels": list(config.data.context_channels),
        "data.score_stride": config.data.score_stride,
    }


def _scores(
    errors: PartErrors, baseline_c: np.ndarray, statistic_sc: np.ndarray | None, settings: Mapping[str, Any]
) -> PartScores:
    share, span = settings["scoring.model_share"], settings["scoring.smoothing_span"]
    return score_part(errors, baseline_c, smoothing_span=span, statistic_sc=statistic_sc, share=share)


def _sample(scores: PartScores, series: Series) -> CalibrationSample:
    """The calibration scores in order of time: each recording whole, by their starts where all have time stamps."""
    known_s = ~np.isnan(scores.score_s)
    row_s, score_s = scores.row_s[known_s], scores.score_s[known_s]
    recording_s, time_s = recordings_of(series, row_s), times_of(series, row_s)
    stamps = {series.recordings[index].time_source for index in np.unique(recording_s)}
    order_s = np.arange(len(row_s))
    if stamps == {"timestamp"}:
        order_s = np.argsort(starts_of(series)[recording_s], kind="stable")
    time_s, recording_s = time_s[order_s], recording_s[order_s]
    half, step_m = len(order_s) // 2, np.diff(time_s)[np.diff(recording_s) == 0]
    in_time = stamps == {"timestamp"} and bool(time_s[:half].max(initial=time_s[0]) <= time_s[half:].min())
    return CalibrationSample(
        score_s[order_s],
        seconds_per_score=float(np.median(step_m)) / _NS_PER_S if len(step_m) and "index" not in stamps else None,
        in_time=in_time or len(np.unique(recording_s)) == 1,
    )


# ------------------------------------------------------------------------------------------------------------- identity
def identity(windows: WindowSet) -> str:
    """Digest of the rows and windows of a part: the fingerprints of its recordings, where it lies in each, and where
    its windows begin; not where the files lie."""
    series = windows.series
    index_k = np.searchsorted(series.offsets_r, windows.stretches[:, 0], side="right") - 1
    start_k = series.offsets_r[index_k]
    index_w = windows.recording_of()
    made_of = {
        "recordings": [digest_of_recording(series.recordings[int(index)]) for index in np.unique(index_k)],
        "stretches": (windows.stretches - start_k[:, np.newaxis]).tolist(),
        "window": windows.window,
        "starts": hashlib.sha256((windows.starts_w.numpy() - series.offsets_r[index_w]).tobytes()).hexdigest(),
    }
    return hashlib.sha256(json.dumps(made_of).encode("utf-8")).hexdigest()


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    found = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        found.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()
