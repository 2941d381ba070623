"""What a model expected where it could not look, in units a person reads: beside what was seen, it explains a score.

Suffixes: n row, t time, c channel, b window of a batch, a axis of a vibration, h frequency, w time of an image.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from core.data.inputs import StandardisedScalogram
from core.data.scalogram import AMPLITUDE_FLOOR, row_frequencies_hz
from core.data.windows import WindowSet
from core.devices.retry import until_it_fits
from inference.scoring import ScoringModel


def expected_rows(scoring: ScoringModel, windows: WindowSet, row_n: np.ndarray, *, batch_size: int) -> np.ndarray:
    """What the model expects of rows of process sensors, in the channels' own units: float64 (N, C).

    Every value is predicted while it is hidden, and averaged over the windows that hold it; NaN where none does. Only
    those windows go through the model. row_n: int64 (N,), ascending rows of the series.
    """
    start_w = windows.starts_w.numpy()
    holding = np.flatnonzero((start_w > row_n[0] - windows.window) & (start_w <= row_n[-1]))
    first = min(row_n[0], start_w[holding].min(initial=row_n[0]))
    sum_mc = torch.zeros(row_n[-1] + windows.window - first, windows.series.values_nc.shape[1], dtype=torch.float64)
    count_m = torch.zeros(len(sum_mc), dtype=torch.float64)

    def infer(index_b: Tensor, size: int) -> Tensor:
        batches = (scoring.transform(windows.batch(part_b).to(scoring.device)) for part_b in index_b.split(size))
        return torch.cat([scoring.model.inpaint(batch)[0].cpu() for batch in batches])

    size = batch_size
    for index_b in torch.from_numpy(holding).split(batch_size):
        expected_btc, size = until_it_fits(partial(infer, index_b), size, kind=scoring.kind)
        row_m = (windows.starts_w[index_b].unsqueeze(1) - first + torch.arange(windows.window)).flatten()
        sum_mc.index_add_(0, row_m, expected_btc.flatten(0, 1).double())
        count_m.index_add_(0, row_m, torch.ones(len(row_m), dtype=torch.float64))
    scaled_nc = (sum_mc / count_m.unsqueeze(1)).numpy()[row_n - first]
    scaler = windows.series.scaler
    return scaled_nc if scaler is None else scaled_nc * np.asarray(scaler.scale) + np.asarray(scaler.center)


@dataclass(frozen=True)
class Levels:
    """The scalogram of a vibration window, as it was seen and as the model fills it in while it is hidden.

    seen_ahw, expected_ahw: float32 (A, H, W), in dB; 0 is the amplitude that is usual in training. NaN is missing.
    edge_hz: (H + 1,) edges of the rows, ascending.
    """

    seen_ahw: np.ndarray
    expected_ahw: np.ndarray
    edge_hz: np.ndarray


def expected_levels(scoring: ScoringModel, windows: WindowSet, index: int) -> Levels:
    """The levels of the axes the sensor has, of one window."""
    transform: StandardisedScalogram = scoring.transform
    image_bahw = transform(windows.batch(torch.tensor([index])).to(scoring.device))
    num_axes = windows.series.values_nc.shape[1]
    seen_ahw, expected_ahw = (
        # A pixel of the transform is a logarithm to base 10, of amplitudes over the smallest one.
        (20 * (transform.decades(image)[0, :num_axes].cpu() + np.log10(AMPLITUDE_FLOOR))).numpy()
        for image in (image_bahw, scoring.model.inpaint(image_bahw)[0])
    )
    centre_f = row_frequencies_hz(transform.scalogram.settings, transform.sampling_rate_hz).numpy()
    half_step = (centre_f[-1] / centre_f[0]) ** (0.5 / max(len(centre_f) - 1, 1))
    edge_hz = np.geomspace(centre_f[0] / half_step, centre_f[-1] * half_step, seen_ahw.shape[1] + 1)
    return Levels(seen_ahw, expected_ahw, edge_hz)
