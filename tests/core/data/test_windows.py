from pathlib import Path

import numpy as np
import pytest
import torch

from core.data.recording import Recording
from core.data.segments import window_starts
from core.data.windows import Series, WindowSet


def recording(rows: int, channels: int = 2) -> Recording:
    values_tc = np.arange(rows * channels, dtype=np.float32).reshape(rows, channels)
    return Recording(
        file_id=f"r{rows}",
        path=Path(f"r{rows}.csv"),
        values_tc=values_tc,
        time_ns=np.arange(rows),
        channels=tuple("abc"[:channels]),
        sampling_rate_hz=None,
        time_source="index",
    )


@pytest.fixture
def series() -> Series:
    recordings = [recording(30), recording(12), recording(20)]
    return Series.of(recordings, np.concatenate([one.values_tc + 1000 * i for i, one in enumerate(recordings)]))


@pytest.fixture
def windows(series) -> WindowSet:
    return WindowSet(series, np.array([0, 5, 22, 30, 42, 54]), 8)


def storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


# --------------------------------------------------------------------------------------------------------------- starts
@pytest.mark.parametrize(
    "rows, window, stride, cover_end, starts",
    [
        ([[0, 10]], 4, 2, False, [0, 2, 4, 6]),
        ([[0, 11]], 4, 2, False, [0, 2, 4, 6]),
        ([[0, 11]], 4, 2, True, [0, 2, 4, 6, 7]),
        ([[0, 10]], 4, 2, True, [0, 2, 4, 6]),
        ([[3, 9], [9, 14]], 5, 3, False, [3, 9]),
        ([[0, 4], [7, 7], [10, 13]], 4, 1, True, [0]),
        ([[0, 3]], 4, 1, True, []),
    ],
)
def test_starts_of_windows(rows, window, stride, cover_end, starts):
    found = window_starts(np.array(rows), window, stride, cover_end=cover_end)
    assert found.tolist() == starts
    assert found.dtype == np.int64


def test_no_segments_give_no_windows():
    assert window_starts(np.empty((0, 2), dtype=np.int64), 4, 2).tolist() == []


@pytest.mark.parametrize("stride", [1, 3, 50])
def test_windows_never_leave_a_segment_and_cover_its_end(stride):
    rng = np.random.default_rng(stride)
    rows_k2 = np.sort(rng.choice(1000, 40, replace=False)).reshape(-1, 2)
    starts_w = window_starts(rows_k2, 10, stride, cover_end=True)
    for first, stop in rows_k2:
        inside = starts_w[(starts_w >= first) & (starts_w < stop)]
        assert (inside + 10 <= stop).all()
        if stop - first >= 10:
            assert (inside[0], inside[-1] + 10) == (first, stop)
        else:
            assert len(inside) == 0


# -------------------------------------------------------------------------------------------------------------- windows
def test_windows_are_views_of_the_series(windows):
    view_nf = windows._view_nf
    assert storage(view_nf) == storage(windows.series.values_nc)
    assert view_nf.shape == (62 - 8 + 1, 2 * 8)
    assert storage(windows.subset(np.array([1]))._view_nf) == storage(windows.series.values_nc)


def test_rows_that_are_not_contiguous_are_copied():
    values_tc = np.asfortranarray(np.arange(60, dtype=np.float32).reshape(20, 3))
    windows = WindowSet(Series.of([], values_tc), np.array([0, 5, 12]), 8)
    assert torch.equal(windows.batch(torch.tensor([2]))[0], torch.from_numpy(values_tc[12:20].copy()))


def test_a_batch_equals_slices(windows):
    values_nc = windows.series.values_nc
    batch_btc = windows.batch(torch.tensor([4, 0, 2]))
    assert batch_btc.shape == (3, 8, 2)
    assert torch.equal(batch_btc, torch.stack([values_nc[start : start + 8] for start in (42, 0, 22)]))


def test_a_batch_is_a_writable_copy(windows):
    before = windows.series.values_nc.clone()
    windows.batch(torch.tensor([0])).zero_()
    assert torch.equal(windows.series.values_nc, before)


@pytest.mark.parametrize("size", [1, 4, 100])
def test_arrays_give_every_window_in_order(windows, size):
    arrays = list(windows.arrays(size))
    np.testing.assert_array_equal(np.concatenate(arrays), windows.batch(torch.arange(len(windows))))
    assert max(map(len, arrays)) == min(size, len(windows))


def test_each_window_knows_its_recording(windows):
    assert windows.recording_of().tolist() == [0, 0, 0, 1, 2, 2]


def test_a_subset_keeps_order_and_series(windows):
    subset = windows.subset(np.array([5, 0]))
    assert len(subset) == 2
    assert subset.recording_of().tolist() == [2, 0]
    assert torch.equal(subset.batch(torch.tensor([0])), windows.batch(torch.tensor([5])))


def test_moving_to_the_same_device_copies_nothing(windows):
    moved = windows.to(torch.device("cpu"))
    assert storage(moved.series.values_nc) == storage(windows.series.values_nc)
    np.testing.assert_array_equal(moved.starts_w, windows.starts_w)
