"""The alarm threshold, set by scores of normal data.

Alarms come in bursts (`inference.false_alarms`). If each alarm is a separate burst, the threshold is the
split-conformal quantile (Vovk et al., Algorithmic Learning in a Random World, 2005; Angelopoulos and Bates, arXiv
2107.07511).

Suffixes: n score, e event.
"""

from __future__ import annotations

import math

import numpy as np

from core.config.schema import Scoring
from core.config.scoring import ThresholdSettings
from core.errors import DataError
from core.numbers import duration_in_words, plain, ratio_in_words
from inference.calibrated_threshold import MOST_EVENTS_PER_DAY, CalibratedThreshold, number, percent
from inference.false_alarms import SECONDS_PER_DAY, TAIL_SHARE, CalibrationSample, poisson_interval

# Maximum number of thresholds that are tried.
_CANDIDATES = 60
# The levels of this many events are extrapolated to rarer events. Chosen on sample data of other seeds (dev/LOG.md,
# 2026-11-26: One false event per day from an hour of calibration data).
_FEWEST_EVENTS = 15
# The smallest share of an event in the time of the calibration data to which events are extrapolated: chance decides
# about less, such as a day from minutes.
_RAREST_EVENT = 0.01
# Calibration scores come from charts that were fitted without them; about 1 is usual. Their median is at most 3.0 on 38
# units of public sets, and 7 to 216 on five that were calibrated at another operating point (dev/LOG.md, 2026-11-29: A
# model that finds few injected faults).
_UNLIKE = 4.0


def calibrate(sample: CalibrationSample, settings: Scoring) -> CalibratedThreshold:
    """The lowest threshold within both limits of `settings.threshold`: `false_alarm_rate` and
    `false_events_per_day`.

    If the sample is too small for the rate, the threshold is extrapolated from its highest scores; if it is too short
    for the limit of events, from the levels of its events, or, if it has too few, no event remains in it. `shortfall`
    describes this, and calibration data that is unlike the other reference data.
    Raises DataError for fewer scores than `min_calibration`.
    """
    options, num_scores = settings.threshold, len(sample.score_n)
    if num_scores < options.min_calibration:
        raise DataError(
            f"{num_scores} calibration scores are too few for a threshold: {options.min_calibration} are needed",
            hint="add data to data.splits.calibration, or lower scoring.threshold.min_calibration",
        )
    value, shortfall = _conformal(sample, options)
    if options.false_events_per_day is not None and sample.days:
        value, of_events = _with_rare_events(sample, value, settings, options.false_events_per_day)
        shortfall = "\n".join(each for each in (shortfall, of_events) if each)
    # The mean of the charts may be that of one recording of many; the scale of other scores is arbitrary.
    if min(median := float(np.median(sample.sorted_n)), sample.chart_mean) > _UNLIKE:
        shortfall = "\n".join(each for each in (_unlike(median), shortfall) if each)
    found = CalibratedThreshold(
        value=value,
        false_alarm_rate=options.false_alarm_rate,
        false_events_per_day=options.false_events_per_day,
        calibration_scores=num_scores,
        calibration_days=sample.days,
        expected=sample.false_alarms(value, settings),
        changed=sample.changed,
        shortfall=shortfall,
    )
    return found.with_achieved(None)


def _unlike(median: float) -> str:
    return (
        "The calibration data is unlike the other reference data, as at another operating point: half of its scores "
        f"are {ratio_in_words(median)} or more, where about 1 is usual. The threshold is above nearly all of them, so "
        "faults with lower scores raise no alarm. Add data of this operating point to data.splits.train, or if each "
        "file is a run of a recipe, set `by: recording` in data.splits"
    )


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
    lasts, needed = (duration_in_words(days * SECONDS_PER_DAY) for days in (sample.days, 1 / per_day))
    possible = poisson_interval(0)[1] / sample.days
    limit = f"limit: {number(per_day)} per day"
    known = f"unknown ({limit})"
    if possible < MOST_EVENTS_PER_DAY:
        known = f"0 to {number(possible)} per day are possible (95 % interval; {limit})"
    steps = [
        "so high that no event occurs in the calibration data"
        if extrapolated is None
        else f"extrapolated from the {_FEWEST_EVENTS} highest events in the calibration data to the limit of events"
    ]
    quiet = min(1.0, sample.chart_mean) or 1.0
    if plain(quiet, 2) != plain(1.0, 2):
        steps.append(
            f"divided by {plain(quiet, 2)}, the mean of the control charts in the calibration data relative to all "
            "reference data"
        )
    margin = sample.margin if extrapolated is None else 1.0
    if plain(margin, 2) != plain(1.0, 2):
        steps.append(
            f"multiplied by {plain(margin, 2)}, because lasting faults have much higher scores in this process"
        )
    return float(np.float32(max(value, extrapolated or value) / quiet * margin)), (
        f"False events: {known}, because the calibration data lasts only {lasts}. Calibrate on {needed} of normal "
        f"operation or more to apply the limit\nThreshold: {', then '.join(steps)}"
    )


def _level_of_rarer_events(sample: CalibrationSample, settings: Scoring, num_events: float) -> float | None:
    """The threshold that `num_events` events, fewer than one, are expected to exceed in as much time as the sample has.
    The level of an event is the highest threshold at which it is one; the logarithms of the ratios of the highest
    levels to the lowest of them are assumed to be exponentially distributed (Weissman, JASA 1978; Hill, Annals of
    Statistics 1975). None if the highest scores do not contain enough events."""
    sorted_n, level_e = sample.sorted_n, []
    for above in reversed(_counts_down(int(TAIL_SHARE * len(sorted_n)))):
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
