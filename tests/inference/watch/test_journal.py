"""Lines of a journal after its writer was killed, and the stored state."""

from __future__ import annotations

import numpy as np
import pytest

from core.errors import OutputError
from inference.watch.journal import Journal
from inference.watch.state_file import read_state, write_state


def test_lines_of_a_killed_writer_stay_and_are_not_written_again(tmp_path):
    path = tmp_path / "events.jsonl"
    first = Journal(path, ("id",))
    first.add({"id": 1})
    stored = first.state()
    first.add({"id": 2, "value": 0.1})
    first.flush()
    with path.open("ab") as file:
        file.write(b'{"id": 3, "va')  # killed while it wrote

    again = Journal(path, ("id",))
    again.resume(stored)
    stored = again.state()  # before it has reached line 2, and then it is killed too
    once_more = Journal(path, ("id",))
    once_more.resume(stored)
    for number in (2, 3, 4):
        once_more.add({"id": number, "value": 0.2})
    assert once_more.state()["ahead"] == []
    assert path.read_text().splitlines() == [
        '{"id": 1}', '{"id": 2, "value": 0.1}', '{"id": 3, "value": 0.2}', '{"id": 4, "value": 0.2}'
    ]  # fmt: skip


def test_a_journal_that_is_shorter_than_its_state_is_refused(tmp_path):
    journal = Journal(tmp_path / "events.jsonl", ("id",))
    with pytest.raises(OutputError, match="shorter"):
        journal.resume({"bytes": 1, "ahead": []})


def test_a_state_is_read_as_it_was_written_and_a_damaged_one_is_refused(tmp_path):
    path = tmp_path / "state.bin"
    arrays = {"0": {"a": np.arange(6.0).reshape(2, 3), "n": np.array(7)}, "1": {"none": np.empty((0, 4), np.float32)}}
    write_state(path, {"files": ["ä.csv"]}, arrays)
    header, found = read_state(path)
    assert header == {"files": ["ä.csv"]}
    for group, of in arrays.items():
        for name, array in of.items():
            np.testing.assert_array_equal(found[group][name], array)
            assert found[group][name].dtype == array.dtype
    held = bytearray(path.read_bytes())
    held[-1] ^= 1
    path.write_bytes(held)
    with pytest.raises(OutputError, match="damaged"):
        read_state(path)
