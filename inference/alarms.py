"""Alarms in order of time: how they join to events, and how many independent bursts they form.

Suffixes: s score, e event, b burst, m alarm.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from core.config.schema import Scoring

# A burst longer than this many gaps counts as several.
LONGEST_BURST = 10


class OpenEvent(NamedTuple):
    """An event that includes the score before the first one: number of its alarms so far, and the time of its first
    score in seconds."""

    alarms: int
    start_second: float


class Spans(NamedTuple):
    """Events along scores, int64 (E,) each: indices of the first score, of the last score, and of the score at which
    the event is long enough to count, or the number of scores if it is too short. For an event that was open before,
    the first index is -1, and the last one too if no score continues it."""

    first_e: np.ndarray
    last_e: np.ndarray
    counts_e: np.ndarray


def join_alarms(
    score_s: np.ndarray,
    threshold: float,
    segment_s: np.ndarray,
    second_s: np.ndarray,
    settings: Scoring,
    *,
    open_event: OpenEvent | None = None,
) -> Spans:
    """Joins the alarms of scores to events. The result includes events that are too short to count.

    An event starts with a score above the threshold and lasts while scores are above `event_release` times the
    threshold. Within a segment, events with at most `event_gap` scores between them are joined. An event counts if it
    has at least `event_min_length` alarms and lasts at least `event_min_seconds`.

    score_s: (S,), NaN where unscored. segment_s: number of each score's segment without a gap, ascending. second_s:
    time of each score, in seconds. open_event: in the segment of the first score.
    """
    if open_event is not None:  # one infinite score stands for all its scores
        score_s, second_s = np.append(score_s.dtype.type(np.inf), score_s), np.append(open_event.start_second, second_s)
        segment_s = np.append(segment_s[:1], segment_s)
    alarm_s = score_s > threshold
    alarms_before_s = np.append(0, np.cumsum(alarm_s))
    if open_event is not None:
        alarms_before_s[1:] += open_event.alarms - 1
    line_m = np.flatnonzero(_held(score_s, alarm_s, threshold, segment_s, settings.event_release))
    begins_m = np.ones(len(line_m), dtype=bool)
    begins_m[1:] = (np.diff(line_m) > settings.event_gap + 1) | (np.diff(segment_s[line_m]) != 0)
    first_e, last_e = line_m[begins_m], line_m[np.roll(begins_m, -1)]
    event_m = np.cumsum(begins_m) - 1
    alarms_m = alarms_before_s[line_m + 1] - alarms_before_s[first_e][event_m]
    seconds_m = second_s[line_m] - second_s[first_e][event_m]
    counts_m = (alarms_m >= settings.event_min_length) & (seconds_m >= settings.event_min_seconds)
    counts_e = np.minimum.reduceat(np.where(counts_m, line_m, len(score_s)), np.flatnonzero(begins_m))
    shift = 0 if open_event is None else 1
    return Spans(first_e - shift, last_e - shift, counts_e - shift)


def event_spans(
    score_s: np.ndarray, threshold: float, segment_s: np.ndarray, second_s: np.ndarray, settings: Scoring
) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the first and last score of each event that counts, int64 (E,) each. Parameters as `join_alarms`."""
    spans = join_alarms(score_s, threshold, segment_s, second_s, settings)
    kept_e = spans.counts_e < len(score_s)
    return spans.first_e[kept_e], spans.last_e[kept_e]


def _held(
    score_s: np.ndarray, alarm_s: np.ndarray, threshold: float, segment_s: np.ndarray, release: float
) -> np.ndarray:
    """Alarms, and the scores after them that stay above the release: bool (S,)."""
    if release == 1.0:
        return alarm_s
    above_s = alarm_s | (score_s > release * threshold)
    continues_s = above_s & np.append(False, above_s[:-1]) & (np.diff(segment_s, prepend=-1) == 0)
    alarms_s = np.cumsum(alarm_s)
    # Number of alarms before each run above the release.
    line_s = np.maximum.accumulate(np.where(continues_s, 0, np.arange(len(above_s))))
    return above_s & (alarms_s > alarms_s[line_s] - alarm_s[line_s])


def burst_sizes(alarm_m: np.ndarray, segment_m: np.ndarray, gap: int) -> np.ndarray:
    """Number of alarms in each burst, int64 (B,). Alarms at most `gap` scores apart belong to one burst: smoothed
    neighbours are correlated, so one disturbance causes many alarms, and only bursts are independent of each other. A
    burst that lasts much longer than the correlation counts as several.

    alarm_m: indices of the alarms, ascending. segment_m: number of the segment of each alarm.
    """
    if not len(alarm_m):
        return np.empty(0, dtype=np.int64)
    begin_b = np.flatnonzero((np.diff(alarm_m) > gap) | (np.diff(segment_m) != 0)) + 1
    size_b = np.diff(np.concatenate([[0], begin_b, [len(alarm_m)]]))
    pieces_b = -(-size_b // (LONGEST_BURST * gap))
    return np.repeat(size_b // pieces_b, pieces_b) + _first(size_b % pieces_b, pieces_b)


def _first(ones_b: np.ndarray, pieces_b: np.ndarray) -> np.ndarray:
    """1 for the first `ones_b` of the `pieces_b` pieces of each burst, 0 for the others: int64, one value per piece."""
    number_p = np.arange(pieces_b.sum()) - np.repeat(np.cumsum(pieces_b) - pieces_b, pieces_b)
    return (number_p < np.repeat(ones_b, pieces_b)).astype(np.int64)
