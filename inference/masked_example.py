"""A window of the validation split with a random mask: the measured values, the visible values, and the predictions.

Suffixes: t time, c channel, a axis of a vibration, h frequency, w time of an image.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from core.config.compose import LoadedConfig
from core.data.scalogram import decibels, row_edges_hz
from core.data.windows import WindowSet
from core.models.masking import evaluating
from core.pictures import label_decades, literal, tidy
from inference.detector.stored import load_splits, open_model
from inference.events.timeline import SCORE
from inference.scoring import ScoringModel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PREDICTED, _MASKED = "#ee7733", "#dddddd"
_MOST_CHANNELS, _SEED = 4, 3


@dataclass(frozen=True)
class MaskedExample:
    """One window with a mask as in training. The arrays are float32 (T, C) in the units of the sensors, or (A, H, W) in
    dB.

    measured: NaN is missing. mask: bool, True is hidden from the model. predicted: from the visible values; NaN where
    the value is visible. mse_c: mean squared error of the masked values of each channel, in the units of the loss.
    """

    measured: np.ndarray
    mask: np.ndarray
    predicted: np.ndarray
    mse_c: np.ndarray


@torch.no_grad()
def masked_example(scoring: ScoringModel, windows: WindowSet, index: int) -> MaskedExample:
    """The prediction for one window with a random mask. The seed of the mask is fixed."""
    model, num_channels = scoring.model, len(scoring.channels)
    x = scoring.transform(windows.batch(torch.tensor([index])).to(scoring.device))
    mask = model.draw_mask(1, generator=torch.Generator().manual_seed(_SEED))
    with evaluating(model):
        predicted = model(x, mask).reconstruction
    is_masked = model.masked_values(mask).expand_as(x)
    squared = (predicted - x).square().masked_fill(~is_masked, torch.nan).movedim(model.channel_axis, -1)
    mse_c = squared.flatten(0, -2).nanmean(0)[:num_channels]
    filled = torch.where(is_masked, predicted, x)  # a visible level is the measured one
    measured, predicted = (_in_units(values, scoring)[0].cpu() for values in (x, filled))
    is_masked = is_masked[0, :, : measured.shape[1]].cpu() if scoring.stream == "swinmae" else is_masked[0].cpu()
    if scoring.stream == "swinmae":
        measured, predicted, is_masked = (each[:num_channels] for each in (measured, predicted, is_masked))
    predicted = predicted.masked_fill(~is_masked, torch.nan)
    return MaskedExample(measured.numpy(), is_masked.numpy(), predicted.numpy(), mse_c.cpu().numpy())


def _in_units(values: torch.Tensor, scoring: ScoringModel) -> torch.Tensor:
    if scoring.stream == "swinmae":
        return decibels(scoring.transform.decades(values))
    scale_c, center_c = (
        torch.tensor(each, device=values.device) for each in (scoring.scaler.scale, scoring.scaler.center)
    )
    return values * scale_c + center_c


def plot_masked_example(loaded: LoadedConfig, *, root: Path, checkpoint: Path | str | None = None) -> Figure:
    """The middle window of the validation split with a random mask, and what the model of a checkpoint predicts for it.

    checkpoint: relative to `root`; default: the configuration's. Of many channels, four are shown, from the
    smallest error to the largest. Raises CheckpointError and DataError as scoring does.
    """
    config, scoring = open_model(loaded.with_checkpoint(checkpoint), root=root)
    windows = load_splits(config, scoring, ("validation",), root=root).splits["validation"]
    index = len(windows) // 2
    example = masked_example(scoring, windows, index)
    source = windows.series.recordings[windows.recording_of()[index]]
    row = int(windows.local_starts()[index])
    second_t = (source.time_ns[row : row + windows.window] - source.time_ns[row]) / 1e9
    title = f"{source.file_id}, split validation, from row {row}"
    if scoring.stream == "swinmae":
        return _images_figure(example, scoring, windows.window / scoring.sampling_rate_hz, title)
    return _channels_figure(example, second_t, scoring.channels, title)


def _channels_figure(example: MaskedExample, second_t: np.ndarray, names: tuple[str, ...], title: str) -> Figure:
    from matplotlib.figure import Figure

    ranked = np.argsort(np.nan_to_num(example.mse_c, nan=np.inf))
    shown = ranked[np.unique(np.linspace(0, len(ranked) - 1, min(len(ranked), _MOST_CHANNELS)).round().astype(int))]
    figure = Figure(figsize=(10, 1.4 + 1.4 * len(shown)), layout="constrained")
    figure.suptitle(literal(title), x=0.01, ha="left", fontsize=11)
    all_axes = figure.subplots(len(shown), sharex=True, squeeze=False)[:, 0]
    half_step = 0.5 * float(np.median(np.diff(second_t)))
    for axes, channel in zip(all_axes, shown, strict=True):
        mask_t = example.mask[:, channel]
        axes.fill_between(
            second_t, 0, 1, where=mask_t, step="mid", transform=axes.get_xaxis_transform(),
            color=_MASKED, linewidth=0, label="masked: hidden from the model",
        )  # fmt: skip
        axes.plot(second_t, example.measured[:, channel], color=SCORE, linewidth=1.0, label="measured")
        axes.plot(
            second_t, example.predicted[:, channel], color=_PREDICTED, linewidth=1.3,
            label="predicted from the visible patches",
        )  # fmt: skip
        error = f"{example.mse_c[channel]:.2g}"
        axes.set_title(literal(f"{names[channel]}: masked error {error}"), fontsize=9, loc="left", pad=2)
        tidy(axes)
        axes.set_xlim(second_t[0] - half_step, second_t[-1] + half_step)
    all_axes[-1].set_xlabel("time (s) from the start of the window", fontsize=9)
    figure.supylabel("value, in the unit of the file", fontsize=9)
    figure.legend(
        *all_axes[0].get_legend_handles_labels(), loc="outside lower right", ncols=3, frameon=False, fontsize=9
    )
    return figure


def _images_figure(example: MaskedExample, scoring: ScoringModel, duration: float, title: str) -> Figure:
    from matplotlib.figure import Figure

    visible = np.where(example.mask, np.nan, example.measured)
    filled = np.where(example.mask, example.predicted, example.measured)
    edge_hz = row_edges_hz(scoring.transform.scalogram.settings, scoring.sampling_rate_hz, example.measured.shape[1])
    time_w = np.linspace(0, duration, example.measured.shape[2] + 1)
    low, high = np.nanpercentile(example.measured, [2, 99.8])
    num_axes = len(scoring.channels)
    figure = Figure(figsize=(10, 1.2 + 1.9 * num_axes), layout="constrained")
    figure.suptitle(literal(title), x=0.01, ha="left", fontsize=11)
    grid = figure.subplots(num_axes, 3, sharex=True, sharey=True, squeeze=False)
    for row, axis in zip(grid, range(num_axes), strict=True):
        for axes, image_ahw in zip(row, (example.measured, visible, filled), strict=True):
            axes.set_facecolor(_MASKED)
            mesh = axes.pcolormesh(time_w, edge_hz, image_ahw[axis], cmap="magma", vmin=low, vmax=high)
            axes.set_yscale("log")
            label_decades(axes.yaxis, edge_hz[0], edge_hz[-1])
            axes.tick_params(labelsize=8)
        row[0].set_ylabel(f"axis {literal(scoring.channels[axis])}\nfrequency (Hz)", fontsize=9)
    titles = ("measured", "what the model sees (grey: masked)", "masked squares filled in by the model")
    for axes, text in zip(grid[0], titles, strict=True):
        axes.set_title(text, fontsize=10, loc="left")
    for axes in grid[-1]:
        axes.set_xlabel("time (s)", fontsize=9)
    figure.colorbar(mesh, ax=list(grid[:, -1]), pad=0.01).set_label("level (dB)", fontsize=9)
    return figure
