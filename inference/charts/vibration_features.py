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

import numpy as np
from scipy import fft

from core.config.charts import VibrationCharts
from core.data.windows import WindowSet
from inference.running import Ewma

Features = Mapping[str, np.ndarray]
"""The features of windows by chart: float64 (W, C, F), NaN for an axis without values."""

CHARTS = ("level", "spectrum", "lines", "modulation")
# Low-frequency lines: bands of a sixth of an octave, at least one line wide, up to this share of the spectrum.
_PER_OCTAVE, _LOW_SHARE = 6, 1 / 16
# Number of lines of an envelope spectrum that are used, and number of bands of these lines.
_ENVELOPE_LINES, _ENVELOPE_BANDS = 64, 32
_FEWEST_CARRIER_LINES = 16
# An envelope with more missing samples than this share is not scored: gaps look like modulation.
_MISSING_SHARE = 0.01
_WINDOWS_AT_A_TIME = 64
_SMALLEST = 1e-12


def features_of(windows: WindowSet, settings: VibrationCharts) -> Features:
    """Features of all windows. The mean of the window replaces missing samples; the power is corrected for them."""
    found = [
        _of_batch(values_wtc.transpose(0, 2, 1).astype(np.float64), settings)
        for values_wtc in windows.arrays(_WINDOWS_AT_A_TIME)
    ]
    return {name: np.concatenate([each[name] for each in found]) for name in CHARTS}


def smoothed(features: Features, windows: WindowSet, span: int) -> Features:
    """Exponentially weighted means over the windows of each file, in order."""
    if span == 1:
        return features
    file_w = windows.file_of()
    return {name: _smoothed(values_wcf, file_w, span) for name, values_wcf in features.items()}


def _smoothed(values_wcf: np.ndarray, file_w: np.ndarray, span: int) -> np.ndarray:
    flat_wm = values_wcf.reshape(len(values_wcf), -1)
    return Ewma(span, flat_wm.shape[1])(flat_wm, file_w).reshape(values_wcf.shape)


def _of_batch(wave_wct: np.ndarray, settings: VibrationCharts) -> Features:
    missing_wct = np.isnan(wave_wct)
    known_wc1 = np.count_nonzero(~missing_wct, axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):  # an axis without values
        mean_wc1 = np.where(missing_wct, 0.0, wave_wct).sum(axis=-1, keepdims=True) / known_wc1
    wave_wct = np.where(missing_wct, 0.0, wave_wct - mean_wc1)
    taper_t = np.hanning(wave_wct.shape[-1])
    observed_wc1 = (taper_t**2 * ~missing_wct).sum(axis=-1, keepdims=True) / (taper_t**2).sum()
    power_wcf = _power(fft.rfft(wave_wct * taper_t)[..., 1:])
    power_wcf /= np.where(observed_wc1 > 0, observed_wc1, np.nan)
    too_few_wc1 = 1 - known_wc1 / wave_wct.shape[-1] > _MISSING_SHARE
    return {
        "level": _log(power_wcf.mean(axis=-1, keepdims=True)),
        "spectrum": _log(_bands(power_wcf, settings.bands)),
        "lines": _log(_between(power_wcf, low_edges(power_wcf.shape[-1]))),
        "modulation": np.where(too_few_wc1, np.nan, _modulation(wave_wct, settings.carriers)),
    }


def low_edges(num_lines: int) -> list[int]:
    """First line of each low-frequency band, and the end of the last; the lines are numbered from 0."""
    edges, last = [0], max(math.ceil(num_lines * _LOW_SHARE), min(8, num_lines))
    while edges[-1] < last:
        width = round((edges[-1] + 1) * (2 ** (1 / _PER_OCTAVE) - 1))
        edges.append(min(edges[-1] + max(width, 1), last))
    return edges


def _modulation(wave_wct: np.ndarray, carriers: int) -> np.ndarray:
    """The power of each carrier band's squared envelope around its mean, and the envelope spectrum of all carriers:
    (W, C, K + F).

    An envelope is divided by its mean, so that gain and spectrum have no effect. Lines below two periods of the window
    are left out: they are slow changes of the level.
    """
    lines_wcf = fft.rfft(wave_wct)[..., 1:]
    num_carriers = max(1, min(carriers, lines_wcf.shape[-1] // _FEWEST_CARRIER_LINES))
    width = lines_wcf.shape[-1] // num_carriers
    lines_wckf = lines_wcf[..., : num_carriers * width].reshape(*lines_wcf.shape[:2], num_carriers, width)
    envelope_wckt = _power(fft.ifft(lines_wckf, n=2 * width))
    envelope_wckt /= np.maximum(envelope_wckt.mean(axis=-1, keepdims=True), _SMALLEST)
    taper_t = np.hanning(2 * width)
    power_wckf = _power(fft.rfft((envelope_wckt - 1) * taper_t)[..., 2:-1]) / (taper_t**2).sum()
    spectrum_wcf = _bands(power_wckf[..., :_ENVELOPE_LINES].mean(axis=2), _ENVELOPE_BANDS)
    return np.concatenate([_log(power_wckf.mean(axis=-1)), _log(spectrum_wcf)], axis=-1)


def _power(lines: np.ndarray) -> np.ndarray:
    return lines.real**2 + lines.imag**2


def _bands(power: np.ndarray, count: int) -> np.ndarray:
    """Means of `count` bands. The first bands are one line wider if the lines cannot be divided evenly."""
    num_lines = power.shape[-1]
    count = max(1, min(count, num_lines))
    width, wider = divmod(num_lines, count)
    return _between(power, [band * width + min(band, wider) for band in range(count + 1)])


def _between(power: np.ndarray, edges: Sequence[int]) -> np.ndarray:
    return np.add.reduceat(power[..., : edges[-1]], edges[:-1], axis=-1) / np.diff(edges)


def _log(power: np.ndarray) -> np.ndarray:
    return np.log(power + _SMALLEST)
