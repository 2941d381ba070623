"""The detector and model of a monitor, and the scores of some rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from core.config.schema import AnyConfig
from inference.detector.detector import Detector
from inference.detector.split_scores import SplitScores
from inference.predictor import Predictor

if TYPE_CHECKING:
    from core.data.windows import WindowSet


class Monitor(NamedTuple):
    """Everything that is needed to score followed files. model: for process sensors; None for control charts alone.
    step_s: seconds between rows of the calibration data. recordings: scores a recording of vibration by its file id;
    None for process sensors."""

    config: AnyConfig
    detector: Detector
    channels: tuple[str, ...]
    step_s: float
    model: Predictor | None = None
    recordings: Callable[[str], tuple[WindowSet, SplitScores]] | None = None


class Scored(NamedTuple):
    """Scores of some rows of a recording: row, time (None without time stamps), score and channel with the largest
    error (n,); and reports of events."""

    recording: str
    row_n: np.ndarray
    time_n: np.ndarray | None
    score_n: np.ndarray
    top_channel_n: np.ndarray
    reports: list[dict[str, Any]]
