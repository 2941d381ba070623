"""Features of vibration windows for control charts: level, spectrum, low-frequency lines and modulation.

All are logarithms of power, so that a change of gain adds a constant. A bearing defect excites resonances once per
passage of a ball. In strong noise the spectrum hardly shows that, while the envelope of a band around a resonance shows
lines at the defect frequency (Randall and Antoni, Rolling element bearing diagnostics, Mechanical Systems and Signal
Processing 2011).

Suffixes: w window, t time, c channel (axis), f feature or line, k carrier band.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from core.config.charts import VibrationCharts
from core.data.windows import WindowSet
from inference.running import Ewma

Features = Mapping[str, Tensor]
"""The features of windows by chart: float64 (W, C, F), NaN for an axis without values."""

CHARTS = ("level", "spectrum", "lines", "modulation")
# Low-frequency lines: sixths of an octave, at least one line wide, up to this share of the range.
_PER_OCTAVE, _LOW_SHARE = 6, 1 / 16
# Lines of an envelope spectrum that count, and the bands of those lines.
_ENVELOPE_LINES, _ENVELOPE_BANDS = 64, 32
_FEWEST_CARRIER_LINES = 16
# An envelope with more missing samples than this share is not scored: gaps look like modulation.
_MISSING_SHARE = 0.01
_WINDOWS_AT_A_TIME = 256
_SMALLEST = 1e-12


def features_of(windows: WindowSet, settings: VibrationCharts) -> Features:
    """Features of all windows. Missing samples are replaced by their window's mean, and power is that of the observed
    samples."""
    found = [
        _of_batch(batch_wtc.transpose(1, 2).double(), settings) for batch_wtc in windows.batches(_WINDOWS_AT_A_TIME)
    ]
    return {name: torch.cat([each[name] for each in found]) for name in CHARTS}


def smoothed(features: Features, windows: WindowSet, span: int) -> Features:
    """Exponentially weighted means over the windows of a file, in the order of its recordings."""
    if span == 1:
        return features
    file_w = windows.file_of()
    return {name: _smoothed(values_wcf, file_w, span) for name, values_wcf in features.items()}


def _smoothed(values_wcf: Tensor, file_w: np.ndarray, span: int) -> Tensor:
    flat_wm = values_wcf.flatten(1).numpy()
    return torch.from_numpy(Ewma(span, flat_wm.shape[1])(flat_wm, file_w)).reshape(values_wcf.shape)


def _of_batch(wave_wct: Tensor, settings: VibrationCharts) -> Features:
    missing_wct = wave_wct.isnan()
    wave_wct = (wave_wct - wave_wct.nanmean(-1, keepdim=True)).nan_to_num()
    taper_t = torch.hann_window(wave_wct.shape[-1], periodic=False, dtype=torch.float64)
    observed_wc1 = (taper_t.square() * ~missing_wct).sum(-1, keepdim=True) / taper_t.square().sum()
    power_wcf = torch.fft.rfft(wave_wct * taper_t).abs().square()[..., 1:]
    power_wcf = power_wcf / torch.where(observed_wc1 > 0, observed_wc1, torch.nan)
    too_few_wc1 = missing_wct.double().mean(-1, keepdim=True) > _MISSING_SHARE
    return {
        "level": _log(power_wcf.mean(-1, keepdim=True)),
        "spectrum": _log(_bands(power_wcf, settings.bands)),
        "lines": _log(_between(power_wcf, low_edges(power_wcf.shape[-1]))),
        "modulation": _modulation(wave_wct, settings.carriers).masked_fill(too_few_wc1, torch.nan),
    }


def low_edges(num_lines: int) -> list[int]:
    """First line of each low-frequency band, and the end of the last; the lines are numbered from 0."""
    edges, last = [0], max(math.ceil(num_lines * _LOW_SHARE), min(8, num_lines))
    while edges[-1] < last:
        width = round((edges[-1] + 1) * (2 ** (1 / _PER_OCTAVE) - 1))
        edges.append(min(edges[-1] + max(width, 1), last))
    return edges


def _modulation(wave_wct: Tensor, carriers: int) -> Tensor:
    """The power of each carrier band's squared envelope around its mean, and the envelope spectrum of all carriers:
    (W, C, K + F).

    An envelope is divided by its mean, so that gain and spectrum have no effect. Lines below two periods of the window
    are left out: they are slow changes of the level.
    """
    lines_wcf = torch.fft.rfft(wave_wct)[..., 1:]
    num_carriers = max(1, min(carriers, lines_wcf.shape[-1] // _FEWEST_CARRIER_LINES))
    width = lines_wcf.shape[-1] // num_carriers
    lines_wckf = lines_wcf[..., : num_carriers * width].unflatten(-1, (num_carriers, width))
    envelope_wckt = torch.fft.ifft(lines_wckf, n=2 * width).abs().square()
    envelope_wckt = envelope_wckt / envelope_wckt.mean(-1, keepdim=True).clamp(min=_SMALLEST) - 1
    taper_t = torch.hann_window(2 * width, periodic=False, dtype=torch.float64)
    power_wckf = torch.fft.rfft(envelope_wckt * taper_t).abs().square()[..., 2:-1] / taper_t.square().sum()
    depth_wck = power_wckf.mean(-1)
    spectrum_wcf = _bands(power_wckf[..., :_ENVELOPE_LINES].mean(2), _ENVELOPE_BANDS)
    return torch.cat([_log(depth_wck), _log(spectrum_wcf)], dim=-1)


def _bands(power: Tensor, count: int) -> Tensor:
    bands = power.tensor_split(max(1, min(count, power.shape[-1])), dim=-1)
    return torch.stack([band.mean(-1) for band in bands], dim=-1)


def _between(power: Tensor, edges: Sequence[int]) -> Tensor:
    widths = [stop - start for start, stop in pairwise(edges)]
    return torch.stack([band.mean(-1) for band in power[..., : edges[-1]].split(widths, dim=-1)], dim=-1)


def _log(power: Tensor) -> Tensor:
    return (power + _SMALLEST).log()
