"""Scalograms of vibration, compared with the transforms of PyWavelets and ssqueezepy."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from benchmarks.implementations import Work
from benchmarks.paired import Comparison, Task, compare
from benchmarks.placed import Place
from benchmarks.run import Effort
from core.config.schema import Scalogram as Settings
from core.data.scalogram import Scalogram

log = logging.getLogger(__name__)

RATE_HZ = 6400.0
WINDOWS, SAMPLES, AXES, ROWS, SIZE = 4, 4000, 3, 96, 224
SETTINGS = Settings(frequencies=ROWS, image_size=SIZE, frequency_min_hz=20.0)
IDLE_S = 3.0


def comparisons(effort: Effort) -> Iterator[Comparison]:
    """Windows of 4,000 samples, three axes: our complete images of 224 pixels compared with the log-magnitudes of the
    peers alone, and with their complete images."""
    ours = Task("Landfall", "benchmarks.scalogram:our_images", {})
    peers = {
        "pywt.cwt (conv)": ("pywt_magnitudes", {"method": "conv"}, 75.0),
        "pywt.cwt (fft)": ("pywt_magnitudes", {"method": "fft"}, 0.0),
        "ssqueezepy.cwt": ("ssqueezepy_magnitudes", {}, 17.0),
        "pywt.cwt, quartiles, resized": ("pywt_images", {}, 35.0),
    }
    if find_spec("ssqueezepy") is None:
        log.warning("ssqueezepy is skipped: pip install landfall[bench] installs it")
        del peers["ssqueezepy.cwt"]
    for name, (maker, settings, goal) in peers.items():
        theirs = Task(name, f"benchmarks.scalogram:{maker}", settings, tuned=False)
        title = f"{SAMPLES:,} samples × {AXES} axes × {ROWS} frequencies"
        yield compare(title, ours, theirs, unit="windows", count=WINDOWS, rounds=effort.rounds, goal=goal)
    cold = Task(f"Landfall, after {IDLE_S:g} s of sleep", "benchmarks.scalogram:our_images", {}, idle_s=IDLE_S)
    title = f"the first call after a pause, {SAMPLES:,} samples × {AXES} axes × {ROWS} frequencies"
    warm = Task("Landfall, at once", "benchmarks.scalogram:our_images", {})
    yield compare(title, cold, warm, unit="windows", count=WINDOWS, rounds=effort.rounds)


def our_images(windows: int = WINDOWS, size: int = SIZE, place: dict[str, Any] | None = None) -> Work:
    where, settings = Place(**(place or {})), SETTINGS.model_copy(update={"image_size": size})
    transform, x_bta = Scalogram(settings), torch.randn(windows, SAMPLES, AXES).to(where.device)
    return where.work(lambda: transform(x_bta, RATE_HZ))


def pywt_images() -> Work:
    """PyWavelets as used in notebooks: log-magnitudes, median and quartiles, resized to the image."""
    import pywt

    # The centre of PyWavelets' Morlet wavelet is .8125.
    signals, scales = _signals(), 0.8125 * RATE_HZ / Scalogram(SETTINGS).frequencies_hz(RATE_HZ).numpy()

    def images() -> object:
        magnitude = np.abs(pywt.cwt(signals, scales, "morl", axis=-1)[0]).transpose(1, 2, 0, 3)
        log_magnitude = np.log1p(magnitude)
        low, middle, high = np.quantile(log_magnitude, (0.25, 0.5, 0.75), axis=(2, 3), keepdims=True)
        scaled = torch.from_numpy((log_magnitude - middle) / (high - low + 1e-6))
        return torch.nn.functional.interpolate(scaled, (SIZE, SIZE), mode="bilinear", align_corners=False)

    return images


def _signals() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((WINDOWS, AXES, SAMPLES), dtype=np.float32)


def pywt_magnitudes(method: str) -> Work:
    """Log-magnitudes of the analytic Morlet wavelet, at every sample."""
    import pywt

    centre = SETTINGS.omega0 / (2 * np.pi)
    scales = centre * RATE_HZ / Scalogram(SETTINGS).frequencies_hz(RATE_HZ).numpy()
    signals = _signals()

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
