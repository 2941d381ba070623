"""Tables and figures of a split, as a notebook shows them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from core.config.schema import Scalogram as ScalogramSettings
from core.data.figures import channels_figure, scalogram_figure
from core.data.scalogram import row_edges_hz
from core.data.splits import SPLIT_NAMES
from tests.core.data.datasets import VIBRATION, WINDOW, load, make_config, write_ramp, write_vibration


def lines(axes):
    return [line.get_xydata() for line in axes.get_lines()]


def test_a_frame_holds_the_rows_of_its_split_in_the_units_of_the_file(tmp_path):
    write_ramp(tmp_path, "one.csv", 400)
    write_ramp(tmp_path, "two.csv", 200, first=1000)
    data = load(tmp_path, make_config(scaling={"method": "zscore"}), SPLIT_NAMES)
    frame = data.to_frame("validation", 1)
    np.testing.assert_array_equal(frame["a"], np.arange(1100, 1140))
    np.testing.assert_array_equal(frame["b"], -np.arange(1100, 1140))
    assert frame.index[0] == pd.Timestamp("2026-01-01 00:01:40")
    with pytest.raises(IndexError):
        data.to_frame("validation", 2)


def test_the_tables_count_files_recordings_rows_and_windows(tmp_path):
    write_ramp(tmp_path, "one.csv", 400)
    write_ramp(tmp_path, "two.csv", 200)
    data = load(tmp_path, make_config(), SPLIT_NAMES)
    assert data.quality_table()["decision"].to_dict() == {"data/one.csv": "keep", "data/two.csv": "keep"}
    table = data.split_table()
    assert table.loc["train"].to_dict() == {"recordings": 2, "rows": 300, "windows": len(data.splits["train"])}
    assert table["rows"].sum() == 600


def test_a_figure_of_channels_has_units_and_is_interrupted_at_a_gap(tmp_path):
    write_ramp(tmp_path, "one.csv", 400, gap_at=100)
    data = load(tmp_path, make_config(), SPLIT_NAMES)
    figure = data.plot("train")
    first, second = figure.axes
    assert (first.get_title("left"), second.get_title("left")) == ("a", "b")
    (xy,) = lines(first)
    assert np.isnan(xy).any(axis=1).sum() == 1
    np.testing.assert_array_equal(xy[~np.isnan(xy[:, 1]), 1], np.arange(200))
    assert second.get_xlabel().startswith("time (s), from 2026-01-01")


def test_a_long_recording_is_drawn_in_hours_with_its_extremes():
    index = pd.date_range("2026-01-01", periods=50_000, freq="s", name="time")
    value_n = np.zeros(50_000)
    value_n[31_234] = 9.0
    (axes,) = channels_figure(pd.DataFrame({"p": value_n}, index=index), title="a test").axes
    (xy,) = lines(axes)
    assert len(xy) < 5000
    assert xy[xy[:, 1].argmax()] == pytest.approx([31_234 / 3600, 9.0])
    assert axes.get_xlabel().startswith("time (h)")


def test_a_few_channels_may_be_chosen(tmp_path):
    write_ramp(tmp_path, "one.csv", 400, columns=tuple("abcdefghijklmn"))
    data = load(tmp_path, make_config(), SPLIT_NAMES)
    assert len(data.plot().axes) == 12
    assert [axes.get_title("left") for axes in data.plot(channels=["n", "a"]).axes] == ["n", "a"]
    with pytest.raises(KeyError):
        data.plot(channels=["z"])


def test_a_figure_of_vibration_shows_waveform_and_scalogram_in_seconds_and_hertz(tmp_path):
    write_vibration(tmp_path, "one", 1000)
    data = load(tmp_path, make_config("swinmae", splits=VIBRATION, window=2 * WINDOW), SPLIT_NAMES)
    figure = data.plot("test")
    wave, image = figure.axes[:2]
    (xy,) = lines(wave)
    expected = data.to_frame("test").iloc[: 2 * WINDOW]
    np.testing.assert_allclose(xy[:, 1], expected.iloc[:, 0])
    np.testing.assert_allclose(xy[:, 0], np.arange(2 * WINDOW) / 1000)
    assert (figure.axes[4].get_xlabel(), image.get_ylabel()) == ("time (s)", "frequency (Hz)")


def test_a_tone_has_its_level_in_the_row_of_its_frequency():
    from tests.inference.simple_models import windows_over

    time_t = np.arange(1024) / 1000.0
    tone_ta = 0.1 * np.sin(2 * np.pi * 60 * time_t)[:, None]
    windows = windows_over([tone_ta.astype(np.float32)], window=1024, stride=1024)
    settings = ScalogramSettings(image_size=64, frequencies=64, frequency_min_hz=5.0)
    figure = scalogram_figure(windows, settings, 1000.0, window=0, title="a test")
    (mesh,) = figure.axes[1].collections
    level_hw = mesh.get_array().reshape(64, 64)
    loudest, edge_hz = int(level_hw.mean(axis=1).argmax()), row_edges_hz(settings, 1000.0, 64)
    assert edge_hz[loudest - 1] < 60 < edge_hz[loudest + 2]
    assert level_hw[loudest, 8:-8].mean() == pytest.approx(-20, abs=1.5)
