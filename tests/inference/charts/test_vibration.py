"""Control charts of vibration: what they find, and that normal windows and new operating points are no alarms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core.config.charts import VibrationCharts
from core.data.recording import Recording
from core.data.windows import Series, WindowSet
from inference.charts.vibration import FOLDS, VibrationChartSet, fit_vibration, folds_of
from inference.charts.vibration_features import features_of, low_edges, smoothed

WINDOW = 256
CHARTS = VibrationCharts()


def machine(num_windows: int, seed: int, *, tone: float = 0.0, gain: float = 1.0) -> np.ndarray:
    """Two axes of coloured noise (N, 2), in one of them perhaps a tone."""
    rng = np.random.default_rng(seed)
    noise_nc = rng.normal(size=(num_windows * WINDOW, 2))
    noise_nc[1:] += 0.8 * noise_nc[:-1]
    noise_nc[:, 1] += tone * np.sin(2 * np.pi * 0.21 * np.arange(len(noise_nc)))
    return (gain * noise_nc).astype(np.float32)


def recordings_of(each: list[np.ndarray], first: float = 0.0, last: float = 1.0) -> WindowSet:
    """The windows of a share of each recording."""
    recordings = [
        Recording(f"{at}.npy", Path(f"{at}.npy"), values_nc, np.arange(len(values_nc)), ("x", "y"), 1000.0, "index")
        for at, values_nc in enumerate(each)
    ]
    series = Series.of(recordings, np.concatenate(each))
    starts = [
        np.arange(int(first * len(values_nc)) // WINDOW, int(last * len(values_nc)) // WINDOW) * WINDOW + offset
        for values_nc, offset in zip(each, series.offsets_r, strict=False)
    ]
    return WindowSet(series, np.concatenate(starts), WINDOW)


def parts_of(**values: np.ndarray) -> dict[str, WindowSet]:
    found = {}
    for name, values_nc in values.items():
        found[name] = windows_of(values_nc, np.arange(0, len(values_nc), WINDOW), WINDOW)
    return found


def windows_of(values_nc: np.ndarray, starts_w: np.ndarray, window: int) -> WindowSet:
    time_ns = np.arange(len(values_nc)) * 10**6
    recording = Recording("a.npy", Path("a.npy"), values_nc, time_ns, ("x", "y"), 1000.0, "sampling_rate")
    return WindowSet(Series.of([recording], values_nc), starts_w, window)


def errors(span: int = 1, **test: float) -> dict[str, np.ndarray]:
    normal = parts_of(train=machine(300, 0), validation=machine(50, 1), calibration=machine(200, 2))
    learned, calibration_wc = fit_vibration(normal, span=span)
    (new,) = parts_of(test=machine(200, 3, **test)).values()
    return {"calibration": calibration_wc, "test": learned.errors(new)}


def bands(windows: WindowSet) -> np.ndarray:
    return features_of(windows, CHARTS)["spectrum"]


def test_errors_of_calibration_and_normal_test_windows_are_about_one():
    found = errors()
    assert found["calibration"].shape == found["test"].shape == (200, 2)
    assert found["calibration"].mean() == pytest.approx(1.0, rel=0.15)
    assert found["test"].mean() == pytest.approx(1.0, rel=0.15)


@pytest.mark.parametrize("span", [1, 5])
def test_reference_windows_are_scored_like_new_ones(span):
    found = errors(span)
    assert found["test"].mean() == pytest.approx(found["calibration"].mean(), rel=0.2)


def test_a_tone_has_a_large_error_on_its_own_axis():
    found = errors(tone=4.0)["test"].mean(axis=0)
    assert found[1] > 10 * found[0]


def test_a_mean_over_windows_detects_what_one_window_does_not():
    def seen(span: int) -> float:
        found = errors(span, gain=1.06)
        return float((found["test"].mean(axis=1) > np.quantile(found["calibration"].mean(axis=1), 0.99)).mean())

    assert seen(10) > seen(1) + 0.2


def test_means_cross_records_but_not_files():
    values_nc = np.concatenate([machine(20, 0), machine(20, 1, gain=9.0)])
    half = len(values_nc) // 2

    def last(*paths: str) -> np.ndarray:
        recordings = [
            Recording(path, Path(path), part_nc, np.arange(half), ("x", "y"), 1000.0, "sampling_rate")
            for path, part_nc in zip(paths, np.split(values_nc, 2), strict=True)
        ]
        windows = WindowSet(Series.of(recordings, values_nc), np.arange(0, 2 * half, WINDOW), WINDOW)
        return smoothed(features_of(windows, CHARTS), windows, 5)["level"][20]

    alone = features_of(windows_of(values_nc, np.array([half]), WINDOW), CHARTS)["level"][0]
    np.testing.assert_allclose(last("a.npy", "b.npy"), alone)
    assert (last("set.npz", "set.npz") < alone - 1).all()


@pytest.mark.parametrize("gain", [0.5, 2.0])
def test_amplitude_counts_in_both_directions(gain):
    assert errors(gain=gain)["test"].min() > errors()["test"].mean()


def test_the_offset_of_a_sensor_does_not_count():
    (plain,) = parts_of(test=machine(20, 0)).values()
    (lifted,) = parts_of(test=machine(20, 0) + np.float32(64)).values()
    np.testing.assert_allclose(bands(lifted), bands(plain), atol=1e-2, rtol=0)


def test_bands_contain_the_mean_power():
    (windows,) = parts_of(test=machine(3, 0)).values()
    wave_t = next(windows.arrays(3))[1, :, 0].astype(np.float64)
    power_f = np.abs(np.fft.rfft((wave_t - wave_t.mean()) * np.hanning(WINDOW)))[1:] ** 2
    expected = [np.log(band.mean()) for band in np.array_split(power_f, CHARTS.bands)]
    np.testing.assert_allclose(bands(windows)[1, 0], expected, atol=1e-3)


def test_windows_shorter_than_the_bands_have_fewer_of_them():
    values_nc = machine(4, 0)
    windows = windows_of(values_nc, np.arange(0, 200, 20), 20)
    assert bands(windows).shape == (10, 2, 10)


def test_a_missing_sample_changes_little_and_a_missing_axis_is_not_scored():
    normal = parts_of(train=machine(300, 0), calibration=machine(200, 2))
    learned, _ = fit_vibration(normal, span=1)
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


def test_missing_reference_samples_do_not_reduce_sensitivity():
    values_nc = machine(300, 0)
    values_nc[5 * WINDOW : 6 * WINDOW, 1] = np.nan
    values_nc[9 * WINDOW + 3] = np.nan
    learned, calibration_wc = fit_vibration(parts_of(train=values_nc, calibration=machine(200, 2)), span=1)
    (loud,) = parts_of(test=machine(200, 3, gain=1.5)).values()
    assert learned.errors(loud).mean() > 3 * calibration_wc.mean()


def test_constants_of_the_configuration_are_used_and_stored():
    normal = parts_of(train=machine(300, 0), calibration=machine(200, 2))
    (loud,) = parts_of(test=machine(50, 3, gain=1.5)).values()
    plain, _ = fit_vibration(normal, span=1)
    learned, _ = fit_vibration(normal, span=1, settings=VibrationCharts(bands=16, level_weight=0.0))
    kept = VibrationChartSet.from_arrays(learned.to_arrays())
    assert kept.charts["spectrum"].mean_cf.shape[-1] == 16
    np.testing.assert_array_equal(kept.errors(loud), learned.errors(loud))
    assert not np.allclose(kept.errors(loud), plain.errors(loud))


def test_a_single_normal_window_gives_errors():
    _, calibration_wc = fit_vibration(parts_of(calibration=machine(1, 0)), span=1)
    assert calibration_wc.shape == (1, 2)


def modulated(seed: int, depth: float, num_windows: int = 200, window: int = 1024) -> WindowSet:
    """White noise on two axes whose strength follows a sine of 9 periods a window, at the power of no sine."""
    rng = np.random.default_rng(seed)
    gain_n = 1 + depth * np.sin(2 * np.pi * 9 / window * np.arange(num_windows * window))
    noise_nc = rng.normal(size=(len(gain_n), 2)) * gain_n[:, np.newaxis] / np.sqrt(np.mean(gain_n**2))
    return windows_of(noise_nc.astype(np.float32), np.arange(0, len(noise_nc), window), window)


def test_a_modulation_of_equal_power_is_found():
    learned, calibration_wc = fit_vibration({"calibration": modulated(0, 0.0)}, span=4)
    new, faulty = modulated(1, 0.0), modulated(1, 0.5)
    level = [features_of(windows, CHARTS)["level"].mean().item() for windows in (new, faulty)]
    assert level[0] == pytest.approx(level[1], abs=0.02)
    limit = calibration_wc.mean(axis=1).max()
    new_w, faulty_w = (learned.errors(windows).mean(axis=1) for windows in (new, faulty))
    assert (new_w < 1.5 * limit).all()
    assert (faulty_w > 1.5 * limit).mean() > 0.9


def operated(seed: int, *, fault: float = 0.0, num_windows: int = 60) -> np.ndarray:
    """A machine (N, 2) under changing load and speed: noise and the tones of its shaft grow with both, the tones move.
    Recordings differ a little. The fault adds noise in a narrow band."""
    rng = np.random.default_rng(seed)
    n = np.arange(num_windows * WINDOW)
    load_n = np.interp(n, np.linspace(0, len(n), 7), rng.uniform(0.2, 1, 7))
    speed_n = np.interp(n, np.linspace(0, len(n), 5), rng.uniform(0.9, 1.1, 5))
    turn_n = np.cumsum(speed_n) * 0.04
    tones_n = sum(rng.uniform(0.9, 1.1) / order * np.sin(2 * np.pi * order * turn_n) for order in (1, 2, 3))
    noise_nc = rng.normal(size=(len(n), 2)) * (0.6 + load_n[:, np.newaxis])
    band_nc = np.stack([np.convolve(rng.normal(size=len(n)), np.cos(1.9 * np.arange(40)), "same") for _ in "xy"], 1)
    return (noise_nc + (speed_n**2 * tones_n)[:, np.newaxis] + 0.25 * fault * band_nc).astype(np.float32)


@pytest.fixture(scope="module")
def operated_charts() -> tuple[VibrationChartSet, np.ndarray]:
    recordings = [operated(seed) for seed in range(12)]
    bounds = {"train": (0.0, 0.5), "calibration": (0.5, 1.0)}
    return fit_vibration({name: recordings_of(recordings, *each) for name, each in bounds.items()}, span=4)


def test_changes_of_speed_and_load_cause_no_alarm_but_a_small_fault_does(operated_charts):
    learned, calibration_wc = operated_charts
    limit = calibration_wc.mean(axis=1).max()
    healthy_w = learned.errors(recordings_of([operated(seed) for seed in range(100, 110)])).mean(axis=1)
    faulty_w = learned.errors(recordings_of([operated(seed, fault=1.5) for seed in range(100, 110)])).mean(axis=1)
    assert (healthy_w > limit).mean() < 0.01
    assert (faulty_w > limit).mean() > 0.9


def test_calibration_errors_are_as_large_as_those_of_new_recordings(operated_charts):
    learned, calibration_wc = operated_charts
    new_wc = learned.errors(recordings_of([operated(seed) for seed in range(100, 112)], 0.5, 1.0))
    for quantile in (0.5, 0.9):
        found = np.quantile(calibration_wc.mean(axis=1), quantile)
        assert found == pytest.approx(np.quantile(new_wc.mean(axis=1), quantile), rel=0.25)


def test_a_recording_is_in_one_fold_with_all_its_splits():
    recordings = [machine(20, seed) for seed in range(10)]
    splits = [recordings_of(recordings, 0.0, 0.5), recordings_of(recordings, 0.5, 1.0)]
    fold_w = folds_of(splits)
    recording_w = np.concatenate([split.recording_of() for split in splits])
    assert all(len(np.unique(fold_w[recording_w == recording])) == 1 for recording in range(10))
    assert len(np.unique(fold_w)) == FOLDS


def test_folds_of_few_files_are_time_segments():
    (windows,) = parts_of(test=machine(80, 0)).values()
    np.testing.assert_array_equal(folds_of([windows]), np.arange(80) // 20)


def test_errors_of_stored_charts_are_bit_identical(operated_charts, tmp_path):
    learned, _ = operated_charts
    np.savez(tmp_path / "charts.npz", **learned.to_arrays())
    with np.load(tmp_path / "charts.npz") as held:
        read = VibrationChartSet.from_arrays(dict(held))
    new = recordings_of([operated(200)])
    np.testing.assert_array_equal(read.errors(new), learned.errors(new))


@pytest.mark.parametrize("pivot", [0, 65, 2**31 - 1])
def test_stored_charts_with_other_pivots_are_refused(operated_charts, pivot):
    """LAPACK would read outside of the matrix."""
    held = operated_charts[0].to_arrays()
    held["chart.spectrum.pivot_cf"][0, 3] = pivot
    with pytest.raises(ValueError, match="pivots"):
        VibrationChartSet.from_arrays(held).try_out()


@pytest.mark.parametrize("num_lines", [3, 10, 128, 1024])
def test_low_frequency_bands_are_ordered_with_at_least_one_line(num_lines):
    widths = np.diff(low_edges(num_lines))
    assert (widths >= 1).all()
    assert widths.sum() <= num_lines


# ----------------------------------------------------------------------------------------------------- operating points
def driven(speeds: list[float], seed: int, *, gain: float = 1.0) -> WindowSet:
    """Recordings whose amplitude grows with the speed, each at one speed."""
    each = [machine(20, seed + number, gain=gain * speed) for number, speed in enumerate(speeds)]
    windows = recordings_of(each)
    known = tuple(
        replace(recording, operating_point=(speed,))
        for recording, speed in zip(windows.series.recordings, speeds, strict=True)
    )
    return replace(windows, series=replace(windows.series, recordings=known))


def forgotten(windows: WindowSet) -> WindowSet:
    """The same without operating points."""
    plain = tuple(replace(recording, operating_point=()) for recording in windows.series.recordings)
    return replace(windows, series=replace(windows.series, recordings=plain))


SPEEDS = np.random.default_rng(5).uniform(0.5, 2.0, 24).tolist()


@pytest.fixture(scope="module")
def driven_charts() -> tuple[VibrationChartSet, np.ndarray]:
    return fit_vibration({"train": driven(SPEEDS, 0), "calibration": driven(SPEEDS, 100)}, span=4)


def test_a_change_that_another_speed_would_explain_is_found_where_the_speed_is_known(driven_charts):
    normal = {"train": driven(SPEEDS, 0), "calibration": driven(SPEEDS, 100)}
    blind = fit_vibration({name: forgotten(each) for name, each in normal.items()}, span=4)
    new, louder = driven(SPEEDS[::2], 300), driven(SPEEDS[::2], 300, gain=1.3)
    found = {}
    for name, (learned, calibration_wc), see in (
        ("known", driven_charts, lambda each: each),
        ("blind", blind, forgotten),
    ):
        limit = np.quantile(calibration_wc.mean(axis=1), 0.99)
        found[name] = [(learned.errors(see(each)).mean(axis=1) > limit).mean() for each in (new, louder)]
    assert found["known"][0] < 0.1
    assert found["known"][1] > 0.9
    assert found["blind"][1] < 0.3


def test_the_degree_is_the_one_that_predicts_left_out_operating_points(driven_charts):
    assert driven_charts[0].terms.degree == 2  # a logarithm of power is no line
    unrelated = [machine(20, number) for number in range(24)]
    windows, speeds = recordings_of(unrelated), driven(SPEEDS, 0).series.recordings
    known = tuple(
        replace(recording, operating_point=other.operating_point)
        for recording, other in zip(windows.series.recordings, speeds, strict=True)
    )
    windows = replace(windows, series=replace(windows.series, recordings=known))
    assert fit_vibration({"train": windows, "calibration": windows}, span=4)[0].terms.degree == 0


def test_a_quantity_that_is_constant_or_follows_another_one_changes_nothing(driven_charts):
    def more(windows: WindowSet) -> WindowSet:
        known = tuple(
            replace(each, operating_point=(*each.operating_point, 7.0, 2 * each.operating_point[0]))
            for each in windows.series.recordings
        )
        return replace(windows, series=replace(windows.series, recordings=known))

    learned, _ = fit_vibration({"train": more(driven(SPEEDS, 0)), "calibration": more(driven(SPEEDS, 100))}, span=4)
    assert learned.terms.degree == driven_charts[0].terms.degree
    new = driven(SPEEDS[:3], 7)
    np.testing.assert_allclose(learned.errors(more(new)), driven_charts[0].errors(new), rtol=1e-3)


def test_two_machines_at_two_speeds_are_not_fitted():
    """Whether they differ because of the speed cannot be known."""
    normal = {"train": driven([1.0, 1.0, 2.0, 2.0], 0), "calibration": driven([1.0, 1.0, 2.0, 2.0], 100)}
    assert fit_vibration(normal, span=4)[0].terms.degree == 0


def test_known_speeds_have_calibration_errors_as_large_as_those_of_new_recordings(driven_charts):
    learned, calibration_wc = driven_charts
    new_wc = learned.errors(driven(SPEEDS, 500))
    assert np.median(calibration_wc) == pytest.approx(np.median(new_wc), rel=0.15)


def test_stored_charts_keep_the_operating_points(driven_charts):
    learned, _ = driven_charts
    read = VibrationChartSet.from_arrays(learned.to_arrays())
    read.try_out()
    np.testing.assert_array_equal(read.errors(driven(SPEEDS[:3], 7)), learned.errors(driven(SPEEDS[:3], 7)))


def test_a_speed_far_outside_the_reference_data_is_named(driven_charts, caplog):
    learned, _ = driven_charts
    learned.errors(driven([1.0, max(SPEEDS)], 7))
    assert not caplog.records
    assert np.isfinite(learned.errors(driven([1.0, 4.0], 7))).all()
    assert "1.npy: the operating point 4 is outside" in caplog.text
