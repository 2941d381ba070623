"""Defective files of plants and loggers: how to make each, and what Landfall must report."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 400
Make = Callable[[Path], None]


class Refused(NamedTuple):
    """A file that is rejected in one line with all of `words`, and with row and column if known."""

    id: str
    name: str
    make: Make
    words: Sequence[str]
    row: int | None = None
    column: str | None = None
    settings: Mapping[str, object] = MappingProxyType({})


class Judged(NamedTuple):
    """A file that is read: all `rows` are counted, and `findings` (rules) and `notes` report the defect."""

    id: str
    name: str
    make: Make
    findings: Sequence[str] = ()
    notes: Sequence[str] = ()
    rows: int = ROWS
    dropped: bool = False
    settings: Mapping[str, object] = MappingProxyType({})


# ---------------------------------------------------------------------------------------------------------- making them
def data(content: bytes | str) -> Make:
    content = content.encode() if isinstance(content, str) else content
    return lambda path: path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content) and None


@cache
def stamps(rows: int = ROWS) -> tuple[str, ...]:
    return tuple(str(stamp) for stamp in pd.date_range("2026-01-01", periods=rows, freq="s"))


def lines(*, delimiter: str = ",", change: dict[int, str] | None = None, rows: int = ROWS) -> list[str]:
    """A plain table of a time stamp and two sensors, a header first; `change` maps row numbers to other text."""
    wave_t = np.sin(np.arange(rows) / 7)
    table = [delimiter.join(("timestamp", "a", "b"))]
    table += [
        delimiter.join((stamp, f"{value:.6f}", f"{-value:.5f}"))
        for stamp, value in zip(stamps(rows), wave_t, strict=True)
    ]
    for row, text in (change or {}).items():
        table[row - 1] = text
    return table


def table(**options) -> bytes:
    return ("\n".join(lines(**options)) + "\n").encode()


def cells(column: Callable[[int, str], str], *, delimiter: str = ",") -> bytes:
    """The plain table with every cell of `a` replaced by `column(row, text)`."""
    header, *rows = (line.split(",") for line in lines())
    changed_rows = [(stamp, column(number, a), b) for number, (stamp, a, b) in enumerate(rows)]
    return "\n".join(delimiter.join(row) for row in (header, *changed_rows)).encode()


def times(stamp: Callable[[int, str], str]) -> bytes:
    """The plain table with every time stamp replaced by `stamp(row, text)`."""
    header, *rows = (line.split(",") for line in lines())
    return (
        "\n".join(",".join((stamp(n, t), a, b)) for n, (t, a, b) in enumerate((header, *rows)[1:]))
        .encode()
        .join((b"timestamp,a,b\n", b"\n"))
    )


def array(values: object) -> Make:
    return lambda path: np.save(path, np.asarray(values), allow_pickle=True)


def npy_header(shape: tuple[int, ...], descr: str = "<f4", payload: bytes = b"") -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_2_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue() + payload


def member(name: str, content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return stream.getvalue()


def parquet(**columns: object) -> Make:
    times_t = pa.array(pd.date_range("2026-01-01", periods=ROWS, freq="s"))
    return lambda path: pq.write_table(pa.table({"timestamp": times_t, **columns}), path)


def wave(rows: int = ROWS) -> np.ndarray:
    return np.sin(np.arange(rows) / 7)


def doubled_parquet(path: Path) -> None:
    pq.write_table(pa.Table.from_arrays([pa.array(wave()), pa.array(wave())], names=["a", "a"]), path)


def foreign_metadata(path: Path) -> None:
    frame = pa.table({"timestamp": pa.array(stamps()), "a": wave()})
    pq.write_table(frame.replace_schema_metadata({"pandas": '{"columns": 1, "index_columns": ["gone"]}'}), path)


def flipped(content: bytes) -> bytes:
    """Bits flipped in the middle."""
    middle = len(content) // 2
    return content[:middle] + bytes(byte ^ 0xFF for byte in content[middle : middle + 40]) + content[middle + 40 :]


def sparse(size: int, head: bytes = b"") -> Make:
    """A sparse file: it has a large size and takes no space."""

    def make(path: Path) -> None:
        with path.open("wb") as file:
            file.write(head)
            file.truncate(size)

    return make


def damaged(make: Make, change: Callable[[bytes], bytes]) -> Make:
    """The output of `make` with changed bytes."""

    def both(path: Path) -> None:
        make(path)
        path.write_bytes(change(path.read_bytes()))

    return both


def with_sidecar(make: Make, text: str, *, name: str | None = None) -> Make:
    def both(path: Path) -> None:
        make(path)
        (path.parent / (name or f"{path.stem}.json")).write_text(text, encoding="utf-8")

    return both


def _unreadable(path: Path) -> None:
    path.symlink_to("/proc/self/mem")


WIDE = 5000
_RATE = {"sampling_rate_hz": 1000.0}


def wide(path: Path) -> None:
    columns = {f"a channel with the number {n}": wave() + n for n in range(WIDE)}
    pd.DataFrame({"timestamp": stamps(), **columns}).to_csv(path, index=False)


def _jump(row: int, text: str) -> str:
    return stamps()[row - 8] if row % 10 == 9 else text


# ------------------------------------------------------------------------------------------------------------ the table
TABLES_REFUSED = (
    Refused("empty", "f.csv", data(""), ["empty"]),
    Refused("only blank lines", "f.csv", data("\n\n \n"), ["empty"]),
    Refused("byte order mark alone", "f.csv", data(b"\xef\xbb\xbf"), ["empty"]),
    Refused("header only", "f.csv", data("timestamp,a,b\n"), ["no rows"]),
    Refused("long row", "f.csv", data(table(change={7: "2026-01-01 00:00:05,1,2,3"})), ["3 columns", "4 cells"], 7),
    Refused("every row long", "f.csv", data("a,b\n" + "1,2,3\n" * 9), ["2 columns", "3 cells"], 2),
    Refused("decimal comma in a comma file", "f.csv",
            data("timestamp,a\n" + "".join(f"{t},1,5\n" for t in stamps())), ["2 columns", "3 cells"], 2),
    Refused("wrong delimiter", "f.csv", data(table(delimiter="~")), ["no numeric channel", "delimiter"]),
    Refused("blanks for delimiters", "f.csv", data("t a b\n" + "1 2 3\n" * 9), ["no numeric channel", "delimiter"]),
    Refused("no header, numbers", "f.csv", data("0.5,1.5\n2.5,3.5\n"), ["first line holds"], 1),
    Refused("no header, time stamps", "f.csv", data("\n".join(lines()[1:])), ["first line holds"], 1),
    Refused("no header, epochs", "f.csv", data("1700000000,15\n1700000001,16\n"), ["first line holds"], 1),
    Refused("columns in another order after a restart", "f.csv", data(table(change={150: "timestamp,b,a"})),
            ["second header"], 150),
    Refused("a column renamed after a restart", "f.csv", data(table(change={150: "timestamp,a,c"})),
            ["second header"], 150),
    Refused("text above the header", "f.csv", data(b"# exported by a plant\n" + table()), ["1 column"], 2),
    Refused("duplicate column names", "f.csv", data("timestamp,a,b,a\n2026-01-01,1,2,3\n"), ["two columns"], 1, "a"),
    Refused("names that differ by blanks", "f.csv", data("timestamp,a, a\n2026-01-01,1,2\n"), ["two columns"], 1, "a"),
    Refused("units in cells", "f.csv", data(cells(lambda _, v: f"{v} °C")), ["°C", "plain number"], 2, "a"),
    Refused("units without a blank", "f.csv", data(cells(lambda _, v: f"{v}bar")), ["bar", "plain number"], 2, "a"),
    Refused("thousands separators", "f.csv", data(cells(lambda _, v: f'"1,{abs(float(v)):07.3f}"')),
            ["plain number"], 2, "a"),
    Refused("quoted decimal commas", "f.csv", data(cells(lambda _, v: '"' + v.replace(".", ",") + '"')),
            ["plain number"], 2, "a"),
    Refused("two decimal signs in a column", "f.csv",
            data(cells(lambda n, v: v if n == 5 else v.replace(".", ","), delimiter=";")), ["decimal sign"], 7, "a"),
    Refused("points in a file of commas", "f.csv",
            data(cells(lambda n, v: "0,5", delimiter=";")), ["decimal sign"], 2, "b"),
    Refused("NUL bytes at the end", "f.csv", data(table() + bytes(4096)), ["NUL"], ROWS + 2),
    Refused("a NUL byte in a cell", "f.csv", data(table(change={9: "2026-01-01 00:00:07,1\0,2"})), ["NUL"], 9),
    Refused("nothing but NUL bytes", "f.csv", data(bytes(5000)), ["NUL"], 1),
    Refused("a quotation mark left open", "f.csv", data(table(change={9: '2026-01-01 00:00:07,"1,2'})), ["quotation"],
            9),
    Refused("two stray quotation marks", "f.csv",
            data(table(change={9: '2026-01-01 00:00:07,"1,2', 90: '2026-01-01 00:01:28,1",2'})), ["quotation"], 9, "a"),
    Refused("a cell of a megabyte", "f.csv", data(table(change={9: "x" * 1_000_000 + ",1,2,3"})), ["4 cells"], 9),
    Refused("one endless line", "f.csv", data(b"a," * 9_000_000), ["first line"], 1),
    Refused("cut gzip", "f.csv.gz", damaged(data(table()), lambda b: b[:-900]),
            ["truncated", "copy the file again"]),
    Refused("flipped bits in gzip", "f.csv.gz", damaged(data(table()), flipped),
            ["cannot be read", "copy the file again"]),
    Refused("gzip that is none", "f.csv.gz", damaged(data(""), lambda _: table()), ["cannot be read"]),
    Refused("gzip under a plain name", "f.csv", data(gzip.compress(table())),
            ["gzip", ".csv.gz"]),
    Refused("a workbook", "f.csv", data(member("xl/workbook.xml", b"<x/>")), ["workbook"]),
    Refused("a web page", "f.csv", data("<!DOCTYPE html>\n<html>sign in</html>\n"), ["web page"]),
    Refused("parquet under a plain name", "f.csv", parquet(a=wave()), ["parquet"]),
    Refused("text only", "f.csv", data("timestamp,a\n2026-01-01,good\n2026-01-02,bad\n"), ["no numeric channel"]),
    Refused("clock times without a date", "f.csv", data("time,a\n10:00:01,1\n10:00:02,2\n"), ["no time stamp"], 2,
            "time"),
    Refused("numbers above int64 for time", "f.csv", data(times(lambda n, t: str(2**63 + n))), ["no time stamp"], 2,
            "timestamp"),
    Refused("a chosen column is absent", "f.csv", data(table()), ["did you mean", "a"], None, "aa",
            {"channels": ["aa"]}),
    Refused("a chosen column is text", "f.csv", data("timestamp,a,b\n2026-01-01,x,1\n"), ["not numeric"], None, "a",
            {"channels": ["a"]}),
    Refused("labels alone", "f.csv", data("timestamp,anomaly\n2026-01-01,0\n2026-01-02,1\n"), ["no numeric channel"]),
    Refused("lists in parquet", "f.parquet", parquet(a=pa.array([[1.0, 2.0]] * ROWS)), ["no numeric channel"]),
    Refused("a chosen struct in parquet", "f.parquet", parquet(a=pa.array([{"x": 1.0}] * ROWS)), ["not numeric"], None,
            "a", {"channels": ["a"]}),
    Refused("double names in parquet", "f.parquet", doubled_parquet, ["two columns"], None, "a"),
    Refused("torn parquet", "f.parquet", damaged(parquet(a=wave()), lambda b: b[:-30]), ["cannot be read"]),
    Refused("flipped bits in parquet", "f.parquet", damaged(parquet(a=wave()), lambda b: b[:-300] + flipped(b[-300:])),
            ["cannot be read"]),
    Refused("no parquet", "f.parquet", data("PAR1 it is not"), ["cannot be read"]),
    Refused("parquet without rows", "f.parquet", lambda p: pq.write_table(pa.table({"a": pa.array([], pa.float64())}),
            p), ["no rows"]),
    Refused("a read error", "f.csv", _unreadable, ["cannot be read"]),
    Refused("50 GB of nothing", "f.csv", sparse(50 * 10**9), ["NUL"], 1),
    Refused("50 GB after a header", "f.csv", sparse(50 * 10**9, table()), ["NUL", "power cut"], 402),
    Refused("8 TB after a header", "f.csv", sparse(8 * 10**12, table()), ["NUL", "power cut"], 402),
    Refused("8 TB of parquet", "f.parquet", sparse(8 * 10**12, b"PAR1"), ["8000.0 GB", "data.store_dir"]),
    Refused("sidecar that is no JSON", "f.csv", with_sidecar(data(table()), "{"), ["JSON", "sidecar"]),
    Refused("sidecar without an end", "f.csv", with_sidecar(data(table()), "[" * 100_000), ["JSON", "sidecar"]),
    Refused("dataset.json of another shape", "f.csv", with_sidecar(data(table()), '{"files": [1]}',
            name="dataset.json"), ["files"]),
    Refused("a file's entry of another shape", "f.csv", with_sidecar(data(table()), '{"files": {"f": 3}}',
            name="dataset.json"), ["files"]),
    Refused("a rate beyond sense", "f.csv", with_sidecar(data(table()), '{"sampling_rate_hz": 1e-300}'),
            ["sampling_rate_hz"]),
)  # fmt: skip

ARRAYS_REFUSED = (
    Refused("npy of objects", "f.npy", array(np.array([{"a": 1}, None], dtype=object)), ["object"], None, None, _RATE),
    Refused("a bare pickle", "f.npy", data(b"\x80\x04\x95\x0b\x00\x00\x00."), ["cannot be read"], None, None, _RATE),
    Refused("npy of text", "f.npy", array(["1.5", "2.5"]), ["real numbers"], None, None, _RATE),
    Refused("npy of records", "f.npy", array(np.zeros(9, dtype="f4,i4")), ["real numbers"], None, None, _RATE),
    Refused("npy of complex numbers", "f.npy", array(np.zeros(9, complex)), ["real numbers"], None, None, _RATE),
    Refused("npy of dates", "f.npy", array(np.zeros(9, "M8[s]")), ["real numbers"], None, None, _RATE),
    Refused("npy of one number", "f.npy", array(3.5), ["shape ()"], None, None, _RATE),
    Refused("npy transposed", "f.npy", array(np.zeros((3, 400))), ["transposed"], None, None, _RATE),
    Refused("npy of four axes", "f.npy", array(np.zeros((2, 2, 2, 2))), ["shape"], None, None, _RATE),
    Refused("npy of six columns", "f.npy", array(np.zeros((400, 6))), ["shape"], None, None, _RATE),
    Refused("npy without samples", "f.npy", array(np.zeros((0, 3))), ["no samples"], None, None, _RATE),
    Refused("npy cut short", "f.npy", data(npy_header((400, 3), payload=bytes(999))), ["truncated"], None, None, _RATE),
    Refused("npy that claims a petabyte", "f.npy", data(npy_header((10**14, 3))), ["truncated"], None, None, _RATE),
    Refused("npy of 8 TB of nothing", "f.npy", sparse(8 * 10**12, npy_header((2 * 10**12 - 100,))), ["disk"], None,
            None, _RATE),
    Refused("50 GB more than the store may hold", "f.npy", sparse(50 * 10**9, npy_header((12 * 10**9,))),
            ["50.0 GB", "data.store_gb"], None, None, {**_RATE, "store_gb": 1}),
    Refused("8 TB and no store", "f.npy", sparse(8 * 10**12, npy_header((2 * 10**12 - 100,))),
            ["GB", "memory", "data.store_dir"], None, None, {**_RATE, "store_dir": ""}),
    Refused("empty npy", "f.npy", data(b""), ["cannot be read"], None, None, _RATE),
    Refused("npy that is text", "f.npy", data(table()), ["cannot be read"], None, None, _RATE),
    Refused("npy without a rate", "f.npy", array(np.zeros((400, 3))), ["sampling rate", "sampling_rate_hz"]),
    Refused("npz torn", "f.npz", data(member("x.npy", npy_header((2, 9, 3), payload=bytes(216)))[:-40]),
            ["cannot be read"], None, None, _RATE),
    Refused("npz with flipped bits", "f.npz",
            damaged(lambda p: np.savez_compressed(p, x=np.random.default_rng(0).normal(size=(2, 99, 3))), flipped),
            ["cannot be read"], None, None, _RATE),
    Refused("npz that is an npy", "f.npz", data(npy_header((4,), payload=bytes(16))), ["npz"], None, None, _RATE),
    Refused("npz of another name", "f.npz", lambda p: np.savez(p, y=np.zeros(9)), ["'x'"], None, None, _RATE),
    Refused("npz of objects", "f.npz", lambda p: np.savez(p, x=np.array([None], dtype=object)), ["object"], None, None,
            _RATE),
    Refused("npz that claims a petabyte", "f.npz", data(member("x.npy", npy_header((10**9, 10**5, 3)))), ["truncated"],
            None, None, _RATE),
    Refused("axes that are no names", "f.npy", with_sidecar(array(np.zeros((400, 3))), '{"axes": 3}'), ["axes"], None,
            None, _RATE),
    Refused("vibration without axes", "f.csv", data("time,p\n0.0,1\n0.1,2\n"), ["axis", "data.channels"]),
)  # fmt: skip

TABLES_JUDGED = (
    Judged("byte order mark", "f.csv", data(b"\xef\xbb\xbf" + table())),
    Judged("UTF-16", "f.csv", data(table().decode().encode("utf-16"))),
    Judged("UTF-16 without a mark", "f.csv", data(table().decode().encode("utf-16-le"))),
    Judged("Latin letters", "f.csv", data(table(change={1: "timestamp,a,Öl °C"}).decode().encode("cp1252"))),
    Judged("gzip", "f.csv.gz", data(table())),
    Judged("lines of old Macs", "f.csv", data(table().replace(b"\n", b"\r"))),
    Judged("Windows lines", "f.csv", data(table().replace(b"\n", b"\r\n"))),
    Judged("no line end", "f.csv", data(table().rstrip())),
    Judged("decimal comma", "f.csv", data(table(delimiter=";").replace(b".", b","))),
    Judged("short rows", "f.csv", data(table(change={5: "2026-01-01 00:00:03,1", 9: "2026-01-01 00:00:07,1"})),
           notes=["2 rows", "shorter", "row 5"]),
    Judged("some cells of text", "f.csv", data(cells(lambda n, v: "bad" if n % 100 == 7 else v)),
           notes=["4 cells", "column 'a'", "row 9", "'bad'"]),
    Judged("a word in a file of decimal commas", "f.csv",
           data(cells(lambda n, v: "bad" if n == 200 else v, delimiter=";").replace(b".", b",")),
           notes=["1 cell not", "column 'a'", "row 202", "'bad'"]),
    Judged("a row of units", "f.csv", data(table(change={2: "s,°C,bar"})),
           notes=["column 'a' and 1 more", "1 cell each", "row 2 ('°C')", "1 row without a time"]),
    Judged("the header once more", "f.csv", data(table(change={200: "timestamp,a,b", 300: "timestamp,a,b"})),
           notes=["row 200 repeats the header"], rows=ROWS - 2),
    Judged("a text column", "f.csv", data(cells(lambda n, v: f"state {n % 3}")), notes=["'a' left out", "not numeric"]),
    Judged("1e308", "f.csv", data(cells(lambda n, v: "1e308" if n == 3 else v)),
           notes=["1 value", "row 5", "column 'a'"]),
    Judged("FLT_MAX for no value", "f.csv", data(cells(lambda n, v: "3.4028235e38" if n in (3, 9) else v)),
           notes=["2 values", "rows 5, 11", "column 'a'"]),
    Judged("FLT_MAX in parquet", "f.parquet", parquet(a=np.where(np.arange(ROWS) == 5, -3.4028235e38, wave())),
           notes=["1 value", "row 6", "column 'a'"]),
    Judged("infinities", "f.csv", data(cells(lambda n, v: "-inf" if n == 3 else v)), notes=["row 5", "column 'a'"]),
    Judged("all missing", "f.csv", data("timestamp,a,b\n" + "".join(f"{t},,\n" for t in stamps())),
           findings=["missing"], dropped=True),
    Judged("one channel missing", "f.csv", data(cells(lambda n, v: "")), findings=["missing_channel"]),
    Judged("nothing changes", "f.csv", data("timestamp,a,b\n" + "".join(f"{t},1,2\n" for t in stamps())),
           findings=["constant_channels", "stuck"], dropped=True),
    Judged("duplicate time stamps", "f.csv", data(times(lambda n, t: stamps()[n // 2])), findings=["duplicates"],
           notes=["200 rows", "dropped"], dropped=True),
    Judged("one time stamp for all", "f.csv", data(times(lambda n, t: stamps()[0])), findings=["duplicates"],
           dropped=True),
    Judged("time goes back", "f.csv", data(times(_jump)), findings=["non_monotonic"], notes=["sorted by time"],
           dropped=True),
    Judged("newest first", "f.csv", data("\n".join([lines()[0], *lines()[:0:-1]])), findings=["non_monotonic"],
           dropped=True),
    Judged("zoned and zoneless time stamps", "f.csv", data(times(lambda n, t: t + "+01:00" if n % 4 else t)),
           findings=["invalid_timestamps"], notes=["100 time stamps", "zone", "'2026-01-01 00:00:00'"],
           dropped=True),
    Judged("two zones over a change of the clock", "f.csv",
           data(times(lambda n, t: t + ("+02:00" if n >= 200 else "+01:00"))), findings=["gaps"],
           notes=["UTC", "rows sorted by time"]),
    Judged("local time set back in autumn", "f.csv",
           data(times(lambda n, t: str(pd.Timestamp("2026-10-25") + pd.Timedelta(minutes=n - 60 * (n > 150))))),
           notes=["one step goes back by 59 min"]),
    Judged("time stamps that are none", "f.csv", data(times(lambda n, t: "soon" if n % 20 == 3 else t)),
           findings=["invalid_timestamps"], notes=["20 rows", "dropped"], dropped=True),
    Judged("years beyond time", "f.csv", data(times(lambda n, t: "9999-12-31" if n == 7 else t)),
           notes=["1 row without", "dropped"]),
    Judged("seconds, then milliseconds", "f.csv",
           data(times(lambda n, t: str((1_700_000_000 + n) * (1000 if n >= 150 else 1)))), findings=["gaps"]),
    Judged("a gap of a day", "f.csv", data(times(lambda n, t: t.replace("-01 ", "-02 ") if n >= 200 else t)),
           findings=["gaps"]),
    Judged("one row", "f.csv", data(table(rows=1)), rows=1),
    Judged("numbers of fifty digits", "f.csv", data(cells(lambda n, v: "9" * 25 if n == 3 else v)),
           findings=["jumps"]),
    Judged("parquet with a list column", "f.parquet", parquet(a=wave(), raw=pa.array([[1.0]] * ROWS)),
           notes=["'raw' left out"]),
    Judged("parquet with a map and bytes", "f.parquet",
           parquet(a=wave(), b=pa.array([b"x"] * ROWS),
                   m=pa.array([[("k", 1)]] * ROWS, pa.map_(pa.string(), pa.int8()))),
           notes=["'m' left out", "'b' left out"]),
    Judged("parquet of decimals", "f.parquet", parquet(a=pa.array(wave()).cast(pa.decimal128(9, 6), safe=False))),
    Judged("parquet of a dictionary", "f.parquet", parquet(a=wave(), s=pa.array(["on"] * ROWS).dictionary_encode()),
           notes=["'s' left out"]),
    Judged("parquet of clock times", "f.parquet", parquet(a=wave(), t=pa.array([0] * ROWS, pa.time32("s"))),
           notes=["'t' left out"]),
    Judged("parquet with metadata of a stranger", "f.parquet", foreign_metadata),
)  # fmt: skip

ARRAYS_JUDGED = (
    Judged("npy of the other endianness", "f.npy", array(wave().astype(">f8")), settings=_RATE),
    Judged("npy with the wrong endianness in its header", "f.npy",
           data(npy_header((ROWS,), "<f4", (1 + np.abs(wave())).astype(">f4").tobytes())), findings=["jumps"],
           settings=_RATE, dropped=True),
    Judged("npy in the order of Fortran", "f.npy", array(np.asfortranarray(wave()[:, None] + [1, 2, 3])),
           settings=_RATE),
    Judged("npy of NaN", "f.npy", array(np.full(ROWS, np.nan)), findings=["missing"], dropped=True, settings=_RATE),
    Judged("npy beyond float32", "f.npy", array(np.where(np.arange(ROWS) == 5, 1e300, wave())),
           notes=["1 value", "row 6"], settings=_RATE),
    Judged("npz of FLT_MAX", "f.npz",
           lambda p: np.savez(p, x=np.where(np.arange(ROWS) == 250, 3.4e38, wave()).reshape(4, -1, 1)),
           notes=["1 value", "record 3", "column 'x'"], settings=_RATE),
    Judged("npy that never moves", "f.npy", array(np.zeros(ROWS)), findings=["constant_channels"], dropped=True,
           settings=_RATE),
    Judged("npy of bytes", "f.npy", array((100 * wave()).astype(np.int8)), settings=_RATE),
    Judged("npy of half precision", "f.npy", array(wave().astype(np.float16)), settings=_RATE),
    Judged("time stamps against the declared rate", "f.csv",
           with_sidecar(data("time,x\n" + "".join(f"{n / 100},{v:.5f}\n" for n, v in enumerate(wave()))),
           '{"sampling_rate_hz": 200}'), findings=["sampling_rate"], dropped=True),
)  # fmt: skip

PATTERNS = (
    "none/*.csv",
    "*.parquet",
    "a**b",
    "***",
    ".",
    "",
    "  ",
    "[",
    "a\0b",
    "/",
    "*.labels.csv",
    "../../nowhere/*",
)
