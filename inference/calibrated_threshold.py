"""A threshold, with the false alarms to expect of it in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from core.config.schema import Scoring
from core.numbers import counted, plain, ratio_in_words
from inference.false_alarms import CalibrationSample, FalseAlarms

_LEAST_MEDIAN = 1e-9
# If the median score has increased by this factor, most scores differ from those of the calibration.
_GROWN = 1.5
# An upper limit of more events per day than this is not informative, and is not reported.
MOST_EVENTS_PER_DAY = 1000.0


@dataclass(frozen=True)
class CalibratedThreshold:
    """A score above `value` is an alarm.

    false_alarm_rate, false_events_per_day: the requested maximum. expected: false alarms on the calibration scores,
    with intervals that are valid as long as the process does not change. changed: file ids of the recordings that
    changed within the calibration data, and do not set the threshold. shortfall: why the calibration data is not enough
    for the request, or is unlike the other reference data; otherwise empty. achieved: false alarms on the second half
    of the calibration data if everything is fitted to the first half; None if half is not enough. statement: all this
    as text.
    """

    value: float
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


def statement(threshold: CalibratedThreshold, achieved: FalseAlarms | None) -> str:
    """The false alarms to expect of the threshold, and its data: one fact per line, first what makes the others
    invalid."""
    expected, lines = threshold.expected, []
    test = "none, because half of the calibration data is too little for a threshold"
    if achieved is not None:
        alarms = rate_in_words(achieved)
        test = f"a threshold from the first half of the calibration data gave alarms in {alarms} of the second half"
        if achieved.low > threshold.false_alarm_rate:
            lines.append("The process changed within the calibration data, so these rates do not hold: see the test")
    lines.append(
        f"False alarms: expect {_range(expected.low, expected.high, percent)} of all scores if the process does not "
        f"change (95 % interval; limit: {percent(threshold.false_alarm_rate)})"
    )
    per_day, days = threshold.false_events_per_day, threshold.calibration_days
    is_too_short = per_day is not None and days is not None and per_day * days < 1  # the shortfall describes this
    if expected.events_per_day is not None and expected.events_per_day_high < MOST_EVENTS_PER_DAY and not is_too_short:
        limit = f"; limit: {number(per_day)}" if per_day is not None else ""
        events = _range(expected.events_per_day_low, expected.events_per_day_high, number)
        lines.append(f"False events: expect {events} per day (95 % interval{limit})")
    lines += filter(None, [threshold.shortfall])
    if threshold.changed:
        lines.append(
            f"{counted(len(threshold.changed), 'recording')} changed within the calibration data, such as "
            f"{threshold.changed[0]}: they do not set the threshold, and may raise more alarms. Calibrate them with "
            "newer data"
        )
    return "\n".join([*lines, f"Test: {test}"])


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
        f"second case the stated rates do not hold: {remedy}"
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
