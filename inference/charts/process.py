"""Control charts of process sensors for each group of recordings. The kind of chart depends on the process.

A process that repeats itself is scored by the cross-channel chart (`inference.charts.cross_channel`), which compares
residuals with those of similar operating contexts. Any other process is scored by the charts of
`inference.charts.control_charts`.

Suffixes: s score entry, n row, c channel, k segment.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from core.config.charts import ProcessCharts
from core.data.blocks import blank, slices
from core.data.segments import entries_of, num_rows
from core.data.splits import SplitName
from core.data.windows import Series, WindowSet
from core.errors import ConfigError, ConfigFault
from core.numbers import counted
from inference.charts import attribution, control_charts, cross_channel
from inference.charts.autoregression import Autoregression
from inference.charts.control_charts import ControlCharts, RunningCharts
from inference.charts.cross_channel import CrossChannelChart, RunningChart
from inference.charts.cross_channel_regression import CrossChannelRegression
from inference.charts.reference_rows import FOLDS, held_out
from inference.charts.switches import ScoreSwitches, scored_channels
from inference.groups import OWN_ROWS, POOLED, Group, groups, keys_of

log = logging.getLogger(__name__)

Charts = ControlCharts | CrossChannelChart
KINDS: dict[str, type[Charts]] = {"control": ControlCharts, "cross_channel": CrossChannelChart}
OperatingContext = Literal["auto", "on", "off"]
_VALUES_AT_A_TIME = 2**19
# Rows before the first row that is shown, from which lags and means of the first prediction are computed.
_ROWS_BEFORE = 1000
# Below this `ControlCharts.steadiness`, scoring logs that the reference rows drift.
_STEADY = 0.5
# If the other channels explain at least this share of a channel's variance, its expected value is predicted from them.
_MOST = 0.5


@dataclass(frozen=True)
class ProcessChartSet:
    """The charts of each group of recordings, by the key of the group (`inference.groups`)."""

    charts: Mapping[str, Charts]

    @property
    def scored_c(self) -> np.ndarray:
        """The channels that are scored, bool (C,)."""
        return next(iter(self.charts.values())).scored_c

    @property
    def margin(self) -> float:
        """The smallest `ControlCharts.margin` of a group."""
        return min(each.margin for each in self.charts.values())

    def errors(self, windows: WindowSet) -> np.ndarray:
        """Errors of all rows of the segments of a split, float32 (S, C), by the charts of each recording's group."""
        values_nc, segments_k2 = windows.series.rows_nc, windows.segments.rows_k2
        error_sc = blank((num_rows(segments_k2), values_nc.shape[1]), windows.series.scratch)
        entry_k = entries_of(segments_k2)
        key_k = np.array(keys_of(windows, self.charts), dtype=object)
        for key in dict.fromkeys(key_k):
            mine_k = key_k == key
            self.charts[key].write(error_sc, entry_k[mine_k], values_nc, segments_k2[mine_k])
        return error_sc

    def running(self, file_id: str) -> RunningCharts | RunningChart:
        """The charts of a recording along rows that come in pieces."""
        return self._of(file_id).running()

    def cross_regression(self, file_id: str) -> CrossChannelRegression | None:
        """The regression by which events of a recording are attributed to channels (`inference.charts.attribution`);
        None without one, as for a single channel."""
        return self._of(file_id).cross_regression

    def _of(self, file_id: str) -> Charts:
        return self.charts[file_id if file_id in self.charts else POOLED]

    def shares(self, windows: WindowSet, first: int, last: int, error_c: np.ndarray, most: int) -> dict[int, float]:
        """`inference.charts.attribution.shares` of the rows `first` to `last` (inclusive) of a segment, whose charts
        have a regression. error_c: mean errors of these rows."""
        series, segments = windows.series, windows.segments
        segment = int(segments.at(np.array([first]))[0])
        regression = self._of(series.recordings[int(segments.recording_k[segment])].file_id).cross_regression
        start = max(int(segments.start_k[segment]), first - _ROWS_BEFORE)
        moment_ff, row = np.zeros_like(regression.precision_ff), start
        for rows in regression.rows(series.rows_nc, np.array([[start, last + 1]])):
            x_nf = rows.regressor_nf[max(0, first - row) :]
            moment_ff += x_nf.T @ x_nf
            row += len(rows.z_nc)
        return attribution.shares(regression, error_c, moment_ff, most)

    def expected(self, windows: WindowSet, row_n: np.ndarray) -> np.ndarray:
        """The predictions of the charts' regressions for some rows of the series, in the units of the series: float64
        (N, C), NaN where the measured value is missing. The charts monitor the difference, the residual.

        row_n: int64 (N,), ascending, all in segments of the split.
        """
        values_nc, segments = windows.series.rows_nc, windows.segments
        key_k, expected_nc = keys_of(windows, self.charts), np.empty((len(row_n), values_nc.shape[1]))
        segment_n = segments.at(row_n)
        for segment in np.unique(segment_n):
            mine_n = segment_n == segment
            first, last = row_n[mine_n][[0, -1]]
            start = max(int(segments.start_k[segment]), int(first) - _ROWS_BEFORE)
            rows_k2 = np.array([[start, last + 1]])
            predicted_nc = _predicted(self.charts[key_k[segment]], values_nc, rows_k2)
            expected_nc[mine_n] = predicted_nc[row_n[mine_n] - start]
        return expected_nc

    def try_out(self) -> None:
        """Computes the errors of two rows, one with a missing value. Raises KeyError, ValueError or an error of NumPy
        for arrays that do not fit together."""
        if POOLED not in self.charts:
            raise KeyError("no charts of all recordings")
        for charts in self.charts.values():
            for regression in filter(None, (charts.regression, charts.cross_regression)):
                if not 0 <= regression.lags < len(regression.weight_fc):
                    raise ValueError(f"{regression.lags} lags, but {len(regression.weight_fc)} weights")
            rows_2c = np.zeros((2, len(charts.regression.mean_c)), np.float32)
            rows_2c[1, 0] = np.nan
            if charts.running()(rows_2c, 0).shape != rows_2c.shape:
                raise ValueError("its charts do not give one error for each channel")

    def joined(self, other: ProcessChartSet) -> ProcessChartSet:
        return ProcessChartSet({**self.charts, **other.charts})

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The arrays of each group. Their names start with the number and the kind of the group."""
        kinds = {kind: name for name, kind in KINDS.items()}
        arrays = {"groups": np.array(list(self.charts))}
        for number, charts in enumerate(self.charts.values()):
            prefix = f"{number}.{kinds[type(charts)]}."
            arrays |= {prefix + name: np.array(array, order="C") for name, array in charts.to_arrays().items()}
        return arrays

    @classmethod
    def from_arrays(cls, held: Mapping[str, np.ndarray]) -> Self:
        of_number: dict[str, tuple[str, dict[str, np.ndarray]]] = {}
        for name, array in held.items():
            if name != "groups":
                number, kind, name = name.split(".")
                of_number.setdefault(number, (kind, {}))[1][name] = array
        found = (of_number[str(number)] for number in range(len(held["groups"])))
        charts = [KINDS[kind].from_arrays(arrays) for kind, arrays in found]
        return cls(dict(zip(held["groups"].tolist(), charts, strict=True)))


def _predicted(charts: Charts, values_nc: np.ndarray, rows_k2: np.ndarray) -> np.ndarray:
    """Predictions of the rows (K, 2), float64 (N, C): from the other channels where these explain most of a channel,
    because a prediction from its own past follows a fault."""

    def by(regression: Autoregression | CrossChannelRegression) -> np.ndarray:
        z_nc = np.concatenate([rows.z_nc - regression.residual(rows) for rows in regression.rows(values_nc, rows_k2)])
        return z_nc * regression.std_c + regression.mean_c

    cross = charts.cross if isinstance(charts, ControlCharts) else None
    if cross is None:
        return by(charts.regression)
    return np.where(cross.explained_c >= _MOST, by(cross.regression), by(charts.regression))


def fit_process(
    reference: Mapping[SplitName, WindowSet],
    own_past: Collection[str] = (),
    *,
    span: int,
    context: OperatingContext = "auto",
    context_channels: Collection[str] = (),
    score_switches: ScoreSwitches = "auto",
    settings: ProcessCharts | None = None,
) -> tuple[ProcessChartSet, np.ndarray]:
    """Charts of the rows of all reference splits, and the errors of the split `calibration` by charts that were fitted
    without it (`inference.charts.reference_rows`).

    own_past: file ids of the recordings that are scored per recording (errors of the other recordings are NaN); if
    empty, all recordings are one group. span: span of the exponentially weighted means, in rows. context: whether
    residuals are compared with those of similar operating contexts; `auto` does so for a process that repeats itself.
    context_channels: the channels that describe the context; by default all. score_switches: whether switches are
    scored (`inference.charts.switches`). settings: constants of the charts.
    Raises ConfigError for a context channel that the data does not have.
    """
    calibration, settings = reference["calibration"], settings or ProcessCharts()
    values_nc, scratch = calibration.series.rows_nc, calibration.series.scratch
    calibration_k2 = calibration.segments.rows_k2
    calibration_sc = blank((num_rows(calibration_k2), values_nc.shape[1]), scratch)
    for piece in slices(calibration_sc, num_values=_VALUES_AT_A_TIME):
        calibration_sc[piece] = np.nan
    if own_past:
        which = counted(len(own_past), "recording")
        log.info("separate charts for %s: each has at least %d reference rows", which, OWN_ROWS)
    fitted = groups(reference.values(), own_past)
    context_c = _chosen(calibration.series, context_channels)
    all_k2 = np.concatenate([split.segments.rows_k2 for split in reference.values()])
    scored_c = scored_channels(values_nc, all_k2[np.argsort(all_k2[:, 0])], score_switches)
    uses_context = _uses_context(fitted, values_nc, span, context, context_c, settings.recurrence)

    def learned(segments_k2: np.ndarray) -> Charts:
        if uses_context:
            return cross_channel.fit(values_nc, segments_k2, span=span, context_c=context_c, scored_c=scored_c)
        return control_charts.fit(
            values_nc, segments_k2, span=span, settings=settings, scored_c=scored_c, scratch=scratch
        )

    charts = {}
    for group in fitted:
        charts[group.key] = learned(group.reference_k2)
        mine_k = group.holds(calibration_k2)
        mine_k2, line_k = calibration_k2[mine_k], entries_of(calibration_k2)[mine_k]
        fewest = cross_channel.FEWEST_ROWS if uses_context else 0
        for fitted_k2, scored_k2 in held_out(group.reference_k2, mine_k2, fewest=fewest):
            segment_k = np.searchsorted(mine_k2[:, 0], scored_k2[:, 0], side="right") - 1
            held_out_charts = learned(fitted_k2)
            held_out_charts.write(
                calibration_sc, line_k[segment_k] + scored_k2[:, 0] - mine_k2[segment_k, 0], values_nc, scored_k2
            )
    if context_c is None:
        _log_drift(charts.values())
    return ProcessChartSet(charts), calibration_sc


def _log_drift(charts: Collection[Charts]) -> None:
    """Says that the chart of principal components has little weight because of drift, and what to do about it."""
    drifting = sum(isinstance(each, ControlCharts) and each.steadiness < _STEADY for each in charts)
    if drifting:
        log.warning(
            "a lasting shift of few channels raises the score less than elsewhere%s: the levels of the channels differ "
            "between the two halves of the reference data, as between days or operating points, so the control chart "
            "of principal components has less than %.0f %% of its weight. If a channel sets the operating point, such "
            "as speed or load, name it in data.context_channels",
            "" if len(charts) == 1 else f", for {drifting} of {len(charts)} recordings", 100 * _STEADY,
        )  # fmt: skip


def _uses_context(
    fitted: Collection[Group],
    values_nc: np.ndarray,
    span: int,
    context: OperatingContext,
    context_c: np.ndarray | None,
    limit: float,
) -> bool:
    """Whether residuals are compared with those of similar contexts; logs the reason. limit: smallest recurrence for
    which `auto` does so."""
    if context == "off":
        return False
    rows = min(num_rows(group.reference_k2) for group in fitted)
    needed = cross_channel.FEWEST_ROWS * FOLDS // (FOLDS - 1)
    if rows < needed:
        if context == "on" or context_c is not None:
            log.warning("operating context not used: it needs %d reference rows, and there are %d", needed, rows)
        return False
    if context == "on" or context_c is not None:
        log.info("operating context: used, as configured")
        return True
    share = cross_channel.process_recurrence(values_nc, np.concatenate([group.reference_k2 for group in fitted]), span)
    used = share >= limit
    log.info(
        "operating context: %s; similar rows at other times predict %.0f %% of the change over %d rows (limit %.0f %%)",
        "used, the process repeats itself" if used else "not used", 100 * max(share, 0.0), 2 * span,
        100 * limit,
    )  # fmt: skip
    return used


def _chosen(series: Series, names: Collection[str]) -> np.ndarray | None:
    """The named channels, bool (C,); None without any name."""
    if not names:
        return None
    channels = series.recordings[0].channels
    if missing := [name for name in names if name not in channels]:
        known = ", ".join(channels)
        raise ConfigError(
            "data", [ConfigFault("data.context_channels", f"{missing[0]} is not a channel; have {known}")]
        )
    return np.isin(channels, list(names))
