"""Factors of the errors of the first rows of a segment.

What happened before a recording, or during a gap, is not known, but a slow channel still follows it: charts whose
regressors are means over many rows have large errors there. The factors are measured at evenly spaced rows of the
reference data, as if a segment began there. Suffixes: n row, s row of a piece, or start, c channel, k segment, b power
of two of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from core.data.segments import entries_of, lengths_of, num_rows, rows_of

_STARTS = 32
# Lower errors with a known past count as so much: rare commands make them small.
_LEAST_ERROR = 0.5


def factors(
    write: Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], None],
    values_nc: np.ndarray,
    segments_k2: np.ndarray,
    known_rows: float,
) -> np.ndarray:
    """The mean errors of rows after a start, relative to those of the same rows with a known past, at least 1: float64
    (B, C). Row n of a segment, from 1, has those of line log2 n, and later rows those of the last line, which are 1.

    All are 1 if all segments are too short for a past: the reference means are then those of such rows. write: of
    charts without such factors. values_nc: (N, C). segments_k2: int64 (K, 2), ranges of reference rows. known_rows:
    number of rows after which the rows before a segment no longer matter.
    """
    num_lines, num_channels = math.ceil(math.log2(known_rows)), values_nc.shape[1]
    num_past = 2**num_lines
    later_k2 = segments_k2[lengths_of(segments_k2) > num_past] + np.array([num_past, 0])
    if not len(later_k2):
        return np.ones((1, num_channels))
    row_s = np.linspace(0, num_rows(later_k2), _STARTS, endpoint=False).astype(np.int64)
    segment_s = np.searchsorted(entries_of(later_k2), row_s, side="right") - 1
    start_s = later_k2[segment_s, 0] + row_s - entries_of(later_k2)[segment_s]
    stop_s = np.minimum(start_s + num_past, later_k2[segment_s, 1])

    after_k2 = np.column_stack([start_s, stop_s])
    row_n = rows_of(after_k2)
    line_n = _line_of(row_n - np.repeat(start_s, lengths_of(after_k2)) + 1, num_lines + 1)

    def errors(rows_k2: np.ndarray) -> np.ndarray:
        error_nc = np.empty((num_rows(rows_k2), num_channels))
        write(error_nc, entries_of(rows_k2), values_nc, rows_k2)
        return error_nc

    def means(error_nc: np.ndarray) -> np.ndarray:
        """Mean errors (B, C) of the rows after the starts."""
        sum_bc, count_bc = np.zeros((2, num_lines + 1, num_channels))
        np.add.at(sum_bc, line_n, np.nan_to_num(error_nc))
        np.add.at(count_bc, line_n, ~np.isnan(error_nc))
        return sum_bc / np.maximum(count_bc, 1)

    # In short reference data, the same rows follow many starts, and precede others.
    known_k2 = _merged(after_k2 - np.array([num_past, 0]))
    known_nc = errors(known_k2)
    range_n = np.searchsorted(known_k2[:, 0], row_n, side="right") - 1
    known_nc = known_nc[entries_of(known_k2)[range_n] + row_n - known_k2[range_n, 0]]
    found_bc = np.maximum(means(errors(after_k2)) / np.maximum(means(known_nc), _LEAST_ERROR), 1.0)
    found_bc[-1] = 1.0
    return found_bc


def _merged(rows_k2: np.ndarray) -> np.ndarray:
    """Ranges of rows in order of their starts, those that overlap as one."""
    begins = np.append(True, rows_k2[1:, 0] >= np.maximum.accumulate(rows_k2[:-1, 1]))
    return np.column_stack([rows_k2[begins, 0], np.maximum.reduceat(rows_k2[:, 1], np.flatnonzero(begins))])


def factor_of(age_n: np.ndarray, factor_bc: np.ndarray) -> np.ndarray:
    """The factors (n, C) of rows. age_n: the number of each row in its segment, from 1."""
    return factor_bc[_line_of(age_n, len(factor_bc))]


def _line_of(age_n: np.ndarray, num_lines: int) -> np.ndarray:
    return np.minimum(np.log2(age_n).astype(np.int64), num_lines - 1)
