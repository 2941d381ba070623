"""A regression of each channel on all others, and a control chart of its residual.

The regression is a ridge regression on the present and the last rows of the other channels. Most process faults break
the way in which channels depend on each other. The past of the channel itself is not used, so that a fault cannot
explain itself. The penalty is chosen by the error on folds of reference rows that were left out.

The chart compares each residual with those of similar operating contexts (`inference.charts.operating_context`) and
averages its negative log-likelihood under a Student t distribution, so that a single extreme row has a limited effect.

Suffixes: n row, s score entry, c channel, k segment, f regressor or feature, m reference row.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from core.data.blocks import Pages
from inference.charts.operating_context import APART_SPANS, ContextFeatures, ResidualScale, mean_of_observed, recurrence
from inference.charts.reference_rows import folds_of, moments
from inference.running import ERROR_CAP, Ewma

log = logging.getLogger(__name__)

LAGS = 3
# Ridge penalties to choose from, as a share of the variance of a channel.
PENALTIES = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001)
# Regressors are clipped to ± this many standard deviations.
CLIP = 10.0
# Smallest residual that counts, in standard deviations of the channel: below it the regression is exact.
RESIDUAL_FLOOR = 0.02
# Degrees of freedom of the Student t distribution, and the smallest deviation of the smoothed likelihood.
FREEDOM, DEVIATION_FLOOR = 10.0, 0.05
# Fewest reference rows of a process for which the operating context is looked at.
FEWEST_ROWS = 1000
# Rows from which context and levels are learned: evenly spaced pieces of the reference rows.
_LEARNED_ROWS, _PIECES = 2**16, 16
_VALUES_AT_A_TIME = 2**18


class Rows(NamedTuple):
    """Some rows of a segment. z_nc: in standard deviations, NaN where missing. filled_nc: the same without NaN.
    regressor_nf: filled rows, the present ones first, then those of each lag, and a constant."""

    z_nc: np.ndarray
    filled_nc: np.ndarray
    regressor_nf: np.ndarray
    segment: int


@dataclass(frozen=True)
class CrossChannelRegression:
    """mean_c, std_c: of reference rows, float64 (C,). fill_cc: (C, C), predicts a missing value from the others of its
    row. weight_fc: ((LAGS + 1) C + 1, C), predicts a channel from the others."""

    mean_c: np.ndarray
    std_c: np.ndarray
    fill_cc: np.ndarray
    weight_fc: np.ndarray

    def rows(self, values_nc: np.ndarray, segments_k2: np.ndarray) -> Iterator[Rows]:
        """The rows of segments (K, 2), in order, piece by piece, no piece across two segments."""
        num_channels = values_nc.shape[1]
        size, pages = max(LAGS + 1, _VALUES_AT_A_TIME // ((LAGS + 1) * num_channels)), Pages(values_nc)
        for segment, (start, stop) in enumerate(segments_k2):
            last_c, past_lc = np.zeros(num_channels), None
            for first in range(start, stop, size):
                z_nc = (values_nc[first : min(first + size, stop)] - self.mean_c) / self.std_c
                filled_nc, last_c = self._filled(z_nc, last_c)
                past_lc = np.repeat(filled_nc[:1], LAGS, axis=0) if past_lc is None else past_lc
                extended_nc = np.concatenate([past_lc, filled_nc])
                lagged = [extended_nc[LAGS - lag : len(extended_nc) - lag] for lag in range(LAGS + 1)]
                yield Rows(z_nc, filled_nc, np.concatenate([*lagged, np.ones((len(z_nc), 1))], axis=1), segment)
                past_lc = extended_nc[-LAGS:]
                pages.looked_at(len(z_nc) * values_nc[:1].nbytes)

    def _filled(self, z_nc: np.ndarray, last_c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows whose missing values are predicted from the rest of their row, and the last observed values (C,)."""
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
    def fit(cls, values_nc: np.ndarray, segments_k2: np.ndarray) -> tuple[Self, list[Self], list[np.ndarray]]:
        """The regression of all reference rows, and those that leave out one fold each, with the folds (K, 2)."""
        num_channels = values_nc.shape[1]
        # Before the regression is fitted, a missing value is replaced by the last one.
        plain = cls(*moments(values_nc, segments_k2), np.eye(num_channels), np.zeros((0, num_channels)))
        folds = folds_of(segments_k2)
        present = [_Moments.of(plain.rows(values_nc, fold_k2), num_channels) for fold_k2 in folds]
        fill_cc = _without_itself(_total(present), _best_penalty(present, num_channels), num_channels)[:-1]
        filling = cls(plain.mean_c, plain.std_c, fill_cc, plain.weight_fc)
        of_fold = [_Moments.of(filling.rows(values_nc, fold_k2), None) for fold_k2 in folds]
        penalty = _best_penalty(of_fold, num_channels)
        everything = _total(of_fold)

        def learned(found: _Moments) -> Self:
            weight_fc = _without_itself(found, penalty, num_channels)
            return cls(plain.mean_c, plain.std_c, fill_cc, weight_fc)

        others = [learned(everything.minus(each)) if len(folds) > 1 else learned(everything) for each in of_fold]
        return learned(everything), others, folds

    def to_arrays(self) -> dict[str, np.ndarray]:
        return dict(vars(self))

    @classmethod
    def from_arrays(cls, held: Mapping[str, np.ndarray]) -> Self:
        return cls(*(held[name] for name in ("mean_c", "std_c", "fill_cc", "weight_fc")))


@dataclass
class _Moments:
    """Sums of products over rows: of regressors (F, F), of regressors and rows (F, C), of rows (C,); their count."""

    xx_ff: np.ndarray
    xz_fc: np.ndarray
    zz_c: np.ndarray
    count: int

    @classmethod
    def of(cls, pieces: Iterator[Rows], present_channels: int | None) -> Self:
        """present_channels: how many channels, where the regressors are the present rows alone."""
        found = None
        for rows in pieces:
            x_nf, z_nc = rows.regressor_nf, rows.filled_nc
            if present_channels is not None:
                x_nf = np.concatenate([x_nf[:, :present_channels], x_nf[:, -1:]], axis=1)
            mine = cls(x_nf.T @ x_nf, x_nf.T @ z_nc, np.square(z_nc).sum(axis=0), len(z_nc))
            found = mine if found is None else found.plus(mine)
        return found

    def plus(self, other: _Moments) -> Self:
        return type(self)(*(mine + its for mine, its in zip(vars(self).values(), vars(other).values(), strict=True)))

    def minus(self, other: _Moments) -> Self:
        return type(self)(*(mine - its for mine, its in zip(vars(self).values(), vars(other).values(), strict=True)))

    def mean_square(self, weight_fc: np.ndarray) -> np.ndarray:
        """Mean squared residual of these rows under other weights, (C,)."""
        explained_c = 2 * (weight_fc * self.xz_fc).sum(axis=0)
        return (self.zz_c - explained_c + (weight_fc * (self.xx_ff @ weight_fc)).sum(axis=0)) / self.count


def _total(each: Sequence[_Moments]) -> _Moments:
    total = each[0]
    for found in each[1:]:
        total = total.plus(found)
    return total


def _without_itself(found: _Moments, penalty: float, num_channels: int) -> np.ndarray:
    """Ridge weights (F, C) in which a channel's own values do not count.

    Fixing some coefficients at zero changes the others of a least-squares fit in closed form (Hastie, Tibshirani and
    Friedman, The Elements of Statistical Learning, 2009, exercise 3.13 and section 3.2), so one inverse serves all.
    """
    num_regressors = len(found.xx_ff)
    penalty_f = np.append(np.full(num_regressors - 1, penalty * found.count), 1e-9 * found.count)
    inverse_ff = np.linalg.inv(found.xx_ff + np.diag(penalty_f))
    weight_fc = inverse_ff @ found.xz_fc
    for channel in range(num_channels):
        own_l = np.arange(channel, num_regressors - 1, num_channels)
        taken_l = np.linalg.solve(inverse_ff[np.ix_(own_l, own_l)], weight_fc[own_l, channel])
        weight_fc[:, channel] -= inverse_ff[:, own_l] @ taken_l
        weight_fc[own_l, channel] = 0.0
    return weight_fc


def _best_penalty(of_fold: Sequence[_Moments], num_channels: int) -> float:
    """The penalty with the least log mean square on rows left out, averaged over channels."""
    if len(of_fold) < 2:
        return PENALTIES[0]
    everything = _total(of_fold)

    def error(penalty: float) -> float:
        left_out = [
            fold.mean_square(_without_itself(everything.minus(fold), penalty, num_channels)) for fold in of_fold
        ]
        return float(np.log(np.maximum(np.mean(left_out, axis=0), RESIDUAL_FLOOR**2)).mean())

    return min(PENALTIES, key=error)


# --------------------------------------------------------------------------------------------------------------- chart
@dataclass(frozen=True)
class CrossChannelChart:
    """Errors of rows, about 1 on reference rows.

    scale: usual residuals by context. level_2c: mean and deviation (2, C) of the smoothed likelihood of reference rows.
    usual_c: mean square of the excess over that mean, in deviations. span: of the exponentially weighted mean, in rows.
    """

    regression: CrossChannelRegression
    features: ContextFeatures
    scale: ResidualScale
    level_2c: np.ndarray
    usual_c: np.ndarray
    span: int

    def write(self, error_sc: np.ndarray, first_k: np.ndarray, values_nc: np.ndarray, segments_k2: np.ndarray) -> None:
        """Writes float32 errors of the rows of segments (K, 2) into lines of `error_sc` (S, C), those of segment k from
        `first_k[k]` on; NaN where a value is missing."""
        extract, smooth = self.features.extractor(), _Smooth(self.span, self.level_2c[0])
        pages, line_k = Pages(error_sc), first_k.copy()
        for rows in self.regression.rows(values_nc, segments_k2):
            segment_n = np.full(len(rows.z_nc), rows.segment)
            scale_nc = self.scale(extract(rows.filled_nc, segment_n))
            smoothed_nc = smooth(_unlikeliness(self.regression.residual(rows), scale_nc), segment_n)
            piece = slice(line_k[rows.segment], line_k[rows.segment] + len(smoothed_nc))
            error_sc[piece] = np.minimum(_excess(smoothed_nc, self.level_2c) / self.usual_c, ERROR_CAP)
            line_k[rows.segment] = piece.stop
            pages.looked_at(error_sc[piece].nbytes)

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {
            **self.regression.to_arrays(),
            **self.scale.to_arrays(),
            "loading_ck": self.features.loading_ck,
            "level_2c": self.level_2c,
            "excess_c": self.usual_c,
            "span": np.array(self.span),
        }

    @classmethod
    def from_arrays(cls, held: Mapping[str, np.ndarray]) -> Self:
        span = int(held["span"])
        return cls(
            CrossChannelRegression.from_arrays(held),
            ContextFeatures(held["loading_ck"], span),
            ResidualScale.from_arrays(held),
            held["level_2c"],
            held["excess_c"],
            span,
        )


def fit(
    values_nc: np.ndarray, segments_k2: np.ndarray, *, span: int, context_c: np.ndarray | None = None
) -> CrossChannelChart:
    """The chart of reference rows.

    values_nc: (N, C) of all rows, NaN missing. segments_k2: int64 (K, 2), half-open ranges of reference rows without a
    gap, in order. context_c: bool (C,), the channels that describe the context; by default all. Reference residuals are
    those of regressions that left the rows out.
    """
    regression, others, folds = CrossChannelRegression.fit(values_nc, segments_k2)
    learned = [_learned_rows(fold_k2, len(folds)) for fold_k2 in folds]
    pieces = [list(other.rows(values_nc, part_k2)) for other, part_k2 in zip(others, learned, strict=True)]
    residual_nc = np.concatenate(
        [other.residual(rows) for other, found in zip(others, pieces, strict=True) for rows in found]
    )
    filled_nc = np.concatenate([rows.filled_nc for found in pieces for rows in found])
    features = ContextFeatures.fit(filled_nc, span, context_c)
    segment_n = np.concatenate([
        np.full(len(rows.z_nc), number * len(segments_k2) * _PIECES + rows.segment)
        for number, found in enumerate(pieces) for rows in found
    ])  # fmt: skip
    feature_nf = features.extractor()(filled_nc, segment_n)
    scale, reference_m = ResidualScale.fit(feature_nf, residual_nc)
    unlikely = []
    for row_n in np.array_split(np.arange(len(residual_nc)), max(1, residual_nc.size // _VALUES_AT_A_TIME)):
        scale_nc = scale.of_references(feature_nf[row_n], row_n, reference_m, APART_SPANS * span)
        unlikely.append(_unlikeliness(residual_nc[row_n], scale_nc))
    unlikely_nc = np.concatenate(unlikely)
    mean_c = mean_of_observed(unlikely_nc)
    smoothed_nc = _Smooth(span, mean_c)(unlikely_nc, segment_n)
    deviation_c = np.sqrt(mean_of_observed(np.square(smoothed_nc - mean_c)))
    level_2c = np.stack([mean_c, np.maximum(deviation_c, DEVIATION_FLOOR)])
    usual_c = np.maximum(mean_of_observed(_excess(smoothed_nc, level_2c)), DEVIATION_FLOOR)
    return CrossChannelChart(regression, features, scale, level_2c, usual_c, span)


def process_recurrence(values_nc: np.ndarray, segments_k2: np.ndarray, span: int) -> float:
    """`inference.charts.operating_context.recurrence` of reference rows; 0 for fewer than `FEWEST_ROWS`."""
    if (segments_k2[:, 1] - segments_k2[:, 0]).sum() < FEWEST_ROWS:
        return 0.0
    num_channels = values_nc.shape[1]
    learned_k2 = _learned_rows(segments_k2, 1)
    plain = CrossChannelRegression(
        *moments(values_nc, learned_k2), np.eye(num_channels), np.zeros((0, num_channels))
    )  # a missing value is replaced by the last one
    pieces = list(plain.rows(values_nc, learned_k2))
    segment_n = np.concatenate([np.full(len(rows.z_nc), rows.segment) for rows in pieces])
    return recurrence(np.concatenate([rows.filled_nc for rows in pieces]), segment_n, span)


def _unlikeliness(residual_nc: np.ndarray, scale_nc: np.ndarray) -> np.ndarray:
    """Negative log-likelihood of residuals under a Student t distribution of that scale, without its constant."""
    square_nc = np.square(residual_nc / np.maximum(scale_nc, RESIDUAL_FLOOR))
    return 0.5 * (FREEDOM + 1) * np.log1p(square_nc / FREEDOM)


class _Smooth:
    """Exponentially weighted mean that starts each segment at the reference mean, as means of few rows vary more."""

    def __init__(self, span: int, mean_c: np.ndarray):
        self.mean_c, self._ewma = mean_c, Ewma(span, len(mean_c))
        self._segment, self._rows = -1, 0

    def __call__(self, values_nc: np.ndarray, segment_n: np.ndarray) -> np.ndarray:
        begins_n = np.diff(segment_n, prepend=self._segment) != 0
        first_n = np.maximum.accumulate(np.where(begins_n, np.arange(len(segment_n)), -self._rows))
        age_n1 = (np.arange(len(segment_n)) - first_n + 1)[:, np.newaxis]
        self._segment, self._rows = int(segment_n[-1]), int(age_n1[-1, 0])
        return self.mean_c + (1 - self._ewma.decay**age_n1) * (self._ewma(values_nc, segment_n) - self.mean_c)


def _excess(smoothed_nc: np.ndarray, level_2c: np.ndarray) -> np.ndarray:
    """Squared deviations of a smoothed likelihood above its mean."""
    return np.square(np.maximum((smoothed_nc - level_2c[0]) / level_2c[1], 0.0))


def _learned_rows(segments_k2: np.ndarray, num_parts: int) -> np.ndarray:
    """Segments, or evenly spaced pieces of them where they are longer than the limit for one of so many parts."""
    lengths_k = segments_k2[:, 1] - segments_k2[:, 0]
    limit = _LEARNED_ROWS // num_parts
    if lengths_k.sum() <= limit:
        return segments_k2
    first_k = np.cumsum(lengths_k) - lengths_k
    start_p = np.linspace(0, lengths_k.sum() - limit // _PIECES, _PIECES).astype(np.int64)
    pieces = []
    for start in start_p:
        low_k = np.maximum(start, first_k) - first_k + segments_k2[:, 0]
        high_k = np.minimum(start + limit // _PIECES, first_k + lengths_k) - first_k + segments_k2[:, 0]
        pieces.append(np.stack([low_k, high_k], axis=1)[low_k < high_k])
    return np.concatenate(pieces)
