"""Scores of normal data, and the false alarms of a threshold on them.

Neighbouring scores are correlated, so alarms come in bursts, and a thousand scores may contain no more information than
thirty independent ones. All intervals here count bursts. Independent scores are the special case in which each alarm is
a separate burst.

Suffixes: n score, m alarm, b burst.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from core.config.schema import Scoring
from inference.alarms import burst_sizes, event_spans

# Alarms belong to one burst if they are at most this many smoothing spans, or this many scores, apart.
BURST_SPANS, LEAST_GAP = 2, 8
# The size of a burst is the mean of at least this many. If fewer exceed the threshold, a lower value is used, but not
# more than this share of all scores.
_MEASURED_BURSTS, TAIL_SHARE = 8, 0.2
SECONDS_PER_DAY = 86_400.0
_CONFIDENCE = (0.025, 0.975)


@dataclass(frozen=True)
class FalseAlarms:
    """False alarms of a threshold on normal scores, with 95 % intervals of their long-run mean.

    rate, low, high: share of the scores that are alarms. scores: number of scores. bursts: number of independent bursts
    of alarms. events_per_day and its low, high: number of events (`inference.alarms.event_spans`) per day of recorded
    time; None if the time between scores is unknown.
    """

    rate: float
    low: float
    high: float
    scores: int
    bursts: int
    events_per_day: float | None = None
    events_per_day_low: float | None = None
    events_per_day_high: float | None = None


@dataclass(frozen=True)
class CalibrationSample:
    """Scores of normal data.

    score_n: float32 (N,) without NaN, grouped by segment, in order of time. segment_n: int64 (N,), the number of each
    score's segment, ascending. seconds_per_score: None if the recordings have no time. span: smoothing span, in scores.
    changed: file ids of the recordings without scores here, because they changed within the calibration data.
    chart_mean: the mean score of the control charts in this data, which is about 1 in all reference data; relative to
    the latter where rare rows, such as commands, make it much lower.
    margin: factor of a threshold for which there is too little data; 1, or more where faults have much higher scores.
    """

    score_n: np.ndarray
    segment_n: np.ndarray
    seconds_per_score: float | None = None
    span: int = 1
    changed: tuple[str, ...] = ()
    chart_mean: float = 1.0
    margin: float = 1.0

    @property
    def days(self) -> float | None:
        """Recorded time of the scores in days, without gaps; None if it is unknown."""
        return len(self.score_n) * self.seconds_per_score / SECONDS_PER_DAY if self.seconds_per_score else None

    @cached_property
    def sorted_n(self) -> np.ndarray:
        return np.sort(self.score_n)

    # --------------------------------------------------------------------------------------------------------- alarms
    def bursts(self, value: float) -> np.ndarray:
        """Number of alarms in each burst above a value, int64 (B,)."""
        alarm_m = np.flatnonzero(self.score_n > value)
        return burst_sizes(alarm_m, self.segment_n[alarm_m], max(LEAST_GAP, BURST_SPANS * self.span))

    def burst_size(self, value: float) -> tuple[float, float]:
        """Mean size of the bursts above a value, and their mean size weighted by size."""
        size_b = self.bursts(self.measurable(value))
        if not len(size_b):
            return 1.0, 1.0
        return float(size_b.mean()), float(np.square(size_b, dtype=np.float64).mean() / size_b.mean())

    def measurable(self, value: float) -> float:
        """The value, or a lower one that enough bursts exceed to measure their size."""
        num_scores = len(self.sorted_n)
        above = num_scores - int(np.searchsorted(self.sorted_n, value, side="right"))
        while len(self.bursts(value)) < _MEASURED_BURSTS and above <= TAIL_SHARE * num_scores:
            above = 2 * above + 1
            value = float(self.sorted_n[max(0, num_scores - 1 - above)])
        return value

    def beyond(self, value: float, num_bursts: float) -> float:
        """The score, at least `value`, that `num_bursts` bursts are expected to exceed. The logarithm of the ratio of
        burst peaks to a level is assumed to be exponentially distributed (Weissman, Estimation of Parameters and Large
        Quantiles Based on the k Largest Observations, JASA 1978)."""
        level = self.measurable(value)
        size_b = self.bursts(level)
        if not len(size_b) or level <= 0:
            return value
        peak_b = np.maximum.reduceat(self.score_n[self.score_n > level], np.cumsum(size_b) - size_b)
        decay = float(np.log(peak_b / level, dtype=np.float64).mean())
        return max(value, float(np.float32(level * (len(size_b) / num_bursts) ** decay)))

    def num_events(self, value: float, settings: Scoring) -> int:
        second_n = np.arange(len(self.score_n)) * (self.seconds_per_score or 0.0)
        return len(event_spans(self.score_n, value, self.segment_n, second_n, settings)[0])

    def false_alarms(self, value: float, settings: Scoring) -> FalseAlarms:
        """False alarms of a threshold on these scores. The intervals are those of a Poisson number of bursts (Garwood,
        Biometrika 1936), and wider if bursts differ in size."""
        size_b, num_scores = self.bursts(value), len(self.score_n)
        mean_size, met_size = self.burst_size(value)
        alarms, independent = int(size_b.sum()), len(size_b) * mean_size / met_size
        low, high = poisson_interval(independent)
        next_burst = (alarms + mean_size) / (independent + 1) / num_scores
        found = FalseAlarms(
            rate=alarms / num_scores,
            low=alarms / num_scores / independent * low if alarms else 0.0,
            high=min(1.0, next_burst * high),
            scores=num_scores,
            bursts=len(size_b),
        )
        if not self.days:
            return found
        num_events = self.num_events(value, settings)
        low, high = (each / self.days for each in poisson_interval(num_events))
        return replace(found, events_per_day=num_events / self.days, events_per_day_low=low, events_per_day_high=high)


def poisson_interval(count: float) -> tuple[float, float]:
    """95 % interval of the mean of a Poisson distribution after observing `count` (Garwood, Biometrika 1936)."""
    from scipy.special import gammaincinv

    return float(gammaincinv(count, _CONFIDENCE[0])) if count else 0.0, float(gammaincinv(count + 1, _CONFIDENCE[1]))
