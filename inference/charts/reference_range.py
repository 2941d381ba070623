"""The range of the level of each channel in the reference rows, and how far a level is outside of it.

The level is the exponentially weighted mean of the standardised values.

Channels that leave their range together fit each other as well as before. Charts of how they fit each other do not
show such a fault, however large it is.

A channel that drifts leaves its range without a fault. Each end is therefore moved outwards by as much as the levels of
one fold of the reference rows go beyond those of all others, and `drift_c` says how much the folds differ.

Suffixes: n row, c channel, f fold, k segment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from core.data.blocks import slices
from inference.charts.reference_rows import rows_of_folds

_VALUES_AT_A_TIME = 2**20


@dataclass(frozen=True)
class ReferenceRange:
    """low_c, high_c: ends of the range of the levels; they are infinite for a channel without a value.
    drift_c: the variance of the levels of all reference rows divided by the mean variance within a fold, at least 1;
    about 4 for a random walk. All are float64 (C,)."""

    low_c: np.ndarray
    high_c: np.ndarray
    drift_c: np.ndarray

    @classmethod
    def fit(cls, level_nc: np.ndarray, segments_k2: np.ndarray) -> Self:
        """level_nc: levels of the reference rows (S, C) of the segments (K, 2), NaN missing."""
        folds = [_moments_and_ends(fold_nc) for fold_nc in rows_of_folds(level_nc, segments_k2)]
        moments, low, high = (np.array(each) for each in zip(*folds, strict=True))
        return cls(-_end(-low), _end(high), _drift(moments))

    def excess(self, level_nc: np.ndarray) -> np.ndarray:
        """Distances of levels (n, C) from the range, 0 inside of it; NaN where a value is missing."""
        return np.maximum(np.maximum(level_nc - self.high_c, self.low_c - level_nc), 0.0)


def _moments_and_ends(level_nc: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Number, sum and sum of squares of the levels of a fold, (3, C); its minimum (C,), inf without a value; its
    maximum (C,), -inf without a value."""
    num_channels = level_nc.shape[1]
    moment_3c, low_c, high_c = (
        np.zeros((3, num_channels)),
        np.full(num_channels, np.inf),
        np.full(num_channels, -np.inf),
    )
    for piece in slices(level_nc, num_values=_VALUES_AT_A_TIME):
        piece_nc = level_nc[piece].astype(np.float64)
        moment_3c += (~np.isnan(piece_nc)).sum(axis=0), np.nansum(piece_nc, axis=0), np.nansum(piece_nc**2, axis=0)
        low_c, high_c = np.fmin(low_c, np.fmin.reduce(piece_nc)), np.fmax(high_c, np.fmax.reduce(piece_nc))
    return moment_3c, low_c, high_c


def _end(high_fc: np.ndarray) -> np.ndarray:
    """The high end of the range (C,), from the maximum of each fold."""
    second_c, first_c = np.sort(high_fc, axis=0)[[max(len(high_fc) - 2, 0), -1]]
    known_c = np.where(np.isfinite(first_c), first_c, 0.0)
    end_c = 2 * known_c - np.where(np.isfinite(second_c), second_c, known_c)
    return np.where(np.isfinite(first_c), end_c, np.inf)


def _drift(moment_f3c: np.ndarray) -> np.ndarray:
    """The variance of all rows divided by the mean variance within a fold, at least 1: (C,)."""
    within_c = np.sum([_squares(moment_3c) for moment_3c in moment_f3c], axis=0)
    all_c = _squares(moment_f3c.sum(axis=0))
    return np.maximum(all_c / np.maximum(within_c, 1e-9), 1.0)


def _squares(moment_3c: np.ndarray) -> np.ndarray:
    """The sum of the squared distances from the mean, (C,)."""
    count_c, sum_c, square_c = moment_3c
    return np.maximum(square_c - sum_c**2 / np.maximum(count_c, 1), 0.0)
