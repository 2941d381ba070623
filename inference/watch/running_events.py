"""Events along scores that come one by one: those of `inference.events.find_events` for the complete table.

An event is reported twice: as open as soon as it is long enough to count, and as closed when no later alarm can join
it. Its figures are kept as sums, so an event of any length takes the same memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from core.config.schema import Scoring
from inference.events import sentence_of
from inference.running import Running
from inference.top_channels import top_channels

_NS_PER_S = 1e9


class RunningEvents(Running):
    """Events of one recording.

    recording: its file id. settings: of threshold and events. first_ns: time of its first row, by default that of the
    first score. has_dates: whether times are since 1970, not since the start of the recording.
    """

    STATE = (
        "line", "last_line", "has_alarm", "is_open", "start_row", "start_ns", "end_ns", "scores", "alarms",
        "peak_score", "peak_ns", "sums_2c", "later_2c", "first_ns",
    )  # fmt: skip

    def __init__(
        self, recording: str, channels: Sequence[str], threshold: float, settings: Scoring, *,
        first_ns: int | None = None, has_dates: bool = True,
    ):  # fmt: skip
        self.recording, self.channels, self.threshold, self.settings = recording, tuple(channels), threshold, settings
        self.line = 0  # scores so far
        self.first_ns, self._knows_first, self._has_dates = first_ns or 0, first_ns is not None, has_dates
        self.sums_2c = np.zeros((2, len(self.channels)))
        self._forget()

    def _forget(self) -> None:
        self.last_line = -1  # of the newest score that belongs to the event; -1 without one
        self.has_alarm = self.is_open = 0
        self.start_row = self.start_ns = self.end_ns = self.scores = self.alarms = self.peak_ns = 0
        self.peak_score = -np.inf
        # Sums and numbers of the errors of each channel: within the event, and since its newest score that belongs.
        self.sums_2c = np.zeros_like(self.sums_2c)
        self.later_2c = np.zeros_like(self.sums_2c)

    def __call__(
        self, score_n: np.ndarray, error_nc: np.ndarray, row_n: np.ndarray, time_n: np.ndarray
    ) -> Iterator[dict[str, Any]]:
        """Reports of the next scores, all of one segment.

        score_n: float32 (n,), NaN where unscored. error_nc: (n, C) errors of which the score is the mean. row_n,
        time_n: int64 (n,), rows of the recording and their times in nanoseconds since 1970.
        """
        if self.line == 0 and len(time_n) and not self._knows_first:
            self.first_ns = int(time_n[0])
        is_alarm_n = score_n > self.threshold
        is_above_n = is_alarm_n | (score_n > self.settings.event_release * self.threshold)
        for at in range(len(score_n)):
            if self.last_line >= 0 or is_alarm_n[at]:
                yield from self._next(
                    float(score_n[at]), bool(is_alarm_n[at]), bool(is_above_n[at]), error_nc[at], row_n[at], time_n[at]
                )
            self.line += 1

    def end(self) -> Iterator[dict[str, Any]]:
        """Reports of the end of a segment: no later alarm can join its last event."""
        if self.is_open:
            yield self._report("closed")
        self._forget()

    def _next(
        self, score: float, is_alarm: bool, is_above: bool, error_c: np.ndarray, row: int, time_ns: int
    ) -> Iterator[dict[str, Any]]:
        if self.last_line >= 0 and self.line - self.last_line > self.settings.event_gap + 1:
            yield from self.end()
            if not is_alarm:
                return
        # The run of scores above the release contains an alarm.
        self.has_alarm = int(is_above and (bool(self.has_alarm) or is_alarm))
        observed_c = ~np.isnan(error_c)
        self.later_2c += np.stack([np.where(observed_c, error_c, 0.0), observed_c])
        if not self.has_alarm:
            return
        if self.last_line < 0:
            self.start_row, self.start_ns, self.scores = int(row), int(time_ns), 0
            first_line = self.line
        else:
            first_line = self.last_line + 1
        self.scores += self.line - first_line + 1
        self.sums_2c, self.later_2c = self.sums_2c + self.later_2c, np.zeros_like(self.later_2c)
        self.alarms += int(is_alarm)
        self.last_line, self.end_ns = self.line, int(time_ns)
        if score > self.peak_score:
            self.peak_score, self.peak_ns = score, int(time_ns)
        if not self.is_open and self._counts():
            self.is_open = 1
            yield self._report("open")

    def _counts(self) -> bool:
        """Whether the event is long enough."""
        seconds = (self.end_ns - self.start_ns) / _NS_PER_S
        return self.alarms >= self.settings.event_min_length and seconds >= self.settings.event_min_seconds

    def _report(self, state: str) -> dict[str, Any]:
        """A JSON document; apart from `id` and `state`, its keys are columns of `find_events`."""
        error_c = np.divide(*self.sums_2c, out=np.full(len(self.channels), np.nan), where=self.sums_2c[1] > 0)
        of_channel = top_channels(error_c[np.newaxis].astype(np.float32), np.array([0]), np.array([0]))[0]
        names_c = [name.replace(";", ",") for name in self.channels]
        facts = {
            "start": pd.Timestamp(self.start_ns) if self._has_dates else None,
            "start_seconds": (self.start_ns - self.first_ns) / _NS_PER_S,
            "duration_seconds": (self.end_ns - self.start_ns) / _NS_PER_S,
            "recording": self.recording,
            "severity": self.peak_score / self.threshold,
            "top_channels": "; ".join(names_c[channel] for channel in of_channel),
            "top_shares": "; ".join(f"{share:.0%}" for share in of_channel.values()),
        }
        return {
            "id": f"{self.recording}#{self.start_row}",
            "state": state,
            **facts,
            "start": self._date(self.start_ns),
            "end": self._date(self.end_ns),
            "end_seconds": (self.end_ns - self.first_ns) / _NS_PER_S,
            "scores": self.scores,
            "alarms": self.alarms,
            "peak_score": self.peak_score,
            "peak_time": self._date(self.peak_ns),
            "channels": [{"name": self.channels[channel], "share": share} for channel, share in of_channel.items()],
            "sentence": sentence_of(SimpleNamespace(**facts)),
        }

    def _date(self, time_ns: int) -> str | None:
        return str(np.datetime_as_string(np.datetime64(time_ns, "ns"), unit="ms")) if self._has_dates else None
