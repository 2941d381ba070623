"""The alarm threshold, set by scores of normal data, with the expected false alarms.

Neighbouring scores are correlated, so alarms come in bursts, and a thousand scores may contain no more information than
thirty independent ones. All intervals here count bursts. Independent scores are the special case in which each alarm is
a separate burst: the threshold is then the split-conformal quantile (Vovk et al., Algorithmic Learning in a Random
World, 2005; Angelopoulos and Bates, arXiv 2107.07511).

Suffixes: n score, m alarm or excess, b burst.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from core.config.schema import Scoring
from core.config.scoring import ThresholdSettings
from core.errors import DataError, UsageError
from core.numbers import counted, duration_in_words, plain, ratio_in_words
from inference.alarms import burst_sizes, event_spans

# Alarms belong to one burst if they are at most this many smoothing spans, or this many scores, apart.
BURST_SPANS, LEAST_GAP = 2, 8
# The size of a burst is the mean of at least this many. If fewer exceed the threshold, a lower value is used, but not
# more than this share of all scores.
_MEASURED_BURSTS, _TAIL_SHARE = 8, 0.2
# Maximum number of thresholds that are tried.
_CANDIDATES = 60
# The levels of this many events are extrapolated to rarer events. Chosen on sample data of other seeds (dev/LOG.md,
# 2026-11-26: One false event per day from an hour of calibration data).
_FEWEST_EVENTS = 15
# The smallest share of an event in the time of the calibration data to which events are extrapolated: chance decides
# about less, such as a day from minutes.
_RAREST_EVENT = 0.01
# Peaks over a threshold: the tail is this share of the scores (Siffer et al. use 2 %), but at least this many times the
# requested false-alarm rate; and the minimum number of scores in the tail.
_TAIL, _TAIL_OVER_RATE = 0.02, 2.0
_FEWEST_EXCESSES = 30
# Below this shape the tail is exponential.
_NO_SHAPE = 1e-6
_SECONDS_PER_DAY = 86_400.0
_CONFIDENCE = (0.025, 0.975)
_LEAST_MEDIAN = 1e-9
# If the median score has increased by this factor, most scores differ from those of the calibration.
_GROWN = 1.5
# An upper limit of more events per day than this is not informative, and is not reported.
_MOST_EVENTS_PER_DAY = 1000.0


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
class CalibratedThreshold:
    """A score above `value` is an alarm.

    false_alarm_rate, false_events_per_day: the requested maximum. expected: false alarms on the calibration scores,
    with intervals that are valid as long as the process does not change. changed: file ids of the recordings that
    changed within the calibration data, and do not set the threshold. shortfall: why the calibration data is not
    enough for the request; empty if it is enough. achieved: false alarms on the second half of the calibration data if
    everything is fitted to the first half; None if half is not enough. statement: all this as text.
    """

    value: float
    method: str
    false_alarm_rate: float
    false_events_per_day: float | None
    calibration_scores: int
    calibration_days: float | None
    expected: FalseAlarms
    changed: tuple[str, ...] = ()
    shortfall: str = ""
    achieved: FalseAlarms | None = None
    statement: str = ""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "changed": list(self.changed)}

    def with_achieved(self, achieved: FalseAlarms | None) -> CalibratedThreshold:
        return replace(self, achieved=achieved, statement=statement(self, achieved))


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
        return len(self.score_n) * self.seconds_per_score / _SECONDS_PER_DAY if self.seconds_per_score else None

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
        while len(self.bursts(value)) < _MEASURED_BURSTS and above <= _TAIL_SHARE * num_scores:
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


# ---------------------------------------------------------------------------------------------------------- calibration
def calibrate(sample: CalibrationSample, settings: Scoring) -> CalibratedThreshold:
    """The lowest threshold within both limits of `settings.threshold`: `false_alarm_rate` and
    `false_events_per_day`.

    If the sample is too small for the rate, the threshold is extrapolated from its highest scores; if it is too short
    for the limit of events, from the levels of its events, or, if it has too few, no event remains in it. `shortfall`
    describes this.
    Raises DataError for fewer scores than `min_calibration`, or too few to fit a tail to (`method` = `pot`).
    """
    options, num_scores = settings.threshold, len(sample.score_n)
    if num_scores < options.min_calibration:
        raise _too_few(num_scores, options.min_calibration, "or lower scoring.threshold.min_calibration")
    method, find = _METHODS[options.method]
    value, shortfall = find(sample, options)
    if options.false_events_per_day is not None and sample.days:
        value, of_events = _with_rare_events(sample, value, settings, options.false_events_per_day)
        shortfall = ". ".join(each for each in (shortfall, of_events) if each)
    found = CalibratedThreshold(
        value=value,
        method=method,
        false_alarm_rate=options.false_alarm_rate,
        false_events_per_day=options.false_events_per_day,
        calibration_scores=num_scores,
        calibration_days=sample.days,
        expected=sample.false_alarms(value, settings),
        changed=sample.changed,
        shortfall=shortfall,
    )
    return found.with_achieved(None)


def _conformal(sample: CalibrationSample, options: ThresholdSettings) -> tuple[float, str]:
    """The lowest calibration score that leaves room for one more burst: with k of n scores above it, and s alarms per
    burst, (k + s) / (n + s) is at most the requested rate. The expected rate of new scores is then at most that rate.
    If the sample is too small, the value is extrapolated from its highest bursts. Also returns the shortfall as text,
    or "".

    For independent scores, s = 1, this is the split-conformal quantile.
    """
    sorted_n, rate = sample.sorted_n, options.false_alarm_rate
    num_scores = len(sorted_n)
    most = min(math.ceil((num_scores + 1) * rate + 1e-9) - 1, num_scores - 1)
    for above in _counts_down(most):
        value = float(sorted_n[num_scores - 1 - above])
        alarms, size = num_scores - int(np.searchsorted(sorted_n, value, side="right")), sample.burst_size(value)[0]
        if (alarms + size) / (num_scores + size) <= rate * (1 + 1e-9):
            return value, ""
    extrapolated = sample.beyond(value, rate * num_scores / size)
    times = ratio_in_words(extrapolated / value if value else 1.0)
    found = "that score" if times == ratio_in_words(1.0) else f"extrapolated to {times} times that score"
    return extrapolated, (
        f"There is too little calibration data for at most {percent(rate)} false alarms: {num_scores:,} calibration "
        f"scores, which are as informative as about {max(1, round(num_scores / size)):,} independent ones, where "
        f"{math.ceil((1 - rate) / rate - 1e-9):,} are needed. In normal operation, about "
        f"{percent(size / (num_scores + size))} of new scores will exceed the largest calibration score. So the "
        f"threshold is {found}"
    )


def _with_rare_events(sample: CalibrationSample, value: float, settings: Scoring, per_day: float) -> tuple[float, str]:
    """The lowest threshold from `value` on with so few false events that one more would still be within the limit. If
    the calibration data is too short for that, the threshold is extrapolated from the levels of its events, and no
    event remains in it. Also returns the shortfall as text, or "".

    A short part may be quieter than normal operation as a whole. The mean of the charts in all reference data is known,
    so the threshold is then divided by the mean in this part (ratio estimation: Cochran, Sampling Techniques, 1977). A
    louder part does not lower the threshold. If no event remains in the calibration data, as much new data has one with
    a probability of a half; the threshold is then multiplied by the margin of the charts.
    """
    sorted_n, allowed = sample.sorted_n, max(0, math.floor(per_day * sample.days + 1e-9) - 1)
    most = len(sorted_n) - 1 - int(np.searchsorted(sorted_n, value, side="left"))
    lowest = value
    for above in reversed(_counts_down(max(most, 0))):
        candidate = max(lowest, float(sorted_n[len(sorted_n) - 1 - above]))
        # The number of events is not monotonic, because more alarms may join to fewer events. Each higher threshold
        # must be within the limit too.
        if sample.num_events(candidate, settings) > allowed:
            break
        value = candidate
    if per_day * sample.days >= 1:
        return value, ""
    num_events = per_day * sample.days
    extrapolated = _level_of_rarer_events(sample, settings, num_events) if num_events >= _RAREST_EVENT else None
    lasts, needed = (duration_in_words(days * _SECONDS_PER_DAY) for days in (sample.days, 1 / per_day))
    possible = poisson_interval(0)[1] / sample.days
    truth = f": 0 to {number(possible)} per day are possible (95 % interval)" if possible < _MOST_EVENTS_PER_DAY else ""
    source = (
        "The threshold is so high that no event occurs in it"
        if extrapolated is None
        else f"The threshold is extrapolated from the {_FEWEST_EVENTS} highest events in it to this limit"
    )
    quiet = min(1.0, sample.chart_mean) or 1.0
    divided = (
        f"The mean of the control charts in it is {plain(quiet, 2)} times that in all reference data, so the threshold "
        "is divided by this ratio. "
        if plain(quiet, 2) != plain(1.0, 2)
        else ""
    )
    margin = sample.margin if extrapolated is None else 1.0
    raised = (
        f"Lasting faults have much higher scores in this process, so it is multiplied by {plain(margin, 2)}. "
        if plain(margin, 2) != plain(1.0, 2)
        else ""
    )
    return float(np.float32(max(value, extrapolated or value) / quiet * margin)), (
        f"The calibration data lasts {lasts}, too short to show that there will be at most {number(per_day)} false "
        f"{'event' if per_day == 1 else 'events'} per day. {source}, but "
        f"the true number is unknown{truth}. {divided}{raised}To apply the limit, calibrate on {needed} of normal "
        "operation or more"
    )


def _level_of_rarer_events(sample: CalibrationSample, settings: Scoring, num_events: float) -> float | None:
    """The threshold that `num_events` events, fewer than one, are expected to exceed in as much time as the sample has.
    The level of an event is the highest threshold at which it is one; the logarithms of the ratios of the highest
    levels to the lowest of them are assumed to be exponentially distributed (Weissman, JASA 1978; Hill, Annals of
    Statistics 1975). None if the highest scores do not contain enough events."""
    sorted_n, level_e = sample.sorted_n, []
    for above in reversed(_counts_down(int(_TAIL_SHARE * len(sorted_n)))):
        candidate = float(sorted_n[len(sorted_n) - 1 - above])
        more = sample.num_events(candidate, settings) - len(level_e)
        level_e += [candidate] * max(0, more)
        if len(level_e) >= _FEWEST_EVENTS:
            break
    if len(level_e) < _FEWEST_EVENTS or candidate <= 0:
        return None
    decay = float(np.log(np.array(level_e[: _FEWEST_EVENTS - 1]) / candidate).mean())
    return float(np.float32(candidate * (_FEWEST_EVENTS / num_events) ** decay))


def _counts_down(most: int) -> list[int]:
    """Integers from `most` down to 0, about `_CANDIDATES` of them at most, closer together where they are small."""
    if most < _CANDIDATES:
        return list(range(most, -1, -1))
    geometric = np.geomspace(1, most, _CANDIDATES).round().astype(np.int64)
    return [*np.unique(geometric)[::-1].tolist(), 0]


def _peaks_over_threshold(sample: CalibrationSample, options: ThresholdSettings) -> tuple[float, str]:
    """The score at which a generalised Pareto tail has the requested rate; it may exceed the largest calibration score.

    The excesses over a high quantile follow that distribution for most distributions of scores (Pickands, Annals of
    Statistics 1975; as an alarm threshold: Siffer et al., Anomaly Detection in Streams with Extreme Value Theory,
    KDD 2017). It is fitted by maximum likelihood. Unlike the conformal quantile, it has no guarantee.
    """
    sorted_n, rate = sample.sorted_n, options.false_alarm_rate
    n, tail = len(sorted_n), max(_TAIL, _TAIL_OVER_RATE * rate)
    if n < (needed := math.ceil(_FEWEST_EXCESSES / tail - 1e-9)):
        raise _too_few(
            n, needed, f"or set scoring.threshold.method=conformal; a tail needs {_FEWEST_EXCESSES} excesses"
        )
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
    return float(np.float32(start + scale * beyond)), ""


def _generalised_pareto(excess_m: np.ndarray) -> tuple[float, float]:
    """Shape and scale, by maximum likelihood."""
    try:
        from scipy.stats import genpareto
    except ImportError as error:
        raise UsageError("scoring.threshold.method=pot needs scipy", hint="python -m pip install scipy") from error
    unit = float(excess_m.mean())
    shape, _, scale = genpareto.fit(excess_m / unit, floc=0)
    return float(shape), float(scale) * unit


_METHODS: dict[str, tuple[str, Callable[[CalibrationSample, ThresholdSettings], tuple[float, str]]]] = {
    "conformal": ("conformal quantile", _conformal),
    "pot": ("peaks over threshold", _peaks_over_threshold),
}


def _too_few(found: int, needed: int, instead: str) -> DataError:
    return DataError(
        f"{found} calibration scores are too few for a threshold: {needed} are needed",
        hint=f"add data to data.splits.calibration, {instead}",
    )


# ------------------------------------------------------------------------------------------------------------- in words
def statement(threshold: CalibratedThreshold, achieved: FalseAlarms | None) -> str:
    """The statement about the false alarms of the threshold, and its data."""
    expected = threshold.expected
    words = (
        "If the process does not change, expect false alarms in "
        f"{_range(expected.low, expected.high, percent)} of all scores "
        f"(95 % interval; limit: {percent(threshold.false_alarm_rate)})"
    )
    per_day, days = threshold.false_events_per_day, threshold.calibration_days
    is_too_short = per_day is not None and days is not None and per_day * days < 1  # the shortfall describes this
    if expected.events_per_day is not None and expected.events_per_day_high < _MOST_EVENTS_PER_DAY and not is_too_short:
        limit = f" (limit: {number(per_day)})" if per_day is not None else ""
        events = _range(expected.events_per_day_low, expected.events_per_day_high, number)
        words += f", and {events} false events per day{limit}"
    sentences = [words]
    if threshold.changed:
        sentences.append(
            f"{counted(len(threshold.changed), 'recording')} changed within the calibration data, such as "
            f"{threshold.changed[0]}: they do not set the threshold, and may raise more alarms. Calibrate them with "
            "newer data"
        )
    if threshold.shortfall:
        sentences.append(threshold.shortfall)
    if achieved is None:
        sentences.append("This was not tested: half of the calibration data is too little for a threshold")
    else:
        sentences.append(
            "Test: a threshold from the first half of the calibration data gave alarms in "
            f"{rate_in_words(achieved)} of the second half"
        )
        if achieved.low > threshold.false_alarm_rate:
            sentences.append("The process changed within the calibration data, so these figures do not hold")
    return ". ".join(sentences)


def departure(
    threshold: CalibratedThreshold,
    calibration: CalibrationSample,
    scored: CalibrationSample,
    *,
    by_charts: bool = False,
) -> str:
    """A warning if the scores differ from those of the calibration, otherwise empty. There are then more alarms than
    the interval of the false alarms allows, and the median score has increased, which short faults do not cause. Scores
    alone cannot distinguish a lasting fault from a change of the process. by_charts: without a model; then there is no
    stored detector to calibrate."""
    if not len(scored.score_n):
        return ""
    found = scored.false_alarms(threshold.value, Scoring())
    times = float(np.median(scored.score_n)) / max(float(np.median(calibration.score_n)), _LEAST_MEDIAN)
    if found.low <= threshold.expected.high or times < _GROWN:
        return ""
    remedy = "name newer files in data.splits.calibration" if by_charts else "run `landfall calibrate` with newer data"
    return (
        f"{percent(found.rate)} of the scores are alarms; at most {percent(threshold.expected.high)} are expected if "
        f"the process has not changed. The median score is {ratio_in_words(times)} times that of the "
        "calibration data. Either there are lasting faults, or the process has changed since the calibration. In the "
        f"second case the stated rates do not hold: {remedy}. `landfall check` names files that are "
        "rounded to fewer decimals"
    )


def rate_in_words(found: FalseAlarms) -> str:
    """Such as `0.8 % (0.2 to 1.9 %)`."""
    return f"{percent(found.rate)} ({_range(found.low, found.high, percent)})"


def _range(low: float, high: float, words: Callable[[float], str]) -> str:
    first, last = words(low), words(high)
    return f"{first.removesuffix(' %')} to {last}"


def percent(share: float) -> str:
    return f"{number(100 * share)} %"


def number(value: float) -> str:
    """A number with two significant digits, without an exponent."""
    words = plain(value, 2)
    return words.rstrip("0").rstrip(".") if "." in words else words
