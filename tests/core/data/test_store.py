import hashlib
import json
import logging
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from core.data import readers, store_entries
from core.data import store as store_module
from core.data.dataset import TRAINING_SPLITS, check_quality, load_stream_data
from core.data.recording import Recording
from core.data.store import Store
from tests.core.data.datasets import SPLIT, make_config, write_ramp

C_ALONE = {"files": ("data/c.csv",)}
MESSY = "timestamp,a,b\n2026-01-01 00:00:02,3,\n2026-01-01 00:00:00,1,9\n2026-01-01 00:00:01,2,8\n"
WITH_GAPS = "timestamp,a\n" + "".join(
    f"2026-01-01 0{hour}:00:0{second},1\n" for hour in range(3) for second in range(9)
)


@pytest.fixture
def parsed(monkeypatch) -> list[str]:
    """The names of the files that were parsed, in order."""
    names, real = [], readers.read_recordings
    monkeypatch.setattr(readers, "read_recordings", lambda path, **rest: names.append(path.name) or real(path, **rest))
    return names


def read(root: Path, name: str = "a.csv", **data):
    config = make_config(**data)
    return Store.of(config, root).read(root / "data" / name, root=root, config=config)


def same(one: Recording, other: Recording) -> bool:
    arrays = zip((one.values_tc, one.time_ns, one.gap_g), (other.values_tc, other.time_ns, other.gap_g), strict=True)
    facts = [
        (r.file_id, r.path, r.channels, r.sampling_rate_hz, r.time_source, r.healthy, r.notes) for r in (one, other)
    ]
    return all(np.array_equal(a, b, equal_nan=True) for a, b in arrays) and facts[0] == facts[1]


@pytest.mark.parametrize(
    "text", [MESSY, WITH_GAPS, "a,b\n1,2\n3,x\n5,6\n7,8\n", "timestamp,a\n2026-01-01,1\n2026-01-02,inf\n"]
)
def test_a_cached_file_equals_the_parsed_file(tmp_path, parsed, text):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text(text)
    plain = read(tmp_path, store_dir="")
    first, second = read(tmp_path), read(tmp_path)
    assert parsed == ["a.csv", "a.csv"]
    assert all(same(plain.recordings[0], kept.recordings[0]) for kept in (first, second))
    assert plain.metrics == first.metrics == second.metrics


def test_records_of_a_set_keep_their_numbers_and_are_not_copied_into_a_series(tmp_path, parsed):
    (tmp_path / "data").mkdir()
    x = np.random.default_rng(0).normal(size=(3, 50, 2)).astype(np.float32)
    np.savez(tmp_path / "data" / "set.npz", x=x)
    config = make_config("swinmae", window=40, sampling_rate_hz=100.0)
    for _ in range(2):
        store = Store.of(config, tmp_path)
        found = store.read(tmp_path / "data" / "set.npz", root=tmp_path, config=config).recordings
        series_nc = store.joined(found)
        assert [recording.file_id for recording in found] == [f"data/set.npz#{number}" for number in range(3)]
        assert np.array_equal(series_nc, x.reshape(150, 2))
        assert np.shares_memory(series_nc, found[0].values_tc)
        assert not np.shares_memory(store.joined(found[::-1]), found[0].values_tc)
    assert parsed == ["set.npz"]


@pytest.mark.parametrize("torn", ["values.npy", "about.json"])
def test_damaged_joined_recordings_are_joined_again(tmp_path, monkeypatch, torn, caplog):
    monkeypatch.setattr(store_module, "IN_MEMORY", 0)  # joins on disk, as recordings that would fill the memory
    for name in ("a.csv", "b.csv"):
        write_ramp(tmp_path, name, 20)
    found = [read(tmp_path, name).recordings[0] for name in ("a.csv", "b.csv")]
    expected_nc = np.concatenate([recording.values_tc for recording in found])
    store = Store.of(make_config(), tmp_path)
    assert np.array_equal(store.joined(found), expected_nc)
    (entry,) = (store.folder / "series").iterdir()
    (entry / torn).write_bytes((entry / torn).read_bytes()[:100])
    for _ in range(2):  # the second time from a new entry
        assert np.array_equal(store.joined(found), expected_nc)
        assert caplog.text.count("joining them again") == 1
    assert entry.is_dir()


def test_training_data_is_the_same_with_and_without_a_store(tmp_path, parsed):
    for number in range(3):
        write_ramp(tmp_path, f"{number}.csv", 200, first=1000 * number, gap_at=50)
    loaded = [
        load_stream_data(make_config(store_dir=folder, scaling={}), root=tmp_path, splits=TRAINING_SPLITS)
        for folder in ("", "cache", "cache")
    ]
    assert len(parsed) == 6
    for data in loaded[1:]:
        assert (data.scaler, data.reports) == (loaded[0].scaler, loaded[0].reports)
        for split in TRAINING_SPLITS:
            batches = [list(each.splits[split].arrays(64)) for each in (data, loaded[0])]
            assert all((one == other).all() for one, other in zip(*batches, strict=True))


def test_a_series_larger_than_memory_is_on_disk(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(store_module, "IN_MEMORY", 0)
    for number in range(2):
        write_ramp(tmp_path, f"{number}.csv", 200, first=1000 * number)
    config = make_config()
    with caplog.at_level(logging.INFO):
        series = [
            load_stream_data(config, root=tmp_path, splits=TRAINING_SPLITS).splits["train"].series for _ in range(2)
        ]
    assert caplog.text.count("joining 2 recordings") == 1
    assert len(list((tmp_path / "cache/recordings/series").glob("*/values.npy"))) == 1
    assert all(one.values_nc[:, 0].tolist() == [*range(200), *range(1000, 1200)] for one in series)


def write(root: Path, text: str) -> Path:
    path = root / "data" / "a.csv"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_a_file_of_other_bytes_is_parsed_again_even_with_the_same_size_and_time(tmp_path, parsed):
    before = write(tmp_path, "a\n1\n2\n").stat()
    assert read(tmp_path).recordings[0].values_tc.tolist() == [[1.0], [2.0]]
    os.utime(write(tmp_path, "a\n1\n3\n"), ns=(before.st_atime_ns, before.st_mtime_ns))
    assert read(tmp_path).recordings[0].values_tc.tolist() == [[1.0], [3.0]]


def test_a_file_that_changes_during_reading_is_not_cached(tmp_path, monkeypatch, caplog):
    write_ramp(tmp_path, "a.csv", 10)
    parse = store_module.ingest

    def read_late(path, **rest):
        write_ramp(tmp_path, "a.csv", 20)
        return parse(path, **rest)

    monkeypatch.setattr(store_module, "ingest", read_late)
    assert len(read(tmp_path).recordings[0]) == 20
    assert "a.csv was written" in caplog.text
    monkeypatch.undo()
    write_ramp(tmp_path, "a.csv", 10)
    assert len(read(tmp_path).recordings[0]) == 10


def test_an_old_unchanged_file_is_recognised_without_reading(tmp_path, monkeypatch):
    path = write(tmp_path, "a\n1\n2\n")
    os.utime(path, (1e9, 1e9))
    digests, real = [], hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda *args: digests.append(1) or real(*args))
    read(tmp_path), read(tmp_path)
    assert len(digests) == 1
    write(tmp_path, "a\n1\n4\n")
    assert read(tmp_path).recordings[0].values_tc[1] == 4.0


@pytest.mark.parametrize("change", [{"exclude": ("b",)}, {"channels": ("b", "a")}, {"gap_factor": 3.0}])
def test_other_reader_settings_use_another_entry(tmp_path, parsed, change):
    write(tmp_path, MESSY)
    read(tmp_path)
    assert same(read(tmp_path, **change).recordings[0], read(tmp_path, store_dir="", **change).recordings[0])
    assert len(parsed) == 3


def test_settings_without_effect_on_reading_use_the_same_entry(tmp_path, parsed):
    write(tmp_path, MESSY)
    read(tmp_path), read(tmp_path, window=8, stride=1)
    assert len(parsed) == 1


def test_the_sidecar_is_part_of_the_cache_key(tmp_path, parsed):
    path = write(tmp_path, "x\n1\n2\n")
    facts = path.with_suffix(".json")
    config = make_config("swinmae", window=40)
    rates = []
    for rate in (10, 20):
        facts.write_text(json.dumps({"sampling_rate_hz": rate, "label": "faulty"}))
        (recording,) = Store.of(config, tmp_path).read(path, root=tmp_path, config=config).recordings
        rates.append(recording.sampling_rate_hz)
        assert recording.healthy is False
    assert (rates, len(parsed)) == ([10, 20], 2)


def test_a_copy_shares_its_entry(tmp_path, parsed):
    shutil.copy(write(tmp_path, MESSY), tmp_path / "data" / "b.csv")
    assert [read(tmp_path, name).recordings[0].file_id for name in ("a.csv", "b.csv")] == ["data/a.csv", "data/b.csv"]
    assert parsed == ["a.csv"]


@pytest.mark.parametrize("torn", ["values.npy", "times.npy", "about.json"])
@pytest.mark.parametrize("length", [0, 100])
def test_a_damaged_entry_is_written_again(tmp_path, parsed, torn, length, caplog):
    write(tmp_path, MESSY)
    read(tmp_path)
    (entry,) = (tmp_path / "cache/recordings/readings").iterdir()
    whole = (entry / torn).read_bytes()
    (entry / torn).write_bytes(whole[:length])
    assert same(read(tmp_path).recordings[0], read(tmp_path, store_dir="").recordings[0])
    assert len(parsed) == 3
    assert (entry / torn).read_bytes() == whole
    assert entry.name[:12] in caplog.text


def test_an_unwritable_store_is_reported_and_reading_continues(tmp_path, caplog):
    write(tmp_path, MESSY)
    (tmp_path / "cache").write_text("a file where the folder would be")
    assert same(read(tmp_path).recordings[0], read(tmp_path, store_dir="").recordings[0])
    assert caplog.text.count("data.store_dir") == 1


def test_the_least_recently_used_entries_are_removed(tmp_path, parsed, caplog):
    for name in ("a.csv", "b.csv", "c.csv"):
        write_ramp(tmp_path, name, 200, first=ord(name[0]))
    config = make_config(store_gb=14e-6)  # about two of them
    for age, name in enumerate(("a.csv", "b.csv")):
        store = Store.of(config, tmp_path)
        store.read(tmp_path / "data" / name, root=tmp_path, config=config)
        store.forget_oldest()
        for entry in (tmp_path / "cache/recordings/readings").iterdir():
            os.utime(entry, (1e9 + age, 1e9 + age))
    read(tmp_path, "a.csv")
    with caplog.at_level(logging.INFO):
        check_quality(make_config(store_gb=14e-6, splits=dict.fromkeys(SPLIT, C_ALONE)), root=tmp_path)
    assert "data.store_gb" in caplog.text
    parsed.clear()
    read(tmp_path, "a.csv"), read(tmp_path, "c.csv"), read(tmp_path, "b.csv")
    assert parsed == ["b.csv"]


def test_an_empty_store_dir_writes_nothing(tmp_path):
    write(tmp_path, MESSY)
    read(tmp_path, store_dir="")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_an_unfinished_entry_is_removed(tmp_path, monkeypatch):
    write(tmp_path, MESSY)
    monkeypatch.setattr(store_entries, "write_json", lambda *args: (_ for _ in ()).throw(OSError("disk full")))
    read(tmp_path)
    assert list((tmp_path / "cache/recordings/readings").iterdir()) == []
