"""An event from near: what was seen, what the model expected, and where the two part.

Suffixes: s score entry, n row of a view, c channel, t time, a axis of a vibration.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd

from core.data.windows import WindowSet
from inference.charts.process import ProcessStatistics
from inference.events import TOP_CHANNELS
from inference.part_scores import PartScores
from inference.reconstruction import Levels, expected_levels
from inference.scoring import ScoringModel
from inference.stream_scores import Statistics

# Longest stretch shown of an event and its surroundings, in windows: a longer one is shown around its peak.
LONGEST_VIEW = 12
# Scores of vibration windows shown on both sides of an event, at least.
NEIGHBOURS = 30
# The two components of a score.
Component = Literal["charts", "model"]


@dataclass(frozen=True)
class Scored:
    """A part of the data and what scoring made of it: `scores`, `expected_sc` (of process sensors, as in
    `inference.part_scores.PartErrors`) and the lines of `table` are of the same entries."""

    scoring: ScoringModel
    windows: WindowSet
    scores: PartScores
    table: pd.DataFrame
    expected_sc: np.ndarray | None = None
    statistics: Statistics | None = None
    _levels: dict[int, Levels] = field(default_factory=dict, init=False, repr=False, compare=False)

    def levels(self, index: int) -> Levels:
        """Of a vibration window. Each passes through the model once, whatever shows it: of thousands of windows a few
        are shown, so images are not kept while all are scored."""
        if index not in self._levels:
            self._levels[index] = expected_levels(self.scoring, self.windows, index)
        return self._levels[index]

    def component(self, first: int, last: int) -> tuple[Component, float]:
        """The component of the score that raised an event, and its share of the event's scores: 0.5 to 1."""
        if self.scores.model_share_s is None:
            return "model", 1.0
        score_n = np.nan_to_num(self.table["score"].to_numpy()[first : last + 1].astype(np.float64))
        model = float(np.average(self.scores.model_share_s[first : last + 1], weights=np.maximum(score_n, 1e-9)))
        return ("model", model) if model >= 0.5 else ("charts", 1.0 - model)

    def peak(self, first: int, last: int) -> int:
        """The line with the highest score of an event."""
        return first + int(np.nanargmax(self.table["score"].to_numpy()[first : last + 1]))

    def worst_channels(self, first: int, last: int) -> dict[int, float]:
        """Channels with the largest mean errors over an event, those its sentence names, and their shares of the error
        of all channels."""
        error_sc = self.scores.channel_error_sc[first : last + 1]
        count_c = (~np.isnan(error_sc)).sum(axis=0)
        mean_c = np.nansum(error_sc, axis=0) / np.maximum(count_c, 1)
        order_c = np.argsort(np.where(count_c > 0, -mean_c, np.inf), kind="stable")[:TOP_CHANNELS]
        total = max(float(mean_c.sum()), float(np.finfo(np.float32).tiny))
        return {int(channel): float(mean_c[channel]) / total for channel in order_c if count_c[channel]}


@dataclass(frozen=True)
class RowsView:
    """Rows of process sensors around an event.

    start, stop: their lines in the score table. seen_nc, expected_nc: (N, C) in the channels' own units; what was
    expected is the prediction of the component that raised the event. segment_n: number of the segment each row lies
    in. worst: channel to share of the error.
    """

    start: int
    stop: int
    seen_nc: np.ndarray
    expected_nc: np.ndarray
    segment_n: np.ndarray
    component: Component
    worst: dict[int, float]


@dataclass(frozen=True)
class WindowView:
    """The window of a vibration with the event's highest score.

    begin: its first sample, in seconds from the recording's start. wave_ta: (T, A) as measured. worst: axis to share of
    the error.
    """

    begin: float
    seconds: float
    wave_ta: np.ndarray
    levels: Levels
    worst: dict[int, float]


def rows_view(scored: Scored, first: int, last: int) -> RowsView:
    start, stop = shown_lines(scored, first, last)
    row_n = scored.scores.row_s[start:stop]
    component, _ = scored.component(first, last)
    if component == "charts" and isinstance(scored.statistics, ProcessStatistics):
        expected_nc = scored.statistics.expected(scored.windows, row_n)
    else:
        component = "model"
        expected_nc, scaler = scored.expected_sc[start:stop].astype(np.float64), scored.windows.series.scaler
        if scaler is not None:
            expected_nc = expected_nc * np.asarray(scaler.scale) + np.asarray(scaler.center)
    return RowsView(
        start,
        stop,
        seen_nc=scored.windows.series.values_nc.cpu().numpy()[row_n],
        expected_nc=expected_nc,
        segment_n=scored.windows.segments.at(row_n),
        component=component,
        worst=scored.worst_channels(first, last),
    )


def window_view(scored: Scored, first: int, last: int) -> WindowView:
    index = scored.peak(first, last)  # one window, one score
    windows, rate_hz = scored.windows, scored.scoring.sampling_rate_hz
    start, seconds = int(windows.starts_w[index]), windows.window / rate_hz
    return WindowView(
        begin=float(scored.table["seconds"].iloc[index]) - seconds + 1 / rate_hz,
        seconds=seconds,
        wave_ta=windows.series.values_nc[start : start + windows.window].cpu().numpy(),
        levels=scored.levels(index),
        worst=scored.worst_channels(first, last),
    )


def score_lines(scored: Scored, first: int, last: int) -> tuple[int, int]:
    """Lines of the score table to show of an event: of process sensors those whose rows are shown, of vibration the
    event and its neighbours in the recording."""
    if scored.scoring.stream == "patchtst":
        return shown_lines(scored, first, last)
    code_s = scored.table["recording"].cat.codes.to_numpy()
    mine, context = np.flatnonzero(code_s == code_s[first]), max(NEIGHBOURS, last - first)
    return max(int(mine[0]), first - context), min(int(mine[-1]) + 1, last + 1 + context)


def shown_lines(scored: Scored, first: int, last: int) -> tuple[int, int]:
    """Lines to show: the event and at least half a window on both sides, within its recording."""
    window, code_s = scored.windows.window, scored.table["recording"].cat.codes.to_numpy()
    mine = np.flatnonzero(code_s == code_s[first])
    context = max(window // 2, (last - first) // 2)
    start, stop = max(int(mine[0]), first - context), min(int(mine[-1]) + 1, last + 1 + context)
    longest = LONGEST_VIEW * window
    if stop - start > longest:
        start = min(max(scored.peak(first, last) - longest // 2, start), stop - longest)
        stop = start + longest
    return start, stop
