"""A ridge regression of each channel on all other channels.

Most process faults break the way in which channels depend on each other. The regressors are the present rows of the
other channels, their last rows, and, where the caller names spans, their exponentially weighted means, so that a
temperature that follows a load slowly is predicted too. The past of the channel itself is not used, so that a fault
cannot explain itself. On request, the squares of the present rows are regressors too, because a pressure may grow with
the square of a flow. The penalty is chosen by the error on folds of reference rows that were left out.

Suffixes: n row, c channel, k segment, f regressor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from core.data.blocks import pieces
from inference.charts.reference_rows import Sums, folds_of, moments
from inference.running import Ewma, Running

LAGS = 3
# Ridge penalties to choose from, as a share of the variance of a channel.
PENALTIES = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001)
# Regressors are clipped to ± this many standard deviations, those that are squared to fewer, because a parabola does
# not extrapolate well.
CLIP, _SQUARE_CLIP = 10.0, 4.0
# Smallest residual that counts, in standard deviations of the channel: below it the regression is exact.
RESIDUAL_FLOOR = 0.02
_VALUES_AT_A_TIME = 2**18


class Rows(NamedTuple):
    """Some rows of a segment. z_nc: in standard deviations, NaN where missing. filled_nc: the same without NaN.
    regressor_nf: filled rows, the present ones first, then those of each lag, their means, the squares of the present
    ones, and a constant."""

    z_nc: np.ndarray
    filled_nc: np.ndarray
    regressor_nf: np.ndarray
    segment: int


@dataclass(frozen=True)
class CrossChannelRegression:
    """mean_c, std_c: mean and standard deviation of reference rows, float64 (C,). fill_cc: (C, C), predicts a missing
    value from the others of its row. precision_ff: (F, F), F = (1 + lags + means + squares) C + 1, the inverse of the
    mean products of the regressors, with the penalty. lags: number of previous rows that are regressors. mean_spans:
    spans of the exponentially weighted means, in rows. squares: whether squares are regressors."""

    mean_c: np.ndarray
    std_c: np.ndarray
    fill_cc: np.ndarray
    precision_ff: np.ndarray
    lags: int = LAGS
    mean_spans: tuple[float, ...] = ()
    squares: bool = False

    @cached_property
    def weight_fc(self) -> np.ndarray:
        """Weights (F, C) that predict each channel from the others."""
        return _weights(self.precision_ff, len(self.mean_c))

    @property
    def num_blocks(self) -> int:
        """Number of regressors that each channel has."""
        return 1 + self.lags + len(self.mean_spans) + self.squares

    def rows(self, values_nc: np.ndarray, segments_k2: np.ndarray) -> Iterator[Rows]:
        """The rows of segments (K, 2), in order, piece by piece, no piece across two segments."""
        lagged = LaggedRows(self)
        return (lagged(rows_nc, segment) for segment, rows_nc in pieces(values_nc, segments_k2, self.rows_at_a_time))

    @property
    def rows_at_a_time(self) -> int:
        return max(self.num_blocks, _VALUES_AT_A_TIME // (self.num_blocks * len(self.mean_c)))

    def filled(self, z_nc: np.ndarray, last_c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows whose missing values are predicted from the rest of their row, and the last observed values (C,).

        last_c: the last observed values before these rows.
        """
        missing_nc = np.isnan(z_nc)
        if not missing_nc.any():
            return z_nc.clip(-CLIP, CLIP), z_nc[-1]
        observed_nc = np.concatenate([last_c[np.newaxis], z_nc])
        row_nc = np.where(np.isnan(observed_nc), 0, np.arange(len(observed_nc))[:, np.newaxis])
        held_nc = np.take_along_axis(observed_nc, np.maximum.accumulate(row_nc, axis=0), axis=0)[1:]
        filled_nc = held_nc.clip(-CLIP, CLIP)
        for _ in range(2):  # a second time for rows with several missing values
            filled_nc = np.where(missing_nc, (filled_nc @ self.fill_cc).clip(-CLIP, CLIP), filled_nc)
        return filled_nc, held_nc[-1]

    def residual(self, rows: Rows) -> np.ndarray:
        """Row minus prediction, float64 (n, C) in standard deviations; NaN where missing."""
        return rows.z_nc - rows.regressor_nf @ self.weight_fc

    @classmethod
    def fit(
        cls,
        values_nc: np.ndarray,
        segments_k2: np.ndarray,
        *,
        lags: int = LAGS,
        mean_spans: tuple[float, ...] = (),
        squares: bool = False,
    ) -> tuple[Self, list[Self], list[np.ndarray]]:
        """The regression fitted to all reference rows, the regressions that leave out one fold each, and the folds as
        ranges of rows (K, 2)."""
        num_channels = values_nc.shape[1]
        # Before the regression is fitted, a missing value is replaced by the last one.
        plain = cls.without_weights(*moments(values_nc, segments_k2))
        folds = folds_of(segments_k2)
        present = [_Moments.of(plain.rows(values_nc, fold_k2), num_channels) for fold_k2 in folds]
        precision_ff = _Moments.total(present).precision(_best_penalty(present, num_channels))
        fill_cc = _weights(precision_ff, num_channels)[:-1]
        filling = replace(plain, fill_cc=fill_cc, lags=lags, mean_spans=mean_spans, squares=squares)
        of_fold = [_Moments.of(filling.rows(values_nc, fold_k2), None) for fold_k2 in folds]
        penalty = _best_penalty(of_fold, num_channels)
        everything = _Moments.total(of_fold)

        def learned(found: _Moments) -> Self:
            return replace(filling, precision_ff=found.precision(penalty))

        others = [learned(everything - each) if len(folds) > 1 else learned(everything) for each in of_fold]
        return learned(everything), others, folds

    @classmethod
    def without_weights(cls, mean_c: np.ndarray, std_c: np.ndarray) -> Self:
        """A regression that only fills rows: the last observed value replaces a missing one."""
        return cls(mean_c, std_c, np.eye(len(mean_c)), np.zeros((0, 0)), lags=0)

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {field.name: np.array(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_arrays(cls, held: Mapping[str, np.ndarray]) -> Self:
        arrays = (held[name] for name in ("mean_c", "std_c", "fill_cc", "precision_ff"))
        return cls(*arrays, int(held["lags"]), tuple(held["mean_spans"].tolist()), bool(held["squares"]))


class LaggedRows(Running):
    """Adds the regressors to rows (n, C) that come in pieces, no piece across two segments."""

    STATE = ("_last_c", "_past_lc", "_segment")

    def __init__(self, regression: CrossChannelRegression):
        num_channels = len(regression.mean_c)
        self._regression, self._segment = regression, -1
        self._means = tuple(Ewma(span, num_channels) for span in regression.mean_spans)
        self._last_c, self._past_lc = np.zeros(num_channels), np.empty((0, num_channels))

    def __call__(self, values_nc: np.ndarray, segment: int) -> Rows:
        of, lags, begins = self._regression, self._regression.lags, segment != self._segment
        z_nc = (values_nc - of.mean_c) / of.std_c
        filled_nc, self._last_c = of.filled(z_nc, np.zeros_like(self._last_c) if begins else self._last_c)
        past_lc = np.repeat(filled_nc[:1], lags, axis=0) if begins else self._past_lc
        extended_nc = np.concatenate([past_lc, filled_nc])
        lagged = [extended_nc[lags - lag : len(extended_nc) - lag] for lag in range(lags + 1)]
        averaged = [mean(filled_nc, np.full(len(z_nc), segment)) for mean in self._means]
        squares = [np.square(filled_nc.clip(-_SQUARE_CLIP, _SQUARE_CLIP))] if of.squares else []
        self._past_lc, self._segment = extended_nc[len(z_nc) :].copy(), segment
        regressor_nf = np.concatenate([*lagged, *averaged, *squares, np.ones((len(z_nc), 1))], axis=1)
        return Rows(z_nc, filled_nc, regressor_nf, segment)


@dataclass
class _Moments(Sums):
    """Sums of the products of regressors over rows (F, F), and number of rows. The first C regressors are the rows."""

    xx_ff: np.ndarray
    count: int

    @classmethod
    def of(cls, pieces: Iterator[Rows], present_channels: int | None) -> Self:
        """present_channels: number of channels, to use the present rows alone as regressors; None uses all."""
        found = None
        for rows in pieces:
            x_nf = rows.regressor_nf
            if present_channels is not None:
                x_nf = np.concatenate([x_nf[:, :present_channels], x_nf[:, -1:]], axis=1)
            mine = cls(x_nf.T @ x_nf, len(x_nf))
            found = mine if found is None else found + mine
        return found

    def mean_square(self, weight_fc: np.ndarray) -> np.ndarray:
        """Mean squared residual of these rows under other weights, (C,)."""
        direction_fc = np.eye(*weight_fc.shape) - weight_fc  # from regressors to residuals
        return (direction_fc * (self.xx_ff @ direction_fc)).sum(axis=0) / self.count

    def precision(self, penalty: float) -> np.ndarray:
        """The inverse of the mean products (F, F), with a ridge penalty for all regressors but the constant."""
        penalty_f = np.append(np.full(len(self.xx_ff) - 1, penalty), 1e-9)
        return np.linalg.inv(self.xx_ff / self.count + np.diag(penalty_f))


def _weights(precision_ff: np.ndarray, num_channels: int) -> np.ndarray:
    """Ridge weights (F, C) of the regressors in the prediction of each channel; 0 for its own values.

    The regression of some variables on all others has a closed form in the inverse of their moments (Hastie, Tibshirani
    and Friedman, The Elements of Statistical Learning, 2009, section 17.3), so one inverse serves all channels.
    """
    num_regressors = len(precision_ff)
    weight_fc = np.empty((num_regressors, num_channels))
    for channel in range(num_channels):
        own_l = np.arange(channel, num_regressors - 1, num_channels)
        present_l = np.linalg.inv(precision_ff[np.ix_(own_l, own_l)])[:, 0]
        weight_fc[:, channel] = -precision_ff[:, own_l] @ present_l
        weight_fc[own_l, channel] = 0.0
    return weight_fc


def _best_penalty(of_fold: Sequence[_Moments], num_channels: int) -> float:
    """The penalty with the least log mean square on rows left out, averaged over channels."""
    if len(of_fold) < 2:
        return PENALTIES[0]
    everything = _Moments.total(of_fold)

    def error(penalty: float) -> float:
        left_out = [
            fold.mean_square(_weights((everything - fold).precision(penalty), num_channels)) for fold in of_fold
        ]
        return float(np.log(np.maximum(np.mean(left_out, axis=0), RESIDUAL_FLOOR**2)).mean())

    return min(PENALTIES, key=error)
