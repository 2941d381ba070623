"""Events along scores that come in pieces: the same as `inference.events.finding.find_events` in the complete table.

An event is reported twice: as open when it is long enough to count, and as closed when no later alarm can join it. Only
its statistics are kept, so an event of any length needs the same memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from core.config.schema import Scoring
from core.data.recording import NS_PER_S
from inference.alarms import OpenEvent, join_alarms
from inference.charts import attribution
from inference.charts.cross_channel_regression import CrossChannelRegression
from inference.events.finding import TOP_CHANNELS, EventStatistics, ScoredRows, event_table
from inference.running import Running

_UNKNOWN = np.iinfo(np.int64).min


class RunningEvents(Running):
    """Events of one recording.

    recording: its file id. settings: settings of threshold and events. first_ns: time of its first row, by default that
    of the first score. has_dates: whether times are since 1970, not since the start of the recording. regression:
    attributes events to channels (`inference.charts.attribution`); None: by the errors of the channels.
    """

    STATE = ("first_ns", "is_open")

    def __init__(
        self, recording: str, channels: Sequence[str], threshold: float, settings: Scoring, *,
        first_ns: int = _UNKNOWN, has_dates: bool = True, regression: CrossChannelRegression | None = None,
    ):  # fmt: skip
        self.recording, self.channels, self.threshold, self.settings = recording, tuple(channels), threshold, settings
        self.first_ns, self._has_dates, self._regression = first_ns, has_dates, regression
        self._reset()

    def _reset(self) -> None:
        # Figures of the event that later scores can join, empty if there is none, and the rows after its last score.
        none_2 = np.empty((2, 0), dtype=np.int64)
        none_c = np.empty((0, len(self.channels)))
        none_f = None if self._regression is None else np.empty((0, len(self._regression.precision_ff)))
        self._after = self._rows(np.empty(0, dtype=np.float32), none_c, *none_2, none_f)
        self._event = EventStatistics.of(self._after, *none_2)
        self.is_open = 0  # 1 if it was reported

    def __call__(
        self,
        score_n: np.ndarray,
        error_nc: np.ndarray,
        row_n: np.ndarray,
        time_n: np.ndarray,
        regressor_nf: np.ndarray | None = None,
    ) -> list[dict[str, Any]]:
        """Reports for the next scores, all of one segment.

        score_n: float32 (n,), NaN where unscored. error_nc: (n, C) errors; the score is their mean. row_n, time_n:
        int64 (n,), rows of the recording and their times in nanoseconds. regressor_nf: regressors (n, F) of the
        regression; None without one.
        """
        if self.first_ns == _UNKNOWN and len(time_n):
            self.first_ns = int(time_n[0])
        if not len(score_n) or not (len(self._event) or (score_n > self.threshold).any()):
            return []
        rows = self._after.followed_by(self._rows(score_n, error_nc, row_n, time_n, regressor_nf))
        event, segment_s = self._event, np.zeros(len(rows), dtype=np.int64)
        open_event = OpenEvent(event.alarms_e.item(), event.start_second_e.item()) if len(event) else None
        spans = join_alarms(
            rows.score_s, self.threshold, segment_s, rows.second_s, self.settings, open_event=open_event
        )
        reports = []
        for first, last, counts in np.transpose(spans).tolist():
            if not self.is_open and counts < len(rows):
                self.is_open = 1
                reports.append(self._report("open", self._until(rows, first, counts)))
            self._event, self._after = self._until(rows, first, last), rows[last + 1 :]
            if len(self._after) > self.settings.event_gap:
                reports += self.end()
        return reports

    def end(self) -> list[dict[str, Any]]:
        """Reports of the end of a segment: no later alarm can join its last event."""
        reports = [self._report("closed", self._event)] if self.is_open else []
        self._reset()
        return reports

    def _rows(
        self,
        score_n: np.ndarray,
        error_nc: np.ndarray,
        row_n: np.ndarray,
        time_n: np.ndarray,
        regressor_nf: np.ndarray | None,
    ) -> ScoredRows:
        date_n = time_n.astype("datetime64[ns]")
        if not self._has_dates:
            date_n[:] = np.datetime64("NaT")
        second_n = (time_n - self.first_ns) / NS_PER_S
        regressor_nf = np.empty((len(row_n), 0)) if regressor_nf is None else regressor_nf
        return ScoredRows(row_n, date_n, second_n, score_n, score_n > self.threshold, error_nc, regressor_nf)

    def _until(self, rows: ScoredRows, first: int, last: int) -> EventStatistics:
        """The event from row `first`, -1 if it was open before, to row `last`."""
        if last < 0:
            return self._event
        statistics = EventStatistics.of(rows, np.array([max(first, 0)]), np.array([last]))
        return self._event.continued(statistics) if first < 0 else statistics

    def _report(self, state: Literal["open", "closed"], event: EventStatistics) -> dict[str, Any]:
        """A JSON document; apart from `id` and `state`, its keys are columns of `event_table`."""
        top = None
        if self._regression is not None:
            error_c, moment_ff = event.mean_error_ec[0], event.moment_eff[0]
            top = [attribution.shares(self._regression, error_c, moment_ff, TOP_CHANNELS)]
        table = event_table(event, [self.recording], np.array([self.threshold]), self.channels, top)
        (facts,) = table.to_dict("records")
        for name in ("start", "end", "peak_time"):
            facts[name] = None if pd.isna(facts[name]) else facts[name].isoformat(timespec="milliseconds")
        return {"id": f"{self.recording}#{event.row_e.item()}", "state": state, **facts}
