"""Spectra of windows against normal ones: a new tone, a louder machine, and that normal windows are judged fairly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from core.data.recording import Recording
from core.data.windows import Series, WindowSet
from inference.spectra import BANDS, fit_spectral, spectra_of

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
        found[name] = windows_of(values_nc, torch.arange(0, len(values_nc), WINDOW), WINDOW)
    return found


def windows_of(values_nc: np.ndarray, starts_w: torch.Tensor, window: int) -> WindowSet:
    time_ns = np.arange(len(values_nc)) * 10**6
    recording = Recording("a.npy", Path("a.npy"), values_nc, time_ns, ("x", "y"), 1000.0, "sampling_rate")
    return WindowSet(Series.of([recording], values_nc), starts_w, window)


def errors(span: int = 1, **test: float) -> dict[str, np.ndarray]:
    normal = parts_of(train=machine(300, 0), validation=machine(50, 1), calibration=machine(200, 2))
    learned, calibration_wc = fit_spectral(normal, span=span)
    (new,) = parts_of(test=machine(200, 3, **test)).values()
    return {"calibration": calibration_wc, "test": learned.errors(new)}


def bands(windows: WindowSet) -> torch.Tensor:
    return spectra_of(windows, span=1).band_wcf


def test_normal_windows_of_calibration_and_of_the_test_are_about_one():
    found = errors()
    assert found["calibration"].shape == found["test"].shape == (200, 2)
    assert found["calibration"].mean() == pytest.approx(1.0, rel=0.15)
    assert found["test"].mean() == pytest.approx(1.0, rel=0.15)


@pytest.mark.parametrize("span", [1, 5])
def test_normal_windows_are_judged_as_new_ones_are(span):
    found = errors(span)
    assert found["test"].mean() == pytest.approx(found["calibration"].mean(), rel=0.2)


def test_a_tone_is_far_off_on_its_own_axis():
    found = errors(tone=4.0)["test"].mean(axis=0)
    assert found[1] > 10 * found[0]


def test_a_mean_over_windows_sees_what_one_window_does_not():
    def seen(span: int) -> float:
        found = errors(span, gain=1.06)
        return float((found["test"].mean(axis=1) > np.quantile(found["calibration"].mean(axis=1), 0.99)).mean())

    assert seen(10) > seen(1) + 0.2


def test_no_mean_goes_from_one_file_to_the_next_but_from_record_to_record():
    values_nc = np.concatenate([machine(20, 0), machine(20, 1, gain=9.0)])
    half = len(values_nc) // 2

    def last(*paths: str) -> torch.Tensor:
        recordings = [
            Recording(path, Path(path), part_nc, np.arange(half), ("x", "y"), 1000.0, "sampling_rate")
            for path, part_nc in zip(paths, np.split(values_nc, 2), strict=True)
        ]
        windows = WindowSet(Series.of(recordings, values_nc), torch.arange(0, 2 * half, WINDOW), WINDOW)
        return spectra_of(windows, span=5).level_wc[20]

    alone = spectra_of(windows_of(values_nc, torch.tensor([half]), WINDOW), span=5).level_wc[0]
    torch.testing.assert_close(last("a.npy", "b.npy"), alone)
    assert (last("set.npz", "set.npz") < alone - 1).all()


@pytest.mark.parametrize("gain", [0.5, 2.0])
def test_amplitude_counts_in_both_directions(gain):
    assert errors(gain=gain)["test"].min() > errors()["test"].mean()


def test_the_offset_of_a_sensor_does_not_count():
    (plain,) = parts_of(test=machine(20, 0)).values()
    (lifted,) = parts_of(test=machine(20, 0) + np.float32(64)).values()
    torch.testing.assert_close(bands(lifted), bands(plain), atol=1e-2, rtol=0)


def test_bands_hold_the_mean_power():
    (windows,) = parts_of(test=machine(3, 0)).values()
    wave_t = windows.batch(torch.arange(3))[1, :, 0].double().numpy()
    power_f = np.abs(np.fft.rfft((wave_t - wave_t.mean()) * np.hanning(WINDOW)))[1:] ** 2
    expected = [np.log(band.mean()) for band in np.array_split(power_f, BANDS)]
    np.testing.assert_allclose(bands(windows)[1, 0].numpy(), expected, atol=1e-3)


def test_windows_shorter_than_the_bands_have_fewer_of_them():
    values_nc = machine(4, 0)
    windows = windows_of(values_nc, torch.arange(0, 200, 20), 20)
    assert bands(windows).shape == (10, 2, 10)


def test_a_missing_sample_changes_next_to_nothing_and_a_missing_axis_is_not_scored():
    normal = parts_of(train=machine(300, 0), calibration=machine(200, 2))
    learned, _ = fit_spectral(normal, span=1)
    values_nc = machine(200, 3)
    (whole,) = parts_of(test=values_nc).values()
    values_nc = values_nc.copy()
    values_nc[10 * WINDOW + 7, 0] = np.nan
    values_nc[20 * WINDOW : 20 * WINDOW + WINDOW // 4, 0] = np.nan
    values_nc[30 * WINDOW : 31 * WINDOW, 0] = np.nan
    (torn,) = parts_of(test=values_nc).values()
    intact_wc, found_wc = learned.errors(whole), learned.errors(torn)
    assert found_wc[10] == pytest.approx(intact_wc[10], abs=0.5)
    assert found_wc[20].max() < 4.0
    assert np.isnan(found_wc[30]).tolist() == [True, False]
    assert not np.isnan(np.delete(found_wc, 30, axis=0)).any()


def test_missing_samples_among_the_normal_ones_cost_no_sharpness():
    values_nc = machine(300, 0)
    values_nc[5 * WINDOW : 6 * WINDOW, 1] = np.nan
    values_nc[9 * WINDOW + 3] = np.nan
    learned, calibration_wc = fit_spectral(parts_of(train=values_nc, calibration=machine(200, 2)), span=1)
    (loud,) = parts_of(test=machine(200, 3, gain=1.5)).values()
    assert learned.errors(loud).mean() > 3 * calibration_wc.mean()


def test_a_single_normal_window_is_enough_to_be_told_that_it_is_too_few():
    _, calibration_wc = fit_spectral(parts_of(calibration=machine(1, 0)), span=1)
    assert calibration_wc.shape == (1, 2)
