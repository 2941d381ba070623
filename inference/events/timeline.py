"""A figure of scores over time with the threshold, the events with their severity, the labels if they are known, and
below them the errors of the channels with the largest share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LogNorm
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from core.data.blocks import slices
from core.numbers import ratio_in_words
from core.pictures import label_decades, literal, save_png, tidy
from core.thinning import kept, runs_of
from inference.events.finding import LINES

SCORE, THRESHOLD, EVENT = "#4477aa", "#222222", "#ee6677"
_LABEL, _SEVERITY = "#aa3377", "#882255"
# Up to this many recordings have a panel each, with their own time axis; more are shown end to end in rows.
_MAX_PANELS = 6
_MAX_ROWS, _RECORDINGS_PER_ROW = 5, 8
_MAX_NAMES = 10
# Number of letters of recording names that fit above a row.
_NAME_LETTERS = 170
# Maximum number of points of a panel: more are thinned without losing peaks.
_MAX_POINTS = 3_000
# Minimum width of a segment, as a share of the panel: a single alarm among a million scores must be visible.
_MIN_WIDTH = 0.0015
# A step this many times the median one is a gap, and the line breaks there.
_GAP_FACTOR = 10.0
# Shares of a panel's height: free space at the bottom for labels, height of the strip of labels, free space at the top
# for severities.
_FOOT, _STRIP, _HEAD = 0.10, 0.05, 0.14
# Minimum distance of severities as a share of the panel's width; the worst events have priority.
_APART = 0.045
# Maximum number of channels whose errors are shown, their height in inches, and the maximum number of cells of each.
_MAX_CHANNELS, _CHANNEL_INCHES, _MAX_CELLS = 4, 0.14, 700
# The colour scale ends at this error or above, so that normal noise stays pale.
_LEAST_ERROR = 4.0
_LINES_LOOKED_AT = 20_000
_VALUES_AT_A_TIME = 2**20


@dataclass(frozen=True)
class _Panel:
    """One row of the figure: a recording, or several recordings if the title is empty.

    x_s: float (S,), ascending; days since 1970 if `has_dates`. table: lines of the score table, indexed by their number
    in the complete table.
    """

    title: str
    x_s: np.ndarray
    table: pd.DataFrame
    x_label: str
    has_dates: bool = False

    @property
    def edges_s2(self) -> np.ndarray:
        """Left and right edge of each score: (S, 2)."""
        margin = 0.5 * float(np.median(np.diff(self.x_s))) if len(self.x_s) > 1 else 0.5
        return np.stack([self.x_s - margin, self.x_s + margin], axis=1)


def plot_timeline(
    path: Path,
    scores: pd.DataFrame,
    events: pd.DataFrame,
    *,
    channel_error_sc: np.ndarray,
    channels: Sequence[str],
    threshold: float,
    title: str,
) -> None:
    """Writes a PNG of a score table, its events, and the errors of the channels with the largest share.

    Scales are logarithmic: a score is an error relative to normal. A few recordings have a panel each, over their own
    time; many are shown end to end, in rows, over the number of the score.
    channel_error_sc: (S, C) normalised errors, one line per line of the table.
    """
    scores = scores.reset_index(drop=True)
    recordings = [table for _, table in scores.groupby("recording", sort=False, observed=True)]
    panels = [_panel_of(table) for table in recordings] if len(recordings) <= _MAX_PANELS else _end_to_end(recordings)
    if panels[-1].x_label:  # only below the last panel
        panels[:-1] = [replace(panel, x_label="") for panel in panels[:-1]]
    line_e2 = events[list(LINES)].to_numpy()
    shown = _worst_channels(channel_error_sc, line_e2)
    limits = _limits(scores["score"].to_numpy(), threshold)

    heights = [3.0 if len(panels) == 1 else 1.45, _CHANNEL_INCHES * len(shown)]
    figure = Figure(figsize=(11, 1.0 + len(panels) * (sum(heights) + 0.4)), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.1, hspace=0.0, h_pad=0.03)
    figure.suptitle(literal(title), x=0.01, ha="left", fontsize=11)
    all_axes = figure.subplots(2 * len(panels), height_ratios=heights * len(panels))
    errors = [_cells(panel, _errors_of(panel, channel_error_sc, shown)) for panel in panels]
    most = max([_LEAST_ERROR, *(float(np.nanmax(cells)) for _, cells in errors if not np.isnan(cells).all())])
    for axes, panel in zip(all_axes[::2], panels, strict=True):
        _draw(axes, panel, events["severity"].to_numpy(dtype=np.float64), line_e2, threshold, limits)
    for axes, panel, cells in zip(all_axes[1::2], panels, errors, strict=True):
        mesh = _draw_channels(axes, panel, cells, [literal(channels[channel]) for channel in shown], most)
    bar = figure.colorbar(mesh, ax=list(all_axes), aspect=30, shrink=0.6, pad=0.005)
    bar.set_label("error of a channel (1 = normal)", fontsize=8)
    label_decades(bar.ax.yaxis, 1.0, most)
    bar.ax.tick_params(labelsize=8)
    figure.supylabel("score (1 = normal)", fontsize=9)
    figure.legend(handles=_legend(scores), loc="outside lower right", ncols=4, frameon=False, fontsize=9)
    save_png(figure, path, dpi=110)


def _worst_channels(channel_error_sc: np.ndarray, line_e2: np.ndarray) -> np.ndarray:
    """Indices of the channels with the largest errors within events; without events, with the largest errors: (K,)."""
    inside = [np.arange(first, last + 1) for first, last in line_e2]
    line_m = np.concatenate(inside) if inside else np.arange(len(channel_error_sc))
    sum_c = np.nansum(channel_error_sc[line_m[:: 1 + len(line_m) // _LINES_LOOKED_AT]], axis=0)
    return np.argsort(-sum_c, kind="stable")[:_MAX_CHANNELS]


# --------------------------------------------------------------------------------------------------------------- panels
def _panel_of(table: pd.DataFrame) -> _Panel:
    title = str(table["recording"].iloc[0])
    if table["time"].notna().all():
        return _Panel(title, date2num(table["time"].to_numpy()), table, "", has_dates=True)
    return _Panel(title, table["seconds"].to_numpy(), table, "seconds from the recording's start")


def _end_to_end(recordings: Sequence[pd.DataFrame]) -> list[_Panel]:
    """Complete recordings, distributed to rows of about equal length, in order."""
    num_rows = min(_MAX_ROWS, -(-len(recordings) // _RECORDINGS_PER_ROW))
    ends_r = np.cumsum([len(table) for table in recordings])
    middle_r = ends_r - np.array([len(table) for table in recordings]) / 2
    row_r = (middle_r * num_rows / ends_r[-1]).astype(int)
    panels = []
    for row in np.unique(row_r):
        table = pd.concat([recordings[index] for index in np.flatnonzero(row_r == row)])
        first = int(ends_r[row_r < row].max(initial=0))
        x_s = first + np.arange(len(table), dtype=np.float64)
        panels.append(_Panel("", x_s, table, "number of the score, recordings end to end"))
    return panels


def _limits(score_s: np.ndarray, threshold: float) -> tuple[float, float]:
    """Smallest and largest score shown, with room at the bottom for labels and at the top for severities. Only positive
    scores count, because the scale is logarithmic."""
    positive_s = score_s[score_s > 0]
    low = float(np.quantile(positive_s, 0.0005)) if len(positive_s) else threshold / 10
    high = 1.1 * max(float(positive_s.max(initial=0)), threshold)
    low = min(low, high / 4)
    height = (high / low) ** (1 / (1 - _FOOT - _HEAD))
    return low / height**_FOOT, high * height**_HEAD


# -------------------------------------------------------------------------------------------------------------- drawing
def _draw(
    axes: Axes,
    panel: _Panel,
    severity_e: np.ndarray,
    line_e2: np.ndarray,
    threshold: float,
    limits: tuple[float, float],
) -> None:
    x_s, score_s = panel.x_s, panel.table["score"].clip(lower=limits[0]).to_numpy()
    edges_s2 = panel.edges_s2
    axes.set(xlim=(edges_s2[0, 0], edges_s2[-1, 1]), ylim=limits, yscale="log", xticks=[])
    if panel.title:
        axes.set_title(literal(panel.title), loc="left", fontsize=9, pad=3)
    else:
        _name_recordings(axes, panel)

    line_x, line_y = _line(x_s, score_s, panel.table["recording"].cat.codes.to_numpy())
    axes.plot(line_x, line_y, color=SCORE, linewidth=0.8, marker="." if len(x_s) <= 200 else "", markersize=4)
    axes.axhline(threshold, color=THRESHOLD, linewidth=1, linestyle="--")
    first = panel.table.index[0]
    mine_e = (line_e2[:, 0] >= first) & (line_e2[:, 0] <= panel.table.index[-1])
    _shade(axes, edges_s2, line_e2[mine_e] - first, (0.0, 1.0), color=EVENT, alpha=0.3)
    _write_severities(axes, x_s[line_e2[mine_e] - first].mean(axis=1), severity_e[mine_e])
    anomalous_s = panel.table["label"].eq(1).fillna(False).to_numpy(dtype=bool)
    first_k, stop_k = runs_of(anomalous_s)
    _shade(axes, edges_s2, np.stack([first_k, stop_k - 1], axis=1), (0.01, _STRIP), color=_LABEL)

    label_decades(axes.yaxis, *limits)
    tidy(axes)


def _write_severities(axes: Axes, x_k: np.ndarray, severity_k: np.ndarray) -> None:
    """The peak of each event as a multiple of the threshold, if there is room."""
    left, right = axes.get_xlim()
    place_k = np.clip((x_k - left) / (right - left), _APART / 2, 1 - _APART / 2)
    written: list[float] = []
    for at in np.argsort(-severity_k, kind="stable"):
        if all(abs(place_k[at] - other) >= _APART for other in written):
            text = f"{ratio_in_words(severity_k[at])}×"
            style = {"ha": "center", "va": "top", "fontsize": 7, "fontweight": "bold", "color": _SEVERITY}
            axes.text(place_k[at], 0.985, text, transform=axes.transAxes, **style)
            written.append(place_k[at])


def _draw_channels(
    axes: Axes, panel: _Panel, cells: tuple[np.ndarray, np.ndarray], names: Sequence[str], most: float
) -> QuadMesh:
    """A row of cells for each channel; dark cells are large errors."""
    edges_x, error_kx = cells
    axes.set(xlim=(edges_x[0], edges_x[-1]), facecolor="#dddddd", xlabel=panel.x_label)
    mesh = axes.pcolormesh(
        edges_x, np.arange(len(names) + 1), np.maximum(error_kx, 1.0), cmap="YlOrBr", norm=LogNorm(1.0, most)
    )
    axes.invert_yaxis()
    if not panel.title:
        axes.vlines(panel.x_s[_first_scores(panel)[1:]] - 0.5, *axes.get_ylim(), color="#999999", linewidth=0.6)
    axes.set_yticks(np.arange(len(names)) + 0.5, names)
    axes.tick_params(labelsize=8)
    axes.tick_params(axis="y", labelsize=7, length=0)
    if panel.has_dates:
        label_dates(axes)
    return mesh


def label_dates(axes: Axes) -> None:
    locator = AutoDateLocator(maxticks=12)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def _errors_of(panel: _Panel, channel_error_sc: np.ndarray, shown: np.ndarray) -> np.ndarray:
    """Errors of some channels for the lines of a panel, which are consecutive in the table: (S, K)."""
    first = panel.table.index[0]
    own_sc = channel_error_sc[first : first + len(panel.table)]
    return np.concatenate([own_sc[piece][:, shown] for piece in slices(own_sc, num_values=_VALUES_AT_A_TIME)])


def _cells(panel: _Panel, error_sk: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Edges (X + 1,) of cells of equal width across a panel, and the largest error of each channel in them: (K, X)."""
    left, right = panel.edges_s2[0, 0], panel.edges_s2[-1, 1]
    edges_x = np.linspace(left, right, min(len(panel.x_s), _MAX_CELLS) + 1)
    cell_s = np.clip(np.searchsorted(edges_x, panel.x_s, side="right") - 1, 0, len(edges_x) - 2)
    begin_k = np.flatnonzero(np.diff(cell_s, prepend=-1))
    error_kx = np.full((error_sk.shape[1], len(edges_x) - 1), np.nan)
    error_kx[:, cell_s[begin_k]] = np.fmax.reduceat(error_sk, begin_k, axis=0).T
    return edges_x, error_kx


def _line(x_s: np.ndarray, score_s: np.ndarray, recording_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The scored points, thinned, with NaN where the line must be interrupted: unscored points, gaps, recordings."""
    at_p = np.flatnonzero(~np.isnan(score_s))
    if not len(at_p):
        return np.empty(0), np.empty(0)
    step_p = np.diff(x_s[at_p])
    apart_p = (np.diff(at_p) > 1) | (np.diff(recording_s[at_p]) != 0)
    apart_p |= step_p > _GAP_FACTOR * np.median(step_p) if len(step_p) else False
    piece_p = np.concatenate([[0], np.cumsum(apart_p)])
    kept_p = kept(score_s[at_p], _MAX_POINTS)
    at_p, piece_p = at_p[kept_p], piece_p[kept_p]
    breaks = np.flatnonzero(np.diff(piece_p)) + 1
    return np.insert(x_s[at_p], breaks, np.nan), np.insert(score_s[at_p].astype(np.float64), breaks, np.nan)


def _shade(
    axes: Axes,
    edges_s2: np.ndarray,
    runs_k2: np.ndarray,
    height: tuple[float, float],
    *,
    color: str,
    alpha: float = 1.0,
) -> None:
    """Fills runs of scores between two shares of the panel's height, each wide enough to be seen.

    edges_s2: (S, 2) left and right of each score. runs_k2: first and last score of each run.
    """
    left, right = axes.get_xlim()
    start_k, stop_k = edges_s2[runs_k2[:, 0], 0], edges_s2[runs_k2[:, 1], 1]
    width_k = np.maximum(stop_k - start_k, _MIN_WIDTH * (right - left))
    bars = list(zip((start_k + stop_k - width_k) / 2, width_k, strict=True))
    bottom, top = height
    transform = axes.get_xaxis_transform()
    axes.broken_barh(bars, (bottom, top - bottom), transform=transform, color=color, alpha=alpha, linewidth=0)


def _first_scores(panel: _Panel) -> np.ndarray:
    """Index of the first score of each recording of a panel: int64 (R,)."""
    return np.flatnonzero(np.diff(panel.table["recording"].cat.codes.to_numpy(), prepend=-1))


def _name_recordings(axes: Axes, panel: _Panel) -> None:
    """Lines between the recordings of a row, and as many of their names as fit."""
    first_r = _first_scores(panel)
    every = -(-len(first_r) // _MAX_NAMES)
    length = _NAME_LETTERS // min(len(first_r), _MAX_NAMES)
    for number, first in enumerate(first_r):
        if number:
            axes.axvline(panel.x_s[first] - 0.5, color="#999999", linewidth=0.6)
        if number % every == 0:
            name = Path(str(panel.table["recording"].iloc[first])).name
            text = name if len(name) <= length else f"…{name[1 - length :]}"  # the ends of names distinguish recordings
            axes.text(
                panel.x_s[first], 1.01, literal(text), transform=axes.get_xaxis_transform(), fontsize=7, clip_on=False
            )


def _legend(scores: pd.DataFrame) -> list[Line2D | Patch]:
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=SCORE, label="score"),
        Line2D([], [], color=THRESHOLD, linestyle="--", label="threshold"),
        Patch(color=EVENT, alpha=0.3, linewidth=0, label="event"),
    ]
    if scores["label"].notna().any():
        handles.append(Patch(color=_LABEL, linewidth=0, label="labelled anomaly"))
    return handles
