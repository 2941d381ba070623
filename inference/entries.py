"""The entries of a split that get a score: one per row of process sensors, one per window of vibration.

Suffixes: s score entry, k segment, c channel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from core.config.schema import Stream
from core.data.blocks import gathered
from core.data.windows import WindowSet

_VALUES_AT_A_TIME = 2**19


@dataclass(frozen=True)
class SplitErrors:
    """The entries of a split that get a score, in order of the rows, and the model's errors of them.

    error_sc: float32 (S, C) mean squared error in scaled units; NaN where values are missing or no window reaches. None
        without a model.
    row_s: int64 (S,) rows of the series; a window is assigned to its last row.
    segment_s: int64 (S,) number of the range within which scores are smoothed, ascending: a segment without a gap, for
        vibration a file.
    rows_per_entry: number of rows that an entry covers; `row_s` is the last of them.
    scratch: directory for arrays with an entry per row that are too large for memory; None uses memory.
    expected_sc: float32 (S, C) prediction of each row while it was masked, in scaled units, NaN where no window
        reaches; None for vibration, without a model, and if it was not kept.
    """

    error_sc: np.ndarray | None
    row_s: np.ndarray
    segment_s: np.ndarray
    rows_per_entry: int
    scratch: Path | None = None
    expected_sc: np.ndarray | None = None

    @classmethod
    def without_model(cls, stream: Stream, windows: WindowSet) -> Self:
        """The entries of a split, without the errors of a model."""
        entries = row_entries(windows) if stream == "patchtst" else window_entries(windows)
        return cls(None, *entries, scratch=windows.series.scratch)

    @property
    def entries(self) -> Self:
        """The same entries without the model's errors."""
        return replace(self, error_sc=None, expected_sc=None)


def row_entries(windows: WindowSet) -> tuple[np.ndarray, np.ndarray, int]:
    """`row_s`, `segment_s` and `rows_per_entry` where each row of the segments is an entry."""
    scratch = windows.series.scratch
    ranges = [
        (number, first, min(first + _VALUES_AT_A_TIME, stop))
        for number, (start, stop) in enumerate(windows.segments.rows_k2.tolist())
        for first in range(start, stop, _VALUES_AT_A_TIME)
    ]
    row_s = gathered((np.arange(first, stop) for _, first, stop in ranges), scratch)
    segment_s = gathered((np.full(stop - first, number) for number, first, stop in ranges), scratch)
    return row_s, segment_s, 1


def window_entries(windows: WindowSet) -> tuple[np.ndarray, np.ndarray, int]:
    """The same where each window is an entry."""
    return windows.starts_w + windows.window - 1, windows.file_of(), windows.window
