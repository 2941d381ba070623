"""A picture of scores over time: the threshold, the events and, where known, the labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from core.workspace import atomic_file

_SCORE, _THRESHOLD, _EVENT, _LABEL = "#4477aa", "#222222", "#ee6677", "#aa3377"
# Up to this many recordings get a panel each, with their own time; more lie end to end in rows.
_MAX_PANELS = 6
_MAX_ROWS, _RECORDINGS_PER_ROW = 5, 8
_MAX_NAMES = 10
# Letters of recording names that fit side by side over a row.
_NAME_LETTERS = 250
# Points drawn across a panel: more are thinned to the smallest and largest of each bin, so that no peak is lost.
_MAX_POINTS = 3_000
# Narrowest stretch drawn, as a share of the panel: a single alarm among a million scores must be seen.
_MIN_WIDTH = 0.0015
# A step this many times the median one is a gap, and the line breaks there.
_GAP_FACTOR = 10.0
# Share of a panel's height kept free at its foot for the strip of labels.
_FOOT, _STRIP = 0.10, 0.05


@dataclass(frozen=True)
class _Panel:
    """One row of the picture: a recording, or with an empty title several.

    x_s: float (S,), ascending; days since 1970 where `has_dates`. table: the lines of the scores.
    """

    title: str
    x_s: np.ndarray
    table: pd.DataFrame
    x_label: str
    has_dates: bool = False


def plot_timeline(path: Path, scores: pd.DataFrame, events: pd.DataFrame, *, threshold: float, title: str) -> None:
    """Writes a PNG of a score table and its events. The scale is logarithmic: a score is an error relative to normal.

    A few recordings get a panel each, over their own time; many lie end to end, in rows, over the number of the score.
    """
    recordings = [table for _, table in scores.groupby("recording", sort=False, observed=True)]
    panels = [_own_time(table) for table in recordings] if len(recordings) <= _MAX_PANELS else _end_to_end(recordings)
    limits = _limits(scores["score"].to_numpy(), threshold)
    figure = Figure(figsize=(14, 1.2 + (3.2 if len(panels) == 1 else 1.9 * len(panels))), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.15)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    all_axes = figure.subplots(len(panels), squeeze=False)[:, 0]
    for axes, panel in zip(all_axes, panels, strict=True):
        _draw(axes, panel, events, threshold, limits)
    figure.supylabel("score (1 = normal error)", fontsize=9)
    figure.legend(handles=_legend(scores), loc="outside upper right", ncols=4, frameon=False, fontsize=9)
    with atomic_file(path) as part:
        figure.savefig(part, format="png", dpi=110)


# --------------------------------------------------------------------------------------------------------------- panels
def _own_time(table: pd.DataFrame) -> _Panel:
    title = str(table["recording"].iloc[0])
    if table["time"].notna().all():
        return _Panel(title, date2num(table["time"].to_numpy()), table, "", has_dates=True)
    return _Panel(title, table["seconds"].to_numpy(), table, "seconds from the recording's start")


def _end_to_end(recordings: Sequence[pd.DataFrame]) -> list[_Panel]:
    """Whole recordings dealt to rows of about equal length, in order."""
    num_rows = min(_MAX_ROWS, -(-len(recordings) // _RECORDINGS_PER_ROW))
    ends_r = np.cumsum([len(table) for table in recordings])
    middle_r = ends_r - np.array([len(table) for table in recordings]) / 2
    row_r = (middle_r * num_rows / ends_r[-1]).astype(int)
    panels = []
    for row in np.unique(row_r):
        table = pd.concat([recordings[index] for index in np.flatnonzero(row_r == row)])
        first = int(ends_r[row_r < row].max(initial=0))
        panels.append(_Panel("", first + np.arange(len(table), dtype=np.float64), table, ""))
    panels[-1] = replace(panels[-1], x_label="number of the score, recordings end to end")
    return panels


def _limits(score_s: np.ndarray, threshold: float) -> tuple[float, float]:
    """Smallest and largest score shown, with room at the foot for the labels. Zero has no place on a log scale."""
    positive_s = score_s[score_s > 0]
    low = float(np.quantile(positive_s, 0.0005)) if len(positive_s) else threshold / 10
    high = 1.5 * max(float(positive_s.max(initial=0)), threshold)
    low = min(low, high / 4)
    return low / (high / low) ** (_FOOT / (1 - _FOOT)), high


# -------------------------------------------------------------------------------------------------------------- drawing
def _draw(axes: Axes, panel: _Panel, events: pd.DataFrame, threshold: float, limits: tuple[float, float]) -> None:
    x_s, score_s = panel.x_s, panel.table["score"].clip(lower=limits[0]).to_numpy()
    margin = 0.5 * float(np.median(np.diff(x_s))) if len(x_s) > 1 else 0.5
    span = (x_s[0] - margin, x_s[-1] + margin)
    axes.set(xlim=span, ylim=limits, yscale="log", xlabel=panel.x_label)
    if panel.title:
        axes.set_title(panel.title, loc="left", fontsize=9, pad=3)
    else:
        _name_recordings(axes, panel)

    line_x, line_y = _line(x_s, score_s, panel.table["recording"].cat.codes.to_numpy())
    axes.plot(line_x, line_y, color=_SCORE, linewidth=0.8, marker="." if len(x_s) <= 200 else "", markersize=4)
    axes.axhline(threshold, color=_THRESHOLD, linewidth=1, linestyle="--")
    edges_s2 = np.stack([x_s - margin, x_s + margin], axis=1)
    anomalous_s = panel.table["label"].eq(1).fillna(False).to_numpy(dtype=bool)
    _shade(axes, edges_s2, _event_runs(panel.table, events), (0.0, 1.0), color=_EVENT, alpha=0.3)
    _shade(axes, edges_s2, _runs(anomalous_s), (0.01, _STRIP), color=_LABEL)

    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if limits[1] < 200 * limits[0] else (1,)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y", alpha=0.25)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    if panel.has_dates:
        locator = AutoDateLocator(maxticks=12)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def _line(x_s: np.ndarray, score_s: np.ndarray, recording_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The scored points, thinned, with NaN wherever the line must not connect: unscored points, gaps, recordings."""
    at_p = np.flatnonzero(~np.isnan(score_s))
    if not len(at_p):
        return np.empty(0), np.empty(0)
    step_p = np.diff(x_s[at_p])
    apart_p = (np.diff(at_p) > 1) | (np.diff(recording_s[at_p]) != 0)
    apart_p |= step_p > _GAP_FACTOR * np.median(step_p) if len(step_p) else False
    piece_p = np.concatenate([[0], np.cumsum(apart_p)])
    kept_p = _extremes(score_s[at_p])
    at_p, piece_p = at_p[kept_p], piece_p[kept_p]
    breaks = np.flatnonzero(np.diff(piece_p)) + 1
    return np.insert(x_s[at_p], breaks, np.nan), np.insert(score_s[at_p].astype(np.float64), breaks, np.nan)


def _extremes(values_p: np.ndarray) -> np.ndarray:
    """Indices of the smallest and largest value of each of at most `_MAX_POINTS` / 2 bins; all where there are few."""
    if len(values_p) <= _MAX_POINTS:
        return np.arange(len(values_p))
    width = -(-2 * len(values_p) // _MAX_POINTS)
    padded_kw = np.pad(values_p, (0, -len(values_p) % width), mode="edge").reshape(-1, width)
    first_k = width * np.arange(len(padded_kw))
    found = np.concatenate([first_k + padded_kw.argmin(axis=1), first_k + padded_kw.argmax(axis=1)])
    return np.unique(np.minimum(found, len(values_p) - 1))


def _runs(flag_s: np.ndarray) -> np.ndarray:
    """First and last index of each run of True: int64 (K, 2)."""
    edges = np.diff(np.concatenate([[False], flag_s, [False]]).astype(np.int8))
    return np.stack([np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) - 1], axis=1)


def _event_runs(table: pd.DataFrame, events: pd.DataFrame) -> np.ndarray:
    """First and last line of each event in a panel's table: int64 (K, 2)."""
    runs, first = [np.empty((0, 2), dtype=np.int64)], 0
    by_recording = dict(list(events.groupby("recording")[["start_seconds", "end_seconds"]]))
    for name, part in table.groupby("recording", sort=False, observed=True):
        found = by_recording.get(name)
        if found is not None:
            runs.append(first + np.searchsorted(part["seconds"].to_numpy(), found.to_numpy()))
        first += len(part)
    return np.concatenate(runs)


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


def _name_recordings(axes: Axes, panel: _Panel) -> None:
    """Lines between the recordings of a row, and as many of their names as fit."""
    first_r = np.flatnonzero(np.diff(panel.table["recording"].cat.codes.to_numpy(), prepend=-1))
    every = -(-len(first_r) // _MAX_NAMES)
    length = _NAME_LETTERS // min(len(first_r), _MAX_NAMES)
    for number, first in enumerate(first_r):
        if number:
            axes.axvline(panel.x_s[first] - 0.5, color="#999999", linewidth=0.6)
        if number % every == 0:
            name = Path(str(panel.table["recording"].iloc[first])).name
            text = name if len(name) <= length else f"…{name[1 - length :]}"  # ends tell recordings apart
            axes.text(panel.x_s[first], 1.01, text, transform=axes.get_xaxis_transform(), fontsize=7, clip_on=False)


def _legend(scores: pd.DataFrame) -> list[Line2D | Patch]:
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=_SCORE, label="score"),
        Line2D([], [], color=_THRESHOLD, linestyle="--", label="threshold"),
        Patch(color=_EVENT, alpha=0.3, linewidth=0, label="event"),
    ]
    if scores["label"].notna().any():
        handles.append(Patch(color=_LABEL, linewidth=0, label="labelled anomaly"))
    return handles
