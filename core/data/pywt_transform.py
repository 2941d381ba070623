"""The wavelet transform of PyWavelets, `pywt.cwt`, batched: for a notebook whose images must stay what they were.

PyWavelets integrates its wavelet on a grid of 2^precision points, samples that at each scale without interpolation,
convolves with the differences, zeros beyond the edges, and multiplies by √scale. All of this is linear in the signal:
here the sampled differences are built once, and a signal meets them all in one product of spectra. Coefficients are
those of `pywt.cwt` at the same precision to 1e-5 of the largest (a test).

Its conventions are not those of `core.data.scalogram`, which is what Landfall trains on: `morl` is real, so that its
magnitude swings at twice the frequency, and is √scale larger at low frequencies than at high ones.

Reference: PyWavelets 1.8, pywt.cwt. Suffixes: b batch, a axis, f scale, t time, k sample of a wavelet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

_HALF_SUPPORT = 8.0  # of every wavelet here, in PyWavelets


def _morl(x: np.ndarray) -> np.ndarray:
    return np.exp(-(x**2) / 2) * np.cos(5 * x)


def _cmor(x: np.ndarray, bandwidth: float, centre: float) -> np.ndarray:
    return np.exp(2j * np.pi * centre * x) * np.exp(-(x**2) / bandwidth) / np.sqrt(np.pi * bandwidth)


@dataclass(frozen=True)
class Rows:
    """Scales whose wavelets are of like length. index_f: their places among all; spectrum_fv: the wavelets' transforms
    of `length` points, complex64; of a complex wavelet the real parts first, then the imaginary ones."""

    index_f: Tensor
    length: int
    spectrum_fv: Tensor


@torch.no_grad()
def coefficients(x_bat: Tensor, scales: tuple[float, ...], wavelet: str = "morl", precision: int = 12) -> Tensor:
    """What `pywt.cwt(x, scales, wavelet, precision=precision)` gives: (B, A, F, T), float32 for `morl`, complex64 for
    `cmorB-C`, on the device of the signals (B, A, T).

    Raises ValueError for another wavelet and for a scale that leaves it no two samples.
    """
    num_samples, parts = x_bat.shape[-1], 1 if wavelet == "morl" else 2
    found_bafct = torch.empty((*x_bat.shape[:-1], len(scales), parts, num_samples), device=x_bat.device)
    for rows in _rows(num_samples, scales, wavelet, precision, x_bat.device):
        spectrum_bav = torch.fft.rfft(x_bat.float(), n=rows.length)
        wave_bamt = torch.fft.irfft(spectrum_bav.unsqueeze(-2) * rows.spectrum_fv, n=rows.length)[..., :num_samples]
        found_bafct[..., rows.index_f, :, :] = wave_bamt.unflatten(-2, (parts, -1)).transpose(-3, -2)
    return found_bafct.squeeze(-2) if parts == 1 else torch.complex(*found_bafct.unbind(-2))


@lru_cache(maxsize=8)
def _rows(
    num_samples: int, scales: tuple[float, ...], wavelet: str, precision: int, device: torch.device
) -> tuple[Rows, ...]:
    """The wavelets of all scales, together where a transform of one length suits them."""
    from scipy.fft import next_fast_len

    grid = np.linspace(-_HALF_SUPPORT, _HALF_SUPPORT, 2**precision)
    integral = np.cumsum(_function(wavelet)(grid)) * (grid[1] - grid[0])
    taps = [_taps(integral.conj(), grid, scale) for scale in scales]
    # Half of a wavelet reaches beyond the signal, at most as far as the signal is long.
    reach_f = np.array([min(max(centre, len(tap_k) - centre), num_samples) for tap_k, centre in taps])
    group_f = np.ceil(np.log2(reach_f))
    found = []
    for group in np.unique(group_f):
        index = np.flatnonzero(group_f == group)
        length = next_fast_len(num_samples + int(reach_f[index].max()), real=True)
        placed_fk = np.stack([_placed(*taps[at], num_samples, length) for at in index])
        parts_mk = np.concatenate([placed_fk.real, placed_fk.imag] if np.iscomplexobj(placed_fk) else [placed_fk])
        spectrum_fv = torch.fft.rfft(torch.from_numpy(parts_mk)).to(torch.complex64)
        found.append(Rows(torch.from_numpy(index).to(device), length, spectrum_fv.to(device)))
    return tuple(found)


def _function(wavelet: str) -> Callable[[np.ndarray], np.ndarray]:
    if wavelet == "morl":
        return _morl
    try:
        bandwidth, centre = map(float, wavelet.removeprefix("cmor").split("-"))
    except ValueError:
        raise ValueError(f"{wavelet!r} is neither morl nor cmorB-C, such as cmor1.5-1.0") from None
    return lambda x: _cmor(x, bandwidth, centre)


def _taps(integral: np.ndarray, grid: np.ndarray, scale: float) -> tuple[np.ndarray, int]:
    """Weights of a wavelet, the latest sample's first, and how many of them lie ahead of the present."""
    step = grid[1] - grid[0]
    at_k = (np.arange(scale * (grid[-1] - grid[0]) + 1) / (scale * step)).astype(int)
    sampled_k = integral[at_k[at_k < len(integral)]][::-1]
    if len(sampled_k) < 2:
        raise ValueError(f"the scale {scale:g} leaves the wavelet fewer than two samples")
    tap_k = -np.sqrt(scale) * np.diff(sampled_k, prepend=0.0, append=0.0)
    return tap_k, (len(sampled_k) - 2) // 2 + 1


def _placed(tap_k: np.ndarray, ahead: int, num_samples: int, length: int) -> np.ndarray:
    """The weights in a circle of `length`, the present at 0; those that never meet a sample are left out."""
    lag_k = np.arange(len(tap_k)) - ahead
    meets_k = np.abs(lag_k) < num_samples
    placed_n = np.zeros(length, dtype=tap_k.dtype)
    placed_n[lag_k[meets_k] % length] = tap_k[meets_k]
    return placed_n
