"""Tables of sensor values: csv in the dialects plants write, and parquet, into a frame and on into float32 channels."""

from __future__ import annotations

import csv
import difflib
import re
import warnings
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from core.data.dialects import Dialect, refuse_doubles, row_widths, sniff
from core.data.files import refuse_large
from core.data.timestamps import TIME_NAMES
from core.errors import DataError

LABEL_NAMES = frozenset({"anomaly", "is_anomaly", "changepoint", "label", "fault", "is_fault"})
"""Columns that tell the answer; read as sensors only where the settings name them."""

_DECIMAL_POINT = r"\s*[+-]?\d+\.\d+\s*"
_DECIMAL_COMMA = r"\s*[+-]?\d+,\d+\s*"
# A number with a unit, with thousands separators, or with another decimal sign than the file's.
_NO_PLAIN_NUMBER = (
    r"\s*[+-]?(?:\d+|\d{1,3}(?:[ ',.]\d{3})+)(?:[.,]\d+)?(?:[eE][+-]?\d+)?"
    r"\s*(?:[A-Za-z%°µμΩ][\w%°/²³^·.]{0,7})?\s*"
)
_TIME_OF_DAY = re.compile(r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?( ?[AaPp][Mm])?")
_RAGGED_ROW = re.compile(r"Expected \d+ fields in line (\d+), saw (\d+)")
_OPEN_QUOTE = re.compile(r"EOF inside string starting at row (\d+)")
# What PyArrow and pandas raise for bytes, schemas and metadata that they cannot make sense of.
_UNREADABLE = (
    csv.Error,
    OSError,
    EOFError,
    zlib.error,
    pa.ArrowException,
    ValueError,
    KeyError,
    TypeError,
    MemoryError,
)


class Table(NamedTuple):
    """frame: the cells. first_row: what a person calls its first row. notes: what reading it decided."""

    frame: pd.DataFrame
    first_row: int
    notes: tuple[str, ...] = ()


def read_table(path: Path) -> Table:
    """Reads a csv (plain or gzipped) or parquet file whole.

    Raises DataError naming the file, and the row and column where they are known, for anything that is no table.
    """
    try:
        table = _read_parquet(path) if path.name.lower().endswith(".parquet") else _read_csv(path)
    except _UNREADABLE as error:
        told = str(error).partition("\n")[0] or type(error).__name__
        raise DataError(
            f"cannot be read: {told}", path=path, hint="copy the file again; it may be cut short"
        ) from error
    table.frame.columns = [str(name).strip() for name in table.frame.columns]
    return table


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
    table: Table, *, time_names: Sequence[str], chosen: Sequence[str], exclude: Sequence[str], path: Path
) -> tuple[np.ndarray, tuple[str, ...], list[str]]:
    """Numeric channels of a table as float32 (T, C), their names, and notes on what was left out or mended.

    Raises DataError where a chosen channel is absent or not numeric, where numbers stand in a form that cannot be read
    without a guess, or where no channel is left.
    """
    frame = table.frame
    require(frame, chosen, path)
    notes = [f"nothing to exclude: no column {name!r}" for name in exclude if name not in frame.columns]
    columns, kept = [], []
    for name in list(chosen) or [name for name in frame.columns if name not in time_names]:
        if name in exclude:
            continue
        if not chosen and (reason := _not_a_sensor(name)):
            notes.append(f"column {name!r} left out: {reason}")
            continue
        values_t, lost_t = _numbers(frame[name])
        if lost_t is not None and lost_t.any():
            _refuse_other_notations(frame[name], lost_t, values_t is None, table, path)
        if values_t is None:
            if chosen:
                raise DataError("the column is not numeric", path=path, column=name, hint="drop it from data.channels")
            notes.append(f"column {name!r} left out: not numeric{_example(frame[name])}")
            continue
        if lost_t is not None and lost_t.any():
            notes.append(f"column {name!r}: {_lost(frame[name], lost_t, table)}")
        columns.append(values_t)
        kept.append(name)
    if not kept:
        raise DataError("no numeric channel", path=path, hint="check the delimiter, data.channels and data.exclude")
    values_tc = np.stack(columns, axis=1)
    infinite_tc = np.isinf(values_tc)
    if infinite_tc.any():
        row, column = (int(places[0]) for places in np.nonzero(infinite_tc))
        notes.append(
            f"{int(infinite_tc.sum())} values, infinite or beyond 32 bit, read as missing, the first in row "
            f"{row + table.first_row}, column {kept[column]!r}"
        )
        values_tc[infinite_tc] = np.nan
    return values_tc, tuple(kept), notes


def _example(column: pd.Series) -> str:
    filled = column.dropna()
    return f", such as {_short(filled.iloc[0])}" if len(filled) else ""


def _short(cell: object) -> str:
    text = repr(cell)
    return text if len(text) <= 40 else f"{text[:37]}…"


def _lost(column: pd.Series, lost_t: np.ndarray, table: Table) -> str:
    first = int(np.argmax(lost_t))
    return (
        f"{int(lost_t.sum())} cells that are no numbers read as missing, the first in row {first + table.first_row} "
        f"({_short(column.iloc[first])})"
    )


def _refuse_other_notations(column: pd.Series, lost_t: np.ndarray, is_most: bool, table: Table, path: Path) -> None:
    """Raises DataError for a column of numbers with units or separators, or of two decimal signs: the values are there,
    and reading them would be a guess. A few cells that are no numbers, or a column of words, are not its business."""
    text = column[lost_t].astype("string")
    where, hint = {"path": path, "column": str(column.name)}, "write plain numbers, or name the column in data.exclude"
    commas_n = text.str.fullmatch(_DECIMAL_COMMA).to_numpy(dtype=bool, na_value=False)
    if commas_n.any() and not lost_t[column.notna().to_numpy()].all():
        odd_t = np.zeros_like(lost_t)
        odd_t[np.flatnonzero(lost_t)[commas_n]] = True
        if 2 * odd_t.sum() > column.notna().sum():  # the rarer sign is the odd one
            odd_t = ~odd_t & column.notna().to_numpy()
        row = int(np.argmax(odd_t))
        raise DataError(
            f"{_short(column.iloc[row])} has another decimal sign than other rows", row=row + table.first_row,
            hint="write one decimal sign in the whole file", **where,
        )  # fmt: skip
    alike_n = text.str.fullmatch(_NO_PLAIN_NUMBER).to_numpy(dtype=bool, na_value=False)
    if is_most and 2 * alike_n.sum() > len(alike_n):
        row = int(np.flatnonzero(lost_t)[np.argmax(alike_n)])
        raise DataError(f"{_short(column.iloc[row])} is no plain number", row=row + table.first_row, hint=hint, **where)


def _not_a_sensor(name: str) -> str | None:
    if name.lower() in LABEL_NAMES:
        return "a label, not a sensor (name it in data.channels if it is one)"
    if name.lower() in TIME_NAMES:
        return "a second time column"
    if not name or re.fullmatch(r"Unnamed: \d+", name) or name == "__index_level_0__":
        return "it has no name"
    return None


def _numbers(column: pd.Series) -> tuple[np.ndarray | None, np.ndarray | None]:
    """float32 (T,), None where less than half of the filled cells are numbers; and bool (T,) of cells lost to text."""
    lost_t = None
    if not pd.api.types.is_numeric_dtype(column.dtype):
        if pd.api.types.is_datetime64_any_dtype(column.dtype) or pd.api.types.is_timedelta64_dtype(column.dtype):
            return None, None
        try:
            number = pd.to_numeric(column, errors="coerce")
        except TypeError:  # lists, structs, clock times: cells that are no scalar
            return None, None
        filled = column.notna() & (column.astype("string").str.strip().fillna("") != "")
        lost_t = (filled & number.isna()).to_numpy(dtype=bool)
        if 2 * int(lost_t.sum()) > int(filled.sum()):
            return None, lost_t
        column = number
    elif pd.api.types.is_complex_dtype(column.dtype):
        return None, None
    with np.errstate(over="ignore"):  # beyond float32 is infinite, and infinite is missing
        return column.to_numpy(dtype=np.float64, na_value=np.nan).astype(np.float32), lost_t


# ------------------------------------------------------------------------------------------------------------- parquet
def _read_parquet(path: Path) -> Table:
    described = pq.read_metadata(path)
    refuse_doubles(described.schema.to_arrow_schema().names, path)
    refuse_large(path, 8 * described.num_rows * described.num_columns)
    table = pq.read_table(path)
    try:
        frame = table.to_pandas()
    except (ValueError, KeyError, TypeError):  # what pandas once noted in the file contradicts its columns
        frame = table.replace_schema_metadata().to_pandas()
    if frame.index.name is not None or isinstance(frame.index, pd.DatetimeIndex):
        frame = frame.rename_axis(frame.index.name or "timestamp").reset_index()
    return Table(frame, first_row=1)


# ----------------------------------------------------------------------------------------------------------------- csv
def _read_csv(path: Path) -> Table:
    dialect = sniff(path)
    frame = _parsed(path, dialect)
    if dialect.quoted:
        _refuse_cells(
            frame,
            lambda text: text.str.contains("\n", regex=False),
            path,
            "a quotation mark is open: the cell goes on in the next row",
            "remove the quotation mark",
        )
    if dialect.decimal == ",":
        _refuse_cells(
            frame,
            lambda text: text.str.fullmatch(_DECIMAL_POINT),
            path,
            "a point, where the file's decimal sign is the comma",
            "write one decimal sign in the whole file",
        )
    may_be_short = len(frame.columns) > 1 and frame.iloc[:, -1].isna().any()
    notes = _note_on_short_rows(path, dialect) if may_be_short else ()
    return Table(frame, first_row=2, notes=notes)


def _parsed(path: Path, dialect: Dialect) -> pd.DataFrame:
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
                skip_blank_lines=dialect.num_columns > 1,  # in a single column, a blank line is a missing value
            )
    except (pd.errors.ParserError, pd.errors.ParserWarning, pd.errors.EmptyDataError) as error:
        raise _parse_error(error, path, dialect) from error


def _parse_error(error: Exception, path: Path, dialect: Dialect) -> DataError:
    if quote := _OPEN_QUOTE.search(str(error)):
        row = int(quote[1]) + 1
        return DataError("a quotation mark is never closed", path=path, row=row, hint="remove the quotation mark")
    if ragged := _RAGGED_ROW.search(str(error)):
        row, found = map(int, ragged.groups())
    else:
        rows = row_widths(path, dialect)
        row, found = next(((row, width) for row, width in rows if width > dialect.num_columns), (None, 0))
    if row is None:
        return DataError(f"no table: {error}", path=path, hint="export it again")
    columns = f"{dialect.num_columns} column{'s' if dialect.num_columns > 1 else ''}"
    return DataError(
        f"the header names {columns} but this row has {found} cells",
        path=path,
        row=row,
        hint=f"mend the file; it was read with delimiter {dialect.delimiter!r}, names in its first line",
    )


def _refuse_cells(
    frame: pd.DataFrame, fault_of: Callable[[pd.Series], pd.Series], path: Path, problem: str, hint: str
) -> None:
    """Raises DataError for the first text cell, column by column, that has the fault."""
    for name in frame.columns:
        if pd.api.types.is_numeric_dtype(frame[name].dtype):
            continue
        faulty_t = fault_of(frame[name].astype("string")).to_numpy(dtype=bool, na_value=False)
        if faulty_t.any():
            row = int(np.argmax(faulty_t)) + 2
            raise DataError(problem, path=path, row=row, column=str(name).strip(), hint=hint)


def _note_on_short_rows(path: Path, dialect: Dialect) -> tuple[str, ...]:
    short = [row for row, width in row_widths(path, dialect) if width < dialect.num_columns]
    if not short:
        return ()
    return (f"{len(short)} rows are shorter than the header, the first is row {short[0]}: what lacks is missing",)
