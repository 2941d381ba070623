"""Data of a split as tables and figures, for notebooks: recordings in the units of their sensors, and scalograms in dB.

Importing this module does not import torch.

Suffixes: n row, c channel, t time, a axis of a vibration, h frequency, w time of an image, b window of a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from core.config.recipe import lowest_frequency
from core.config.schema import Scalogram as ScalogramSettings
from core.data.windows import WindowSet
from core.pictures import label_decades, literal, tidy
from core.thinning import kept

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINE = "#4477aa"
_MAX_POINTS = 3000
# A step this many times the median one is a gap: the line is interrupted there.
_GAP_FACTOR = 10.0
# The longest duration that each unit of a time axis is used for, in seconds, and its length.
_UNITS = (("s", 7200.0, 1.0), ("min", 6 * 3600.0, 60.0), ("h", 10 * 86400.0, 3600.0), ("days", np.inf, 86400.0))


def recording_frame(windows: WindowSet, recording: int) -> pd.DataFrame:
    """The rows of a split in one of its recordings (counted from 0), in the units of the file; a column per channel.

    The index is `time` where the file has time stamps, else `seconds` from the start of the recording.
    Raises IndexError if the split has fewer recordings.
    """
    number = windows.segments.recordings[recording]
    source = windows.series.recordings[number]
    ranges = [np.arange(*rows) for rows in windows.segments.local_k2[windows.segments.recording_k == number]]
    row_n = np.unique(np.concatenate(ranges))
    if source.time_source == "timestamp":
        index = pd.DatetimeIndex(source.time_ns[row_n].astype("datetime64[ns]"), name="time")
    else:
        index = pd.Index((source.time_ns[row_n] - source.time_ns[0]) / 1e9, name="seconds")
    return pd.DataFrame(source.values_tc[row_n], index=index, columns=list(source.channels))


def channels_figure(frame: pd.DataFrame, *, title: str) -> Figure:
    """Each channel of a recording over time, with its own scale. frame: as `recording_frame` returns it."""
    from matplotlib.figure import Figure

    dated = isinstance(frame.index, pd.DatetimeIndex)
    second_n = (frame.index - frame.index[0]).total_seconds() if dated else frame.index
    second_n = np.asarray(second_n, dtype=np.float64)
    unit, _, length = next(each for each in _UNITS if second_n[-1] - second_n[0] <= each[1])
    figure = Figure(figsize=(10, 1.0 + 0.75 * frame.shape[1]), layout="constrained")
    figure.suptitle(literal(title), x=0.01, ha="left", fontsize=11)
    all_axes = figure.subplots(frame.shape[1], sharex=True, squeeze=False)[:, 0]
    step_n = np.diff(second_n)
    gap_g = np.flatnonzero(step_n > _GAP_FACTOR * np.median(step_n)) + 1 if len(step_n) else []
    time_n = np.insert(second_n / length, gap_g, np.nan)
    for axes, (name, values) in zip(all_axes, frame.items(), strict=True):
        value_n = np.insert(values.to_numpy(dtype=np.float64), gap_g, np.nan)
        shown = kept(value_n, _MAX_POINTS)
        axes.plot(time_n[shown], value_n[shown], color=LINE, linewidth=0.7)
        axes.set_title(literal(str(name)), fontsize=9, loc="left", pad=2)
        tidy(axes)
    start = f", from {frame.index[0].floor('s')}" if dated else ""
    all_axes[-1].set_xlabel(f"time ({unit}){start}", fontsize=9)
    figure.supylabel("value, in the unit of the file", fontsize=9)
    return figure


def scalogram_figure(
    windows: WindowSet, settings: ScalogramSettings, rate_hz: float, *, window: int, title: str
) -> Figure:
    """A window of vibration, a row for each axis: its waveform in the unit of the file, and its scalogram in dB.

    0 dB is an amplitude of one standard deviation of the axis in the train split.
    """
    import torch
    from matplotlib.figure import Figure

    from core.data.scalogram import Scalogram, decibels, row_edges_hz

    index_b = torch.tensor([window])
    settings = lowest_frequency(settings, windows.window, rate_hz)
    level_ahw = decibels(Scalogram(settings)(windows.batch(index_b), rate_hz)[0]).numpy()
    first = int(windows.starts_w[window])
    wave_ta = windows.series.rows_nc[first : first + windows.window]
    channels = windows.series.recordings[0].channels
    second_t = np.arange(windows.window) / rate_hz
    figure = Figure(figsize=(10, 1.2 + 1.9 * len(channels)), layout="constrained")
    figure.suptitle(literal(title), x=0.01, ha="left", fontsize=11)
    grid = figure.subplots(len(channels), 2, sharex=True, squeeze=False)
    low, high = np.nanpercentile(level_ahw[: len(channels)], [2, 99.8])
    time_w = np.linspace(0, windows.window / rate_hz, level_ahw.shape[2] + 1)
    edge_hz = row_edges_hz(settings, rate_hz, level_ahw.shape[1])
    for (wave, image), axis in zip(grid, range(len(channels)), strict=True):
        wave.plot(second_t, wave_ta[:, axis], color=LINE, linewidth=0.6)
        wave.set_ylabel(literal(f"axis {channels[axis]}"), fontsize=9)
        tidy(wave)
        mesh = image.pcolormesh(time_w, edge_hz, level_ahw[axis], cmap="magma", vmin=low, vmax=high)
        image.set_yscale("log")
        label_decades(image.yaxis, edge_hz[0], edge_hz[-1])
        image.set_ylabel("frequency (Hz)", fontsize=9)
        image.tick_params(labelsize=8)
    grid[0, 0].set_title("waveform, in the unit of the file", fontsize=10, loc="left")
    grid[0, 1].set_title("scalogram", fontsize=10, loc="left")
    for axes in grid[-1]:
        axes.set_xlabel("time (s)", fontsize=9)
    bar = figure.colorbar(mesh, ax=list(grid[:, 1]), pad=0.01)
    bar.set_label("level (dB)", fontsize=9)
    return figure
