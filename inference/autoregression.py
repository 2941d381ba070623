"""What the last rows of all channels do not foretell of the next one: the process engineer's part of a score.

A ridge regression of each channel on the last rows of all channels (a vector autoregression: Lütkepohl, New
Introduction to Multiple Time Series Analysis, 2005; ridge: Hoerl and Kennard, Technometrics 1970). It knows what a
channel-independent model cannot, how channels move together, and adapts to a machine in a second.

Normal rows are judged by a regression that did not see them (cross-fitting: Chernozhukov et al., The Econometrics
Journal 2018), so that their errors are as large as those of new rows. A channel that drifts within the normal data is
foretold badly there, and so is trusted less.

Suffixes: n row, c channel, f regressor, k fold.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from core.data.dataset import PartName
from core.data.windows import WindowSet
from inference.groups import OWN_ROWS, groups_of, rows_of

log = logging.getLogger(__name__)

LAGS = 8
FOLDS = 8
# Share of a channel's own variance that is added to each regressor's.
PENALTY = 0.1
# Regressors are clipped to ± this many standard deviations: a fault must not explain itself.
CLIP = 10.0
# Smallest error a channel is measured by, in standard deviations of its normal values.
ERROR_FLOOR = 0.1
# The standard deviation of a channel that never moves in normal data: a share of its level, and of 1 where that is 0.
CONSTANT_SHARE = 0.01
_MOST_REGRESSORS = 4096
_MOST_ERROR = 1e12  # finite in 32 bit, and out of the way of what is ranked
_VALUES_AT_A_TIME = 2**24


@dataclass(frozen=True)
class Autoregression:
    """mean_c, std_c: of normal rows, float64 (C,). weight_fc: (lags · C + 1, C), the constant last. error_c: mean
    squared error of each channel on normal rows the regression did not see, in squared standard deviations."""

    lags: int
    mean_c: np.ndarray
    std_c: np.ndarray
    weight_fc: np.ndarray
    error_c: np.ndarray

    def errors(self, values_nc: np.ndarray, stretches_k2: np.ndarray) -> np.ndarray:
        """Squared errors over the normal ones, about 1 where all is normal: float32 (S, C) for the rows of stretches
        (K, 2), in order; NaN where a value is missing."""
        squared_sc = [
            _squared_error(x_nf, z_nc, self.weight_fc)
            for x_nf, z_nc in _regressors(values_nc, stretches_k2, self.mean_c, self.std_c, self.lags)
        ]
        return _relative(np.concatenate(squared_sc), self.error_c)


def fit(values_nc: np.ndarray, stretches_k2: np.ndarray) -> tuple[Autoregression, np.ndarray]:
    """The regression of normal rows, and their own errors as `Autoregression.errors` gives them, out of fold.

    values_nc: (N, C) of all rows, NaN missing. stretches_k2: int64 (K, 2), half-open ranges of normal rows without a
    gap, in order.
    """
    lags = max(1, min(LAGS, _MOST_REGRESSORS // values_nc.shape[1]))
    mean_c, std_c = _moments(values_nc, stretches_k2)
    fold_k2 = _folds(stretches_k2)
    products = [_products(values_nc, ranges_k2, mean_c, std_c, lags) for ranges_k2 in fold_k2]
    gram_ff, moment_fc = (sum(each) for each in zip(*products, strict=True))
    squared = []
    for (own_ff, own_fc), ranges_k2 in zip(products, fold_k2, strict=True):
        weight_fc = _solve(gram_ff - own_ff, moment_fc - own_fc)
        squared += [
            _squared_error(x_nf, z_nc, weight_fc)
            for x_nf, z_nc in _regressors(values_nc, ranges_k2, mean_c, std_c, lags)
        ]
    squared_sc = np.concatenate(squared)
    observed_c = np.maximum((~np.isnan(squared_sc)).sum(axis=0), 1)
    error_c = np.maximum(np.nansum(squared_sc, axis=0, dtype=np.float64) / observed_c, ERROR_FLOOR**2)
    return Autoregression(lags, mean_c, std_c, _solve(gram_ff, moment_fc), error_c), _relative(squared_sc, error_c)


def process_errors(parts: Mapping[PartName, WindowSet]) -> dict[PartName, np.ndarray]:
    """Errors of the parts `calibration` and `test`, float32 (S, C) for all rows of their stretches.

    The regression learns from the rows of all other parts; each group of recordings has one of its own.
    """
    values_nc = parts["test"].series.values_nc.numpy()
    calibration_k2, test_k2 = parts["calibration"].stretches, parts["test"].stretches
    shape = values_nc.shape[1:]
    calibration_sc, test_sc = (
        np.full((len(rows_of(each)), *shape), np.nan, dtype=np.float32) for each in (calibration_k2, test_k2)
    )
    groups = groups_of(parts)
    if len(groups) > 1:
        log.info("each of %d recordings is judged by its own past: all have %d normal rows", len(groups), OWN_ROWS)
    for own_k2, of_group in groups:
        regression, normal_sc = fit(values_nc, own_k2)
        of_test, of_calibration = of_group(test_k2), of_group(calibration_k2)
        if of_test.any():
            test_sc[of_test] = regression.errors(values_nc, test_k2[_of_stretches(of_test, test_k2)])
        at = np.searchsorted(rows_of(own_k2), rows_of(calibration_k2)[of_calibration])
        calibration_sc[of_calibration] = normal_sc[at]
    return {"calibration": calibration_sc, "test": test_sc}


def _of_stretches(chosen_s: np.ndarray, stretches_k2: np.ndarray) -> np.ndarray:
    """Which stretches (K,) the chosen rows are."""
    lengths_k = stretches_k2[:, 1] - stretches_k2[:, 0]
    return chosen_s[np.cumsum(lengths_k) - lengths_k]


# ---------------------------------------------------------------------------------------------------------- regression
def _moments(values_nc: np.ndarray, stretches_k2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the observed normal values; one that never moves gets a share of its level."""
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
    size = max(1, _VALUES_AT_A_TIME // values_nc.shape[1])
    for start, stop in stretches_k2:
        for first in range(start, stop, size):
            yield values_nc[first : min(first + size, stop)].astype(np.float64)


def _folds(stretches_k2: np.ndarray) -> list[np.ndarray]:
    """The rows of all stretches in `FOLDS` parts of neighbours, each a list of ranges (K, 2)."""
    end_k = np.cumsum(stretches_k2[:, 1] - stretches_k2[:, 0])
    bounds = np.linspace(0, end_k[-1], FOLDS + 1).astype(np.int64)
    shift_k = stretches_k2[:, 1] - end_k
    folds = []
    for low, high in pairwise(bounds):
        ranges_k2 = stretches_k2.clip((low + shift_k)[:, np.newaxis], (high + shift_k)[:, np.newaxis])
        folds.append(ranges_k2[ranges_k2[:, 0] < ranges_k2[:, 1]])
    return [fold for fold in folds if len(fold)]


def _regressors(
    values_nc: np.ndarray, stretches_k2: np.ndarray, mean_c: np.ndarray, std_c: np.ndarray, lags: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Piece by piece the regressors (n, lags · C + 1) and the standardised rows (n, C).

    Before the first row of a stretch stands that row again. A missing value is a regressor of 0, its mean.
    """
    num_channels = values_nc.shape[1]
    size = max(lags, _VALUES_AT_A_TIME // (lags * num_channels))
    for start, stop in stretches_k2:
        for first in range(start, stop, size):
            last = min(first + size, stop)
            row_m = np.maximum(np.arange(first - lags, last), start)
            z_mc = (values_nc[row_m] - mean_c) / std_c
            seen_mc = np.nan_to_num(z_mc).clip(-CLIP, CLIP)
            past_nf = np.lib.stride_tricks.sliding_window_view(seen_mc[:-1], lags, axis=0).transpose(0, 2, 1)
            ones_n1 = np.ones((last - first, 1))
            yield np.concatenate([past_nf.reshape(last - first, -1), ones_n1], axis=1), z_mc[lags:]


def _products(
    values_nc: np.ndarray, stretches_k2: np.ndarray, mean_c: np.ndarray, std_c: np.ndarray, lags: int
) -> tuple[np.ndarray, np.ndarray]:
    size = lags * values_nc.shape[1] + 1
    gram_ff, moment_fc = np.zeros((size, size)), np.zeros((size, values_nc.shape[1]))
    for x_nf, z_nc in _regressors(values_nc, stretches_k2, mean_c, std_c, lags):
        gram_ff += x_nf.T @ x_nf
        moment_fc += x_nf.T @ np.nan_to_num(z_nc)
    return gram_ff, moment_fc


def _solve(gram_ff: np.ndarray, moment_fc: np.ndarray) -> np.ndarray:
    """The weights (F, C); the constant, last, is not penalised. Its entry of the Gram matrix counts the rows."""
    penalty_f = np.append(np.full(len(gram_ff) - 1, PENALTY * gram_ff[-1, -1]), 1e-9)
    return np.linalg.solve(gram_ff + np.diag(penalty_f), moment_fc)


def _squared_error(x_nf: np.ndarray, z_nc: np.ndarray, weight_fc: np.ndarray) -> np.ndarray:
    return ((z_nc - x_nf @ weight_fc) ** 2).astype(np.float32)


def _relative(squared_sc: np.ndarray, error_c: np.ndarray) -> np.ndarray:
    return np.minimum(squared_sc / error_c, _MOST_ERROR).astype(np.float32)
