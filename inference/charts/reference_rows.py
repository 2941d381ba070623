"""Normal rows as the statistics of process sensors learn from them: standardised, and dealt to folds of neighbours.

Normal rows are judged by what did not see them (cross-fitting: Chernozhukov et al., The Econometrics Journal 2018), so
that their errors are as large as those of new rows. Folds are neighbours in time: what drifts within the normal data is
foretold badly there, and so is trusted less.

The part `calibration` is judged by what the other normal parts teach alone (split conformal prediction: Papadopoulos et
al., ECML 2002): a fold in the middle is foretold from both sides, the future is not, and the threshold of a plant that
drifts would come out too low.

Suffixes: n row, c channel, k stretch or fold.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from core.data.blocks import Pages

log = logging.getLogger(__name__)

FOLDS = 4
# The standard deviation of a channel that never moves in normal data: a share of its level, and of 1 where that is 0.
CONSTANT_SHARE = 0.01
_VALUES_AT_A_TIME = 2**20


def moments(values_nc: np.ndarray, stretches_k2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the observed values in stretches (K, 2), float64 (C,) each; a channel that never
    moves gets a share of its level."""
    num_channels = values_nc.shape[1]
    count_c, sum_c, level_c = (np.zeros(num_channels) for _ in range(3))
    for rows_nc in _pieces(values_nc, stretches_k2):
        count_c += (~np.isnan(rows_nc)).sum(axis=0)
        sum_c += np.nansum(rows_nc, axis=0)
        level_c = np.fmax(level_c, np.nan_to_num(np.abs(rows_nc)).max(axis=0, initial=0.0))
    mean_c = sum_c / np.maximum(count_c, 1)
    square_c = sum(np.nansum((rows_nc - mean_c) ** 2, axis=0) for rows_nc in _pieces(values_nc, stretches_k2))
    std_c = np.sqrt(square_c / np.maximum(count_c, 1))
    still_c = std_c <= 1e-9 * level_c  # what rounding leaves of a constant
    return mean_c, np.where(still_c, CONSTANT_SHARE * np.where(level_c > 0, level_c, 1.0), std_c)


def _pieces(values_nc: np.ndarray, stretches_k2: np.ndarray) -> Iterator[np.ndarray]:
    size, pages = max(1, _VALUES_AT_A_TIME // values_nc.shape[1]), Pages(values_nc)
    for start, stop in stretches_k2:
        for first in range(start, stop, size):
            rows_nc = values_nc[first : min(first + size, stop)]
            yield rows_nc.astype(np.float64)
            pages.looked_at(rows_nc.nbytes)


def folds_of(stretches_k2: np.ndarray) -> list[np.ndarray]:
    """The rows of all stretches in `FOLDS` parts of neighbours, each a list of ranges (K, 2)."""
    end_k = np.cumsum(stretches_k2[:, 1] - stretches_k2[:, 0])
    bounds = np.linspace(0, end_k[-1], FOLDS + 1).astype(np.int64)
    shift_k = stretches_k2[:, 1] - end_k
    folds = []
    for low, high in pairwise(bounds):
        ranges_k2 = stretches_k2.clip((low + shift_k)[:, np.newaxis], (high + shift_k)[:, np.newaxis])
        folds.append(ranges_k2[ranges_k2[:, 0] < ranges_k2[:, 1]])
    return [fold for fold in folds if len(fold)]


def held_out(
    normal_k2: np.ndarray, calibration_k2: np.ndarray, *, fewest: int = 0
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Segments (K, 2) to learn from, and the calibration segments to judge by what was learned; together all of them.

    The other normal rows, where they are as many as the calibration rows and at least `fewest`; else, for each fold of
    neighbours, all rows outside of it.
    """
    others_k2 = normal_k2[~np.isin(normal_k2[:, 0], calibration_k2[:, 0])]
    num_others, num_calibration = num_rows(others_k2), num_rows(calibration_k2)
    if not num_calibration:
        return
    if num_others >= max(fewest, num_calibration):
        yield others_k2, calibration_k2
        return
    log.info(
        "the %d calibration rows are judged out of fold: there are only %d other normal ones to judge them by",
        num_calibration, num_others,
    )  # fmt: skip
    folds = folds_of(normal_k2)
    for left_out, fold_k2 in enumerate(folds):
        others = [each_k2 for number, each_k2 in enumerate(folds) if number != left_out] or folds
        rest_k2 = np.concatenate(others)
        clipped_k2 = np.concatenate([fold_k2.clip(start, stop) for start, stop in calibration_k2])
        scored_k2 = clipped_k2[clipped_k2[:, 0] < clipped_k2[:, 1]]
        if len(scored_k2):
            yield rest_k2[np.argsort(rest_k2[:, 0])], scored_k2


def num_rows(segments_k2: np.ndarray) -> int:
    """Of segments (K, 2)."""
    return int((segments_k2[:, 1] - segments_k2[:, 0]).sum())
