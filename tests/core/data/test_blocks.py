"""Files larger than memory: reading in blocks gives the same result as reading at once."""

from __future__ import annotations

import numpy as np
import pytest

from core.data import arrays, blocks, medians, sampling, tables
from core.data.medians import median, percentiles
from core.data.store import Store
from core.errors import DataError
from tests.core.data.bad_file_cases import JUDGED, REFUSED, config_for, names
from tests.support import most_nightly

# Every third case first.
SPREAD = [*JUDGED[::3], *JUDGED[1::3], *JUDGED[2::3]]


@pytest.fixture
def tiny(monkeypatch):
    """Sets blocks of a few dozen rows, and limits memory so that arrays are on disk and are not sorted in memory."""

    def shrink():
        monkeypatch.setattr(tables, "_BLOCK_TEXT", 1000)
        monkeypatch.setattr(tables, "_BLOCK_CELLS", 90)
        for module in (blocks, arrays, sampling):
            monkeypatch.setattr(module, "BLOCK_BYTES", 400)
        monkeypatch.setattr(blocks, "IN_MEMORY", 600)
        monkeypatch.setattr(medians, "_FEW", 0)

    return shrink


def read(root, bad, stream, store_dir):
    config = config_for(stream, bad.name, **{**bad.settings, "store_dir": store_dir})
    return Store.of(config, root).read(root / bad.name, root=root, config=config)


@pytest.mark.parametrize(("bad", "stream"), most_nightly(SPREAD, but=len(SPREAD) // 3), ids=names(SPREAD))
def test_a_file_read_in_blocks_equals_the_file_read_at_once(bad, stream, tmp_path, tiny):
    bad.make(tmp_path / bad.name)
    whole = read(tmp_path, bad, stream, "")
    tiny()
    for reading in (read(tmp_path, bad, stream, "store"), read(tmp_path, bad, stream, "store")):
        for one, other in zip(reading.recordings, whole.recordings, strict=True):
            np.testing.assert_array_equal(one.values_tc, other.values_tc)
            np.testing.assert_array_equal(one.time_ns, other.time_ns)
            assert (one.channels, one.notes, one.time_source) == (other.channels, other.notes, other.time_source)
            assert rounded(one.sampling_rate_hz) == rounded(other.sampling_rate_hz)
        assert rounded(reading.metrics) == rounded(whole.metrics)


LATE = {
    "day and month, which only the last rows show": [
        f"{day:02d}/{month:02d}/2026" for month in (1, 2) for day in range(1, 29)
    ],
    "a zone from the middle on": [f"2026-01-01 00:{n:02d}:00{'Z' * (n > 40)}" for n in range(60)],
    "a decimal comma from the middle on": [f"2026-01-01 00:00:{n:02d}{',5' * (n > 40)}" for n in range(60)],
    "rows counted from 0": [str(number) for number in range(60)],
    "dates, then times that are none": [f"2026-01-{day:02d}" for day in range(1, 29)] + ["?"] * 30,
}


@pytest.mark.parametrize("stamps", LATE.values(), ids=LATE)
def test_times_that_depend_on_all_rows_are_read_from_all_rows(stamps, tmp_path, tiny):
    bad = JUDGED[0][0]._replace(name="f.csv", settings={})
    rows = "".join(f"{stamp};{number}\n" for number, stamp in enumerate(stamps))
    (tmp_path / "f.csv").write_text(f"timestamp;a\n{rows}")
    (whole,) = read(tmp_path, bad, "patchtst", "").recordings
    tiny()
    (in_blocks,) = read(tmp_path, bad, "patchtst", "store").recordings
    np.testing.assert_array_equal(in_blocks.time_ns, whole.time_ns)
    assert (in_blocks.notes, in_blocks.time_source) == (whole.notes, whole.time_source)


def rounded(value: object) -> object:
    """Equal to nine digits, because sums of blocks are added in another order."""
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return float(f"{value:.8e}") if isinstance(value, float) else value


@pytest.mark.parametrize(("bad", "stream"), REFUSED, ids=names(REFUSED))
def test_reading_in_blocks_rejects_a_file_for_the_same_reason(bad, stream, tmp_path, tiny):
    bad.make(tmp_path / bad.name)
    tiny()
    with pytest.raises(DataError) as caught:
        read(tmp_path, bad, stream, bad.settings.get("store_dir", "store"))
    assert [word for word in bad.words if word not in str(caught.value)] == []
    assert (caught.value.row, caught.value.column) == (bad.row, bad.column)


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
@pytest.mark.parametrize("count", [1, 2, 7, 1000, 10_001])
def test_the_median_of_blocks_is_the_median_of_all_rows(dtype, count, monkeypatch):
    rng = np.random.default_rng(count)
    number_n = (rng.normal(size=count) * 10.0 ** rng.integers(-5, 9, count)).astype(dtype)
    number_n[: count // 3] = number_n[0]
    expected = np.median(number_n.astype(np.float64))
    monkeypatch.setattr(medians, "_FEW", 0)
    assert median(lambda: np.array_split(number_n, 3), count) == expected


@pytest.mark.parametrize("count", [1, 2, 7, 1000, 10_001])
def test_the_percentiles_of_blocks_are_those_of_all_rows(count, monkeypatch):
    rng = np.random.default_rng(count)
    number_n = (rng.normal(size=count) * 10.0 ** rng.integers(-5, 9, count)).astype(np.float32)
    percents = [0.0, 0.1, 25.0, 50.0, 75.0, 99.9, 100.0]
    expected = np.percentile(number_n.astype(np.float64), percents)
    monkeypatch.setattr(medians, "_FEW", 0)
    assert percentiles(lambda: np.array_split(number_n, 3), count, percents) == pytest.approx(expected, rel=1e-12)


def test_blocks_cover_all_rows_once_with_the_requested_overlap(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 80)
    number_n = np.arange(95, dtype=np.int64)
    assert np.concatenate(list(blocks.blocks(number_n))).tolist() == number_n.tolist()
    steps = np.concatenate([np.diff(block) for block in blocks.blocks(number_n, overlap=1)])
    assert steps.tolist() == [1] * 94


@pytest.mark.parametrize(
    "make",
    [
        lambda ones_nc, folder: blocks.gathered([ones_nc], folder),
        lambda ones_nc, folder: blocks.by_column([ones_nc], folder).T,
        lambda ones_nc, folder: blocks.blank(ones_nc.shape, folder) + 1,
    ],
    ids=["gathered", "by_column", "blank"],
)
def test_a_store_may_be_deleted_while_it_is_in_use(make, tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "IN_MEMORY", 1)
    ones_nc = np.ones((100, 3), dtype=np.float32)
    np.testing.assert_array_equal(make(ones_nc, tmp_path / "deleted"), ones_nc)


def test_rows_that_do_not_fit_in_memory_are_in_an_unlinked_file(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "IN_MEMORY", 100)
    rows = blocks.Rows(tmp_path)
    pieces = [np.full((7, 2), number, dtype=np.float32) for number in range(9)]
    for piece in pieces:
        rows.add(piece)
    whole = rows.whole()
    assert isinstance(whole, np.memmap)
    assert list(tmp_path.iterdir()) == []
    np.testing.assert_array_equal(whole, np.concatenate(pieces))
