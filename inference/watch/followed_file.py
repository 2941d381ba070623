"""One file that is followed: its new rows in order of time, their scores and events.

Rules for rows:

- Repeated: a row with the time stamp of the newest row is left out; the first one counts, as in complete files.
- Late: a row that is older than the newest row is left out. A complete file would be sorted; a monitor cannot do this
  after it has reported.
- Missing: a step longer than `data.gap_factor` steps of the calibration data ends a segment; means, charts and model
  start again. For a complete file, the median step of the file is used instead. Shorter gaps are not detected.
- Unreadable: the row is left out; a cell that cannot be read is a missing value.

Each kind is logged with file, row and remedy, for the first rows of each file.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from core.data.cleaning import is_clock_set_back
from core.data.recording import NS_PER_S
from core.errors import DataError
from inference.detector.split_scores import SplitScores
from inference.running import Running
from inference.watch.growing_table import GrowingTable, NewRows
from inference.watch.monitor import Monitor, Scored
from inference.watch.running_detector import RunningDetector
from inference.watch.running_events import RunningEvents

log = logging.getLogger(__name__)

# Maximum number of logged rows of each kind for a file.
_MOST_LOGGED = 5


class FollowedFile(Running):
    """One growing file of process sensors. path: the file. file_id: its name in scores and events."""

    STATE = ("offset", "line", "num_rows", "newest_ns", "segment", "waiting_n", "is_idle")

    def __init__(self, monitor: Monitor, path: Path, file_id: str):
        self.path, self.file_id, self._monitor = path, file_id, monitor
        self._table = GrowingTable(path, monitor.channels, monitor.config.data)
        self.num_rows, self.newest_ns, self.segment = 0, np.iinfo(np.int64).min, -1
        self.waiting_n = np.empty(0, dtype=np.int64)  # times of the rows without a score
        self.is_idle = 0  # 1 if its last segment was ended because there were no new rows
        self._logged: Counter[str] = Counter()
        detector, num_channels = monitor.detector, len(monitor.channels)
        self._scores = RunningDetector(detector, monitor.model, monitor.config, file_id, num_channels)
        self._events = RunningEvents(
            file_id, monitor.channels, detector.threshold.value, monitor.config.scoring,
            regression=detector.cross_regression(file_id),
        )  # fmt: skip

    @property
    def offset(self) -> int:
        """Bytes of the file that have been read."""
        return self._table.offset

    @offset.setter
    def offset(self, value: int) -> None:
        self._table.offset = value

    @property
    def line(self) -> int:
        return self._table.line

    @line.setter
    def line(self, value: int) -> None:
        self._table.line = value

    def advance(self, limit: int, *, is_complete: bool = False) -> list[Scored] | None:
        """Scores at most `limit` new rows; None if there are none. is_complete: as in `GrowingTable.read`.

        Raises DataError and OSError as `GrowingTable.read`.
        """
        rows = self._table.read(limit, is_complete=is_complete)
        if rows is None:
            return None
        for problem in rows.problems:
            self._log("row", problem)
        rows = self._in_order(rows)
        begins_n = self._starts_segment(rows.time_n)
        bounds = [0, *(np.flatnonzero(begins_n[1:]) + 1).tolist(), len(begins_n)]
        return [
            scored
            for first, stop in pairwise(bounds)
            if first < stop
            for scored in self._continued(rows, first, stop, begins=bool(begins_n[first]))
        ]

    def end(self) -> list[Scored]:
        """Scores the remaining rows and closes an open event: the file has ended, or has had no new rows for a long
        time."""
        self.is_idle = 1
        return [] if self.segment < 0 else [self._scored(self._scores.end(), ended=True)]

    # ----------------------------------------------------------------------------------------------------------- order
    def _in_order(self, rows: NewRows) -> NewRows:
        newest_n = np.maximum.accumulate(np.append(self.newest_ns, rows.time_n))[:-1]
        kept_n = rows.time_n > newest_n
        for at in np.flatnonzero(~kept_n):
            repeated = rows.time_n[at] == newest_n[at]
            kind = "repeated" if repeated else "late"
            problem = "repeats the time stamp of the newest row" if repeated else "is older than the newest row"
            hint = "write each row once" if repeated else "write rows in order of time"
            if is_clock_set_back(float(newest_n[at] - rows.time_n[at]) / NS_PER_S):
                hint += "; if local time was set back in autumn, write UTC, or the offset in each time stamp (+01:00)"
            row = int(rows.line_n[at])
            self._log(kind, DataError(f"{problem}: it is left out", path=self.path, row=row, hint=hint))
        return NewRows(rows.values_nc[kept_n], rows.time_n[kept_n], rows.line_n[kept_n])

    def _starts_segment(self, time_n: np.ndarray) -> np.ndarray:
        """Which rows begin a segment: bool (n,)."""
        is_first = self.segment < 0
        step_n = np.diff(time_n, prepend=time_n[:1] if is_first else self.newest_ns)
        begins_n = step_n > self._monitor.config.data.gap_factor * self._monitor.step_s * NS_PER_S
        begins_n[:1] |= is_first or bool(self.is_idle)
        return begins_n

    def _continued(self, rows: NewRows, first: int, stop: int, *, begins: bool) -> Iterator[Scored]:
        """Scores rows of one segment. If they begin a segment, first ends the segment before."""
        if begins:
            if self.segment >= 0 and not self.is_idle:
                yield self._scored(self._scores.end(), ended=True)
            self.segment, self.is_idle = self.segment + 1, 0
        self.num_rows += stop - first
        self.newest_ns = int(rows.time_n[stop - 1])
        self.waiting_n = np.concatenate([self.waiting_n, rows.time_n[first:stop]])
        yield self._scored(self._scores(rows.values_nc[first:stop], self.segment))

    # ---------------------------------------------------------------------------------------------------------- scores
    def _scored(self, scores: SplitScores | None, *, ended: bool = False) -> Scored:
        score_n, top_n = (np.empty(0), np.empty(0)) if scores is None else (scores.score_s, scores.top_channel_s)
        first, count = self.num_rows - len(self.waiting_n), len(score_n)
        row_n, time_n = np.arange(first, first + count), self.waiting_n[:count]
        self.waiting_n = self.waiting_n[count:].copy()
        reports = []
        if scores is not None:
            reports += self._events(score_n, scores.channel_error_sc, row_n, time_n, scores.regressor_sf)
        if ended:
            reports += self._events.end()
        return Scored(self.file_id, row_n, time_n, score_n, top_n, reports)

    def _log(self, kind: str, problem: DataError) -> None:
        self._logged[kind] += 1
        if self._logged[kind] <= _MOST_LOGGED:
            more = "" if self._logged[kind] < _MOST_LOGGED else "; more of this kind are not logged"
            log.warning("%s%s", problem, more)
