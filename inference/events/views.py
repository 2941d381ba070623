"""The data around an event: measured values, expected values, and the channels with the largest errors.

Suffixes: s score entry, n row of a view, c channel, t time, a axis of a vibration.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from core.config.bearing import Bearing
from core.config.schema import Stream
from core.data.windows import WindowSet
from core.devices import memory
from inference.charts.process import ProcessChartSet
from inference.charts.streams import ChartSet
from inference.detector.split_scores import SplitScores
from inference.events.documents import Component
from inference.events.reconstruction import Levels, expected_levels
from inference.scoring import ScoringModel

# Longest range shown of an event and its surroundings, in windows: a longer one is shown around its peak.
LONGEST_VIEW = 12
# Minimum number of scores of vibration windows that are shown on each side of an event.
NEIGHBOURS = 30


@dataclass(frozen=True)
class ScoredSplit:
    """A split of the data and its scores: `scores`, `expected_sc` (for process sensors, as in
    `inference.entries.SplitErrors`) and the lines of `table` have the same entries. scoring: the model; None if control
    charts scored alone."""

    scoring: ScoringModel | None
    windows: WindowSet
    scores: SplitScores
    table: pd.DataFrame
    expected_sc: np.ndarray | None = None
    charts: ChartSet | None = None
    bearing: Bearing | None = None
    _levels: dict[int, Levels] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def stream(self) -> Stream:
        return "patchtst" if self.scores.rows_per_entry == 1 else "swinmae"

    @property
    def channels(self) -> tuple[str, ...]:
        return self.windows.series.recordings[0].channels

    @property
    def sampling_rate_hz(self) -> float:
        rate_hz = self.scoring.sampling_rate_hz if self.scoring is not None else None
        return rate_hz or self.windows.series.recordings[0].sampling_rate_hz

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Context in which the model computes views: applies its memory limit."""
        with memory.applied(self.scoring.plan) if self.scoring is not None else nullcontext():
            yield

    def levels(self, index: int) -> Levels | None:
        """Scalograms of a vibration window, cached; None without a model. The model is run again for these windows,
        because only a few of thousands are shown and scoring does not keep images."""
        if self.scoring is None:
            return None
        if index not in self._levels:
            self._levels[index] = expected_levels(self.scoring, self.windows, index)
        return self._levels[index]

    def component(self, first: int, last: int) -> tuple[Component, float]:
        """The component with the larger share of an event's scores, and this share: 0.5 to 1."""
        if self.scores.model_share_s is None:
            return "model", 1.0
        score_n = np.nan_to_num(self.table["score"].to_numpy()[first : last + 1].astype(np.float64))
        model = float(np.average(self.scores.model_share_s[first : last + 1], weights=np.maximum(score_n, 1e-9)))
        return ("model", model) if model >= 0.5 else ("charts", 1.0 - model)

    def peak(self, first: int, last: int) -> int:
        """The line with the highest score of an event."""
        return first + int(np.nanargmax(self.table["score"].to_numpy()[first : last + 1]))

    def worst_channels(self, event: Any) -> dict[int, float]:
        """Index and share of each top channel of an event. event: has the columns as attributes."""
        return {self.channels.index(each["name"]): each["share"] for each in event.channels}


@dataclass(frozen=True)
class RowsView:
    """Rows of process sensors around an event.

    start, stop: their lines in the score table, stop excluded. seen_nc, expected_nc: (N, C), measured and expected
    values in the units of the channels. The expected values are predictions of `component`; None if they are not known.
    segment_n: number of the segment of each row.
    """

    start: int
    stop: int
    seen_nc: np.ndarray
    expected_nc: np.ndarray | None
    segment_n: np.ndarray
    component: Component


@dataclass(frozen=True)
class WindowView:
    """The window of a vibration with the event's highest score.

    start: row of its first sample. begin: time of this sample in seconds from the recording's start. seconds: length of
    the window. wave_ta: (T, A) as measured. levels: None without a model.
    """

    start: int
    begin: float
    seconds: float
    wave_ta: np.ndarray
    levels: Levels | None


def rows_view(scored: ScoredSplit, first: int, last: int) -> RowsView:
    start, stop = shown_lines(scored, first, last)
    row_n = scored.scores.row_s[start:stop]
    component, _ = scored.component(first, last)
    if component == "charts" and isinstance(scored.charts, ProcessChartSet):
        expected_nc = scored.charts.expected(scored.windows, row_n)
    else:
        component, expected_nc = "model", _expected_by_model(scored, start, stop)
    return RowsView(
        start,
        stop,
        seen_nc=scored.windows.series.rows_nc[row_n],
        expected_nc=expected_nc,
        segment_n=scored.windows.segments.at(row_n),
        component=component,
    )


def _expected_by_model(scored: ScoredSplit, start: int, stop: int) -> np.ndarray | None:
    """Predictions in the units of the channels; None if they were not kept."""
    if scored.expected_sc is None:
        return None
    expected_nc, scaler = scored.expected_sc[start:stop].astype(np.float64), scored.windows.series.scaler
    return expected_nc if scaler is None else expected_nc * np.asarray(scaler.scale) + np.asarray(scaler.center)


def window_view(scored: ScoredSplit, first: int, last: int) -> WindowView:
    index = scored.peak(first, last)  # one window, one score
    windows, rate_hz = scored.windows, scored.sampling_rate_hz
    start, seconds = int(windows.starts_w[index]), windows.window / rate_hz
    return WindowView(
        start=start,
        begin=float(scored.table["seconds"].iloc[index]) - seconds + 1 / rate_hz,
        seconds=seconds,
        wave_ta=windows.series.rows_nc[start : start + windows.window],
        levels=scored.levels(index),
    )


def score_lines(scored: ScoredSplit, first: int, last: int) -> tuple[int, int]:
    """Lines of the score table to show for an event: for process sensors those whose rows are shown, for vibration the
    event and its neighbours in the recording."""
    if scored.stream == "patchtst":
        return shown_lines(scored, first, last)
    code_s = scored.table["recording"].cat.codes.to_numpy()
    mine, context = np.flatnonzero(code_s == code_s[first]), max(NEIGHBOURS, last - first)
    return max(int(mine[0]), first - context), min(int(mine[-1]) + 1, last + 1 + context)


def shown_lines(scored: ScoredSplit, first: int, last: int) -> tuple[int, int]:
    """Lines to show: the event and at least half a window on both sides, within its recording. At most `LONGEST_VIEW`
    windows, around the highest score."""
    window, code_s = scored.windows.window, scored.table["recording"].cat.codes.to_numpy()
    mine = np.flatnonzero(code_s == code_s[first])
    context = max(window // 2, (last - first) // 2)
    start, stop = max(int(mine[0]), first - context), min(int(mine[-1]) + 1, last + 1 + context)
    longest = LONGEST_VIEW * window
    if stop - start > longest:
        start = min(max(scored.peak(first, last) - longest // 2, start), stop - longest)
        stop = start + longest
    return start, stop
