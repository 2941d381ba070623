"""Reference rows of process sensors, to which charts are fitted: their moments, and folds for cross-fitting.

Reference rows are scored by charts that were fitted without them (cross-fitting: Chernozhukov et al., The Econometrics
Journal 2018), so that their errors are as large as those of new rows. Folds are blocks of time, so that charts that fit
a drifting process badly also have large reference errors, and count less.

The split `calibration` is scored by charts fitted to the other reference splits (split conformal prediction:
Papadopoulos et al., ECML 2002). Folds would give a threshold that is too low for a plant that drifts: a fold in the
middle has reference rows before and after it, new data has them only before.

Suffixes: n row, c channel, k segment or fold.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import add, sub
from typing import Self

import numpy as np

from core.data.blocks import pieces
from core.data.segments import num_rows, rows_between

log = logging.getLogger(__name__)

FOLDS = 4
# Standard deviation of a channel that is constant in reference data, as a share of its absolute value, or of 1 if that
# is 0.
CONSTANT_SHARE = 0.01
_VALUES_AT_A_TIME = 2**20


@dataclass
class Sums:
    """Sums over rows, which can be added and subtracted: those of all rows, of a fold, or of all but a fold."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*map(add, vars(self).values(), vars(other).values()))

    def __sub__(self, other: Self) -> Self:
        return type(self)(*map(sub, vars(self).values(), vars(other).values()))

    @classmethod
    def total(cls, each: Iterable[Self]) -> Self:
        return reduce(add, each)


def moments(values_nc: np.ndarray, segments_k2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the observed values in segments (K, 2), float64 (C,) each. The deviation of a
    constant channel is `CONSTANT_SHARE` of its largest absolute value."""
    num_channels = values_nc.shape[1]
    count_c, sum_c, level_c = (np.zeros(num_channels) for _ in range(3))
    for rows_nc in float64_pieces(values_nc, segments_k2):
        count_c += (~np.isnan(rows_nc)).sum(axis=0)
        sum_c += np.nansum(rows_nc, axis=0)
        level_c = np.fmax(level_c, np.nan_to_num(np.abs(rows_nc)).max(axis=0, initial=0.0))
    mean_c = sum_c / np.maximum(count_c, 1)
    square_c = sum(np.nansum((rows_nc - mean_c) ** 2, axis=0) for rows_nc in float64_pieces(values_nc, segments_k2))
    std_c = np.sqrt(square_c / np.maximum(count_c, 1))
    still_c = std_c <= 1e-9 * level_c  # rounding of a constant
    return mean_c, np.where(still_c, CONSTANT_SHARE * np.where(level_c > 0, level_c, 1.0), std_c)


def float64_pieces(values_nc: np.ndarray, segments_k2: np.ndarray) -> Iterator[np.ndarray]:
    """The rows of segments (K, 2) in pieces of one segment each, float64 (n, C)."""
    size = max(1, _VALUES_AT_A_TIME // values_nc.shape[1])
    return (rows_nc.astype(np.float64) for _, rows_nc in pieces(values_nc, segments_k2, size))


def folds_of(segments_k2: np.ndarray) -> list[np.ndarray]:
    """The rows of all segments in `FOLDS` blocks of time, each a list of ranges (K, 2)."""
    bounds = np.linspace(0, num_rows(segments_k2), FOLDS + 1).astype(np.int64)
    folds = [rows_between(segments_k2, first, stop) for first, stop in pairwise(bounds)]
    return [fold_k2 for fold_k2 in folds if len(fold_k2)]


def rows_of_folds(values_nc: np.ndarray, segments_k2: np.ndarray) -> list[np.ndarray]:
    """The rows (S, C) of all segments (K, 2), divided into the folds of `folds_of`; views."""
    sizes = [num_rows(fold_k2) for fold_k2 in folds_of(segments_k2)]
    return np.split(values_nc, np.cumsum(sizes)[:-1])


def held_out(
    reference_k2: np.ndarray, calibration_k2: np.ndarray, *, fewest: int = 0
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs of segments (K, 2): those to fit charts to, and calibration segments to score with these charts. Together,
    the pairs contain all calibration segments.

    Charts are fitted to the other reference rows if these are at least as many as the calibration rows, and at least
    `fewest`; otherwise, for each fold, to all rows outside of it.
    """
    others_k2 = reference_k2[~np.isin(reference_k2[:, 0], calibration_k2[:, 0])]
    num_others, num_calibration = num_rows(others_k2), num_rows(calibration_k2)
    if not num_calibration:
        return
    if num_others >= max(fewest, num_calibration):
        yield others_k2, calibration_k2
        return
    how_many = f"only {num_others}" if num_others else "no"
    log.info(
        "the %d calibration rows are scored out of fold: there are %s other reference rows to fit charts to",
        num_calibration, how_many,
    )  # fmt: skip
    folds = folds_of(reference_k2)
    for left_out, fold_k2 in enumerate(folds):
        others = [each_k2 for number, each_k2 in enumerate(folds) if number != left_out] or folds
        rest_k2 = np.concatenate(others)
        clipped_k2 = np.concatenate([fold_k2.clip(start, stop) for start, stop in calibration_k2])
        scored_k2 = clipped_k2[clipped_k2[:, 0] < clipped_k2[:, 1]]
        if len(scored_k2):
            yield rest_k2[np.argsort(rest_k2[:, 0])], scored_k2
