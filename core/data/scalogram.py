"""Scalograms: log-amplitude images of vibration, from a Morlet wavelet transform by FFT.

Convention. The wavelet of centre frequency f is the analytic Morlet, a Gaussian of relative width 1/omega0:

    filter_f(v) = 2 exp(-(omega0 (v / f - 1))² / 2)  for v > 0,  0 otherwise

that is, exp(2πi f t) under a Gaussian of standard deviation omega0 / (2π f) seconds. It is normalised by amplitude
(L1): a sine of amplitude A at f gives the magnitude A in the row of f, whatever f is. Energy (L2) normalisation would
instead tilt the image, as its rows grow with 1/√f. PyWavelets' `cmor2.0-C` with C = omega0/2π is the same wavelet
in L2 form: its magnitudes are √scale/2 times these, with scale = C · sampling rate / f.

Edges. The window continues as its own mirror image, without end. There is no step at either edge, which would draw a
broad-band stripe into every image, and no wavelet is too long. What is closer to an edge than the wavelet's length
still describes the mirror image in part.

Reference: Torrence and Compo, A Practical Guide to Wavelet Analysis, 1998.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from core.config.schema import Scalogram as ScalogramSettings
from core.errors import ConfigError, ConfigFault, DataError

NUM_PLANES = 3
# Amplitude that counts as silence, in units of the input. Scaled vibration has unit spread, so this is -60 dB.
AMPLITUDE_FLOOR = 1e-3
# Highest frequency where the configuration names none, as a share of the sampling rate.
HIGHEST_SHARE = 0.4
# Standard deviations above its centre beyond which a wavelet's spectrum is nothing (below 5e-5 of its peak).
BAND_WIDTHS = 4.5


class Scalogram:
    """Turns windows of vibration into images.

    A pixel is log10(1 + amplitude / AMPLITUDE_FLOOR): 0 in silence, 3 for a sine of amplitude 1, and one decade (20 dB)
    per unit wherever amplitude is well above the floor. Row 0 is the lowest frequency; columns are time.
    """

    def __init__(self, settings: ScalogramSettings):
        self.settings = settings

    @torch.no_grad()
    def __call__(self, x_bta: Tensor, sampling_rate_hz: float) -> Tensor:
        """Images (B, 3, H, W) float32 of windows (B, T, A) of one to three axes, on the device of the input.

        The planes of axes the sensor lacks are NaN, and so are the columns of which most samples are missing. Fewer
        missing samples count as the mean of their window.
        Raises DataError for more axes than planes or a window of fewer than two samples per column, and ConfigError
        for frequencies the sampling rate cannot hold.
        """
        self._refuse(x_bta)
        width = self.settings.image_size
        x_bat = x_bta.float().transpose(1, 2)
        missing_baw = F.adaptive_avg_pool1d(x_bat.isnan().float(), width) > 0.5

        amplitude_bafw = self.amplitudes(x_bat, sampling_rate_hz, width)
        image_bahw = _resize_rows(torch.log10(1.0 + amplitude_bafw / AMPLITUDE_FLOOR), width)
        image_bahw = image_bahw.masked_fill(missing_baw.unsqueeze(2), torch.nan)
        return F.pad(image_bahw, (0, 0, 0, 0, 0, NUM_PLANES - x_bat.shape[1]), value=torch.nan)

    @torch.no_grad()
    def amplitudes(self, x_bat: Tensor, sampling_rate_hz: float, num_columns: int) -> Tensor:
        """Mean wavelet amplitude in `num_columns` equal stretches of time, in units of the input.

        Signals (B, A, T) to (B, A, F, num_columns), float32; at most T/2 columns. Averaging amplitudes, before any
        logarithm, keeps short bursts and does not alias.
        """
        num_samples, device = x_bat.shape[-1], x_bat.device
        banks = filter_banks(self.settings, num_samples, num_columns, float(sampling_rate_hz), device)
        with torch.autocast(device.type, enabled=False):
            x_bat = (x_bat - x_bat.nanmean(-1, keepdim=True)).masked_fill(x_bat.isnan(), 0.0)
            spectrum_ba1v = torch.fft.rfft(torch.cat([x_bat, x_bat.flip(-1)], dim=-1)).unsqueeze(-2)
            octaves = []
            for bank_fv in banks:
                rows, num_bins = bank_fv.shape
                mirrored_bafm = torch.fft.ifft(spectrum_ba1v[..., :num_bins] * bank_fv)
                window_bafm = mirrored_bafm[..., : num_bins // 2]
                octaves.append(F.adaptive_avg_pool2d(window_bafm.abs(), (rows, num_columns)))
            return torch.cat(octaves, dim=-2)

    def frequencies_hz(self, sampling_rate_hz: float) -> Tensor:
        """Centre frequency of each row of the transform, ascending, log-spaced: float64 (F,)."""
        return row_frequencies_hz(self.settings, float(sampling_rate_hz))

    def _refuse(self, x_bta: Tensor) -> None:
        _, num_samples, num_axes = x_bta.shape
        if not 1 <= num_axes <= NUM_PLANES:
            raise DataError(f"{num_axes} vibration axes, the image has {NUM_PLANES} planes", hint="set data.channels")
        if num_samples < 2 * self.settings.image_size:
            raise DataError(
                f"a window of {num_samples} samples cannot fill {self.settings.image_size} columns",
                hint=f"set data.window to {2 * self.settings.image_size} or more, or scalogram.image_size lower",
            )


def row_frequencies_hz(settings: ScalogramSettings, sampling_rate_hz: float) -> Tensor:
    """Centre frequencies (F,) float64, ascending; raises ConfigError where the sampling rate cannot hold them."""
    lowest = settings.frequency_min_hz
    highest = settings.frequency_max_hz or HIGHEST_SHARE * sampling_rate_hz
    faults = []
    if highest > sampling_rate_hz / 2:
        problem = f"{highest:g} Hz is above half the sampling rate of {sampling_rate_hz:g} Hz"
        faults.append(ConfigFault("scalogram.frequency_max_hz", problem))
    if lowest >= highest:
        problem = f"{lowest:g} Hz is not below the highest frequency, {highest:g} Hz"
        faults.append(ConfigFault("scalogram.frequency_min_hz", problem))
    if faults:
        raise ConfigError("scalogram", faults)
    return torch.logspace(math.log10(lowest), math.log10(highest), settings.frequencies, dtype=torch.float64)


@lru_cache(maxsize=16)
def filter_banks(
    settings: ScalogramSettings, num_samples: int, num_columns: int, sampling_rate_hz: float, device: torch.device
) -> tuple[Tensor, ...]:
    """Wavelets in the frequency domain, lowest first: float32 (F_i, M_i), over the first bins of a mirrored window.

    A wavelet's output holds no frequency above its own band. Its spectrum therefore fits into M bins, and their inverse
    transform samples the same output at M instead of 2T points; each octave down halves M. Twice the band and four
    points to a column keep the mean amplitude that of the full rate. The factor M / 2T makes up for the shorter
    transform.
    """
    centre_f = row_frequencies_hz(settings, sampling_rate_hz)
    bins_per_hz = 2 * num_samples / sampling_rate_hz
    bin_hz_v = torch.arange(num_samples + 1, dtype=torch.float64) / bins_per_hz
    bank_fv = 2.0 * torch.exp(-0.5 * (settings.omega0 * (bin_hz_v / centre_f.unsqueeze(1) - 1.0)).square())
    bank_fv[:, 0] = 0.0  # a constant offset has no frequency

    band_f = centre_f * (1.0 + BAND_WIDTHS / settings.omega0) * bins_per_hz
    octave_f = torch.log2(num_samples / (2 * band_f).clamp(min=8 * num_columns)).floor().clamp(min=0)
    banks = []
    for octave in octave_f.unique().flip(0):
        num_bins = 2 * math.ceil(num_samples / 2 ** (octave.item() + 1))
        bank = bank_fv[octave_f == octave, :num_bins] * (num_bins / (2 * num_samples))
        banks.append(bank.to(device, torch.float32))
    return tuple(banks)


def _resize_rows(image_bafw: Tensor, height: int) -> Tensor:
    """Interpolate frequencies to `height` rows, smoothing first where rows get fewer."""
    if image_bafw.shape[-2] == height:
        return image_bafw
    size = (height, image_bafw.shape[-1])
    return F.interpolate(image_bafw, size, mode="bilinear", align_corners=False, antialias=True)
