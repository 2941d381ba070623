"""The Morlet transform compared with PyWavelets, and the properties of its images."""

import math

import numpy as np
import pytest
import scipy.signal
import torch
import torch.nn.functional as F

from core.config.schema import Scalogram as ScalogramSettings
from core.data.scalogram import (
    AMPLITUDE_FLOOR,
    Scalogram,
    cosine_spectrum,
    envelope_spectrum,
    first_carrier,
    wavelet_bands,
)
from core.errors import ConfigError, DataError

RATE = 1000.0
NUM_SAMPLES = 1024


def build(**changes) -> Scalogram:
    return Scalogram(ScalogramSettings(**{"frequencies": 24, "frequency_min_hz": 20.0, "image_size": 32, **changes}))


def noise(batch=2, axes=3, num_samples=NUM_SAMPLES, seed=0):
    return torch.randn(batch, num_samples, axes, generator=torch.Generator().manual_seed(seed))


def sine(frequency_hz, amplitude=1.0, num_samples=NUM_SAMPLES):
    time = torch.arange(num_samples, dtype=torch.float64) / RATE
    return (amplitude * torch.sin(2 * torch.pi * frequency_hz * time)).float()


def many_sines(rate, num_samples):
    rng = np.random.default_rng(0)
    time = np.arange(num_samples) / rate
    return sum(rng.normal() * np.sin(2 * np.pi * (hz * time + rng.uniform())) for hz in np.geomspace(30, 440, 40))


@pytest.mark.slow
@pytest.mark.parametrize("num_samples", [1024, 1000])
@pytest.mark.parametrize("omega0", [6.0, 12.0])
def test_same_as_pywavelets_away_from_the_edges(num_samples, omega0):
    """PyWavelets averages its wavelet over each sample, which damps and delays it; the effect is smaller for a finer
    signal."""
    pywt = pytest.importorskip("pywt")
    finer = 96
    transform = build(frequency_min_hz=40.0, omega0=omega0)
    signal = torch.from_numpy(many_sines(RATE, num_samples)).float()
    cosines = cosine_spectrum(signal[None, None] - signal.mean())

    centre = omega0 / (2 * np.pi)
    scales = centre * finer * RATE / transform.frequencies_hz(RATE).numpy()
    fine_signal = many_sines(finer * RATE, finer * num_samples)
    theirs, _ = pywt.cwt(fine_signal, scales, f"cmor2.0-{centre:.12f}", method="fft", precision=16)
    theirs = 2 / np.sqrt(scales)[:, None] * np.abs(theirs)
    # Six standard deviations of the longest wavelet in from either edge.
    edge_s = 6 * omega0 / (2 * np.pi * 40.0)
    row = 0
    for band in wavelet_bands(transform.settings, num_samples, num_samples // 2, RATE, torch.device("cpu")):
        ours = band.amplitudes(cosines, num_samples // 2)[0, 0].numpy()
        step = 2 / band.points  # in samples; the first point stands half a sample before the first sample
        at = finer * (step * np.arange(ours.shape[1]) - 0.5)
        inside = (at > edge_s * finer * RATE) & (at < theirs.shape[1] - edge_s * finer * RATE)
        assert (at == at.round()).all()
        expected = theirs[row : row + len(ours), at[inside].astype(int)]
        assert np.abs(ours[:, inside] - expected).max() < 2e-3 * theirs.max()
        row += len(ours)
    assert row == 24


@pytest.mark.parametrize("row", [3, 12, 20])
def test_a_sine_peaks_in_its_row_with_its_amplitude(row):
    transform = build()
    frequency = transform.frequencies_hz(RATE)[row].item()
    amplitudes = transform.amplitudes(sine(frequency, 2.5)[None, None], RATE, NUM_SAMPLES // 2)[0, 0]
    middle = amplitudes[:, 128:-128]
    assert (middle.argmax(0) == row).all()
    torch.testing.assert_close(middle[row], torch.full_like(middle[row], 2.5), rtol=5e-3, atol=0)

    image = transform(sine(frequency, 2.5)[None, :, None], RATE)[0, 0]
    pixel = math.log10(1 + 2.5 / AMPLITUDE_FLOOR)
    column = F.interpolate(image[None, None], (24, 32), mode="bilinear")[0, 0, :, 16]
    assert column.argmax() == row
    assert image[:, 16].max() == pytest.approx(pixel, abs=0.05)


def test_the_transform_is_linear_and_ignores_an_offset():
    transform, x = build(), noise().transpose(1, 2)
    once = transform.amplitudes(x, RATE, 32)
    torch.testing.assert_close(transform.amplitudes(3 * x + 50, RATE, 32), 3 * once, rtol=1e-3, atol=1e-4)
    one, other = sine(60.0)[None, None], sine(240.0)[None, None]
    both = transform.amplitudes(one + other, RATE, 32)
    assert (both <= transform.amplitudes(one, RATE, 32) + transform.amplitudes(other, RATE, 32) + 1e-4).all()


def full_rate(transform, x):
    """The definition: every wavelet's output at every sample, in float64."""
    num_samples = x.shape[-1]
    centred = (x - x.mean(-1, keepdim=True)).double()
    hz = torch.fft.fftfreq(2 * num_samples, 1 / RATE, dtype=torch.float64)
    deviation = transform.settings.omega0 * (hz / transform.frequencies_hz(RATE).unsqueeze(1) - 1)
    bank = torch.where(hz > 0, 2 * torch.exp(-0.5 * deviation.square()), 0.0)
    spectrum = torch.fft.fft(torch.cat([centred, centred.flip(-1)], -1)).unsqueeze(-2)
    return torch.fft.ifft(spectrum * bank)[..., :num_samples].abs()


@pytest.mark.parametrize("num_samples", [4096, 4095, 1999])
@pytest.mark.parametrize("num_columns", [32, 100])
def test_columns_are_means_at_the_full_sampling_rate(num_samples, num_columns):
    transform = build(frequency_min_hz=5.0)
    bands = wavelet_bands(transform.settings, num_samples, num_columns, RATE, torch.device("cpu"))
    assert sum(len(band.first_f) for band in bands) == 24
    assert [band.points for band in bands] == sorted({band.points for band in bands})
    click = torch.zeros(1, 1, num_samples)
    click[..., num_samples // 3] = 1.0
    for x in (noise(2, 1, num_samples).transpose(1, 2), click):
        found = transform.amplitudes(x, RATE, num_columns)
        # Means over intervals that may end between samples.
        expected = full_rate(transform, x).repeat_interleave(num_columns, -1).unflatten(-1, (num_columns, -1)).mean(-1)
        assert (found - expected).abs().max() < 0.03 * expected.max()
        assert (found - expected).square().mean().sqrt() < 0.01 * expected.square().mean().sqrt()


def test_the_transform_of_a_batch_equals_that_of_its_windows():
    transform, x = build(), noise(5)
    images = transform(x, RATE)
    assert images.shape == (5, 3, 32, 32)
    assert images.dtype == torch.float32
    for i in range(5):
        torch.testing.assert_close(transform(x[i : i + 1], RATE)[0], images[i], rtol=0, atol=1e-5)


def test_a_zero_signal_gives_zeros_and_all_values_are_finite():
    transform = build()
    assert (transform(torch.zeros(1, NUM_SAMPLES, 3), RATE) == 0).all()
    assert transform(torch.full((1, NUM_SAMPLES, 3), 9.81), RATE).abs().max() < 1e-3
    loud = transform(1e6 * noise(), RATE)
    assert loud.isfinite().all()


@pytest.mark.parametrize("axes", [1, 2])
def test_absent_axes_become_missing_planes(axes):
    transform, x = build(), noise(2, 3)
    image = transform(x[..., :axes], RATE)
    torch.testing.assert_close(image[:, :axes], transform(x, RATE)[:, :axes])
    assert image[:, axes:].isnan().all()


def test_missing_samples_mark_their_columns():
    transform, x = build(), noise(2, 1)
    x[0, 320:480] = torch.nan  # columns 10 to 14
    x[1, 5] = torch.nan
    image = transform(x, RATE)[:, 0]
    missing = image[0].isnan().all(0)
    assert missing.nonzero().flatten().tolist() == [10, 11, 12, 13, 14]
    assert image[0, :, ~missing].isfinite().all()
    assert image[1].isfinite().all()


def test_a_missing_axis_is_a_missing_plane():
    x = noise(2, 3)
    x[1, :, 2] = torch.nan
    image = build()(x, RATE)
    assert image[1, 2].isnan().all()
    assert image[0].isfinite().all()
    assert image[1, :2].isfinite().all()


@pytest.mark.parametrize("frequencies", [32, 24, 100])
def test_rows_become_the_image_height(frequencies):
    image = build(frequencies=frequencies)(noise(1), RATE)
    assert image.shape == (1, 3, 32, 32)
    assert image.isfinite().all()


def test_a_click_stays_visible_in_its_column():
    x = torch.zeros(1, NUM_SAMPLES, 1)
    x[0, 500] = 20.0
    highest_row = build()(x, RATE)[0, 0, -1]
    assert highest_row.argmax() == 500 // 32
    assert highest_row.max() > 2.0


def test_the_transform_never_uses_half_precision():
    transform, x = build(), noise()
    expected = transform(x, RATE)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(transform(x, RATE), expected)


def test_impossible_settings_are_rejected():
    with pytest.raises(DataError, match="4 vibration axes"):
        build()(noise(axes=4), RATE)
    with pytest.raises(DataError, match="cannot fill"):
        build()(noise(num_samples=63), RATE)
    with pytest.raises(ConfigError, match=r"scalogram\.frequency_max_hz.*\b501\b"):
        build(frequency_max_hz=501.0)(noise(), RATE)
    with pytest.raises(ConfigError, match="frequency_min_hz"):
        build(frequency_min_hz=450.0)(noise(), RATE)


# ----------------------------------------------------------------------------------------------------------- envelope
def modulated(carrier_hz=300.0, modulation_hz=80.0, depth=0.5, level=1.0, seconds=2.048):
    """A carrier whose power rises and falls, and a tone below the carriers."""
    time = torch.arange(int(seconds * RATE), dtype=torch.float64) / RATE
    rises = 1 + depth * torch.sin(2 * torch.pi * modulation_hz * time)
    wave = rises.sqrt() * torch.sin(2 * torch.pi * carrier_hz * time) + torch.sin(2 * torch.pi * 30 * time)
    return (level * wave).float()


def test_the_envelope_spectrum_equals_that_of_scipys_analytic_signal():
    """Of the mirrored window without the frequencies below the carriers, at the times of the spectrum: from half a
    sample before the first sample."""
    signal = noise(1, 1)[0, :, 0].double()
    mirrored = torch.cat([signal, signal.flip(0)]).numpy()
    spectrum = np.fft.rfft(mirrored) * np.exp(-0.5j * np.pi * np.arange(NUM_SAMPLES + 1) / NUM_SAMPLES)
    spectrum[:200] = 0.0
    power = np.abs(scipy.signal.hilbert(np.fft.irfft(spectrum))) ** 2
    expected = np.fft.rfft(power / power.mean())
    found = envelope_spectrum(cosine_spectrum(signal[None, None]), 200)[0, 0].numpy()
    # `hilbert` halves the highest frequency, which is real.
    np.testing.assert_allclose(found, expected.real, atol=2e-3 * np.abs(expected).max())
    assert np.abs(expected.imag).max() < 1e-6 * np.abs(expected).max()


def test_the_envelope_is_that_of_the_signal_away_from_its_edges():
    transform = build(envelope=True, frequencies=48)
    plain, envelope = transform.amplitudes(modulated()[None, None], RATE, 32)[0]
    frequencies = transform.frequencies_hz(RATE)
    row = (frequencies - 80.0).abs().argmin()
    assert (envelope[:, 6:-6].argmax(0) == row).all()
    assert envelope[row, 6:-6].mean() == pytest.approx(0.5, rel=0.05)
    # Neither the modulation frequency nor the depth is in the plain scalogram; the carrier is not in the envelope.
    assert plain[row, 6:-6].mean() < 0.2 * plain[(frequencies - 300.0).abs().argmin(), 6:-6].mean()
    assert envelope[(frequencies - 300.0).abs().argmin(), 6:-6].max() < 0.02


def test_the_rows_of_an_envelope_are_those_of_pywavelets():
    pywt = pytest.importorskip("pywt")
    transform = build(envelope=True, frequency_min_hz=25.0)
    signal = modulated(modulation_hz=33.0)
    found = transform.amplitudes(signal[None, None], RATE, 64)[0, 1]
    carriers = np.fft.rfft(signal.double())
    carriers[: first_carrier(transform.settings, len(signal), RATE) // 2] = 0.0
    power = np.abs(scipy.signal.hilbert(np.fft.irfft(carriers, len(signal)))) ** 2
    scales = 6 / (2 * np.pi) * RATE / transform.frequencies_hz(RATE).numpy()
    theirs, _ = pywt.cwt(power / power.mean() - 1, scales, "cmor2.0-0.954929658551", method="fft", precision=16)
    theirs = (2 / np.sqrt(scales)[:, None] * np.abs(theirs)).reshape(24, 64, -1).mean(-1)
    rows = transform.frequencies_hz(RATE).numpy() < 120
    assert np.abs(found.numpy()[rows, 16:-16] - theirs[rows, 16:-16]).max() < 0.02 * theirs.max()


def test_an_envelope_is_independent_of_the_level_and_the_plain_picture_is_unchanged():
    transform = build(envelope=True)
    x = torch.stack([modulated(), modulated(level=10.0)])[..., None]
    images = transform(x, RATE)
    assert images.shape == (2, 6, 32, 32)
    torch.testing.assert_close(images[:, :3], build()(x, RATE), equal_nan=True)
    torch.testing.assert_close(images[0, 3], images[1, 3], atol=1e-3, rtol=0)
    assert (images[1, 0] - images[0, 0]).median() == pytest.approx(1.0, abs=0.05)


def test_silence_has_no_modulation_and_missing_axes_and_columns_are_missing_in_both_pictures():
    x = torch.zeros(1, NUM_SAMPLES, 2)
    x[0, :256, 0] = torch.nan
    images = build(envelope=True)(x, RATE)
    assert images[0, [2, 5]].isnan().all()
    for plane in (0, 3):
        assert images[0, plane, :, :8].isnan().all()
        assert (images[0, plane, :, 8:] == 0).all()
    assert (images[0, [1, 4]] == 0).all()
