"""A detector: everything that is fitted to reference data and turns errors into scores and alarms.

It is fitted once and stored next to the checkpoint (`inference.detector.file`), so that new files are scored in the
same way where the reference data is not available. A detector without a checkpoint has no model: its scores are those
of the control charts.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from core.config.schema import AnyConfig, Scoring, Stream
from core.config.scoring import ALARM_SETTINGS, WITHOUT_EFFECT
from core.data.identity import digest_of_split
from core.data.recording import NS_PER_S
from core.data.splits import SplitName
from core.data.windows import WindowSet
from core.errors import DataError
from core.workspace import utc_now
from inference.calibrated_threshold import CalibratedThreshold
from inference.detector.group_scales import GroupScales
from inference.detector.score_table import median_step, recordings_of, times_of
from inference.detector.split_scores import SplitScores, score_split
from inference.entries import SplitErrors
from inference.false_alarms import CalibrationSample
from inference.groups import recordings_in
from inference.thresholds import calibrate

if TYPE_CHECKING:
    from inference.charts.cross_channel_regression import CrossChannelRegression
    from inference.charts.streams import ChartSet

log = logging.getLogger(__name__)

Halves = tuple[CalibrationSample, CalibrationSample]


@dataclass(frozen=True)
class Detector:
    """Turns errors into scores, and scores into alarms.

    checkpoint_sha256: digest of the checkpoint whose errors it was fitted to; None without a model.
    settings: the settings it was fitted with, by their keys in a configuration. alarm_settings: the settings of
        threshold and events, which can be changed without fitting again.
    baseline_c: the model's reference error of each channel, float64 (C,), NaN for a channel that is not scored; None
        without a model.
    charts: the control charts.
    own_past, scales: file ids of the recordings that are scored per recording, and their scales (`inference.groups`).
    sample: the scores of the calibration data.
    halves: the scores of the first half of the calibration data, and those of the second half by a detector fitted to
        the first; None if half of the data is not enough.
    data: digest of the rows and windows of each reference split (`core.data.identity`).
    recordings: file ids of the recordings of the calibration data.
    change: what `landfall calibrate` changed; None if it was fitted to the splits of the configuration.
    charts_alone: the detector of the same charts without the model, as a baseline; None without a model, and if the
        charts alone cannot be calibrated.
    model_weight: the weight of the model in a score, 0 to 1.
    weight_choice: how the weight was chosen if the configuration has `auto` (`inference.detector.model_weight`).
    """

    stream: Stream
    checkpoint_sha256: str | None
    settings: Mapping[str, Any]
    alarm_settings: Scoring
    baseline_c: np.ndarray | None
    charts: ChartSet
    scales: GroupScales
    own_past: tuple[str, ...]
    sample: CalibrationSample
    halves: Halves | None
    threshold: CalibratedThreshold
    data: Mapping[str, str]
    recordings: tuple[str, ...]
    made_at: str = field(default_factory=utc_now)
    change: Mapping[str, Any] | None = None
    charts_alone: Detector | None = None
    model_weight: float = 0.0
    weight_choice: Mapping[str, Any] | None = None

    @property
    def uses_model(self) -> bool:
        """Whether scores need the model's errors: its weight is more than 0."""
        return self.model_weight > 0

    def cross_regression(self, file_id: str) -> CrossChannelRegression | None:
        """The regression by which events of a recording are attributed to channels (`inference.charts.attribution`).
        None: by the errors of the channels, also if the score is that of the model alone."""
        return self.charts.cross_regression(file_id) if self.model_weight < 1.0 else None

    def score(self, errors: SplitErrors, windows: WindowSet) -> SplitScores:
        """Scores of a split. errors: errors of the model on these windows; only the entries if the model is not
        used."""
        return self.score_with_baseline(errors, windows)[0]

    def score_with_baseline(self, errors: SplitErrors, windows: WindowSet) -> tuple[SplitScores, SplitScores | None]:
        """Scores of a split, and scores of the control charts alone; None without `charts_alone`."""
        if self.own_past and (unknown := [name for name in recordings_in(windows) if name not in self.own_past]):
            log.warning(
                "%d recordings, such as %s, are unknown to the detector, which has separate charts for each recording: "
                "they are scored with the charts of all recordings, with lower sensitivity; `landfall calibrate` adds "
                "them",
                len(unknown), unknown[0],
            )  # fmt: skip
        chart_sc = self.charts.errors(windows)
        alone = self.charts_alone
        return (
            self._score(errors, chart_sc, windows),
            alone._score(errors.entries, chart_sc, windows) if alone is not None else None,
        )

    def _score(self, errors: SplitErrors, chart_sc: np.ndarray, windows: WindowSet) -> SplitScores:
        span = self.settings["scoring.smoothing_span"]
        scores = score_split(
            errors, self.baseline_c, smoothing_span=span, chart_sc=chart_sc, model_weight=self.model_weight
        )
        return self.scales.normalised(scores, windows)

    def with_alarms(self, settings: Scoring) -> Detector:
        """The same with another threshold or other events. Raises DataError if the sample is too small for it."""
        settings = alarm_settings(settings)
        if settings == self.alarm_settings:
            return self
        return replace(
            self,
            alarm_settings=settings,
            threshold=calibrated(self.sample, self.halves, settings),
            charts_alone=self.charts_alone and self.charts_alone.with_alarms(settings),
        )

    def mismatch(self, config: AnyConfig, checkpoint_sha256: str | None) -> str | None:
        """The reason why it cannot be used with this model and configuration; None if it can."""
        if checkpoint_sha256 != self.checkpoint_sha256:
            return "the stored one belongs to another model"
        wanted = settings_of(config)
        differing = [f"{key} = {self.settings.get(key)}, now {wanted[key]}" for key in wanted
                     if self.settings.get(key) != wanted[key]]  # fmt: skip
        return f"the stored one was fitted with {'; '.join(differing)}" if differing else None

    def change_of_data(self, reference: Mapping[SplitName, WindowSet]) -> str | None:
        """A sentence with the reference splits whose data differs from the data it was fitted to; None without such a
        split."""
        changed = [name for name, split in reference.items() if digest_of_split(split) != self.data.get(name)]
        if changed:
            return f"the data of {' and '.join(changed)} is not what the stored one was fitted to"
        return None


def settings_of(config: AnyConfig) -> dict[str, Any]:
    """The settings that determine how errors become scores, by their keys in the configuration."""
    scoring = config.scoring.model_dump(mode="json", exclude=ALARM_SETTINGS | WITHOUT_EFFECT)
    return {
        **{f"scoring.{name}": value for name, value in scoring.items()},
        "data.context_channels": list(config.data.context_channels),
        "data.score_stride": config.score_stride,
    }


def alarm_settings(settings: Scoring) -> Scoring:
    """The settings of threshold and events; all others have their defaults."""
    return Scoring(**settings.model_dump(include=ALARM_SETTINGS))


# ---------------------------------------------------------------------------------------------------------- calibration
def calibrated(sample: CalibrationSample, halves: Halves | None, settings: Scoring) -> CalibratedThreshold:
    """The threshold, with the false alarms that a threshold from the first half has on the second half."""
    threshold, achieved = calibrate(sample, settings), None
    if halves is not None:
        first, second = halves
        with suppress(DataError):
            achieved = second.false_alarms(calibrate(first, settings).value, settings)
    return threshold.with_achieved(achieved)


def calibration_sample(score_s: np.ndarray, errors: SplitErrors, windows: WindowSet, span: int) -> CalibrationSample:
    """Scores (S,) of reference data as a sample, without NaN. span: smoothing span of the scores."""
    series = windows.series
    known_s = ~np.isnan(score_s)
    row_s = errors.row_s[known_s]
    recording_s = recordings_of(series, row_s)
    step_ns = median_step(times_of(series, row_s), recording_s)
    stamps = {series.recordings[index].time_source for index in np.unique(recording_s)}
    return CalibrationSample(
        score_s[known_s].astype(np.float32),
        errors.segment_s[known_s],
        seconds_per_score=None if step_ns is None or "index" in stamps else step_ns / NS_PER_S,
        span=span,
    )
