"""The timeline figure keeps peaks, breaks at gaps, and is legible with many recordings."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from core.config.schema import Scoring
from inference.events import timeline
from inference.events.finding import LINES, find_events
from inference.events.timeline import plot_timeline
from tests.support import most_nightly


def draw(path: Path, table: pd.DataFrame, num_channels: int = 6) -> tuple[int, int]:
    """Width and height of the PNG in pixels."""
    error_sc = table["score"].to_numpy()[:, None] * np.arange(1, num_channels + 1, dtype=np.float32)
    channels = [f"channel_{number}" for number in range(num_channels)]
    events = find_events(table, Scoring(), channel_error_sc=error_sc, channels=channels)
    plot_timeline(path, table, events, channel_error_sc=error_sc, channels=channels, threshold=1.0, title="a title")
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG")
    return struct.unpack(">II", data[16:24])


def noise(length: int, seed: int = 0) -> np.ndarray:
    return np.exp(0.3 * np.random.default_rng(seed).normal(size=length)) / 2


@pytest.mark.parametrize(
    "lengths",
    [
        [300],
        [40, 50, 60],
        [1],
        pytest.param([300_000], marks=pytest.mark.nightly),
        pytest.param([200 + 5 * number for number in range(35)], marks=pytest.mark.nightly),
        pytest.param([1] * 120, marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("stamped", most_nightly([True, False], but=1))
def test_any_number_of_recordings_fits_into_one_picture(tmp_path, make_table, lengths, stamped):
    scores = {f"data/fdc/run_{number}.csv": noise(length, number) for number, length in enumerate(lengths)}
    labels = {"data/fdc/run_0.csv": [0, 1] * (lengths[0] // 2) + [0] * (lengths[0] % 2)} if lengths[0] < 1000 else None
    width, height = draw(tmp_path / "t.png", make_table(scores, stamped=stamped, labels=labels))
    assert width == 1210
    assert height < 1700
    assert [path.name for path in tmp_path.iterdir()] == ["t.png"]


@pytest.mark.slow
def test_unscored_zero_and_empty_recordings_are_drawn(tmp_path, make_table):
    draw(tmp_path / "gaps.png", make_table({"a": [np.nan, 0.0, 0.5, np.nan, 2.0, 0.0]}))
    draw(tmp_path / "nothing.png", make_table({"a": [np.nan, np.nan]}))
    draw(tmp_path / "one.png", make_table({"a": [0.5, 2.0, 0.5]}), num_channels=1)


def test_a_long_line_keeps_every_peak_and_trough():
    values = noise(200_001)
    values[[77_777, 123_456]] = 1000.0, 1e-4
    line_x, _ = timeline._line(np.arange(200_001.0), values, np.zeros(200_001))
    assert len(line_x) <= timeline._MAX_POINTS
    assert {77_777, 123_456} <= set(line_x.tolist())


def test_the_line_breaks_at_gaps_unscored_points_and_recordings():
    x_s = np.r_[0:10, 500:510].astype(float)
    score_s = np.ones(20)
    score_s[4] = np.nan
    recording_s = np.r_[np.zeros(15), np.ones(5)]
    line_x, line_y = timeline._line(x_s, score_s, recording_s)
    assert np.flatnonzero(np.isnan(line_y)).tolist() == [4, 10, 16]
    assert (np.isnan(line_x) == np.isnan(line_y)).all()


def test_events_name_their_lines_in_the_score_table(make_table):
    table = make_table({"b": [0, 2, 2, 0, 0], "a": [0, 0, 2, 0], "c": [0, 2]})
    events = find_events(table, Scoring(), channel_error_sc=np.ones((11, 1)), channels=["only"])
    assert events[list(LINES)].to_numpy().tolist() == [[1, 2], [7, 7], [10, 10]]


def test_the_channels_shown_are_those_of_the_events():
    error_sc = np.tile(np.arange(6.0), (100, 1))
    error_sc[40:50, 1] = 300.0
    error_sc[45, 3] = np.nan
    assert timeline._worst_channels(error_sc, np.array([[40, 49]])).tolist() == [1, 5, 4, 3]
    assert timeline._worst_channels(error_sc[:40], np.empty((0, 2), dtype=int)).tolist() == [5, 4, 3, 2]


def test_cells_keep_peaks_and_leave_gaps_empty(make_table):
    table = make_table({"a": np.ones(2000)})
    table = pd.concat([table[:500], table[1500:]])
    panel = timeline._panel_of(table)
    error_sk = np.ones((1000, 2))
    error_sk[333, 1] = 70.0
    edges_x, error_kx = timeline._cells(panel, error_sk)
    assert error_kx.shape == (2, len(edges_x) - 1) == (2, timeline._MAX_CELLS)
    assert np.nanmax(error_kx[1]) == 70.0
    assert np.isnan(error_kx).mean() == pytest.approx(0.5, abs=0.01)


def test_severities_are_labelled_worst_first_without_overlap():
    axes = Figure().subplots()
    axes.set_xlim(0, 100)
    timeline._write_severities(axes, np.array([10.0, 10.5, 50.0, 100.0]), np.array([1.04, 3.21, 12.3, 1.5]))
    assert {text.get_text() for text in axes.texts} == {"3.21×", "12.3×", "1.50×"}
    assert all(0 < text.get_position()[0] < 1 for text in axes.texts)
