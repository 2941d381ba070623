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
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np

from core.data.dataset import PartName
from core.data.windows import WindowSet
from inference.groups import OWN_ROWS, groups, keys_of, rows_of

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


@dataclass(frozen=True)
class ProcessStatistics:
    """The regression of each group of recordings, by its key (`inference.groups`)."""

    regressions: Mapping[str, Autoregression]

    def errors(self, windows: WindowSet) -> np.ndarray:
        """Errors of a part, float32 (S, C) for all rows of its stretches: each recording's by its own regression, where
        it has one."""
        values_nc, stretches_k2 = windows.series.values_nc.numpy(), windows.stretches
        key_k = np.array(keys_of(windows, self.regressions), dtype=object)
        lengths_k = stretches_k2[:, 1] - stretches_k2[:, 0]
        error_sc = np.empty((lengths_k.sum(), values_nc.shape[1]), dtype=np.float32)
        for key in dict.fromkeys(key_k):
            mine_k = key_k == key
            error_sc[np.repeat(mine_k, lengths_k)] = self.regressions[key].errors(values_nc, stretches_k2[mine_k])
        return error_sc

    def joined(self, other: ProcessStatistics) -> ProcessStatistics:
        return ProcessStatistics({**self.regressions, **other.regressions})

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Stacked over the groups, g."""
        each = self.regressions.values()
        return {
            "group_g": np.array(list(self.regressions)),
            "lags": np.array(next(iter(each)).lags),
            "mean_gc": np.stack([regression.mean_c for regression in each]),
            "std_gc": np.stack([regression.std_c for regression in each]),
            "weight_gfc": np.stack([regression.weight_fc for regression in each]),
            "error_gc": np.stack([regression.error_c for regression in each]),
        }

    @classmethod
    def from_arrays(cls, held: Mapping[str, np.ndarray]) -> Self:
        lags = int(held["lags"])
        stacked = (held["mean_gc"], held["std_gc"], held["weight_gfc"], held["error_gc"])
        each = zip(held["group_g"].tolist(), *stacked, strict=True)
        return cls({key: Autoregression(lags, *learned) for key, *learned in each})


def fit_process(
    normal: Mapping[PartName, WindowSet], alone: Collection[str] = ()
) -> tuple[ProcessStatistics, np.ndarray]:
    """What the rows of all normal parts teach, and the errors of the part `calibration` as `errors` gives them, out of
    fold.

    alone: the recordings that are each judged by their own past; without any, all are judged by that of all. Beside
    them, the rows of a recording that nobody scores are NaN.
    """
    calibration = normal["calibration"]
    values_nc, calibration_k2 = calibration.series.values_nc.numpy(), calibration.stretches
    calibration_n = rows_of(calibration_k2)
    calibration_sc = np.full((len(calibration_n), values_nc.shape[1]), np.nan, dtype=np.float32)
    if alone:
        log.info("each of %d recordings is judged by its own past: all have %d normal rows", len(alone), OWN_ROWS)
    regressions = {}
    for group in groups(normal.values(), alone):
        regressions[group.key], normal_sc = fit(values_nc, group.normal_k2)
        mine_s = group.holds(calibration_k2)
        calibration_sc[mine_s] = normal_sc[np.searchsorted(rows_of(group.normal_k2), calibration_n[mine_s])]
    return ProcessStatistics(regressions), calibration_sc


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
