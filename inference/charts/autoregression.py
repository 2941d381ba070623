"""A regression of each row of process sensors on the rows before it.

It is a ridge regression of each channel on the last rows of all channels (a vector autoregression: Lütkepohl, New
Introduction to Multiple Time Series Analysis, 2005; ridge: Hoerl and Kennard, Technometrics 1970). It models how the
channels move together, which a channel-independent model cannot, and is fitted in seconds.

The ridge shrinks the prediction not towards the reference mean but towards the mean of the channel's own last rows, by
its `persistence` (as the Minnesota prior does: Litterman, Journal of Business and Economic Statistics 1986). A
temperature that drifts slowly is therefore not a fault.

Suffixes: n row, c channel, f regressor, k segment or fold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from core.config.charts import ProcessCharts
from core.data.blocks import gathered, pieces
from inference.charts.reference_rows import Sums, folds_of, moments
from inference.running import Running

# Share of a channel's own variance that is added to each regressor's. From 0.01 to 1 the mean VUS-PR of the development
# sets stays within 0.007 (dev/LOG.md).
PENALTY = 0.1
# Regressors are clipped to ± this many standard deviations, so that a fault does not explain itself.
CLIP = 10.0
_MOST_REGRESSORS = 4096
_VALUES_AT_A_TIME = 2**21


class Rows(NamedTuple):
    """Rows to predict. x_nf: regressors (n, lags · C + 1), the constant last. own_nc: the mean of the channel's own
    last rows. z_nc: the rows themselves, NaN where missing. All in standard deviations from the reference mean."""

    x_nf: np.ndarray
    own_nc: np.ndarray
    z_nc: np.ndarray


@dataclass(frozen=True)
class Autoregression:
    """mean_c, std_c: mean and standard deviation of reference rows, float64 (C,). persistence_c: weight, 0 to 1, of the
    mean of the channel's own last rows in its prediction. weight_fc: (lags · C + 1, C), weights of the regressors. The
    prediction is `persistence_c * own_nc + x_nf @ weight_fc`."""

    lags: int
    mean_c: np.ndarray
    std_c: np.ndarray
    persistence_c: np.ndarray
    weight_fc: np.ndarray

    def rows(self, values_nc: np.ndarray, segments_k2: np.ndarray) -> Iterator[Rows]:
        """The rows of segments (K, 2), in order, in pieces that do not cross segments."""
        size = max(self.lags, _VALUES_AT_A_TIME // (self.lags * values_nc.shape[1]))
        lagged = LaggedRows(self)
        return (lagged(rows_nc, segment) for segment, rows_nc in pieces(values_nc, segments_k2, size))

    def residual(self, rows: Rows) -> np.ndarray:
        """Row minus prediction: float64 (n, C) in standard deviations, NaN where a value is missing."""
        return rows.z_nc - self.persistence_c * rows.own_nc - rows.x_nf @ self.weight_fc


class LaggedRows(Running):
    """Adds the regressors to rows (n, C) that come in pieces, no piece across two segments.

    The first row of a segment replaces the rows before the segment. The mean replaces a missing regressor.
    """

    STATE = ("_past_lc", "_segment")

    def __init__(self, regression: Autoregression):
        self._regression, self._segment = regression, -1
        self._past_lc = np.empty((0, len(regression.mean_c)))

    def __call__(self, values_nc: np.ndarray, segment: int) -> Rows:
        of, lags = self._regression, self._regression.lags
        z_nc = (values_nc - of.mean_c) / of.std_c
        past_lc = self._past_lc if segment == self._segment else np.repeat(z_nc[:1], lags, axis=0)
        z_mc = np.concatenate([past_lc, z_nc])
        past_ncl = np.lib.stride_tricks.sliding_window_view(np.nan_to_num(z_mc)[:-1], lags, axis=0)
        past_nf = past_ncl.clip(-CLIP, CLIP).transpose(0, 2, 1).reshape(len(z_nc), -1)
        self._past_lc, self._segment = z_mc[len(z_nc) :].copy(), segment
        return Rows(np.column_stack([past_nf, np.ones(len(z_nc))]), past_ncl.mean(-1), z_nc)


@dataclass
class _Moments(Sums):
    """Sums over rows of products: of regressors (F, F), of regressors with rows and with own past (F, C), of own past
    with rows, and of own past with itself (C,)."""

    xx_ff: np.ndarray
    xz_fc: np.ndarray
    xo_fc: np.ndarray
    oz_c: np.ndarray
    oo_c: np.ndarray

    @classmethod
    def of(cls, all_rows: Iterator[Rows], num_regressors: int, num_channels: int) -> _Moments:
        tall = (num_regressors, num_channels)
        found = cls(np.zeros((num_regressors,) * 2), np.zeros(tall), np.zeros(tall), *np.zeros((2, num_channels)))
        for rows in all_rows:
            missing_nc = np.isnan(rows.z_nc)
            z_nc, own_nc = (np.where(missing_nc, 0.0, each) for each in (rows.z_nc, rows.own_nc))
            found.xx_ff += rows.x_nf.T @ rows.x_nf
            found.xz_fc += rows.x_nf.T @ z_nc
            found.xo_fc += rows.x_nf.T @ own_nc
            found.oz_c += (own_nc * z_nc).sum(axis=0)
            found.oo_c += (own_nc**2).sum(axis=0)
        return found

    def weights(self, persistence_c: np.ndarray) -> np.ndarray:
        """The weights (F, C). The constant is the last regressor: it is not penalised, and its entry of `xx_ff` is the
        number of rows."""
        penalty_f = np.append(np.full(len(self.xx_ff) - 1, PENALTY * self.xx_ff[-1, -1]), 1e-9)
        return np.linalg.solve(self.xx_ff + np.diag(penalty_f), self.xz_fc - persistence_c * self.xo_fc)


def fit(
    values_nc: np.ndarray, segments_k2: np.ndarray, settings: ProcessCharts, scratch: Path | None = None
) -> tuple[Autoregression, np.ndarray]:
    """The regression of reference rows, and their out-of-fold residuals: float32 (S, C), in `scratch` if they are long.

    values_nc: (N, C) of all rows, NaN missing. segments_k2: int64 (K, 2), half-open ranges of reference rows without a
    gap, in order.
    """
    num_channels = values_nc.shape[1]
    lags = max(1, min(settings.lags, _MOST_REGRESSORS // num_channels))
    size = (lags * num_channels + 1, num_channels)
    blank = Autoregression(lags, *moments(values_nc, segments_k2), np.zeros(num_channels), np.zeros(size))
    folds = folds_of(segments_k2)
    of_fold = [_Moments.of(blank.rows(values_nc, ranges_k2), *size) for ranges_k2 in folds]
    of_all = _Moments.total(of_fold)
    persistence_c = (of_all.oz_c / np.maximum(of_all.oo_c, 1e-9)).clip(0.0, 1.0)

    def learned(found: _Moments) -> Autoregression:
        return Autoregression(lags, blank.mean_c, blank.std_c, persistence_c, found.weights(persistence_c))

    def out_of_fold() -> Iterator[np.ndarray]:
        for own, ranges_k2 in zip(of_fold, folds, strict=True):
            without = learned(of_all - own if len(folds) > 1 else of_all)
            for rows in without.rows(values_nc, ranges_k2):
                yield without.residual(rows).astype(np.float32)

    return learned(of_all), gathered(out_of_fold(), scratch)
