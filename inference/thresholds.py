"""The alarm threshold: a quantile of scores of normal data that the model never trained on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.config.schema import Threshold
from core.errors import DataError

METHOD = "conformal quantile"


@dataclass(frozen=True)
class CalibratedThreshold:
    """A score above `value` is an alarm.

    false_alarm_rate: what was asked for. achieved_rate: the share of calibration scores above `value`.
    """

    value: float
    method: str
    false_alarm_rate: float
    calibration_scores: int
    achieved_rate: float

    def to_json(self) -> dict[str, Any]:
        return {
            "value": self.value,
            "method": self.method,
            "false_alarm_rate": self.false_alarm_rate,
            "calibration_scores": self.calibration_scores,
        }


def calibrate(score_n: np.ndarray, settings: Threshold) -> CalibratedThreshold:
    """The split-conformal upper quantile: the ⌈(n + 1)(1 − a)⌉-th smallest of n calibration scores, a the rate asked.

    A new normal score lies above it with probability at most a, if it is exchangeable with the calibration scores
    (Vovk et al., Algorithmic Learning in a Random World, 2005; Angelopoulos and Bates, arXiv 2107.07511). Scores of
    overlapping windows, of neighbouring rows and after smoothing are correlated: on average the rate still holds, but
    it varies from data set to data set as if there were far fewer than n scores, and false alarms come in bursts. A
    process that has drifted since the calibration has no guarantee at all.

    score_n: (N,); NaN, an entry without a score, is left out.
    Raises DataError for fewer scores than `min_calibration`, or too few for the rate: with n below 1/a - 1 even the
    largest score is no bound.
    """
    sorted_n = np.sort(score_n[~np.isnan(score_n)])
    n, rate = len(sorted_n), settings.false_alarm_rate
    # The tolerances keep (n + 1) · 0.99 = 99.00000000000001 at 99.
    needed = max(settings.min_calibration, math.ceil(1 / rate - 1 - 1e-9))
    if n < needed:
        raise DataError(
            f"{n} calibration scores cannot set a threshold for a false alarm rate of {rate:g}: {needed} are needed",
            hint="give the calibration part more data, or raise scoring.threshold.false_alarm_rate "
            "(or lower scoring.threshold.min_calibration)",
        )
    rank = math.ceil((n + 1) * (1 - rate) - 1e-9)
    value = float(sorted_n[rank - 1])
    return CalibratedThreshold(value, METHOD, rate, n, achieved_rate=float((sorted_n > value).mean()))
