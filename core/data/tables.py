"""Tables of sensor values: csv in the dialects plants write, and parquet, into a frame and on into float32 channels."""

from __future__ import annotations

import csv
import difflib
import gzip
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from core.data.timestamps import TIME_NAMES
from core.errors import DataError

LABEL_NAMES = frozenset({"anomaly", "is_anomaly", "changepoint", "label", "fault", "is_fault"})
"""Columns that tell the answer; read as sensors only where the settings name them."""

_DELIMITERS = ("\t", ";", "|", ",")  # the comma last: it may also be the decimal sign
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+(?:[eE][+-]?\d+)?\s*")
_TIME_OF_DAY = re.compile(r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?( ?[AaPp][Mm])?")
_RAGGED_ROW = re.compile(r"Expected (\d+) fields in line (\d+), saw (\d+)")
_HEAD_BYTES = 1 << 16


class Dialect(NamedTuple):
    encoding: str
    delimiter: str
    decimal: str


def read_table(path: Path) -> pd.DataFrame:
    """Reads a csv (plain or gzipped) or parquet file whole.

    Raises DataError naming the file, and the line where the parser knows it, for anything that is no table.
    """
    try:
        frame = _read_parquet(path) if path.name.lower().endswith(".parquet") else _read_csv(path)
    except (OSError, EOFError, pa.ArrowInvalid) as error:
        raise DataError(
            f"cannot be read: {error}", path=path, hint="copy the file again; it may be cut short"
        ) from error
    frame.columns = [str(name).strip() for name in frame.columns]
    return frame


def time_column(frame: pd.DataFrame, wanted: str, path: Path) -> tuple[pd.Series | None, tuple[str, ...]]:
    """The time stamps of a table, if it has any, and the names of the columns they were made of.

    `wanted` is a column name, or `auto` for one of `TIME_NAMES` in any case; a date column beside a time-of-day column
    is joined with it.
    """
    if wanted != "auto":
        require(frame, [wanted], path)
        return frame[wanted], (wanted,)
    names = {name.lower(): name for name in reversed(frame.columns)}
    found = [names[name] for name in TIME_NAMES if name in names]
    if not found:
        return None, ()
    if [name.lower() for name in found] == ["time", "date"]:
        clock, date = (frame[name].astype("string").str.strip() for name in found)
        if clock.dropna().str.fullmatch(_TIME_OF_DAY).all():
            return date.str.removesuffix(" 00:00:00") + " " + clock, tuple(found)
    return frame[found[0]], (found[0],)


def require(frame: pd.DataFrame, names: Sequence[str], path: Path) -> None:
    """Raises DataError for the first of `names` that `frame` lacks, with the columns that look like it."""
    for name in names:
        if name not in frame.columns:
            close = difflib.get_close_matches(name, frame.columns, n=3, cutoff=0.5)
            known = ", ".join(close or list(frame.columns)[:12])
            raise DataError(
                "the file has no such column",
                path=path,
                column=name,
                hint=f"{'did you mean' if close else 'its columns are'} {known}",
            )


def channels_of(
    frame: pd.DataFrame, *, time_names: Sequence[str], chosen: Sequence[str], exclude: Sequence[str], path: Path
) -> tuple[np.ndarray, tuple[str, ...], list[str]]:
    """Numeric channels of a table as float32 (T, C), their names, and notes on what was left out or mended.

    Raises DataError where a chosen channel is absent or not numeric, or where no channel is left.
    """
    require(frame, chosen, path)
    notes = [f"nothing to exclude: no column {name!r}" for name in exclude if name not in frame.columns]
    names = list(chosen) or [name for name in frame.columns if name not in time_names]
    columns, kept = [], []
    for name in names:
        if name in exclude:
            continue
        if not chosen and (reason := _not_a_sensor(name)):
            notes.append(f"column {name!r} left out: {reason}")
            continue
        values_t, num_bad = _numbers(frame[name])
        if values_t is None:
            if chosen:
                raise DataError("the column is not numeric", path=path, column=name, hint="drop it from data.channels")
            notes.append(f"column {name!r} left out: not numeric")
            continue
        if num_bad:
            notes.append(f"column {name!r}: {num_bad} non-numeric cells read as missing")
        columns.append(values_t)
        kept.append(name)
    if not kept:
        raise DataError("no numeric channel", path=path, hint="check the delimiter, data.channels and data.exclude")
    values_tc = np.stack(columns, axis=1)
    infinite_tc = np.isinf(values_tc)
    if infinite_tc.any():
        values_tc[infinite_tc] = np.nan
        notes.append(f"{int(infinite_tc.sum())} infinite values read as missing")
    return values_tc, tuple(kept), notes


def _not_a_sensor(name: str) -> str | None:
    if name.lower() in LABEL_NAMES:
        return "a label, not a sensor (name it in data.channels if it is one)"
    if name.lower() in TIME_NAMES:
        return "a second time column"
    if not name or re.fullmatch(r"Unnamed: \d+", name) or name == "__index_level_0__":
        return "it has no name"
    return None


def _numbers(column: pd.Series) -> tuple[np.ndarray | None, int]:
    """float32 (T,) and the count of cells lost to text; None where less than half of the filled cells are numbers."""
    lost = 0
    if not pd.api.types.is_numeric_dtype(column.dtype):
        if pd.api.types.is_datetime64_any_dtype(column.dtype) or pd.api.types.is_timedelta64_dtype(column.dtype):
            return None, 0
        number = pd.to_numeric(column, errors="coerce")
        filled = column.notna() & (column.astype("string").str.strip().fillna("") != "")
        lost = int((filled & number.isna()).sum())
        if 2 * lost > int(filled.sum()):
            return None, 0
        column = number
    elif pd.api.types.is_complex_dtype(column.dtype):
        return None, 0
    with np.errstate(over="ignore"):  # beyond float32 is infinite, and infinite is missing
        return column.to_numpy(dtype=np.float64, na_value=np.nan).astype(np.float32), lost


# ------------------------------------------------------------------------------------------------------------- parquet
def _read_parquet(path: Path) -> pd.DataFrame:
    frame = pd.read_parquet(path, engine="pyarrow")
    if frame.index.name is not None or isinstance(frame.index, pd.DatetimeIndex):
        frame = frame.rename_axis(frame.index.name or "timestamp").reset_index()
    return frame


# ----------------------------------------------------------------------------------------------------------------- csv
def _read_csv(path: Path) -> pd.DataFrame:
    dialect = sniff(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            # The C engine is as fast as Arrow's on few cores, takes short rows, and names the line of a long one.
            return pd.read_csv(
                path,
                engine="c",
                low_memory=False,
                index_col=False,
                sep=dialect.delimiter,
                decimal=dialect.decimal,
                encoding=dialect.encoding,
                encoding_errors="replace",
            )
    except (pd.errors.ParserError, pd.errors.ParserWarning, pd.errors.EmptyDataError) as error:
        hint = f"mend the file; it was read with delimiter {dialect.delimiter!r}"
        if ragged := _RAGGED_ROW.search(str(error)):
            expected, row, found = map(int, ragged.groups())
            problem = f"the header names {expected} columns but this row has {found} cells"
            raise DataError(problem, path=path, row=row, hint=hint) from error
        raise DataError(f"no table: {error}", path=path, hint=hint) from error


def sniff(path: Path) -> Dialect:
    """Encoding, delimiter and decimal sign from the head of a csv file."""
    opener = gzip.open if path.name.lower().endswith(".gz") else open
    with opener(path, "rb") as stream:
        head = stream.read(_HEAD_BYTES)
    encoding = _encoding(head)
    lines = head.decode(encoding, errors="replace").splitlines()
    lines = [line for line in (lines[:-1] if len(head) == _HEAD_BYTES else lines) if line.strip()][:100]
    if not lines:
        raise DataError("the file is empty", path=path, hint="remove it from data.parts or export it again")
    delimiter = next((mark for mark in _DELIMITERS if _divides(lines, mark)), ",")
    header, *rows = csv.reader(lines, delimiter=delimiter)
    if len(header) > 1 and all(map(_is_number, header)) and any("." in name or "," in name for name in header):
        raise DataError("the first line holds numbers", path=path, row=1, hint="add a line with the column names")
    decimal = delimiter != "," and any(_DECIMAL_COMMA.fullmatch(cell) for row in rows for cell in row)
    return Dialect(encoding, delimiter, "," if decimal else ".")


def _encoding(head: bytes) -> str:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    try:
        # The head may end inside a character: its last few bytes prove nothing.
        head[:-4].decode("utf-8") if len(head) == _HEAD_BYTES else head.decode("utf-8")
    except UnicodeDecodeError as error:
        return "utf-8-sig" if len(head) == _HEAD_BYTES and error.start >= len(head) - 8 else "cp1252"
    return "utf-8-sig" if head.startswith(b"\xef\xbb\xbf") else "utf-8"


def _divides(lines: list[str], delimiter: str) -> bool:
    """Whether `delimiter` cuts the header and at least half of the rows into columns."""
    header, *widths = (len(row) for row in csv.reader(lines, delimiter=delimiter))
    return header > 1 and 2 * sum(width > 1 for width in widths) >= len(widths)


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "."))
    except ValueError:
        return False
    return True
