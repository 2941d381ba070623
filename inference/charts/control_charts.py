"""Seven control charts for each channel of process sensors, and their weighted sum.

- `innovation`: the exponentially weighted mean square of the innovation of a channel (`inference.charts.innovations`):
  what neither the last rows (`inference.charts.autoregression`) nor the innovations of the other channels predict. It
  detects noise, jumps and broken couplings (MacGregor and Harris, Journal of Quality Technology 1993).
- `innovation_shift`: the square of the CUSUM of that innovation (`inference.running`). It detects a small lasting shift
  to one side.
- `components`: the exponentially weighted mean square of the residual of the principal components
  (`inference.charts.components`), over more rows (`components_spans`). It detects a lasting shift between channels, or
  the shift of a single channel. Its weight falls with the drift of the plant.
- `shared`: the exponentially weighted mean of the part of a residual of the autoregression that the channels share: the
  square of the residual minus the square of the innovation. It detects changes of many channels together. A change of
  the load is such a change, so the chart has less weight the larger its 99 % quantile on reference rows is: where the
  load often jumps, the chart is not informative.
- `cross`: the exponentially weighted mean square of the residual of a regression on the other channels, each square up
  to a limit (`inference.charts.cross_channel_regression`). It detects channels that no longer fit each other. Its
  weight falls with the variance of a channel that the others do not explain. The limit keeps a process whose channels
  depend on each other in a new way, as servers do under another load, from hiding larger errors of the other charts,
  and a single large residual from raising the mean for long.
- `cross_shift`: the square of the CUSUM of that residual, up to a limit. It detects a small lasting change of how
  channels fit each other, which changes the mean square less.
- `range`: the square, up to a limit, of the distance of the exponentially weighted mean of a channel from the range of
  such means in the reference rows (`inference.charts.reference_range`). It detects channels that leave their range
  together, as with wear: the other charts see a change of the load, or follow it. The noise of a row would hide a
  mean that has left its range. Its weight falls with the drift of the channel.

What happened before a segment is not known, but a slow channel follows it. The errors of its first rows are therefore
divided by those after other starts (`inference.charts.first_rows`).

Where the other channels explain a channel almost completely, `components` and `shared` have little weight: they follow
the load, and `cross` detects the same faults with a smaller residual. Only there, `cross_shift` shares the weight of
`cross`: elsewhere, as in servers under another load, it would be high most of the time.

`shared` is divided by the mean square of the residual, and each of the others but `range` by its mean on reference rows
that were left out of its fit. `range` is 0 on reference rows; its unit is the variance of a channel. Suffixes: n row,
s score entry, c channel, k segment, b power of two of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from core.config.charts import ProcessCharts
from core.data.blocks import gathered, slices
from core.data.segments import lengths_of
from inference.charts import autoregression, components, cross_channel_regression, first_rows
from inference.charts.autoregression import Autoregression
from inference.charts.components import Components
from inference.charts.cross_channel_regression import LAGS, RESIDUAL_FLOOR, CrossChannelRegression
from inference.charts.innovations import RESIDUAL_CAP, Innovations
from inference.charts.reference_range import ReferenceRange
from inference.running import ERROR_CAP, Cusum, Ewma, Running, write_errors

# Allowance of the CUSUM, in reference deviations of the residual: half of the smallest shift to detect, which is one.
_ALLOWANCE = 0.5
# Smallest reference mean square of a CUSUM. It is near 0 for a channel that is constant except for rare jumps.
CUSUM_FLOOR = 0.1
# Smallest reference innovation, in standard deviations of its channel.
INNOVATION_FLOOR = 0.01
_VALUES_AT_A_TIME = 2**19
# Means of the other channels that predict a channel, in smoothing spans: from much faster to much slower than a fault.
_MEAN_SPANS = (0.25, 1.0, 4.0, 16.0)
# The rows before a segment no longer matter after this many smoothing spans: twice the slowest mean.
_KNOWN_SPANS = 2 * _MEAN_SPANS[-1]
# Where the other channels leave less than this share of the variance of a channel unexplained, `components` and
# `shared` have less weight. Chosen on simulated plants with the seeds 3 to 5; servers leave more (dev/LOG.md).
_WELL_EXPLAINED = 0.15
# Limit of `cross_shift` and `range`: without it, a large fault would raise the score for minutes after its end. Chosen
# for `cross_shift`, with the margin of the threshold, on simulated pumps with the seeds 401 to 424 and 701 to 708
# (dev/LOG.md, 2026-11-28).
_SHIFT_LIMIT = 40.0
_MARGIN = 1.3
# The time of the regression on other channels grows with the cube of the number of regressors. With many channels there
# are fewer lags and means and no squares; with more than `_MOST_CHANNELS` there is no such regression.
_MOST_REGRESSORS, _MOST_CHANNELS = 512, 1024


@dataclass(frozen=True)
class CrossChannelResidual:
    """The regression on other channels. usual_c, cusum_c: mean squares of its residuals, and of the CUSUM of its
    residuals in deviations, on reference rows: float64 (C,); the first is NaN for a channel that is not scored."""

    regression: CrossChannelRegression
    usual_c: np.ndarray
    cusum_c: np.ndarray

    @property
    def explained_c(self) -> np.ndarray:
        """Share of the variance of each channel on reference rows that the others explain, 0 to 1."""
        return np.clip(1.0 - self.usual_c, 0.0, 1.0)

    @classmethod
    def fit(
        cls,
        values_nc: np.ndarray,
        segments_k2: np.ndarray,
        span: int,
        settings: ProcessCharts,
        scored_c: np.ndarray | None = None,
    ) -> Self | None:
        """None for a single channel or more than `_MOST_CHANNELS`. Arguments as for `fit` of this module. The mean
        squares are those of out-of-fold residuals."""
        num_channels = values_nc.shape[1]
        if not 1 < num_channels <= _MOST_CHANNELS:
            return None
        more = max(0, _MOST_REGRESSORS // num_channels - 1)
        mean_spans = tuple(each * span for each in _MEAN_SPANS)[:more]
        lags = min(LAGS, more - len(mean_spans))
        regression, others, folds = CrossChannelRegression.fit(
            values_nc, segments_k2, lags=lags, mean_spans=mean_spans, squares=more > lags + len(mean_spans)
        )

        def left_out() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            """Residuals of rows of one segment, and the number of the segment of each row."""
            first = 0
            for other, fold_k2 in zip(others, folds, strict=True):
                for rows in other.rows(values_nc, fold_k2):
                    yield other.residual(rows), np.full(len(rows.z_nc), first + rows.segment)
                first += len(fold_k2)

        square_c = _mean_square((residual_nc for residual_nc, _ in left_out()), num_channels)
        usual_c = np.maximum(square_c, RESIDUAL_FLOOR**2)
        if scored_c is not None:
            usual_c[~scored_c] = np.nan
        found = cls(regression, usual_c, np.full(num_channels, CUSUM_FLOOR))
        if _unexplained(found) == 1:  # `cross_shift` has no weight
            return found
        chart = _cusum(span, num_channels, settings)
        cusums = (chart(_deviations(residual_nc, usual_c), segment_n) for residual_nc, segment_n in left_out())
        return replace(found, cusum_c=np.maximum(_mean_square(cusums, num_channels), CUSUM_FLOOR))

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {"usual_c": self.usual_c, "cusum_c": self.cusum_c, **self.regression.to_arrays()}

    @classmethod
    def from_arrays(cls, held: Mapping[str, np.ndarray]) -> Self:
        return cls(CrossChannelRegression.from_arrays(held), held["usual_c"], held["cusum_c"])


class MeanSquares(NamedTuple):
    """Mean squares on reference rows, float64 (C,); NaN for a channel that is not scored. innovation_c, components_c,
    residual_c: of the innovations, and of the residuals of components and autoregression, in standard deviations of the
    channel. innovation_shift_c: of the CUSUM of the innovations, in their reference deviations."""

    innovation_c: np.ndarray
    innovation_shift_c: np.ndarray
    components_c: np.ndarray
    residual_c: np.ndarray


@dataclass(frozen=True)
class ControlCharts:
    """Charts of one group of recordings.

    span: span of the exponentially weighted means, in rows. components_share: weight of `components`. shared_weight:
    weight of `shared`. range, range_weight_c: ranges of the channels and weights (C,) of `range`. cross: the regression
    of `cross` and `cross_shift`; None without it. settings: constants of all charts. start_bc: divides the errors of
    the first rows of a segment (`inference.charts.first_rows.factors`).
    """

    regression: Autoregression
    innovations: Innovations
    components: Components
    span: int
    usual: MeanSquares
    components_share: float
    shared_weight: float
    range: ReferenceRange
    range_weight_c: np.ndarray
    settings: ProcessCharts
    start_bc: np.ndarray
    cross: CrossChannelResidual | None = None

    @property
    def scored_c(self) -> np.ndarray:
        """The channels that are scored, bool (C,)."""
        return ~np.isnan(self.usual.innovation_c)

    @property
    def total(self) -> float:
        """The mean of the sum of all charts but `range` on reference rows; they are divided by it."""
        shared = float(np.nanmean(np.clip(1.0 - self.usual.innovation_c / self.usual.residual_c, 0.0, 1.0)))
        explained = 0.0 if self.cross is None else float(np.nanmean(self.cross.explained_c))
        return 1.0 + self.shared_weight * shared + explained

    def write(self, error_sc: np.ndarray, first_k: np.ndarray, values_nc: np.ndarray, segments_k2: np.ndarray) -> None:
        """Writes the errors of the rows of segments (K, 2) into `error_sc`, float32 (S, C), those of segment k from
        line `first_k[k]` on. An error is about 1 on reference rows, at most `ERROR_CAP`, and NaN where a value is
        missing or a channel is not scored."""
        write_errors(self.running(), self._rows_at_a_time, error_sc, first_k, values_nc, segments_k2)

    def running(self) -> RunningCharts:
        """The charts along rows that come in pieces."""
        return RunningCharts(self)

    @property
    def cross_regression(self) -> CrossChannelRegression | None:
        return None if self.cross is None else self.cross.regression

    @property
    def steadiness(self) -> float:
        """The factor by which drift of the reference rows lowers the weight of `components`: 0 to 1. It is 1 where the
        chart has little weight for another reason."""
        unexplained, share = _unexplained(self.cross), self.settings.components_share
        if unexplained < 0.5 or not share or not self.components.left_cc.any():
            return 1.0
        return self.components_share / (unexplained * share)

    @property
    def margin(self) -> float:
        """The factor by which a threshold from little data may be raised, 1 to `_MARGIN`: where `cross_shift` has
        weight, the scores of lasting faults are several times the threshold, and those of a change of the load are
        not."""
        return 1.0 + (_MARGIN - 1.0) * (1.0 - _unexplained(self.cross))

    @property
    def _rows_at_a_time(self) -> int:
        if self.cross is not None:
            return self.cross.regression.rows_at_a_time
        return max(1, _VALUES_AT_A_TIME // len(self.regression.weight_fc))

    def to_arrays(self) -> dict[str, np.ndarray]:
        parts = [getattr(self, name) for name in _PARTS]
        return {
            **{field.name: np.array(getattr(part, field.name)) for part in parts for field in fields(part)},
            "span": np.array(self.span),
            "usual_4c": np.stack(self.usual),
            "components_share": np.array(self.components_share),
            "shared_weight": np.array(self.shared_weight),
            "range_weight_c": self.range_weight_c,
            "settings": np.array(self.settings.model_dump_json()),
            "start_bc": self.start_bc,
            **({f"{_OF_CROSS}{name}": array for name, array in self.cross.to_arrays().items()} if self.cross else {}),
        }

    @classmethod
    def from_arrays(cls, held: Mapping[str, np.ndarray]) -> Self:
        of_cross = {name.removeprefix(_OF_CROSS): held[name] for name in held if name.startswith(_OF_CROSS)}
        return cls(
            **{name: _part_of(kind, held) for name, kind in _PARTS.items()},
            span=int(held["span"]),
            usual=MeanSquares(*held["usual_4c"]),
            components_share=float(held["components_share"]),
            shared_weight=float(held["shared_weight"]),
            range_weight_c=held["range_weight_c"],
            settings=ProcessCharts.model_validate_json(str(held["settings"])),
            start_bc=held["start_bc"],
            cross=CrossChannelResidual.from_arrays(of_cross) if of_cross else None,
        )


# The fields of `ControlCharts` that consist of arrays and numbers, which have different names.
_PARTS = {
    "regression": Autoregression, "innovations": Innovations, "components": Components, "range": ReferenceRange,
}  # fmt: skip
_OF_CROSS = "cross_"


def _part_of(kind: type[Any], held: Mapping[str, np.ndarray]) -> Any:
    arrays = (held[field.name] for field in fields(kind))
    return kind(*(array if array.ndim else array.item() for array in arrays))


class RunningCharts(Running):
    """The errors, float64 (n, C), of rows (n, C) that come in pieces, no piece across two segments."""

    def __init__(self, charts: ControlCharts):
        self._charts, self._chart_sum = charts, _ChartSum(charts)
        self._lagged = autoregression.LaggedRows(charts.regression)
        self._cross = None if charts.cross is None else _RunningCross(charts, charts.cross)
        self._level = Ewma(charts.span, len(charts.scored_c), 0.0)

    @property
    def regressor_nf(self) -> np.ndarray | None:
        """The regressors of the last piece, to attribute events to channels; None without a regression on others."""
        return None if self._cross is None else self._cross.regressor_nf

    def __call__(self, values_nc: np.ndarray, segment: int) -> np.ndarray:
        of, rows = self._charts, self._lagged(values_nc, segment)
        residuals = (of.regression.residual(rows), of.components.residual(rows.z_nc))
        segment_n = np.full(len(values_nc), segment)
        start_nc = first_rows.factor_of(self._level.ages(segment_n), of.start_bc)
        error_nc = self._chart_sum(*residuals, segment_n)
        if self._cross is not None:
            error_nc = error_nc + of.cross.explained_c * self._cross(values_nc, segment)
        outside_nc = np.minimum(of.range.excess(self._level(rows.z_nc, segment_n)) ** 2, _SHIFT_LIMIT)
        return error_nc / (of.total * start_nc) + of.range_weight_c * outside_nc


class _RunningCross(Running):
    """`cross` and `cross_shift`. Their weight is the share of a channel that the others explain."""

    def __init__(self, charts: ControlCharts, cross: CrossChannelResidual):
        num_channels, settings = len(cross.usual_c), charts.settings
        self._of, self._lagged = cross, cross_channel_regression.LaggedRows(cross.regression)
        self.regressor_nf = np.empty((0, len(cross.regression.precision_ff)))
        self._limit, self._share = settings.cross_channel_limit, settings.cusum_share * (1 - _unexplained(cross))
        self._smooth = Ewma(charts.span, num_channels, 1.0)
        self._cusum = _cusum(charts.span, num_channels, settings)

    def __call__(self, values_nc: np.ndarray, segment: int) -> np.ndarray:
        of, segment_n = self._of, np.full(len(values_nc), segment)
        rows = self._lagged(values_nc, segment)
        residual_nc, self.regressor_nf = of.regression.residual(rows), rows.regressor_nf
        square_nc = self._smooth(np.minimum(residual_nc**2 / of.usual_c, self._limit), segment_n)
        if self._share == 0:
            return square_nc
        shift_nc = self._cusum(_deviations(residual_nc, of.usual_c), segment_n) ** 2 / of.cusum_c
        return (1 - self._share) * square_nc + self._share * np.minimum(shift_nc, _SHIFT_LIMIT)


class _ChartSum(Running):
    """The weighted sum of the charts of the other residuals, over rows that come in pieces, in order."""

    def __init__(self, charts: ControlCharts):
        num_channels, settings = len(charts.scored_c), charts.settings
        share, cusum = charts.components_share, settings.cusum_share
        self.innovations, self.usual = charts.innovations, charts.usual
        self.weights = {
            "innovation": (1 - share) * (1 - cusum),
            "innovation_shift": (1 - share) * cusum,
            "components": share,
            "shared": charts.shared_weight,
        }
        self.square, self.cusum = Ewma(charts.span, num_channels, 1.0), _cusum(charts.span, num_channels, settings)
        self.left = Ewma(settings.components_spans * charts.span, num_channels, 1.0)
        self.shared = Ewma(charts.span, num_channels, 0.0)

    def __call__(self, residual_nc: np.ndarray, left_nc: np.ndarray, segment_n: np.ndarray) -> np.ndarray:
        usual, own_nc = self.usual, self.innovations(residual_nc)
        shift_nc = self.cusum(_deviations(own_nc, usual.innovation_c), segment_n)
        charts = {
            "innovation": self.square(_relative(own_nc**2, usual.innovation_c), segment_n),
            "innovation_shift": _relative(shift_nc**2, usual.innovation_shift_c),
            "components": self.left(_relative(left_nc**2, usual.components_c), segment_n),
            "shared": self.shared(_relative(residual_nc**2 - own_nc**2, usual.residual_c), segment_n),
        }
        return sum(self.weights[name] * chart_nc for name, chart_nc in charts.items())


def _relative(square_nc: np.ndarray, usual_c: np.ndarray) -> np.ndarray:
    return np.minimum(square_nc / usual_c, ERROR_CAP)


def fit(
    values_nc: np.ndarray,
    segments_k2: np.ndarray,
    *,
    span: int,
    settings: ProcessCharts | None = None,
    scored_c: np.ndarray | None = None,
    scratch: Path | None = None,
) -> ControlCharts:
    """The charts of reference rows.

    values_nc: (N, C) of all rows, NaN missing. segments_k2: int64 (K, 2), half-open ranges of reference rows without a
    gap, in order. span: span of the exponentially weighted means, in rows. scored_c: bool (C,), the channels that are
    scored; None: all. The others only predict them. scratch: directory for arrays that are too large for memory; None
    uses memory. The reference means are those of out-of-fold residuals.
    """
    num_channels, settings = values_nc.shape[1], settings or ProcessCharts()
    regression, residual_sc = autoregression.fit(values_nc, segments_k2, settings, scratch)
    z_sc = gathered(_standardised(regression, values_nc, segments_k2), scratch)
    projection, left_sc, drift = components.fit(z_sc, segments_k2, scratch)
    end_k = np.cumsum(lengths_of(segments_k2))

    def residuals() -> Iterator[np.ndarray]:
        return _pieces(residual_sc)

    def charted(pieces: Iterable[np.ndarray], chart: Ewma | Cusum) -> Iterator[np.ndarray]:
        first = 0
        for piece_nc in pieces:
            row_n = np.arange(first, first := first + len(piece_nc))
            yield chart(piece_nc, np.searchsorted(end_k, row_n, side="right"))

    residual_c, left_c = (
        np.maximum(_mean_square(_pieces(each_sc), num_channels), settings.residual_floor**2)
        for each_sc in (residual_sc, left_sc)
    )
    innovations = Innovations.fit(residuals(), residual_c)
    own_c = np.maximum(_mean_square(map(innovations, residuals()), num_channels), INNOVATION_FLOOR**2)
    deviations = (_deviations(innovations(residual_nc), own_c) for residual_nc in residuals())
    cusum_c = _mean_square(charted(deviations, _cusum(span, num_channels, settings)), num_channels)
    usual = MeanSquares(own_c, np.maximum(cusum_c, CUSUM_FLOOR), left_c, residual_c)
    if scored_c is not None:
        usual = MeanSquares(*(np.where(scored_c, usual_c, np.nan) for usual_c in usual))
    shared = (_relative(np.square(each_nc) - innovations(each_nc) ** 2, usual.residual_c) for each_nc in residuals())
    shared_quantile = _quantile_of_means(charted(shared, Ewma(span, num_channels, 0.0)))
    steady = min(1.0, settings.tolerated_drift / drift) ** 4 if projection.left_cc.any() else 0.0
    levels = (each_nc.astype(np.float32) for each_nc in charted(_pieces(z_sc), Ewma(span, num_channels, 0.0)))
    reference_range = ReferenceRange.fit(gathered(levels, scratch), segments_k2)
    cross = CrossChannelResidual.fit(values_nc, segments_k2, span, settings, scored_c)
    charts = ControlCharts(
        regression,
        innovations,
        projection,
        span,
        usual,
        components_share=steady * _unexplained(cross) * settings.components_share,
        shared_weight=_unexplained(cross) * settings.shared_weight / max(1.0, shared_quantile),
        range=reference_range,
        range_weight_c=np.minimum(1.0, settings.tolerated_drift / reference_range.drift_c) ** 4,
        settings=settings,
        start_bc=np.ones((1, num_channels)),
        cross=cross,
    )
    return replace(charts, start_bc=first_rows.factors(charts.write, values_nc, segments_k2, _KNOWN_SPANS * span))


def _unexplained(cross: CrossChannelResidual | None) -> float:
    """The factor of charts that follow the load: 1, or less if the other channels leave less than `_WELL_EXPLAINED` of
    the variance of a channel unexplained on average. The ratio has the fourth power, as for drift."""
    if cross is None:
        return 1.0
    return min(1.0, (1.0 - float(np.nanmean(cross.explained_c))) / _WELL_EXPLAINED) ** 4


def _quantile_of_means(pieces: Iterable[np.ndarray]) -> float:
    """The 99 % quantile over rows of the mean over channels; 0 without a value."""
    means = []
    for values_nc in pieces:
        observed_n = (~np.isnan(values_nc)).sum(axis=1)
        means.append((np.nansum(values_nc, axis=1) / np.maximum(observed_n, 1))[observed_n > 0])
    mean_n = np.concatenate(means)
    return float(np.quantile(mean_n, 0.99)) if len(mean_n) else 0.0


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
    """Mean square of the observed values in rows that come in pieces, float64 (C,). NaN for a channel without a value;
    such a channel is not scored."""
    sum_c, count_c = np.zeros((2, num_channels))
    for values_nc in pieces:
        square_nc = np.square(values_nc, dtype=np.float64)
        sum_c += np.nansum(square_nc, axis=0)
        count_c += (~np.isnan(square_nc)).sum(axis=0)
    return np.where(count_c > 0, sum_c / np.maximum(count_c, 1), np.nan)
