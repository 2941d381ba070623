"""Four control charts for each channel of process sensors, and their weighted sum.

- The exponentially weighted mean square of the residual of a regression on the last rows
  (`inference.charts.autoregression`). It detects noise, jumps and broken couplings (MacGregor and Harris, Journal of
  Quality Technology 1993).
- The square of the CUSUM of that residual (`inference.running`). It detects a small lasting shift to one side.
- The mean square of what the principal components leave (`inference.charts.components`), over three times as many rows.
  It detects a lasting shift between channels. Its weight falls with the drift of the plant.
- The exponentially weighted mean square of the residual of a regression on the other channels, up to a limit
  (`inference.charts.cross_channel_regression`). It detects channels that no longer fit each other. Its weight falls
  with the variance of a channel that the others do not explain. The limit keeps a process whose channels depend on each
  other in a new way, as servers do under another load, from hiding larger errors of the other charts.

Each chart is divided by its mean on reference rows that were left out of its fit. Suffixes: n row, s score entry, c
channel, k segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from core.config.charts import ProcessCharts
from core.data.blocks import gathered, slices
from inference.charts import autoregression, components, cross_channel_regression
from inference.charts.autoregression import Autoregression
from inference.charts.components import Components
from inference.charts.cross_channel_regression import LAGS, RESIDUAL_FLOOR, CrossChannelRegression
from inference.running import ERROR_CAP, Cusum, Ewma, Running, write_errors

# A residual counts up to so many standard deviations, so that the mean recovers after a value of 1e30.
RESIDUAL_CAP = 1000.0
# Allowance of the CUSUM, in reference deviations of the residual: half of the smallest shift to detect, which is one.
_ALLOWANCE = 0.5
# Smallest reference mean square of a CUSUM: that of a channel that is constant but for rare jumps is near 0.
CUSUM_FLOOR = 0.1
_VALUES_AT_A_TIME = 2**19
# Means of the other channels that predict a channel, in smoothing spans: from much faster to much slower than a fault.
_MEAN_SPANS = (0.25, 1.0, 4.0, 16.0)
# The time of the regression on other channels grows with the cube of its regressors: many channels have fewer lags and
# means, and more than the second number have no such regression.
_MOST_REGRESSORS, _MOST_CHANNELS = 512, 1024


@dataclass(frozen=True)
class CrossChannelResidual:
    """The regression on other channels, and the mean squares of its residual on reference rows, float64 (C,)."""

    regression: CrossChannelRegression
    usual_c: np.ndarray

    @property
    def explained_c(self) -> np.ndarray:
        """Share of the variance of each channel on reference rows that the others explain, 0 to 1."""
        return np.clip(1.0 - self.usual_c, 0.0, 1.0)

    @classmethod
    def fit(cls, values_nc: np.ndarray, segments_k2: np.ndarray, span: int) -> Self | None:
        """None for a single channel, or too many. The arguments are those of `fit`; the mean squares are those of
        out-of-fold residuals."""
        num_channels = values_nc.shape[1]
        if not 1 < num_channels <= _MOST_CHANNELS:
            return None
        more = max(0, _MOST_REGRESSORS // num_channels - 1)
        mean_spans = tuple(each * span for each in _MEAN_SPANS)[:more]
        regression, others, folds = CrossChannelRegression.fit(
            values_nc, segments_k2, lags=min(LAGS, more - len(mean_spans)), mean_spans=mean_spans
        )
        left_out = (
            other.residual(rows)
            for other, fold_k2 in zip(others, folds, strict=True)
            for rows in other.rows(values_nc, fold_k2)
        )
        return cls(regression, np.maximum(_mean_square(left_out, num_channels), RESIDUAL_FLOOR**2))

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {"usual_c": self.usual_c, **self.regression.to_arrays()}

    @classmethod
    def from_arrays(cls, held: Mapping[str, np.ndarray]) -> Self:
        return cls(CrossChannelRegression.from_arrays(held), held["usual_c"])


@dataclass(frozen=True)
class ControlCharts:
    """Charts of one group of recordings.

    span: of the mean of squares, in rows. usual_3c: mean squares (3, C) on reference rows: of the residuals of the
    autoregression and of the components in standard deviations of the channel, and between them of the CUSUM in
    reference deviations of the residual. components_share: weight of the third chart. cross: of the fourth chart; None
    without it. settings: constants of all charts.
    """

    regression: Autoregression
    components: Components
    span: int
    usual_3c: np.ndarray
    components_share: float
    settings: ProcessCharts
    cross: CrossChannelResidual | None = None

    def write(self, error_sc: np.ndarray, first_k: np.ndarray, values_nc: np.ndarray, segments_k2: np.ndarray) -> None:
        """Writes the errors of the rows of segments (K, 2) into `error_sc`, float32 (S, C), those of segment k from
        line `first_k[k]` on. An error is about 1 on reference rows, at most `ERROR_CAP`, and NaN where a value is
        missing."""
        write_errors(self.running(), self._rows_at_a_time, error_sc, first_k, values_nc, segments_k2)

    def running(self) -> RunningCharts:
        """The charts along rows that come in pieces."""
        return RunningCharts(self)

    @property
    def _rows_at_a_time(self) -> int:
        if self.cross is not None:
            return self.cross.regression.rows_at_a_time
        return max(1, _VALUES_AT_A_TIME // len(self.regression.weight_fc))

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {
            **{name: getattr(self.regression, name) for name in _OF_REGRESSION},
            **{name: getattr(self.components, name) for name in _OF_COMPONENTS},
            "lags": np.array(self.regression.lags),
            "span": np.array(self.span),
            "usual_3c": self.usual_3c,
            "components_share": np.array(self.components_share),
            "settings": np.array(self.settings.model_dump_json()),
            **({f"{_OF_CROSS}{name}": array for name, array in self.cross.to_arrays().items()} if self.cross else {}),
        }

    @classmethod
    def from_arrays(cls, held: Mapping[str, np.ndarray]) -> Self:
        # A detector that an earlier version stored has the persistence under its old name.
        named = {**held, "persistence_c": held.get("persistence_c", held.get("inertia_c"))}
        regression = Autoregression(int(held["lags"]), *(named[name] for name in _OF_REGRESSION))
        projection = Components(*(held[name] for name in _OF_COMPONENTS))
        settings = ProcessCharts.model_validate_json(str(held["settings"]))
        share = float(held["components_share"])
        of_cross = {name.removeprefix(_OF_CROSS): held[name] for name in held if name.startswith(_OF_CROSS)}
        cross = CrossChannelResidual.from_arrays(of_cross) if of_cross else None
        return cls(regression, projection, int(held["span"]), held["usual_3c"], share, settings, cross)


_OF_REGRESSION = ("mean_c", "std_c", "persistence_c", "weight_fc")
_OF_COMPONENTS = ("centre_c", "left_cc")
_OF_CROSS = "cross_"


class RunningCharts(Running):
    """The errors, float64 (n, C), of rows (n, C) that come in pieces, no piece across two segments."""

    def __init__(self, charts: ControlCharts):
        self._charts, self._lagged, self._add_up = charts, autoregression.LaggedRows(charts.regression), _AddUp(charts)
        self._cross = None if charts.cross is None else _RunningCross(charts.cross, charts.span)

    def __call__(self, values_nc: np.ndarray, segment: int) -> np.ndarray:
        """With the fourth chart, which weighs the share of a channel that the others explain, the sum is divided by the
        mean total of the weights."""
        of, rows = self._charts, self._lagged(values_nc, segment)
        residuals = (of.regression.residual(rows), of.components.residual(rows.z_nc))
        error_nc = self._add_up(*residuals, np.full(len(values_nc), segment))
        if self._cross is None:
            return error_nc
        explained_c = of.cross.explained_c
        chart_nc = np.minimum(self._cross(values_nc, segment), of.settings.cross_channel_limit)
        return (error_nc + explained_c * chart_nc) / (1.0 + float(np.nanmean(explained_c)))


class _RunningCross(Running):
    """The fourth chart."""

    def __init__(self, cross: CrossChannelResidual, span: int):
        self._of, self._lagged = cross, cross_channel_regression.LaggedRows(cross.regression)
        self._smooth = Ewma(span, len(cross.usual_c), 1.0)

    def __call__(self, values_nc: np.ndarray, segment: int) -> np.ndarray:
        residual_nc = self._of.regression.residual(self._lagged(values_nc, segment))
        relative_nc = np.minimum(residual_nc**2 / self._of.usual_c, ERROR_CAP)
        return self._smooth(relative_nc, np.full(len(values_nc), segment))


class _AddUp(Running):
    """The weighted sum of the first three charts over rows that come in pieces, in order."""

    def __init__(self, charts: ControlCharts):
        num_channels, settings = charts.usual_3c.shape[1], charts.settings
        share, cusum = charts.components_share, settings.cusum_share
        self.usual_3c = charts.usual_3c
        self.share_3 = np.array([(1 - share) * (1 - cusum), (1 - share) * cusum, share])
        self.square, self.cusum = Ewma(charts.span, num_channels, 1.0), _cusum(charts.span, num_channels, settings)
        self.left = Ewma(settings.components_spans * charts.span, num_channels, 1.0)

    def __call__(self, residual_nc: np.ndarray, left_nc: np.ndarray, segment_n: np.ndarray) -> np.ndarray:
        def relative(square_nc: np.ndarray, which: int) -> np.ndarray:
            return np.minimum(square_nc / self.usual_3c[which], ERROR_CAP)

        charts = (
            self.square(relative(residual_nc**2, 0), segment_n),
            relative(self.cusum(_deviations(residual_nc, self.usual_3c[0]), segment_n) ** 2, 1),
            self.left(relative(left_nc**2, 2), segment_n),
        )
        return sum(share * chart_nc for share, chart_nc in zip(self.share_3, charts, strict=True))


def fit(
    values_nc: np.ndarray,
    segments_k2: np.ndarray,
    *,
    span: int,
    settings: ProcessCharts | None = None,
    scratch: Path | None = None,
) -> ControlCharts:
    """The charts of reference rows.

    values_nc: (N, C) of all rows, NaN missing. segments_k2: int64 (K, 2), half-open ranges of reference rows without a
    gap, in order. The reference means are those of out-of-fold residuals. scratch: directory for arrays that are longer
    than memory should hold; None uses memory.
    """
    num_channels, settings = values_nc.shape[1], settings or ProcessCharts()
    regression, residual_sc = autoregression.fit(values_nc, segments_k2, settings, scratch)
    z_sc = gathered(_standardised(regression, values_nc, segments_k2), scratch)
    projection, left_sc, drift = components.fit(z_sc, segments_k2, scratch)
    end_k = np.cumsum(segments_k2[:, 1] - segments_k2[:, 0])

    residual_c, left_c = (
        np.maximum(_mean_square(_pieces(each_sc), num_channels), settings.residual_floor**2)
        for each_sc in (residual_sc, left_sc)
    )
    cusum = _cusum(span, num_channels, settings)

    def cusums() -> Iterator[np.ndarray]:
        first = 0
        for residual_nc in _pieces(residual_sc):
            segment_n = np.searchsorted(end_k, np.arange(first, first := first + len(residual_nc)), side="right")
            yield cusum(_deviations(residual_nc, residual_c), segment_n)

    cusum_c = np.maximum(_mean_square(cusums(), num_channels), CUSUM_FLOOR)
    steady = min(1.0, settings.tolerated_drift / drift) ** 4 if projection.left_cc.any() else 0.0
    share, usual_3c = steady * settings.components_share, np.stack([residual_c, cusum_c, left_c])
    cross = CrossChannelResidual.fit(values_nc, segments_k2, span)
    return ControlCharts(regression, projection, span, usual_3c, share, settings, cross)


def _standardised(regression: Autoregression, values_nc: np.ndarray, segments_k2: np.ndarray) -> Iterator[np.ndarray]:
    for start, stop in segments_k2:
        for rows_nc in _pieces(values_nc[start:stop]):
            yield ((rows_nc - regression.mean_c) / regression.std_c).astype(np.float32)


def _pieces(values_sc: np.ndarray) -> Iterator[np.ndarray]:
    return (values_sc[piece] for piece in slices(values_sc, num_values=_VALUES_AT_A_TIME))


def _cusum(span: int, num_channels: int, settings: ProcessCharts) -> Cusum:
    return Cusum(settings.cusum_spans * span, _ALLOWANCE, num_channels)


def _deviations(residual_nc: np.ndarray, square_c: np.ndarray) -> np.ndarray:
    """Residuals in reference deviations. square_c: their reference mean square."""
    return np.clip(residual_nc / np.sqrt(square_c), -RESIDUAL_CAP, RESIDUAL_CAP)


def _mean_square(pieces: Iterable[np.ndarray], num_channels: int) -> np.ndarray:
    """Of the observed values in rows that come in pieces, float64 (C,); NaN for a channel without a value, which is
    then not scored."""
    sum_c, count_c = np.zeros((2, num_channels))
    for values_nc in pieces:
        square_nc = np.square(values_nc, dtype=np.float64)
        sum_c += np.nansum(square_nc, axis=0)
        count_c += (~np.isnan(square_nc)).sum(axis=0)
    return np.where(count_c > 0, sum_c / np.maximum(count_c, 1), np.nan)
