"""Rows that two splits share, recognised by their values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core.data.overlap import row_ranges, shared_rows
from core.data.recording import Recording
from core.data.segments import window_starts
from core.data.windows import Series, WindowSet


def recording(rows: int, *, seed: int = 0, stamped: bool = True, name: str = "a.csv") -> Recording:
    values_tc = np.random.default_rng(seed).normal(size=(rows, 2)).astype(np.float32)
    source = "timestamp" if stamped else "index"
    return Recording(name, Path(name), values_tc, np.arange(rows) * 10**9, ("p", "q"), 1.0, source)


def split(*ranges: tuple[int, int, int], of: list[Recording]) -> WindowSet:
    """ranges: index of a recording, start, stop."""
    series = Series.of(of, np.concatenate([each.values_tc for each in of]))
    segments_k2 = np.array([[start, stop] for _, start, stop in ranges])
    segments_k2 += series.offsets_r[[index for index, _, _ in ranges]][:, None]
    return WindowSet(series, window_starts(segments_k2, 8, 8), 8, segments_k2)


def shared(train: WindowSet, calibration: WindowSet) -> list[tuple[str, int, int]]:
    return [(each.recording.file_id, each.start, each.stop) for each in shared_rows(row_ranges(train), calibration)]


def test_adjacent_rows_are_not_shared():
    one = recording(100)
    assert shared(split((0, 0, 60), of=[one]), split((0, 60, 100), of=[one])) == []


@pytest.mark.parametrize("stamped", [True, False])
def test_the_ranges_that_overlap_are_named(stamped):
    one, two = recording(100, stamped=stamped), recording(200, seed=1, stamped=stamped, name="b.csv")
    train = split((0, 0, 40), (0, 40, 60), (1, 100, 150), of=[one, two])
    calibration = split((0, 50, 80), (1, 90, 110), (1, 140, 200), of=[one, two])
    assert shared(train, calibration) == [("a.csv", 50, 60), ("b.csv", 100, 110), ("b.csv", 140, 150)]


def test_a_copy_under_another_name_is_the_same_recording():
    copy = replace(recording(5000), file_id="other.parquet", path=Path("other.parquet"), digest="of another reading")
    assert shared(split((0, 0, 3000), of=[recording(5000)]), split((0, 2000, 5000), of=[copy])) == [
        ("other.parquet", 2000, 3000)
    ]


def test_an_extended_log_is_the_same_recording():
    grown = recording(900)
    before = replace(grown, values_tc=grown.values_tc[:600], time_ns=grown.time_ns[:600])
    assert shared(split((0, 0, 400), of=[before]), split((0, 300, 900), of=[grown])) == [("a.csv", 300, 400)]


def test_other_values_times_or_channels_are_another_recording():
    one = recording(100)
    train, everything = split((0, 0, 100), of=[one]), (0, 0, 100)
    later = replace(one, time_ns=one.time_ns + 1)
    others = [recording(100, seed=1), later, replace(one, channels=("p", "r"))]
    assert all(shared(train, split(everything, of=[other])) == [] for other in others)


def test_recordings_without_time_stamps_with_equal_first_rows_are_not_the_same():
    """Records of a set often start with the machine at rest."""
    one = recording(6000, stamped=False)
    other = replace(one, values_tc=one.values_tc.copy())
    other.values_tc[-1] += 1.0
    assert shared(split((0, 0, 6000), of=[one]), split((0, 0, 6000), of=[other])) == []
