"""Envelope spectra: against scipy.signal, and of bearings whose defect is known."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy import signal

from core.config.bearing import Bearing
from core.data.recording import Recording
from core.data.windows import Series, WindowSet
from inference.detector.split_scores import SplitScores
from inference.events.envelope import _band_edges, envelope_spectra, envelopes, neighbour_starts, squared_envelope
from inference.events.views import ScoredSplit
from tests.inference.conftest import make_score_table

RATE_HZ, WINDOW = 6400, 1024
BEARING = Bearing(balls=9, ball_mm=7.94, pitch_mm=39.04, shaft_hz=30.0)


@pytest.mark.parametrize("length", [1024, 1001])
def test_the_envelope_spectrum_is_that_of_scipy(length):
    rng = np.random.default_rng(0)
    wave_t = rng.normal(size=length) * (1 + 0.6 * np.sin(2 * np.pi * 40 * np.arange(length) / RATE_HZ)) + 3.0
    first, stop = 100, 180
    line_f = np.fft.rfft(wave_t)
    line_f[:first], line_f[stop:] = 0, 0
    power_t = np.abs(signal.hilbert(np.fft.irfft(line_f, length))) ** 2
    relative_t = power_t / power_t.mean() - 1
    np.testing.assert_allclose(squared_envelope(np.fft.fft(wave_t), first, stop), relative_t, atol=1e-9)
    _, power_f = signal.periodogram(relative_t, window=np.hanning(length), detrend=False, scaling="spectrum")
    expected_f = np.sqrt(2 * power_f[1 : stop - first])
    np.testing.assert_allclose(envelope_spectra(wave_t, [(first, stop)])[0][1:], expected_f, atol=1e-9)


def test_the_line_of_a_modulated_tone_has_the_amplitude_of_its_definition():
    second_t, depth = np.arange(6400) / RATE_HZ, 0.5
    wave_t = (1 + depth * np.cos(2 * np.pi * 50 * second_t)) * np.cos(2 * np.pi * 1600 * second_t)
    (spectrum_f,) = envelope_spectra(wave_t, [(1400, 1800)])
    assert np.argmax(spectrum_f[2:]) + 2 == 50
    assert spectrum_f[50] == pytest.approx(2 * depth / (1 + depth**2 / 2), rel=1e-3)


@pytest.mark.parametrize("length", [64, 1023, 1024])
def test_carrier_bands_do_not_overlap_and_stay_below_half_the_sampling_rate(length):
    edges = _band_edges(length)
    assert all(stop == following for (_, stop), (following, _) in pairwise(edges))
    assert edges[0][0] == 1
    assert edges[-1][1] <= length // 2


def rig(seconds: float, fault_s: float, passes_hz: float, seed: int = 0) -> np.ndarray:
    """Noise on three axes; from `fault_s` on, axis 1 rings at 2,200 Hz once per passage."""
    rng = np.random.default_rng(seed)
    wave_ta = rng.normal(size=(int(seconds * RATE_HZ), 3))
    second_t = np.arange(len(wave_ta)) / RATE_HZ
    for at in np.arange(fault_s, seconds, 1 / passes_hz):
        since_t = second_t - at - rng.normal(0, 1e-4)
        ring_t = np.exp(-800 * np.clip(since_t, 0, None)) * np.sin(2 * np.pi * 2200 * since_t)
        wave_ta[:, 1] += 4 * ring_t * (since_t > 0)
    return wave_ta.astype(np.float32)


def scored_of(wave_ta: np.ndarray, loud_from: int) -> ScoredSplit:
    """Windows without overlap; those from number `loud_from` on have a score above the threshold, by axis 1."""
    time_ns = (np.arange(len(wave_ta)) * 1e9 / RATE_HZ).astype(np.int64)
    recording = Recording("a.npy", Path("a.npy"), wave_ta, time_ns, ("x", "y", "z"), float(RATE_HZ), "sampling_rate")
    series = Series.of([recording], wave_ta)
    starts_w = np.arange(0, len(wave_ta) - WINDOW + 1, WINDOW)
    windows = WindowSet(series, starts_w, WINDOW)
    score_s = np.where(np.arange(len(starts_w)) >= loud_from, 2.0, 0.5)
    table = make_score_table({"a.npy": score_s}, stamped=False, step_seconds=WINDOW / RATE_HZ)
    error_sc = np.stack([np.ones_like(score_s), 5 * score_s, np.ones_like(score_s)], axis=1).astype(np.float32)
    splits = SplitScores(score_s.astype(np.float32), error_sc, np.full(len(score_s), 1), starts_w, WINDOW)
    return ScoredSplit(None, windows, splits, table, bearing=BEARING)


@pytest.mark.parametrize("part", ["outer race", "inner race", "ball"])
def test_a_defect_stands_out_at_its_frequency_and_not_in_the_neighbours(part):
    frequency_hz = BEARING.frequencies_hz()[part]
    scored = scored_of(rig(6.4, 4.8, frequency_hz), loud_from=30)
    found = envelopes(scored, 30, 39, [1, 0])[0]
    low_hz, high_hz = found.band_hz
    assert (found.axis, low_hz < 2200 < high_hz) == (1, True)
    peak_hz = found.frequency_f[np.argmax(found.event_f - found.neighbours_f)]
    harmonics = peak_hz / frequency_hz
    assert harmonics == pytest.approx(round(harmonics), abs=0.03)
    at = np.argmin(np.abs(found.frequency_f - frequency_hz))
    assert found.event_f[at - 1 : at + 2].max() > 5 * found.neighbours_f[at - 1 : at + 2].max()


def test_neighbours_have_no_alarm_and_overlap_nothing():
    scored = scored_of(rig(6.4, 4.8, 107.0), loud_from=30)
    start, stop = 33 * WINDOW, 35 * WINDOW
    spans = sorted((each, each + stop - start) for each in neighbour_starts(scored, start, stop))
    assert len(spans) == 15
    assert all(high <= low for (_, high), (low, _) in pairwise(spans))
    assert spans[-1][1] <= 30 * WINDOW


def test_without_a_normal_neighbour_the_event_is_shown_alone():
    (found, *_) = envelopes(scored_of(rig(1.6, 0.0, 107.0), loud_from=0), 0, 9, [1])
    assert found.neighbours_f is None
    assert len(found.event_f) == len(found.frequency_f)


def test_missing_samples_leave_an_axis_out():
    wave_ta = rig(6.4, 4.8, 107.0)
    wave_ta[31 * WINDOW : 32 * WINDOW, 1] = np.nan
    assert 1 not in [found.axis for found in envelopes(scored_of(wave_ta, loud_from=30), 30, 39, [1, 0, 2])]
