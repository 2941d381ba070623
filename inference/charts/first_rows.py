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

    def mean_errors(past: int) -> np.ndarray:
        """Mean errors (B, C) of the rows from each start on, with so many rows before it."""
        rows_k2 = np.column_stack([start_s - past, stop_s])
        error_sc = np.empty((num_rows(rows_k2), num_channels))
        write(error_sc, entries_of(rows_k2), values_nc, rows_k2)
        age_s = rows_of(rows_k2) - np.repeat(start_s, lengths_of(rows_k2)) + 1
        after_sc, line_s = error_sc[age_s > 0], _line_of(age_s[age_s > 0], num_lines + 1)
        sum_bc, count_bc = np.zeros((2, num_lines + 1, num_channels))
        np.add.at(sum_bc, line_s, np.nan_to_num(after_sc))
        np.add.at(count_bc, line_s, ~np.isnan(after_sc))
        return sum_bc / np.maximum(count_bc, 1)

    found_bc = np.maximum(mean_errors(0) / np.maximum(mean_errors(num_past), _LEAST_ERROR), 1.0)
    found_bc[-1] = 1.0
    return found_bc


def factor_of(age_n: np.ndarray, factor_bc: np.ndarray) -> np.ndarray:
    """The factors (n, C) of rows. age_n: the number of each row in its segment, from 1."""
    return factor_bc[_line_of(age_n, len(factor_bc))]


def _line_of(age_n: np.ndarray, num_lines: int) -> np.ndarray:
    return np.minimum(np.log2(age_n).astype(np.int64), num_lines - 1)
