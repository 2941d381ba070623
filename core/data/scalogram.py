"""Scalograms: log-amplitude images of vibration, from a Morlet wavelet transform by FFT.

Convention. The wavelet of centre frequency f is the analytic Morlet, a Gaussian of relative width 1/omega0:

    filter_f(v) = 2 exp(-(omega0 (v / f - 1))² / 2)  for v > 0,  0 otherwise

that is, exp(2πi f t) under a Gaussian of standard deviation omega0 / (2π f) seconds. It is normalised by amplitude
(L1): a sine of amplitude A at f gives the magnitude A in the row of f, whatever f is. Energy (L2) normalisation would
instead tilt the image, as its rows grow with 1/√f. PyWavelets' `cmor2.0-C` with C = omega0/2π is the same wavelet
in L2 form: its magnitudes are √scale/2 times these, with scale = C · sampling rate / f.

Edges. The window is extended periodically by its mirror image. This avoids a step at the edges, which would appear as a
broad-band stripe in every image, and allows a wavelet longer than the window. Values closer to an edge than the length
of the wavelet depend partly on the mirror image.

Envelope. A bearing defect excites resonances once per passage of a ball: the power of high frequencies rises and falls,
at a frequency at which the signal itself has no power. With `envelope`, a second picture is the scalogram of that
power, the squared envelope of the frequencies of the upper half of the rows. It is relative to its mean, so it shows
modulation at any level; the plain scalogram shows the level. Both use the same Fourier transform of the window.

References: Torrence and Compo, A Practical Guide to Wavelet Analysis, 1998; Randall and Antoni, Rolling element bearing
diagnostics, Mechanical Systems and Signal Processing 2011.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from core.config.models import LEVEL_ROWS, NUM_PLANES
from core.config.schema import Scalogram as ScalogramSettings
from core.errors import ConfigError, ConfigFault, DataError

# Amplitude that counts as silence, in units of the input. Scaled vibration has unit spread, so this is -60 dB.
AMPLITUDE_FLOOR = 1e-3
# Highest frequency where the configuration names none, as a share of the sampling rate.
HIGHEST_SHARE = 0.4
# Standard deviations from its centre beyond which the spectrum of a wavelet is below 4e-4 of its peak.
BAND_WIDTH = 4.0
# Samples of a wavelet's output for each cycle of its bandwidth: 1 suffices for the output, the mean of its magnitude
# needs more (docs/performance.md).
OVERSAMPLING = 1.5


class Scalogram:
    """Turns windows of vibration into images.

    A pixel is log10(1 + amplitude / AMPLITUDE_FLOOR): 0 in silence, 3 for a sine of amplitude 1, and one decade (20 dB)
    per unit wherever amplitude is well above the floor. Row 0 is the lowest frequency; columns are time.
    """

    def __init__(self, settings: ScalogramSettings):
        self.settings = settings

    @torch.no_grad()
    def __call__(self, x_bta: Tensor, sampling_rate_hz: float) -> Tensor:
        """Images (B, 3, H, W) float32 of windows (B, T, A) of one to three axes, on the device of the input; with
        `envelope` (B, 6, H, W), three planes of each picture.

        The planes of missing axes are NaN, and so are columns with most samples missing. Other missing samples are
        replaced by the mean of their window. Raises DataError for more axes than planes or a window of fewer than two
        samples per column, and ConfigError for frequencies above half of the sampling rate.
        """
        self._refuse(x_bta)
        width = self.settings.image_size
        x_bat = x_bta.float().transpose(1, 2)
        missing_baw = F.adaptive_avg_pool1d(x_bat.isnan().float(), width) > 0.5

        amplitude_bafw = self.amplitudes(x_bat, sampling_rate_hz, width)
        image_bahw = _resize_rows(torch.log10(1.0 + amplitude_bafw / AMPLITUDE_FLOOR), width)
        picture_bpahw = image_bahw.unflatten(1, (self.settings.pictures, -1))
        picture_bpahw = picture_bpahw.masked_fill(missing_baw[:, None, :, None], torch.nan)
        return F.pad(picture_bpahw, (0, 0, 0, 0, 0, NUM_PLANES - x_bat.shape[1]), value=torch.nan).flatten(1, 2)

    @torch.no_grad()
    def amplitudes(self, x_bat: Tensor, sampling_rate_hz: float, num_columns: int) -> Tensor:
        """Mean wavelet amplitude in `num_columns` equal intervals, in units of the input.

        Signals (B, A, T) to (B, A, F, num_columns), float32; at most T/2 columns. With `envelope`, those of the squared
        envelope of each axis, relative to its mean, follow: (B, 2A, F, num_columns). Averaging amplitudes, before any
        logarithm, keeps short bursts and does not alias.

        The spectrum of a mirrored window is real. The output of a wavelet is therefore a Fourier transform of real
        numbers, of which one half is the window and the other its mirror image: the fast transform of real input gives
        the window. Its magnitude does not change when the band of the wavelet is shifted to frequency zero, where it
        needs only as many points as the band is wide.
        """
        num_samples, rate_hz = x_bat.shape[-1], float(sampling_rate_hz)
        bands = wavelet_bands(self.settings, num_samples, num_columns, rate_hz, x_bat.device)
        with torch.autocast(x_bat.device.type, enabled=False):
            cosines_bav = cosine_spectrum((x_bat - x_bat.nanmean(-1, keepdim=True)).masked_fill(x_bat.isnan(), 0.0))
            if self.settings.envelope:
                of_envelope_bav = envelope_spectrum(cosines_bav, first_carrier(self.settings, num_samples, rate_hz))
                cosines_bav = torch.cat([cosines_bav, of_envelope_bav], dim=1)
            columns = [column_means(band.amplitudes(cosines_bav, num_columns), num_columns) for band in bands]
            return torch.cat(columns, dim=-2)

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
    """Centre frequencies (F,) float64, ascending; raises ConfigError if they exceed half of the sampling rate."""
    lowest, highest = frequency_range_hz(settings, sampling_rate_hz)
    return torch.logspace(math.log10(lowest), math.log10(highest), settings.frequencies, dtype=torch.float64)


def frequency_range_hz(settings: ScalogramSettings, sampling_rate_hz: float) -> tuple[float, float]:
    """Centre frequencies of the first and the last row; raises as `row_frequencies_hz`."""
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
    return lowest, highest


def row_edges_hz(settings: ScalogramSettings, sampling_rate_hz: float, num_rows: int) -> np.ndarray:
    """Edges of the rows of an image, ascending: (num_rows + 1,); raises as `row_frequencies_hz`."""
    centre_f = row_frequencies_hz(settings, sampling_rate_hz).numpy()
    half_step = (centre_f[-1] / centre_f[0]) ** (0.5 / max(len(centre_f) - 1, 1))
    return np.geomspace(centre_f[0] / half_step, centre_f[-1] * half_step, num_rows + 1)


def decibels(image: Tensor) -> Tensor:
    """The pixels of a scalogram in dB; 0 dB is the amplitude 1, in the units of the input of the transform."""
    return 20 * (image + math.log10(AMPLITUDE_FLOOR))


def with_level_apart(image_bahw: Tensor) -> Tensor:
    """Images minus their level, and below them `LEVEL_ROWS` rows with the level: (B, A, H + LEVEL_ROWS, W).

    The level of a plane is the mean of its observed pixels; NaN if it has none.
    """
    level_ba11 = image_bahw.nanmean(dim=(2, 3), keepdim=True)
    return torch.cat([image_bahw - level_ba11, level_ba11.expand(-1, -1, LEVEL_ROWS, image_bahw.shape[3])], dim=2)


def with_level_added(image_bahw: Tensor) -> Tensor:
    """Reverses `with_level_apart`."""
    return image_bahw[:, :, :-LEVEL_ROWS] + image_bahw[:, :, -1:]


@dataclass(frozen=True)
class Band:
    """Wavelets of neighbouring rows with the same number of points.

    points: for each column. first_f: the lowest bin of each wavelet's band. filter_fm: its values from there on,
    divided by the length of the Fourier transform.
    """

    points: int
    first_f: Tensor
    filter_fm: Tensor

    def amplitudes(self, cosines_bav: Tensor, num_columns: int) -> Tensor:
        """Spectra of mirrored windows (B, A, T + 1) to magnitudes (B, A, F, points · num_columns + 1), at equal steps
        from the window's first edge, half a sample before its first sample, to its last."""
        length = self.filter_fm.shape[1]
        padded_bav = F.pad(cosines_bav, (0, length))
        if torch.onnx.is_in_onnx_export():  # which copies all rows of `unfold`
            bin_fm = self.first_f.unsqueeze(1) + torch.arange(length)
            bands_bafm = padded_bav[..., bin_fm] * self.filter_fm
        else:
            bands_bafm = padded_bav.unfold(-1, length, 1)[..., self.first_f, :] * self.filter_fm
        wave_bafn = torch.fft.rfft(bands_bafm, n=2 * self.points * num_columns)
        # Twice as fast as `abs`, which also avoids overflow.
        return wave_bafn.real.square().addcmul_(wave_bafn.imag, wave_bafn.imag).sqrt_()


def column_means(amplitude_bafn: Tensor, num_columns: int) -> Tensor:
    """Means of equal intervals, by trapezoids: (B, A, F, n · num_columns + 1) → (B, A, F, num_columns)."""
    points = amplitude_bafn.shape[-1] // num_columns
    mean_bafw = F.avg_pool1d(amplitude_bafn[..., :-1].flatten(0, -2).unsqueeze(1), points)
    edge_bafw = amplitude_bafn[..., ::points]
    # The mean has the first edge of each interval in full and not the last; trapezoids take half of both.
    return mean_bafw.view_as(edge_bafw[..., 1:]) + edge_bafw.diff() / (2 * points)


def cosine_spectrum(x_bat: Tensor) -> Tensor:
    """Spectrum of windows continued as their own mirror image, real for the time of their first edge: (B, A, T + 1)."""
    num_samples = x_bat.shape[-1]
    spectrum_bav = torch.fft.rfft(torch.cat([x_bat, x_bat.flip(-1)], dim=-1))
    half_sample_v = torch.arange(num_samples + 1, device=x_bat.device) * (-0.5 * math.pi / num_samples)
    return (spectrum_bav * torch.polar(torch.ones_like(half_sample_v), half_sample_v)).real


def first_carrier(settings: ScalogramSettings, num_samples: int, sampling_rate_hz: float) -> int:
    """The lowest bin of the spectrum of a mirrored window that is a carrier: the middle row."""
    lowest, highest = frequency_range_hz(settings, sampling_rate_hz)
    return math.ceil(math.sqrt(lowest * highest) * 2 * num_samples / sampling_rate_hz)


def envelope_spectrum(cosines_bav: Tensor, first: int) -> Tensor:
    """Spectrum of the squared envelope of the bins from `first` on, relative to its mean, as `cosine_spectrum` returns
    it: (B, A, T + 1) → (B, A, T + 1).

    The envelope of a mirrored window is its own mirror image too. An envelope below the floor counts as silence.
    """
    num_samples = cosines_bav.shape[-1] - 1
    carriers_bav = cosines_bav.masked_fill(torch.arange(num_samples + 1, device=cosines_bav.device) < first, 0.0)
    wave_bat = torch.fft.rfft(carriers_bav / num_samples, n=2 * num_samples)  # the analytic signal, conjugated
    power_bat = wave_bat.real.square() + wave_bat.imag.square()
    spectrum_bav = torch.fft.rfft(torch.cat([power_bat, power_bat[..., 1:-1].flip(-1)], dim=-1)).real
    mean_ba1 = spectrum_bav[..., :1] / (2 * num_samples)
    return spectrum_bav / mean_ba1.clamp(min=AMPLITUDE_FLOOR**2)


@lru_cache(maxsize=16)
def wavelet_bands(
    settings: ScalogramSettings, num_samples: int, num_columns: int, sampling_rate_hz: float, device: torch.device
) -> tuple[Band, ...]:
    """The wavelets of all rows, lowest first, in bands of as many points for each column as their width needs."""
    centre_f = row_frequencies_hz(settings, sampling_rate_hz)
    bins_per_hz = 2 * num_samples / sampling_rate_hz
    half_width_f = centre_f * (BAND_WIDTH / settings.omega0) * bins_per_hz
    # Bin 0 is the constant offset, which is left out.
    first_f = (centre_f * bins_per_hz - half_width_f).clamp(min=1).floor().long()
    last_f = (centre_f * bins_per_hz + half_width_f).clamp(max=num_samples).ceil().long()
    width_f = last_f - first_f + 1

    # Transforms of these lengths, 1 or 3 times a power of two times the columns, are fast.
    offered = torch.tensor(sorted(2**power * factor for power in range(24) for factor in (1, 3)))
    points_f = offered[torch.searchsorted(offered, width_f * OVERSAMPLING / (2 * num_columns))]
    points_f = points_f.cummax(0).values  # the highest band may be cut short at half the sampling rate
    bands = []
    for points in points_f.unique():
        rows = points_f == points
        bin_fm = first_f[rows, None] + torch.arange(int(width_f[rows].max()))
        deviation_fm = settings.omega0 * (bin_fm / bins_per_hz / centre_f[rows, None] - 1.0)
        filter_fm = torch.exp(-0.5 * deviation_fm.square()) / num_samples * (bin_fm <= num_samples)
        bands.append(Band(int(points), first_f[rows].to(device), filter_fm.to(device, torch.float32)))
    return tuple(bands)


def _resize_rows(image_bafw: Tensor, height: int) -> Tensor:
    """Interpolates the rows to `height` rows; smooths first if that is fewer."""
    if image_bafw.shape[-2] == height:
        return image_bafw
    size = (height, image_bafw.shape[-1])
    return F.interpolate(image_bafw, size, mode="bilinear", align_corners=False, antialias=True)
