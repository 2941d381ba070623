"""Row ranges of a series without a gap, and the recordings they belong to. Suffixes: k segment, n row, r recording."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Segments:
    """Half-open row ranges of a series, each within one recording.

    rows_k2: int64 (K, 2), none of them empty. offsets_r: int64 (R + 1,), recording r has the rows offsets_r[r] to
    offsets_r[r + 1] of the series.
    """

    rows_k2: np.ndarray
    offsets_r: np.ndarray

    @classmethod
    def of(cls, rows_k2: np.ndarray, offsets_r: np.ndarray) -> Segments:
        """Without the empty ones of `rows_k2`."""
        return cls(_without_empty(rows_k2), offsets_r)

    def __len__(self) -> int:
        return len(self.rows_k2)

    @property
    def start_k(self) -> np.ndarray:
        return self.rows_k2[:, 0]

    @property
    def stop_k(self) -> np.ndarray:
        return self.rows_k2[:, 1]

    @property
    def lengths_k(self) -> np.ndarray:
        return lengths_of(self.rows_k2)

    @cached_property
    def recording_k(self) -> np.ndarray:
        """Index of each segment's recording, (K,)."""
        return recording_at(self.offsets_r, self.start_k)

    @property
    def recordings(self) -> list[int]:
        """The recordings that have a segment, ascending, each once."""
        return np.unique(self.recording_k).tolist()

    @property
    def local_k2(self) -> np.ndarray:
        """The ranges, counted from the first row of their recording: int64 (K, 2)."""
        return self.rows_k2 - self.offsets_r[self.recording_k, np.newaxis]

    def at(self, row_n: np.ndarray) -> np.ndarray:
        """Index of the segment that each row belongs to, (N,); the segments must be ascending."""
        return np.searchsorted(self.start_k, row_n, side="right") - 1


def offsets_of(lengths_r: Iterable[int]) -> np.ndarray:
    """Where recordings of these lengths start in a series, and where the last one ends: int64 (R + 1,)."""
    return np.cumsum([0, *lengths_r], dtype=np.int64)


def lengths_of(rows_k2: np.ndarray) -> np.ndarray:
    """Number of rows in each range, (K,)."""
    return rows_k2[:, 1] - rows_k2[:, 0]


def num_rows(rows_k2: np.ndarray) -> int:
    """Number of rows in all ranges."""
    return int(lengths_of(rows_k2).sum())


def entries_of(rows_k2: np.ndarray) -> np.ndarray:
    """Index of each range's first row among the rows of all ranges, in order, (K,)."""
    lengths_k = lengths_of(rows_k2)
    return np.cumsum(lengths_k) - lengths_k


def rows_of(rows_k2: np.ndarray) -> np.ndarray:
    """The rows of all ranges, in order, int64 (N,)."""
    shift_k = rows_k2[:, 0] - entries_of(rows_k2)
    return np.repeat(shift_k, lengths_of(rows_k2)) + np.arange(num_rows(rows_k2))


def rows_between(rows_k2: np.ndarray, first: int, stop: int) -> np.ndarray:
    """The ranges (K, 2) of the rows `first` to `stop`, excluded, counted along all ranges."""
    shift_k1 = (rows_k2[:, 0] - entries_of(rows_k2))[:, np.newaxis]
    return _without_empty(rows_k2.clip(first + shift_k1, stop + shift_k1))


def _without_empty(rows_k2: np.ndarray) -> np.ndarray:
    return rows_k2[rows_k2[:, 0] < rows_k2[:, 1]]


def recording_at(offsets_r: np.ndarray, row_n: np.ndarray) -> np.ndarray:
    """Index of the recording that each row of a series belongs to, int64 (N,)."""
    return np.searchsorted(offsets_r, row_n, side="right") - 1


def window_starts(rows_k2: np.ndarray, window: int, stride: int, *, cover_end: bool = False) -> np.ndarray:
    """Starts of the windows inside each half-open row range (K, 2), int64 (W,).

    `cover_end` adds a last window at the end of a range, so that every row is in a window.
    """
    starts = []
    for first, stop in rows_k2:
        last = stop - window
        if last < first:
            continue
        inside = np.arange(first, last + 1, stride, dtype=np.int64)
        starts.append(np.append(inside, last) if cover_end and inside[-1] != last else inside)
    return np.concatenate(starts) if starts else np.empty(0, dtype=np.int64)
