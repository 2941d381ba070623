"""What a model expected and what it saw, side by side: the picture that explains a score."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from core.data.windows import WindowSet
from inference.scoring import ScoringModel

_SEEN, _EXPECTED = "#4477aa", "#ee6677"
_MAX_CHANNELS = 4


def window_of(windows: WindowSet, scores: pd.DataFrame) -> int:
    """The index of the window in whose middle, as nearly as can be, the highest score lies.

    windows: those of the part that the score table speaks of; a table's row counts from its recording's start.
    """
    peak = scores.loc[scores["score"].idxmax()]
    files = [recording.file_id for recording in windows.series.recordings]
    row = windows.series.offsets_r[files.index(peak["recording"])] + peak["row"]
    starts_w = windows.starts_w.numpy()
    covering_w = np.flatnonzero((starts_w <= row) & (row < starts_w + windows.window))
    centre_w = starts_w[covering_w] + windows.window // 2
    return int(covering_w[np.abs(centre_w - row).argmin()])


def plot_reconstruction(scoring: ScoringModel, windows: WindowSet, index: int) -> Figure:
    """One window as it was and as the model fills it in, every patch predicted while it is hidden.

    Process sensors: a panel for each of the channels predicted worst. Vibration: for each axis the scalogram, its
    reconstruction and the squared error. All in scaled units.
    """
    x = scoring.transform(windows.batch(torch.tensor([index])).to(scoring.device))
    reconstruction, error = (values[0].cpu() for values in scoring.model.inpaint(x))
    seen = x[0].cpu()
    if scoring.stream == "patchtst":
        return _channels(seen, reconstruction, error, scoring.channels)
    num_axes = windows.series.values_nc.shape[1]
    return _planes(*(values[:num_axes] for values in (seen, reconstruction, error)), scoring.channels)


def _channels(
    seen_tc: torch.Tensor, expected_tc: torch.Tensor, error_tc: torch.Tensor, names: tuple[str, ...]
) -> Figure:
    error_c = error_tc.nanmean(dim=0).nan_to_num(-1.0)
    worst = error_c.argsort(descending=True)[:_MAX_CHANNELS].tolist()
    figure = Figure(figsize=(11, 0.8 + 1.5 * len(worst)), layout="constrained")
    all_axes = figure.subplots(len(worst), sharex=True, squeeze=False)[:, 0]
    for axes, channel in zip(all_axes, worst, strict=True):
        axes.plot(seen_tc[:, channel].numpy(), color=_SEEN, linewidth=0.9, label="seen")
        axes.plot(expected_tc[:, channel].numpy(), color=_EXPECTED, linewidth=0.9, label="expected while hidden")
        axes.set_title(f"{names[channel]}, mean squared error {error_c[channel]:.3g}", fontsize=9, loc="left")
        axes.margins(x=0)
    all_axes[-1].set_xlabel("row of the window")
    handles, labels = all_axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=2, frameon=False, fontsize=9)
    return figure


def _planes(
    seen_ahw: torch.Tensor, expected_ahw: torch.Tensor, error_ahw: torch.Tensor, names: tuple[str, ...]
) -> Figure:
    figure = Figure(figsize=(11, 0.6 + 2.4 * len(seen_ahw)), layout="constrained")
    rows = figure.subplots(len(seen_ahw), 3, squeeze=False)
    for axes_row, name, seen_hw, expected_hw, error_hw in zip(
        rows, names, seen_ahw, expected_ahw, error_ahw, strict=True
    ):
        low, high = np.nanpercentile(seen_hw.numpy(), [1, 99])
        _image(axes_row[0], seen_hw, f"axis {name}: seen", vmin=low, vmax=high)
        _image(axes_row[1], expected_hw, "expected while hidden", vmin=low, vmax=high)
        _image(axes_row[2], error_hw, f"squared error, mean {error_hw.nanmean():.3g}", vmin=0.0)
    return figure


def _image(axes: Axes, values_hw: torch.Tensor, title: str, **limits: float) -> None:
    axes.imshow(values_hw.numpy(), aspect="auto", origin="lower", cmap="magma", **limits)
    axes.set_title(title, fontsize=9, loc="left")
    axes.set(xlabel="time", ylabel="frequency (log)", xticks=[], yticks=[])
