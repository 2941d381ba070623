"""Spectra of windows against normal ones: a new tone, a louder machine, and that normal windows are judged fairly."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from core.data.windows import Series, WindowSet
from inference.spectra import BANDS, fit_spectral, log_bands

WINDOW = 256


def machine(num_windows: int, seed: int, *, tone: float = 0.0, gain: float = 1.0) -> np.ndarray:
    """Two axes of coloured noise (N, 2), in one of them perhaps a tone."""
    rng = np.random.default_rng(seed)
    noise_nc = rng.normal(size=(num_windows * WINDOW, 2))
    noise_nc[1:] += 0.8 * noise_nc[:-1]
    noise_nc[:, 1] += tone * np.sin(2 * np.pi * 0.21 * np.arange(len(noise_nc)))
    return (gain * noise_nc).astype(np.float32)


def parts_of(**values: np.ndarray) -> dict[str, WindowSet]:
    found = {}
    for name, values_nc in values.items():
        series = Series(torch.from_numpy(values_nc), (), np.array([0, len(values_nc)]))
        found[name] = WindowSet(series, torch.arange(0, len(values_nc), WINDOW), WINDOW)
    return found


def errors(**test: float) -> dict[str, np.ndarray]:
    normal = parts_of(train=machine(300, 0), validation=machine(50, 1), calibration=machine(200, 2))
    learned, calibration_wc = fit_spectral(normal)
    (new,) = parts_of(test=machine(200, 3, **test)).values()
    return {"calibration": calibration_wc, "test": learned.errors(new)}


def test_normal_windows_of_calibration_and_of_the_test_are_about_one():
    found = errors()
    assert found["calibration"].shape == found["test"].shape == (200, 2)
    assert found["calibration"].mean() == pytest.approx(1.0, rel=0.05)
    assert found["test"].mean() == pytest.approx(1.0, rel=0.05)


def test_a_tone_is_far_off_on_its_own_axis_alone():
    found = errors(tone=4.0)["test"].mean(axis=0)
    assert found[0] == pytest.approx(1.0, rel=0.1)
    assert found[1] > 1.5


@pytest.mark.parametrize("gain", [0.5, 2.0])
def test_amplitude_counts_in_both_directions(gain):
    assert errors(gain=gain)["test"].min() > errors()["test"].mean()


def test_the_offset_of_a_sensor_does_not_count():
    (plain,) = parts_of(test=machine(20, 0)).values()
    (lifted,) = parts_of(test=machine(20, 0) + np.float32(64)).values()
    torch.testing.assert_close(log_bands(lifted), log_bands(plain), atol=1e-2, rtol=0)


def test_bands_hold_the_mean_power():
    (windows,) = parts_of(test=machine(3, 0)).values()
    wave_t = windows.batch(torch.arange(3))[1, :, 0].double().numpy()
    power_f = np.abs(np.fft.rfft((wave_t - wave_t.mean()) * np.hanning(WINDOW)))[1:] ** 2
    expected = [np.log(band.mean()) for band in np.array_split(power_f, BANDS)]
    np.testing.assert_allclose(log_bands(windows)[1, 0].numpy(), expected, atol=1e-3)


def test_windows_shorter_than_the_bands_have_fewer_of_them():
    values_nc = machine(4, 0)
    series = Series(torch.from_numpy(values_nc), (), np.array([0, len(values_nc)]))
    windows = WindowSet(series, torch.arange(0, 200, 20), 20)
    assert log_bands(windows).shape == (10, 2, 10)
