"""Rows of a file that grows: each complete line once, cells as in a complete file, faults named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from core.config.schema import Data
from core.data.readers import read_recordings
from core.errors import DataError
from inference.watch.growing_table import GrowingTable, NewRows

FORMS = {
    "plain": "timestamp,p,q\n2026-02-01 00:00:00,1.5,2\n2026-02-01T00:00:01,nan,3e38\n2026-02-01 00:00:02.5,,-4\n",
    "semicolons and decimal commas": "Zeit;p;q\r\n2026-02-01 00:00:00;1,5;2,0\r\n2026-02-01 00:00:01;2,5;3,25\r\n",
    "seconds since 1970": "time,q,p,label\n1770000000.25,1,2,0\n1770000001.25,3,4,1\n",
    "zone": "q,p,timestamp\n1,2,2026-02-01T01:00:00+01:00\n3,4,2026-02-01T00:00:01Z\n",
    "dates with dots": "Datum;p;q\n01.02.2026 00:00:00;1;2\n02.02.2026 00:00:00;3;4\n13.02.2026 00:00:00;3;4\n",
    "date and time of day": "Datum;Uhrzeit;p;q\n01.02.2026;10:00:00;1,5;2\n01.02.2026;10:00:01;2,5;4\n",
    "header again": "timestamp,p,q\n2026-02-01 00:00:00,1,2\ntimestamp,p,q\n2026-02-01 00:00:01,3,4\n",
    "quoted": '\ufefftimestamp,"p","q",note\n2026-02-01 00:00:00,1,2,"a, b"\n\n2026-02-01 00:00:01,3,4,c\n',
}


def read_all(table: GrowingTable, limit: int = 1000) -> list[NewRows]:
    found = []
    while (rows := table.read(limit)) is not None:
        assert len(rows.time_n) <= limit
        found.append(rows)
    return found


def joined(found: list[NewRows]) -> NewRows:
    return NewRows(
        np.concatenate([rows.values_nc for rows in found]), np.concatenate([rows.time_n for rows in found]),
        np.concatenate([rows.line_n for rows in found]), tuple(each for rows in found for each in rows.problems),
    )  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [1, 13, 10_000])
def test_rows_of_a_growing_file_are_those_of_the_complete_one(tmp_path, form, size):
    path, text = tmp_path / "day.csv", FORMS[form].encode("utf-8")
    table = GrowingTable(path, ("p", "q"), Data())
    found = []
    for first in range(0, len(text), size):
        with path.open("ab") as file:
            file.write(text[first : first + size])
        found += read_all(table, limit=1)
    rows = joined(found)
    settings = Data(channels=("p", "q"))
    [recording] = read_recordings(path, root=tmp_path, stream="patchtst", settings=settings)
    np.testing.assert_array_equal(rows.values_nc, recording.values_tc)
    np.testing.assert_array_equal(rows.time_n, recording.time_ns)
    assert rows.problems == ()


def grown(path: Path, text: str) -> NewRows:
    path.write_text("timestamp,p,q\n2026-02-01 00:00:00,1,2\n" + text, encoding="utf-8")
    return joined(read_all(GrowingTable(path, ("p", "q"), Data())))


@pytest.mark.parametrize(
    ("line", "column", "is_kept"),
    [
        ("2026-02-01 00:00:01,1,2,3", None, False),
        ('2026-02-01 00:00:01,"1,2', None, False),
        ("2026-02-01 00:00:01,1\0,2", None, False),
        ("later,1,2", None, False),
        ("2026-02-01 00:00:01,1", None, True),
        ("2026-02-01 00:00:01,1,two", "q", True),
    ],
)
def test_a_bad_row_is_named_and_the_next_one_is_read(tmp_path, line, column, is_kept):
    path = tmp_path / "day.csv"
    rows = grown(path, f"{line}\n2026-02-01 00:00:02,5,6\n")
    [problem] = rows.problems
    assert (problem.path, problem.row, problem.column) == (path, 3, column)
    assert problem.hint
    assert rows.line_n.tolist() == ([2, 3, 4] if is_kept else [2, 4])
    assert rows.values_nc[-1].tolist() == [5, 6]


def test_a_bad_row_of_decimal_commas_is_named_alone(tmp_path):
    path = tmp_path / "day.csv"
    rows = ["2026-02-01 00:00:00;1,5;2,5", "2026-02-01 00:00:01;bad;2,5", "2026-02-01 00:00:02;1,5;2,5"]
    path.write_text("\n".join(["timestamp;p;q", *rows, ""]), encoding="utf-8")
    rows = joined(read_all(GrowingTable(path, ("p", "q"), Data())))
    np.testing.assert_array_equal(rows.values_nc, np.array([[1.5, 2.5], [np.nan, 2.5], [1.5, 2.5]], dtype=np.float32))
    [problem] = rows.problems
    assert (problem.row, problem.column) == (3, "p")


def test_a_last_line_without_a_line_break_is_a_row_only_in_a_complete_file(tmp_path):
    path = tmp_path / "day.csv"
    path.write_text("timestamp,p,q\n2026-02-01 00:00:00,1,2\n2026-02-01 00:00:01,3,4", encoding="utf-8")
    table = GrowingTable(path, ("p", "q"), Data())
    assert len(table.read(10).time_n) == 1
    assert table.read(10) is None
    assert table.read(10, is_complete=True).values_nc.tolist() == [[3, 4]]
    assert table.read(10, is_complete=True) is None


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("time,p,q\n0,1,2\n1,3,4\n", "time"),
        ("time,p,q\n0.5,1,2\n1.0,3,4\n", "time"),
        ("date,p,q\n03/04/2026 10:00:00,1,2\n", "date"),
        ("p,q\n1,2\n3,4\n", None),
        ("timestamp,p\n2026-02-01,1\n", "q"),
        ("timestamp,p,q\n" + "1" * 2**20, None),
    ],
    ids=["counts", "elapsed", "ambiguous", "no time", "no channel", "no line break"],
)
def test_a_file_from_which_rows_cannot_be_dated_or_read_is_refused(tmp_path, text, column):
    path = tmp_path / "day.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as refused:
        read_all(GrowingTable(path, ("p", "q"), Data()))
    assert (refused.value.path, refused.value.column) == (path, column)
    assert refused.value.hint


def test_a_file_that_became_shorter_is_refused(tmp_path):
    path = tmp_path / "day.csv"
    path.write_text("timestamp,p,q\n2026-02-01 00:00:00,1,2\n", encoding="utf-8")
    table = GrowingTable(path, ("p", "q"), Data())
    assert len(table.read(10).time_n) == 1
    path.write_text("timestamp,p,q\n", encoding="utf-8")
    with pytest.raises(DataError, match="shorter"):
        table.read(10)


def test_rows_before_another_header_are_read_and_the_file_is_refused_there(tmp_path):
    path = tmp_path / "day.csv"
    path.write_text(
        "timestamp,p,q\n2026-02-01 00:00:00,1,2\ntimestamp,q,p\n2026-02-01 00:00:01,2,1\n", encoding="utf-8"
    )
    table = GrowingTable(path, ("p", "q"), Data())
    np.testing.assert_array_equal(table.read(100).values_nc, [[1, 2]])
    with pytest.raises(DataError, match="second header") as caught:
        table.read(100)
    assert caught.value.row == 3
