"""Scalograms of vibration, beside the transforms of PyWavelets and ssqueezepy."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np
import torch

from benchmarks.pairs import Comparison, Task, compare
from benchmarks.run import Effort
from benchmarks.sides import Work
from core.config.schema import Scalogram as Settings
from core.data.scalogram import Scalogram

log = logging.getLogger(__name__)

RATE_HZ = 6400.0
WINDOWS, SAMPLES, AXES, ROWS, SIZE = 4, 4000, 3, 96, 224


def comparisons(effort: Effort) -> Iterator[Comparison]:
    """Windows of 4,000 samples, three axes: our whole images of 224 pixels against the peers' log-magnitudes alone."""
    ours = Task("Landfall", "benchmarks.scalogram:our_images", {})
    peers = {
        "pywt.cwt (conv)": ("pywt_magnitudes", {"method": "conv"}, 75.0),
        "pywt.cwt (fft)": ("pywt_magnitudes", {"method": "fft"}, 0.0),
        "ssqueezepy.cwt": ("ssqueezepy_magnitudes", {}, 17.0),
    }
    if find_spec("ssqueezepy") is None:
        log.warning("ssqueezepy is left out: pip install landfall[bench] brings it")
        del peers["ssqueezepy.cwt"]
    for name, (maker, settings, goal) in peers.items():
        theirs = Task(name, f"benchmarks.scalogram:{maker}", settings, tuned=False)
        title = f"{SAMPLES:,} samples × {AXES} axes × {ROWS} frequencies"
        yield compare(title, ours, theirs, unit="windows", count=WINDOWS, rounds=effort.rounds, goal=goal)


def our_images() -> Work:
    settings = Settings(frequencies=ROWS, image_size=SIZE, frequency_min_hz=20.0)
    transform, windows = Scalogram(settings), torch.randn(WINDOWS, SAMPLES, AXES)
    return lambda: transform(windows, RATE_HZ)


def pywt_magnitudes(method: str) -> Work:
    """Log-magnitudes of the analytic Morlet wavelet, at every sample."""
    import pywt

    settings = Settings(frequencies=ROWS, image_size=SIZE, frequency_min_hz=20.0)
    centre = settings.omega0 / (2 * np.pi)
    scales = centre * RATE_HZ / Scalogram(settings).frequencies_hz(RATE_HZ).numpy()
    signals = np.random.default_rng(0).standard_normal((WINDOWS, AXES, SAMPLES), dtype=np.float32)

    def magnitudes() -> object:
        coefficients, _ = pywt.cwt(signals, scales, f"cmor2.0-{centre:.6f}", method=method, axis=-1)
        return np.log10(1.0 + np.abs(coefficients) / 1e-3)

    return magnitudes


def ssqueezepy_magnitudes() -> Work:
    from ssqueezepy import Wavelet, cwt

    signals = np.random.default_rng(0).standard_normal((WINDOWS * AXES, SAMPLES), dtype=np.float32)
    wavelet = Wavelet(("morlet", {"mu": Settings().omega0}))
    scales = np.geomspace(2.0, 2.0 * RATE_HZ / 20.0 / 5.0, ROWS)

    def magnitudes() -> object:
        coefficients, _ = cwt(signals, wavelet, scales=scales)
        return np.log10(1.0 + np.abs(coefficients) / 1e-3)

    return magnitudes
