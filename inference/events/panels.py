"""Figures of the worst events: measured values, predictions of the model, and the errors of the top channels.

Suffixes: s score entry, n row of a view, c channel, t time, a axis of a vibration, h frequency, w time of an image.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.dates import date2num
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from core.pictures import label_decades, literal, save_png, tidy
from core.workspace import relative
from inference.events.finding import worst_events
from inference.events.reconstruction import Levels
from inference.events.timeline import EVENT, SCORE, THRESHOLD, label_dates
from inference.events.views import ScoredSplit, WindowView, rows_view, window_view

DRAWN_EVENTS = 3
_SEEN = {"color": SCORE, "linewidth": 1.3}
_EXPECTED = {"color": "#ee7733", "linewidth": 1.3, "linestyle": (0, (4, 1.5))}
_CHANNEL_COLORS = ("#cc3311", "#009988", "#aa3377")
_OUTSIDE = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.05), "fontsize": 8, "frameon": False}
_SMALLEST_ERROR = 1e-3
# Windows shorter than this many seconds are drawn in milliseconds.
_MILLISECONDS_BELOW = 2.0
_TITLE_LETTERS = 110
# A figure of vibration, from top to bottom: titles, a row for each axis, and a footer with the scales.
_HEADER_INCHES, _ROW_INCHES, _FOOTER_INCHES = 0.8, 1.9, 1.0
_BAR_INCHES, _BAR_HEIGHT_INCHES = 0.42, 0.09


def write_panels(folder: Path, scored: ScoredSplit, events: pd.DataFrame, *, root: Path) -> list[dict[str, Any]]:
    """Draws `<stream>_event_<event_id>.png` for the `DRAWN_EVENTS` events of the greatest severity. Figures of an
    earlier scoring are removed first.

    Returns for each figure, the worst event first: `event_id`, `png` (path relative to `root`), `sentence`.
    """
    stream = scored.stream
    for old in folder.glob(f"{stream}_event_*.png"):
        if re.fullmatch(rf"{stream}_event_\d+", old.stem):
            old.unlink()
    panels = []
    for event in worst_events(events).head(DRAWN_EVENTS).itertuples():
        draw = _channels_figure if stream == "patchtst" else _axes_figure
        with scored.computing():
            figure = draw(scored, event.first_line, event.last_line, list(scored.worst_channels(event)))
        title = textwrap.fill(literal(f"Event {event.event_id}, {event.sentence}"), _TITLE_LETTERS)
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        path = folder / f"{stream}_event_{event.event_id}.png"
        save_png(figure, path, dpi=110)
        panels.append({"event_id": event.event_id, "png": relative(path, root), "sentence": event.sentence})
    return panels


# ------------------------------------------------------------------------------------------------------ process sensors
def _channels_figure(scored: ScoredSplit, first: int, last: int, worst: Sequence[int]) -> Figure:
    """The top channels in their own units, measured and predicted, and their errors with the score."""
    view = rows_view(scored, first, last)
    start, stop, names = view.start, view.stop, scored.channels
    curves = _Curves(scored.table.iloc[start:stop], view.segment_n)

    figure = Figure(figsize=(10, 1.3 + 1.55 * (len(worst) + 1)), layout="constrained")
    *above, below = figure.subplots(len(worst) + 1, sharex=True, squeeze=False)[:, 0]
    for axes, channel in zip(above, worst, strict=True):
        curves.draw(axes, view.seen_nc[:, channel], **_SEEN)
        if view.expected_nc is not None:
            curves.draw(axes, view.expected_nc[:, channel], **_EXPECTED)
        axes.set_title(literal(names[channel]), fontsize=10, loc="left", pad=3)
    for color, channel in zip(_CHANNEL_COLORS, worst, strict=False):
        error_n = np.maximum(scored.scores.channel_error_sc[start:stop, channel], _SMALLEST_ERROR)
        curves.draw(below, error_n, color=color, linewidth=1.1, label=literal(names[channel]))
    curves.draw(below, curves.table["score"].to_numpy(), color=THRESHOLD, linewidth=1.6, label="score")
    below.axhline(curves.table["threshold"].iloc[0], color=THRESHOLD, linewidth=1, linestyle="--", label="threshold")
    below.set_yscale("log")
    label_decades(below.yaxis, *below.get_ylim())
    below.set_title("error (1 = normal)", fontsize=10, loc="left", pad=3)
    below.legend(**_OUTSIDE)
    curves.label_time(below)

    handles = [
        Line2D([], [], **_SEEN, label="measured"),
        *([Line2D([], [], **_EXPECTED, label=f"predicted ({view.component})")] if view.expected_nc is not None else []),
        Patch(color=EVENT, alpha=0.25, linewidth=0, label="event"),
    ]
    (above[0] if above else below).legend(handles=handles, **_OUTSIDE)
    for axes in (*above, below):
        axes.axvspan(
            *curves.span(max(first, start) - start, min(last, stop - 1) - start), color=EVENT, alpha=0.25, lw=0
        )
        tidy(axes)
    return figure


class _Curves:
    """Draws curves over the time of a range of the score table, with a gap between segments."""

    def __init__(self, table: pd.DataFrame, segment_n: np.ndarray):
        self.table = table
        self.has_dates = bool(table["time"].notna().all())
        self.x_n = date2num(table["time"].to_numpy()) if self.has_dates else table["seconds"].to_numpy()
        self.breaks = np.flatnonzero(np.diff(segment_n)) + 1

    def draw(self, axes: Axes, value_n: np.ndarray, **style: Any) -> None:
        value_n = np.insert(value_n.astype(np.float64), self.breaks, np.nan)
        axes.plot(np.insert(self.x_n, self.breaks, np.nan), value_n, **style)

    def span(self, first: int, last: int) -> tuple[float, float]:
        half_step = 0.5 * float(np.median(np.diff(self.x_n))) if len(self.x_n) > 1 else 0.5
        return self.x_n[first] - half_step, self.x_n[last] + half_step

    def label_time(self, axes: Axes) -> None:
        if self.has_dates:
            label_dates(axes)
        else:
            axes.set_xlabel("seconds from the recording's start", fontsize=9)


# ------------------------------------------------------------------------------------------------------------ vibration
def _axes_figure(scored: ScoredSplit, first: int, last: int, worst: Sequence[int]) -> Figure:
    """The window with the event's highest score, a row for each axis of the sensor, the worst first: waveform,
    scalogram, predicted scalogram, and the difference of both; without a model, waveform and spectrum."""
    view = window_view(scored, first, last)
    if view.levels is None:
        return _spectra_figure(scored, view, worst)
    unit, duration = ("ms", 1e3 * view.seconds) if view.seconds < _MILLISECONDS_BELOW else ("s", view.seconds)
    time_t = np.linspace(0, duration, len(view.wave_ta), endpoint=False)

    height = _HEADER_INCHES + _ROW_INCHES * len(worst) + _FOOTER_INCHES
    figure = Figure(figsize=(11, height))
    # A fixed layout, because an automatic one draws all twelve maps three times.
    top, bottom = 1 - _HEADER_INCHES / height, _FOOTER_INCHES / height
    room = {"left": 0.06, "right": 0.99, "top": top, "bottom": bottom, "hspace": 0.22, "wspace": 0.38}
    grid = figure.subplots(len(worst), 4, squeeze=False, sharex=True, gridspec_kw=room)
    for axes, axis in zip(grid[:, 0], worst, strict=True):
        axes.plot(time_t, view.wave_ta[:, axis], color=SCORE, linewidth=0.6)
        axes.set_ylabel(literal(f"axis {scored.channels[axis]}"), fontsize=10)
        axes.grid(axis="y", alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    level, difference = _draw_levels(grid[:, 1:], view.levels, worst, duration)

    titles = (
        f"waveform from second {view.begin:,.2f}",
        "measured",
        "predicted while masked",
        "measured minus predicted",
    )
    for axes, title in zip(grid[0], titles, strict=True):
        axes.set_title(title, fontsize=10, loc="left")
    for axes in grid.flat:
        axes.margins(x=0)
        axes.tick_params(labelsize=8)
    for axes in grid[-1]:
        axes.set_xlabel(f"time ({unit})", fontsize=9)
    for mesh, beneath, label in (
        (level, grid[-1, 1:3], "level (dB); 0 dB: one standard deviation of the axis in training"),
        (difference, grid[-1, 3:], "louder (+) or quieter (−), in dB"),
    ):
        left, right = beneath[0].get_position().x0, beneath[-1].get_position().x1
        place = (left, _BAR_INCHES / height, right - left, _BAR_HEIGHT_INCHES / height)
        bar = figure.colorbar(mesh, cax=figure.add_axes(place), orientation="horizontal")
        bar.set_label(label, fontsize=8)
        bar.ax.tick_params(labelsize=8)
    return figure


def _spectra_figure(scored: ScoredSplit, view: WindowView, worst: Sequence[int]) -> Figure:
    """A row for each axis of the sensor, the worst first: its waveform and its amplitude spectrum."""
    figure = Figure(figsize=(11, _HEADER_INCHES + _ROW_INCHES * len(worst)), layout="constrained")
    grid = figure.subplots(len(worst), 2, squeeze=False, sharex="col")
    num_samples = len(view.wave_ta)
    second_t = view.begin + np.linspace(0, view.seconds, num_samples, endpoint=False)
    hertz_f = np.fft.rfftfreq(num_samples, view.seconds / num_samples)[1:]
    for (wave, spectrum), axis in zip(grid, worst, strict=True):
        wave_t = np.nan_to_num(view.wave_ta[:, axis] - np.nanmean(view.wave_ta[:, axis]))
        amplitude_f = np.abs(np.fft.rfft(wave_t * np.hanning(num_samples)))[1:] * 4 / num_samples
        wave.plot(second_t, view.wave_ta[:, axis], color=SCORE, linewidth=0.6)
        wave.set_ylabel(literal(f"axis {scored.channels[axis]}"), fontsize=10)
        spectrum.loglog(hertz_f, np.maximum(amplitude_f, np.finfo(np.float32).tiny), color=SCORE, linewidth=0.8)
        for axes in (wave, spectrum):
            tidy(axes)
            axes.grid(axis="x", alpha=0.25)
    titles, units = ("waveform", "amplitude spectrum"), ("time (s)", "frequency (Hz)")
    for above, below, title, unit in zip(grid[0], grid[-1], titles, units, strict=True):
        above.set_title(title, fontsize=10, loc="left")
        below.set_xlabel(unit, fontsize=9)
    return figure


def _draw_levels(
    grid: np.ndarray, levels: Levels, axes_shown: Sequence[int], duration: float
) -> tuple[QuadMesh, QuadMesh]:
    """A row of three maps for each axis, all of them on the same scales; returns a map of levels and a difference."""
    difference_ahw = levels.seen_ahw - levels.expected_ahw
    low, high = np.nanpercentile(levels.seen_ahw, [2, 99.8])
    most = max(float(np.nanpercentile(np.abs(difference_ahw), 99.5)), 1.0)
    level, difference = ({"cmap": "magma", "vmin": low, "vmax": high}, {"cmap": "PuOr_r", "vmin": -most, "vmax": most})
    time_w = np.linspace(0, duration, levels.seen_ahw.shape[2] + 1)
    for row, axis in zip(grid, axes_shown, strict=True):
        meshes = [
            axes.pcolormesh(time_w, levels.edge_hz, map_ahw[axis], **style)
            for axes, map_ahw, style in zip(
                row, (levels.seen_ahw, levels.expected_ahw, difference_ahw), (level, level, difference), strict=True
            )
        ]
        for axes in row:
            axes.set_yscale("log")
            label_decades(axes.yaxis, levels.edge_hz[0], levels.edge_hz[-1])
        for axes in row[1:]:  # the same frequencies
            axes.yaxis.set_major_locator(NullLocator())
        row[0].set_ylabel("frequency (Hz)", fontsize=9)
    return meshes[0], meshes[2]
