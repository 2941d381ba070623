"""Resampling of vibration: the passband of the filter, and the treatment of gaps, times and labels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from core.config.schema import Data
from core.data.cleaning import cleaned
from core.data.labels import labels_of
from core.data.readers import read_recordings
from core.data.recording import Recording
from core.data.resampling import resampled
from core.errors import DataError
from tests.core.data.datasets import VIBRATION, load, make_config

_S = 10**9


def recording_of(values_tc: np.ndarray, rate_hz: float, time_ns: np.ndarray | None = None, **more: object) -> Recording:
    steps_ns = np.rint(np.arange(len(values_tc)) * _S / rate_hz).astype(np.int64)
    return Recording(
        file_id="v.npy",
        path=Path("v.npy"),
        values_tc=values_tc.astype(np.float32),
        time_ns=steps_ns if time_ns is None else time_ns,
        channels=("x",),
        sampling_rate_hz=rate_hz,
        time_source="sampling_rate",
        **more,
    )


def tone(hertz: float, rate_hz: float, seconds: float = 1.0) -> np.ndarray:
    return np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate_hz)) / rate_hz)[:, np.newaxis]


@pytest.mark.parametrize("new_hz", [12_000.0, 25_600.0, 51_200.0])
def test_a_tone_below_both_limits_keeps_its_frequency_and_amplitude(new_hz):
    found = resampled(recording_of(tone(900, 48_000), 48_000.0), new_hz)
    inner = slice(200, len(found) - 200)
    np.testing.assert_allclose(found.values_tc[inner], tone(900, new_hz)[inner], atol=5e-3)
    assert found.sampling_rate_hz == new_hz
    assert found.time_ns[-1] - found.time_ns[0] == pytest.approx(_S, rel=1e-3)


def test_resampling_does_not_alias_high_tones():
    found = resampled(recording_of(tone(9000, 48_000), 48_000.0), 12_000.0)
    assert np.abs(found.values_tc[200:-200]).max() < 5e-3


def test_rates_within_a_percent_and_unknown_ones_are_left_alone():
    near = recording_of(tone(50, 1000), 1000.0)
    assert resampled(near, 1005.0) is near


def test_a_missing_value_affects_only_its_neighbours():
    values_tc = tone(50, 4000)
    values_tc[2000:2003] = np.nan
    found = resampled(recording_of(values_tc, 4000.0), 1000.0).values_tc[:, 0]
    assert np.flatnonzero(np.isnan(found)).tolist() == [500]
    assert np.abs(found[510:900] - tone(50, 1000)[510:900, 0]).max() < 0.01


def test_rows_keep_their_times_if_the_clock_differs_from_the_rate():
    """The stated rate is 2000 Hz, the time stamps have 2018 Hz: times are kept, so the gap stays and labels match."""
    time_ns = np.rint(np.arange(4000) * _S / 2018).astype(np.int64)
    time_ns[2000:] += int(0.3 * _S)
    found = resampled(recording_of(tone(50, 2000, 2.0), 2000.0, time_ns), 1000.0)
    np.testing.assert_allclose(found.time_ns[[0, 999, 1000, 1999]], time_ns[[0, 1998, 2000, 3998]], atol=2)
    assert (np.diff(found.time_ns) > 0).all()


def test_an_unusual_rate_is_resampled_and_an_extreme_one_rejected():
    assert len(resampled(recording_of(tone(5, 1000.0), 1000.0), 97_656.25)) == 97_657
    with pytest.raises(DataError, match=r"\b4000\b.*\b1\.5\b") as caught:
        resampled(recording_of(tone(5, 4000.0), 4000.0), 1.5)
    assert "data.resample_hz" in caught.value.hint


def test_segments_are_filtered_separately_and_the_gap_stays():
    steps_ns = np.arange(4000) * (_S // 4000)
    time_ns = np.concatenate([steps_ns[:2000], steps_ns[2000:] + 60 * _S])
    values_tc = np.repeat([[0.0], [1.0]], 2000, axis=0)
    found = resampled(cleaned(recording_of(values_tc, 4000.0, time_ns), 10.0), 1000.0)
    assert found.values_tc[:500].max() == pytest.approx(0.0, abs=1e-6)
    assert found.values_tc[500:].min() == pytest.approx(1.0, abs=1e-6)
    assert found.time_ns[500] - found.time_ns[499] > 60 * _S


def write(root: Path, name: str, rate_hz: float, labels: np.ndarray | None = None) -> None:
    (root / "data").mkdir(exist_ok=True)
    rows = round(0.4 * rate_hz)
    np.save(root / "data" / f"{name}.npy", np.random.default_rng(1).normal(size=(rows, 3)).astype(np.float32))
    (root / "data" / f"{name}.json").write_text(json.dumps({"sampling_rate_hz": rate_hz}))
    if labels is not None:
        (root / "data" / f"{name}.labels.csv").write_text("\n".join(["anomaly", *map(str, labels)]) + "\n")


def test_files_of_two_rates_are_resampled_and_cached(tmp_path):
    labels = np.repeat([0, 1], 400)
    write(tmp_path, "one", 1000)
    write(tmp_path, "two", 2000, labels)
    config = make_config("swinmae", splits=VIBRATION, window=40, resample_hz=1000.0, store_dir="store")
    first, again = load(tmp_path, config), load(tmp_path, config)
    assert first.sampling_rate_hz == again.sampling_rate_hz == 1000.0
    series, known = (each.splits["train"].series for each in (first, again))
    assert np.diff(series.offsets_r).tolist() == [400, 400]
    np.testing.assert_array_equal(series.values_nc.numpy(), known.values_nc.numpy())
    for loaded in (series, known):
        assert labels_of(loaded.recordings[1]).tolist() == np.repeat([0, 1], 200).tolist()


def test_labels_that_do_not_fit_the_recording_are_rejected(tmp_path):
    write(tmp_path, "two", 2000, np.zeros(400, dtype=int))
    read = read_recordings(tmp_path / "data/two.npy", root=tmp_path, stream="swinmae", settings=Data())
    with pytest.raises(DataError, match=r"\b400 .*\b400 .*data/two\.npy.* 2000 Hz"):
        labels_of(resampled(read[0], 1000.0))


def test_labels_of_another_day_are_rejected(tmp_path):
    rows = 2000
    times = np.datetime64("2026-01-05T00:00:00", "ns") + (np.arange(rows) * (_S // 2000)).astype("timedelta64[ns]")
    lines = [f"{time},{x:.3f}" for time, x in zip(times, np.random.default_rng(0).normal(size=rows), strict=True)]
    (tmp_path / "v.csv").write_text("\n".join(["timestamp,x", *lines]) + "\n")
    (tmp_path / "v.labels.csv").write_text("timestamp,anomaly\n2020-01-05 00:00:00,1\n2020-01-05 00:00:01,1\n")
    (recording,) = read_recordings(tmp_path / "v.csv", root=tmp_path, stream="swinmae", settings=Data())
    with pytest.raises(DataError, match=r"1000 of 1000 rows of v\.csv"):
        labels_of(resampled(recording, 1000.0))
