"""A control chart of the part of a channel that the other channels do not explain, by operating context.

The chart compares each residual of the regression (`inference.charts.cross_channel_regression`) with those of similar
operating contexts (`inference.charts.operating_context`) and averages its negative log-likelihood under a Student t
distribution, so that a single extreme row has a limited effect.

Suffixes: n row, s score entry, c channel, k segment, f regressor or feature, m reference row.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from core.data.segments import num_rows, rows_between
from inference.charts.cross_channel_regression import RESIDUAL_FLOOR, CrossChannelRegression, LaggedRows
from inference.charts.operating_context import APART_SPANS, ContextFeatures, ResidualScale, mean_of_observed, recurrence
from inference.charts.reference_rows import moments
from inference.running import ERROR_CAP, Running, StartedEwma, write_errors

log = logging.getLogger(__name__)

# Degrees of freedom of the Student t distribution, and the smallest deviation of the smoothed likelihood.
FREEDOM, DEVIATION_FLOOR = 10.0, 0.05
# Fewest reference rows of a process for which the operating context is used.
FEWEST_ROWS = 1000
# Rows from which context and levels are learned: evenly spaced pieces of the reference rows.
_LEARNED_ROWS, _PIECES = 2**16, 16
_VALUES_AT_A_TIME = 2**18


@dataclass(frozen=True)
class CrossChannelChart:
    """Errors of rows, about 1 on reference rows.

    scale: usual residuals by context. level_2c: mean and deviation (2, C) of the smoothed negative log-likelihood of
    reference rows. usual_c: mean square of the excess over that mean, in deviations; NaN for a channel that is not
    scored. span: span of the exponentially weighted mean, in rows.
    """

    regression: CrossChannelRegression
    features: ContextFeatures
    scale: ResidualScale
    level_2c: np.ndarray
    usual_c: np.ndarray
    span: int

    margin = 1.0  # as `ControlCharts.margin`

    @property
    def scored_c(self) -> np.ndarray:
        """The channels that are scored, bool (C,)."""
        return ~np.isnan(self.usual_c)

    def write(self, error_sc: np.ndarray, first_k: np.ndarray, values_nc: np.ndarray, segments_k2: np.ndarray) -> None:
        """Writes float32 errors of the rows of segments (K, 2) into lines of `error_sc` (S, C), those of segment k from
        `first_k[k]` on; NaN where a value is missing or a channel is not scored."""
        write_errors(self.running(), self.regression.rows_at_a_time, error_sc, first_k, values_nc, segments_k2)

    def running(self) -> RunningChart:
        """The chart along rows that come in pieces."""
        return RunningChart(self)

    @property
    def cross_regression(self) -> CrossChannelRegression:
        return self.regression

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


class RunningChart(Running):
    """The errors, float64 (n, C), of rows (n, C) that come in pieces, no piece across two segments.

    regressor_nf: the regressors of the last piece, to attribute events to channels.
    """

    def __init__(self, chart: CrossChannelChart):
        self._chart, self._lagged = chart, LaggedRows(chart.regression)
        self.regressor_nf = np.empty((0, len(chart.regression.precision_ff)))
        self._extract, self._smooth = (
            chart.features.extractor(),
            StartedEwma(chart.span, len(chart.level_2c[0]), chart.level_2c[0]),
        )

    def __call__(self, values_nc: np.ndarray, segment: int) -> np.ndarray:
        of, rows = self._chart, self._lagged(values_nc, segment)
        segment_n = np.full(len(values_nc), segment)
        scale_nc = of.scale(self._extract(rows.filled_nc, segment_n))
        residual_nc, self.regressor_nf = of.regression.residual(rows), rows.regressor_nf
        smoothed_nc = self._smooth(_negative_log_likelihood(residual_nc, scale_nc), segment_n)
        return np.minimum(_excess(smoothed_nc, of.level_2c) / of.usual_c, ERROR_CAP)


def fit(
    values_nc: np.ndarray,
    segments_k2: np.ndarray,
    *,
    span: int,
    context_c: np.ndarray | None = None,
    scored_c: np.ndarray | None = None,
) -> CrossChannelChart:
    """The chart of reference rows.

    values_nc: (N, C) of all rows, NaN missing. segments_k2: int64 (K, 2), half-open ranges of reference rows without a
    gap, in order. span: span of the exponentially weighted mean, in rows. context_c: bool (C,), the channels that
    describe the context; by default all. scored_c: bool (C,), the channels that are scored; by default all. The
    reference residuals are out-of-fold residuals.
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
    loss = []
    for row_n in np.array_split(np.arange(len(residual_nc)), max(1, residual_nc.size // _VALUES_AT_A_TIME)):
        scale_nc = scale.of_references(feature_nf[row_n], row_n, reference_m, APART_SPANS * span)
        loss.append(_negative_log_likelihood(residual_nc[row_n], scale_nc))
    loss_nc = np.concatenate(loss)
    mean_c = mean_of_observed(loss_nc)
    smoothed_nc = StartedEwma(span, len(mean_c), mean_c)(loss_nc, segment_n)
    deviation_c = np.sqrt(mean_of_observed(np.square(smoothed_nc - mean_c)))
    level_2c = np.stack([mean_c, np.maximum(deviation_c, DEVIATION_FLOOR)])
    usual_c = np.maximum(mean_of_observed(_excess(smoothed_nc, level_2c)), DEVIATION_FLOOR)
    if scored_c is not None:
        usual_c[~scored_c] = np.nan
    return CrossChannelChart(regression, features, scale, level_2c, usual_c, span)


def process_recurrence(values_nc: np.ndarray, segments_k2: np.ndarray, span: int) -> float:
    """`inference.charts.operating_context.recurrence` of reference rows; 0 for fewer than `FEWEST_ROWS`."""
    if num_rows(segments_k2) < FEWEST_ROWS:
        return 0.0
    learned_k2 = _learned_rows(segments_k2, 1)
    plain = CrossChannelRegression.without_weights(*moments(values_nc, learned_k2))
    pieces = list(plain.rows(values_nc, learned_k2))
    segment_n = np.concatenate([np.full(len(rows.z_nc), rows.segment) for rows in pieces])
    return recurrence(np.concatenate([rows.filled_nc for rows in pieces]), segment_n, span)


def _negative_log_likelihood(residual_nc: np.ndarray, scale_nc: np.ndarray) -> np.ndarray:
    """Negative log-likelihood of residuals under a Student t distribution of that scale, without its constant."""
    square_nc = np.square(residual_nc / np.maximum(scale_nc, RESIDUAL_FLOOR))
    return 0.5 * (FREEDOM + 1) * np.log1p(square_nc / FREEDOM)


def _excess(smoothed_nc: np.ndarray, level_2c: np.ndarray) -> np.ndarray:
    """Squared deviations of a smoothed likelihood above its mean."""
    return np.square(np.maximum((smoothed_nc - level_2c[0]) / level_2c[1], 0.0))


def _learned_rows(segments_k2: np.ndarray, num_parts: int) -> np.ndarray:
    """The segments (K, 2) of one of `num_parts` folds, or evenly spaced pieces of them if they have more rows than
    `_LEARNED_ROWS` divided by the number of folds."""
    count = num_rows(segments_k2)
    limit = _LEARNED_ROWS // num_parts
    if count <= limit:
        return segments_k2
    size = limit // _PIECES
    start_p = np.linspace(0, count - size, _PIECES).astype(np.int64)
    return np.concatenate([rows_between(segments_k2, start, start + size) for start in start_p])
