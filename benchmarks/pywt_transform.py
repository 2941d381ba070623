"""The wavelet transform of PyWavelets, `pywt.cwt`, batched on a device: the reference of the scalogram benchmark.

PyWavelets integrates its wavelet on a grid of 2^precision points, samples the integral at each scale without
interpolation, convolves the signal (zero outside) with the differences, and multiplies by √scale. All of this is linear
in the signal: here the sampled differences are computed once, and applied by one product of spectra. A test compares
the coefficients with `pywt.cwt` at the same precision: the difference is below 1e-5 of the largest.

Its conventions differ from `core.data.scalogram`, the input of training: `morl` is real, so its magnitude oscillates at
twice the frequency, and it is √scale larger at low frequencies than at high ones.

Reference: PyWavelets 1.8, pywt.cwt. Suffixes: b batch, a axis, f scale, t time, k sample of a wavelet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

_HALF_SUPPORT = 8.0  # of each of these wavelets in PyWavelets


def _morl(x: np.ndarray) -> np.ndarray:
    return np.exp(-(x**2) / 2) * np.cos(5 * x)


def _cmor(x: np.ndarray, bandwidth: float, centre: float) -> np.ndarray:
    return np.exp(2j * np.pi * centre * x) * np.exp(-(x**2) / bandwidth) / np.sqrt(np.pi * bandwidth)


@dataclass(frozen=True)
class Rows:
    """Scales whose wavelets have similar lengths. index_f: their places among all; spectrum_fv: the transforms of the
    wavelets, of `length` points, complex64; of a complex wavelet the real parts first, then the imaginary ones."""

    index_f: Tensor
    length: int
    spectrum_fv: Tensor


@torch.no_grad()
def coefficients(x_bat: Tensor, scales: tuple[float, ...], wavelet: str = "morl", precision: int = 12) -> Tensor:
    """`pywt.cwt(x, scales, wavelet, precision=precision)`: (B, A, F, T), float32 for `morl`, complex64 for `cmorB-C`,
    on the device of the signals (B, A, T).

    Raises ValueError for another wavelet and for a scale at which it has fewer than two samples.
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
    """The wavelets of all scales, grouped by the length of their transform."""
    from scipy.fft import next_fast_len

    grid = np.linspace(-_HALF_SUPPORT, _HALF_SUPPORT, 2**precision)
    integral = np.cumsum(_function(wavelet)(grid)) * (grid[1] - grid[0])
    taps = [_taps(integral.conj(), grid, scale) for scale in scales]
    # Half of a wavelet extends beyond the signal; only as much as the length of the signal matters.
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
    """Weights of a wavelet, that of the latest sample first, and the number of weights for later samples."""
    step = grid[1] - grid[0]
    at_k = (np.arange(scale * (grid[-1] - grid[0]) + 1) / (scale * step)).astype(int)
    sampled_k = integral[at_k[at_k < len(integral)]][::-1]
    if len(sampled_k) < 2:
        raise ValueError(f"the scale {scale:g} leaves the wavelet fewer than two samples")
    tap_k = -np.sqrt(scale) * np.diff(sampled_k, prepend=0.0, append=0.0)
    return tap_k, (len(sampled_k) - 2) // 2 + 1


def _placed(tap_k: np.ndarray, ahead: int, num_samples: int, length: int) -> np.ndarray:
    """The weights as a circular kernel of `length`, lag 0 first, without those beyond all samples."""
    lag_k = np.arange(len(tap_k)) - ahead
    reaches_k = np.abs(lag_k) < num_samples
    placed_n = np.zeros(length, dtype=tap_k.dtype)
    placed_n[lag_k[reaches_k] % length] = tap_k[reaches_k]
    return placed_n
