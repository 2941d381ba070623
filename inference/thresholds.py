"""The alarm threshold: set by scores of normal data that the model never trained on, and tried on others of it.

Suffixes: n score, m excess, b block, d draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from core.config.schema import Threshold
from core.errors import DataError, UsageError

# Peaks over a threshold: the share of scores that are a tail (Siffer et al. take 2 %), at least so many times the share
# that may alarm, and the fewest of them that a distribution is fitted to.
_TAIL, _TAIL_OVER_RATE = 0.02, 2.0
_FEWEST_EXCESSES = 30
# Below this shape the tail is exponential.
_NO_SHAPE = 1e-6
# Scores in a block of the bootstrap, the fewest blocks, and draws.
_BLOCK, _FEWEST_BLOCKS, _DRAWS = 200, 20, 1000
_SECONDS_A_DAY = 86_400.0


@dataclass(frozen=True)
class Achieved:
    """The share of held-out normal scores above a threshold, its 95 % interval, how many these were, and how many
    alarms a day that makes; None where the time between scores is unknown."""

    rate: float
    low: float
    high: float
    scores: int
    per_day: float | None


@dataclass(frozen=True)
class CalibratedThreshold:
    """A score above `value` is an alarm.

    false_alarm_rate: what was asked for. achieved_rate: the share of calibration scores above `value`. achieved: what a
    threshold set by the first half of them had on the other; None where half is too few. statement: that in words.
    """

    value: float
    method: str
    false_alarm_rate: float
    calibration_scores: int
    achieved_rate: float
    achieved: Achieved | None = None
    statement: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "value": self.value,
            "method": self.method,
            "false_alarm_rate": self.false_alarm_rate,
            "calibration_scores": self.calibration_scores,
            "achieved": asdict(self.achieved) if self.achieved else None,
            "statement": self.statement,
        }


@dataclass(frozen=True)
class CalibrationSample:
    """Scores of normal data, in order of time: float32 (N,) without NaN.

    seconds_per_score: None where nobody knows. in_time: whether the second half is newer than the first.
    """

    score_n: np.ndarray
    seconds_per_score: float | None = None
    in_time: bool = True

    def threshold(self, settings: Threshold) -> CalibratedThreshold:
        """Raises DataError where these are too few for the rate."""
        found, achieved = calibrate(self.score_n, settings), self._achieved(settings)
        return replace(found, achieved=achieved, statement=self._statement(settings.false_alarm_rate, achieved))

    def _achieved(self, settings: Threshold) -> Achieved | None:
        first_n, second_n = np.array_split(self.score_n, 2)
        try:
            value = calibrate(first_n, settings).value
        except DataError:
            return None
        return share_above(second_n, value, seconds_per_score=self.seconds_per_score)

    def _statement(self, rate: float, achieved: Achieved | None) -> str:
        meant = f"{share_in_words(rate)} scores of normal operation is meant to be a false alarm"
        if achieved is None:
            return f"{meant}; half of the calibration data is too little to try that on the other half"
        half = "newer" if self.in_time else "second"
        a_day = f", about {_rounded(achieved.per_day):,g} a day at this rate" if achieved.per_day else ""
        return f"{meant}; on the {half} half of the calibration data it was {achieved_in_words(achieved)}{a_day}"


# -------------------------------------------------------------------------------------------------------------- methods
def calibrate(score_n: np.ndarray, settings: Threshold) -> CalibratedThreshold:
    """The threshold by `scoring.threshold.method`.

    score_n: (N,); NaN, an entry without a score, is left out.
    Raises DataError for fewer scores than `min_calibration`, or too few for the method to support the rate.
    """
    sorted_n = np.sort(score_n[~np.isnan(score_n)])
    method, find = _METHODS[settings.method]
    value = find(sorted_n, settings)
    return CalibratedThreshold(
        value, method, settings.false_alarm_rate, len(sorted_n), achieved_rate=float((sorted_n > value).mean())
    )


def _conformal(sorted_n: np.ndarray, settings: Threshold) -> float:
    """The split-conformal upper quantile: the ⌈(n + 1)(1 − a)⌉-th smallest of n calibration scores, a the rate asked.

    A new normal score lies above it with probability at most a, if it is exchangeable with the calibration scores
    (Vovk et al., Algorithmic Learning in a Random World, 2005; Angelopoulos and Bates, arXiv 2107.07511). Scores of
    overlapping windows, of neighbouring rows and after smoothing are correlated: on average the rate still holds, but
    it varies from data set to data set as if there were far fewer than n scores, and false alarms come in bursts. A
    process that has drifted since the calibration has no guarantee at all.

    With n below 1/a - 1 even the largest score is no bound.
    """
    n, rate = len(sorted_n), settings.false_alarm_rate
    # The tolerances keep (n + 1) · 0.99 = 99.00000000000001 at 99.
    instead = "raise scoring.threshold.false_alarm_rate, or extrapolate with scoring.threshold.method=pot"
    _refuse_fewer_than(math.ceil(1 / rate - 1 - 1e-9), n, settings, instead=instead)
    rank = math.ceil((n + 1) * (1 - rate) - 1e-9)
    return float(sorted_n[rank - 1])


def _peaks_over_threshold(sorted_n: np.ndarray, settings: Threshold) -> float:
    """Where a generalised Pareto tail leaves the rate asked for: rates beyond the largest calibration score.

    The excesses over a high quantile follow that distribution, whatever the scores do below it (Pickands, Annals of
    Statistics 1975; as an alarm threshold: Siffer et al., Anomaly Detection in Streams with Extreme Value Theory,
    KDD 2017). Fitted by maximum likelihood. Correlated scores exceed in clusters: the fit holds, with the uncertainty
    of fewer excesses. It is an extrapolation, which conformal quantiles never are.
    """
    n, rate = len(sorted_n), settings.false_alarm_rate
    tail = max(_TAIL, _TAIL_OVER_RATE * rate)
    instead = f"set scoring.threshold.method=conformal; a tail needs {_FEWEST_EXCESSES} excesses"
    _refuse_fewer_than(math.ceil(_FEWEST_EXCESSES / tail - 1e-9), n, settings, instead=instead)
    start = float(np.quantile(sorted_n, 1 - tail))
    excess_m = sorted_n[sorted_n > start].astype(np.float64) - start
    if len(excess_m) < _FEWEST_EXCESSES:
        raise DataError(
            f"{len(excess_m)} of {n} calibration scores lie above their {1 - tail:.1%} quantile, {start:g}: "
            f"{_FEWEST_EXCESSES} are needed to fit their tail",
            hint="many scores are the same; set scoring.threshold.method=conformal",
        )
    shape, scale = _generalised_pareto(excess_m)
    rarer = rate * n / len(excess_m)
    beyond = -math.log(rarer) if abs(shape) < _NO_SHAPE else (rarer**-shape - 1) / shape
    return float(np.float32(start + scale * beyond))


def _generalised_pareto(excess_m: np.ndarray) -> tuple[float, float]:
    """Shape and scale, by maximum likelihood."""
    try:
        from scipy.stats import genpareto
    except ImportError as error:
        raise UsageError("scoring.threshold.method=pot needs scipy", hint="python -m pip install scipy") from error
    unit = float(excess_m.mean())
    shape, _, scale = genpareto.fit(excess_m / unit, floc=0)
    return float(shape), float(scale) * unit


_METHODS: dict[str, tuple[str, Callable[[np.ndarray, Threshold], float]]] = {
    "conformal": ("conformal quantile", _conformal),
    "pot": ("peaks over threshold", _peaks_over_threshold),
}


def _refuse_fewer_than(supported: int, n: int, settings: Threshold, *, instead: str) -> None:
    """supported: the fewest scores the method can set such a threshold by."""
    needed = max(settings.min_calibration, supported)
    if n < needed:
        raise DataError(
            f"{n} calibration scores cannot set a threshold for a false alarm rate of {settings.false_alarm_rate:g}: "
            f"{needed} are needed",
            hint="give the calibration part more data, or "
            + (instead if n < supported else "lower scoring.threshold.min_calibration"),
        )


# -------------------------------------------------------------------------------------------------------- how it does
def share_above(score_n: np.ndarray, value: float, *, seconds_per_score: float | None) -> Achieved:
    """What a threshold has on normal scores (N,), in order of time and without NaN.

    Where none is above it, a bootstrap knows nothing: the interval then ends where single alarms would (the rule of
    three; alarms in bursts would allow for more).
    """
    alarm_n = score_n > value
    low, high = burst_interval(alarm_n) if alarm_n.any() else (0.0, 1 - 0.025 ** (1 / len(alarm_n)))
    rate = float(alarm_n.mean())
    per_day = rate * _SECONDS_A_DAY / seconds_per_score if seconds_per_score else None
    return Achieved(rate, low, high, len(alarm_n), per_day)


def burst_interval(alarm_n: np.ndarray) -> tuple[float, float]:
    """95 % interval of a share of alarms that come in bursts: blocks are drawn anew, whole ones up to the newest score
    and what is left over of the oldest.

    (Künsch, The Jackknife and the Bootstrap for General Stationary Observations, Annals of Statistics 1989.)
    """
    block = max(1, min(_BLOCK, len(alarm_n) // _FEWEST_BLOCKS))
    start_b = np.unique(np.append(0, np.arange(len(alarm_n) % block, len(alarm_n), block)))
    alarms_b, size_b = np.add.reduceat(alarm_n, start_b, dtype=np.int64), np.diff(start_b, append=len(alarm_n))
    drawn_db = np.random.default_rng(0).integers(len(start_b), size=(_DRAWS, len(start_b)))
    share_d = alarms_b[drawn_db].sum(axis=1) / size_b[drawn_db].sum(axis=1)
    return float(np.quantile(share_d, 0.025)), float(np.quantile(share_d, 0.975))


def achieved_in_words(achieved: Achieved) -> str:
    """Such as `0.8 % (0.2 to 1.9 %)`."""
    share, low, high = (f"{_rounded(100 * each):g}" for each in (achieved.rate, achieved.low, achieved.high))
    return f"{share} % ({low} to {high} %)"


def share_in_words(rate: float) -> str:
    """Such as `1 in 100`; `3.5 in 100` where no whole number would do."""
    every = 1 / rate
    return f"1 in {every:,.0f}" if math.isclose(every, round(every), rel_tol=1e-6) else f"{100 * rate:g} in 100"


def _rounded(value: float) -> float:
    """To two digits."""
    return float(f"{value:.2g}")
