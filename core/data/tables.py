"""Tables of sensor values, csv and parquet, as data frames of some rows at a time."""

from __future__ import annotations

import csv
import difflib
import re
import warnings
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from core.data.dialects import Dialect, check_names, row_widths, sniff
from core.data.files import in_time, refuse_bomb, refuse_large
from core.data.timestamps import MIN_READABLE, TIME_NAMES, holds_times, sampled
from core.errors import DataError, WriteError, first_line
from core.numbers import counted

_DECIMAL_POINT = r"\s*[+-]?\d+\.\d+\s*"
_DECIMAL_COMMA = re.compile(r"^(\s*[+-]?\d+),(\d+(?:[eE][+-]?\d+)?\s*)$")
_TIME_OF_DAY = re.compile(r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?( ?[AaPp][Mm])?")
_DATE = re.compile(r"(\d{4}[./-]\d{1,2}[./-]\d{1,2}|\d{1,2}[./-]\d{1,2}[./-](\d{4}|\d{2}))")
_RAGGED_ROW = re.compile(r"Expected \d+ fields in line (\d+), saw (\d+)")
_OPEN_QUOTE = re.compile(r"EOF inside string starting at row (\d+)")
_UNNAMED = re.compile(r"(Unnamed: \d+)?")
SECOND_HEADER = "a second header, with other columns or in another order"
SPLIT_FILE = "split the file before this row: each file has one header"
# Errors of PyArrow and pandas for bytes, schemas and metadata that they cannot read.
_ERRORS = (
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
# Size of a block: bytes of text, and cells, which take up to twenty times their text in memory.
_BLOCK_TEXT, _BLOCK_CELLS = 2**23, 2**20


class Table(NamedTuple):
    """Some rows of a table. frame: the cells. first_row: the number of its first row in the file, counted from 1.
    notes: decisions of the reader."""

    frame: pd.DataFrame
    first_row: int
    notes: tuple[str, ...] = ()


def read_table(path: Path, columns: Collection[str] | None = None) -> Table:
    """All rows of a csv (plain or gzipped) or parquet file, or of these columns. Raises DataError as `read_blocks`."""
    with _data_errors(path):
        return _named(next(_blocks_of(path, None, columns=columns, at_once=True)))


def read_blocks(path: Path, scratch: Path | None) -> Iterator[Table]:
    """A csv (plain or gzipped) or parquet file in blocks of rows: at least one table, which may have no rows.

    Raises DataError with the file, and with row and column where they are known, for anything that is not a table, and
    for a table that does not fit.
    """
    with _data_errors(path):
        yield from in_time(path, map(_named, _blocks_of(path, scratch)))


@contextmanager
def _data_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except WriteError:
        raise
    except _ERRORS as error:
        raise DataError(
            f"cannot be read: {first_line(error)}", path=path, hint="copy the file again; it may be truncated"
        ) from error


def _blocks_of(
    path: Path, scratch: Path | None, *, columns: Collection[str] | None = None, at_once: bool = False
) -> Iterator[Table]:
    read = _parquet_blocks if path.name.lower().endswith(".parquet") else _csv_blocks
    return read(path, scratch, columns, at_once)


def _named(table: Table) -> Table:
    table.frame.columns = [str(name).strip() for name in table.frame.columns]
    return table


def time_column(frame: pd.DataFrame, wanted: str, path: Path) -> tuple[pd.Series | None, tuple[str, ...]]:
    """The time stamps of a table, if it has any, and the names of their columns.

    `wanted` is a column name, or `auto` for one of `TIME_NAMES` in upper or lower case, otherwise the first column of
    time stamps by its content; a date column is joined with a column of the time of day, which are also found by their
    content.
    """
    if wanted != "auto":
        require(frame, [wanted], path)
        return frame[wanted], (wanted,)
    names = {name.lower(): name for name in reversed(frame.columns)}
    found = [names[name] for name in TIME_NAMES if name in names]
    if not found:
        found = [name for name in frame.columns if holds_times(frame[name])][:1]
    has_both_names = [name.lower() for name in found] == ["time", "date"]
    pair = found if has_both_names else [] if found else _clock_and_date(frame)
    if pair:
        clock, date = (frame[name].astype("string").str.strip() for name in pair)
        if not found or clock.dropna().str.fullmatch(_TIME_OF_DAY).all():
            return date.str.removesuffix(" 00:00:00") + " " + clock, tuple(pair)
    if not found:
        return None, ()
    return frame[found[0]], (found[0],)


def _clock_and_date(frame: pd.DataFrame) -> list[str]:
    """The first column of times of day and the first of dates, by their content; empty without both."""
    found = []
    for form in (_TIME_OF_DAY, _DATE):
        for name in frame.columns:
            if pd.api.types.is_string_dtype(frame[name].dtype):
                sample = sampled(frame[name]).astype("string").str.strip()
                if len(sample) and sample.str.fullmatch(form).mean() > MIN_READABLE:
                    found.append(name)
                    break
    return found if len(found) == 2 else []


def require(frame: pd.DataFrame, names: Sequence[str], path: Path) -> None:
    """Raises DataError for the first of `names` that `frame` does not have, with similar names as a hint."""
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


# ------------------------------------------------------------------------------------------------------------- parquet
def _parquet_blocks(
    path: Path, scratch: Path | None, columns: Collection[str] | None, at_once: bool
) -> Iterator[Table]:
    described = pq.read_metadata(path)
    refuse_bomb(path, sum(described.row_group(number).total_byte_size for number in range(described.num_row_groups)))
    leaves = [described.schema.column(number) for number in range(described.num_columns)]
    texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
    # Texts as dictionaries: one that is stored once may be the cell of a million rows. With pre_buffer, the file would
    # keep everything that was read.
    with pq.ParquetFile(path, metadata=described, read_dictionary=texts, pre_buffer=False) as file:
        fields = [field for field in file.schema_arrow if not columns or field.name.strip() in columns]
        check_names([field.name for field in fields], path)
        refuse_large(path, 8 * described.num_rows * len(fields), scratch)
        size = max(1, described.num_rows if at_once else _BLOCK_CELLS // max(1, described.num_columns))
        # Lists and structs are not read: they are no channels, and may unpack to any size.
        scalars = [field for field in fields if _is_scalar(field.type)]
        others = [field.name for field in fields if not _is_scalar(field.type)]
        first_row = 1
        for batch in file.iter_batches(size, columns=[field.name for field in scalars]):
            frame = _frame_of(pa.Table.from_batches([batch]), path)
            if others:
                frame = frame.join(pd.DataFrame({name: [()] * len(frame) for name in others}))
            yield Table(frame, first_row)
            first_row += len(frame)
        if first_row == 1:
            yield Table(_frame_of(pa.schema(scalars).empty_table(), path), first_row)


def _is_scalar(kind: pa.DataType) -> bool:
    types = pa.types
    return any(is_one(kind) for is_one in (types.is_primitive, types.is_decimal, types.is_dictionary, types.is_null))


def _frame_of(table: pa.Table, path: Path) -> pd.DataFrame:
    """Raises DataError for texts, as dictionaries, that together are far longer than their file."""
    num_bytes = 0
    for number, field in enumerate(table.schema):
        if not pa.types.is_dictionary(field.type):
            continue
        column = table.column(number)
        if field.type.value_type in (pa.string(), pa.binary()):
            lengths = (pc.binary_length(chunk.dictionary).take(chunk.indices) for chunk in column.chunks)
            num_bytes += sum(pc.sum(length).as_py() or 0 for length in lengths)
        refuse_bomb(path, num_bytes)
        table = table.set_column(number, field.name, column.cast(field.type.value_type))
    try:
        frame = table.to_pandas()
    except (ValueError, KeyError, TypeError):  # the pandas metadata of the file contradicts its columns
        frame = table.replace_schema_metadata().to_pandas()
    if frame.index.name is not None or isinstance(frame.index, pd.DatetimeIndex):
        frame = frame.rename_axis(frame.index.name or "timestamp").reset_index()
    return frame


# ----------------------------------------------------------------------------------------------------------------- csv
def _csv_blocks(path: Path, scratch: Path | None, columns: Collection[str] | None, at_once: bool) -> Iterator[Table]:
    dialect = sniff(path, scratch)
    size = None if at_once else max(1, min(_BLOCK_TEXT // dialect.row_bytes, _BLOCK_CELLS // dialect.num_columns))
    first_row, notes, repeated = 2, None, ()
    for frame in _parsed(path, dialect, size, columns):
        _refuse_odd_cells(frame, dialect, path, first_row)
        if dialect.decimal == ",":
            frame = with_decimal_points(frame)
        may_be_short = len(frame.columns) > 1 and frame.iloc[:, -1].isna().any()
        if may_be_short and notes is None:
            notes = _note_on_short_rows(path, dialect)
        headers = _repeated_headers(frame, path, first_row)
        if headers and not repeated:
            row = first_row + headers[0]
            repeated = (f"row {row} repeats the header, as after a restart of a logger; such rows are not read",)
        found = (*(notes or ()), *repeated)
        if at_once:
            yield Table(frame.drop(index=frame.index[headers]), first_row, found)
        else:
            yield from (Table(part, first_row + start, found) for start, part in _between(frame, headers))
        first_row += len(frame)


def _parsed(path: Path, dialect: Dialect, size: int | None, columns: Collection[str] | None) -> Iterator[pd.DataFrame]:
    """Frames of `size` rows; a single one of all rows if `size` is None."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            # The C engine accepts short rows, and reports the line of a long one (docs/decisions.md).
            reader = pd.read_csv(
                path,
                engine="c",
                low_memory=False,
                index_col=False,
                sep=dialect.delimiter,
                decimal=dialect.decimal,
                encoding=dialect.encoding,
                encoding_errors="replace",
                skip_blank_lines=dialect.num_columns > 1,  # in a single column, a blank line is a missing value
                usecols=None if columns is None else lambda name: name.strip() in columns,
                iterator=True,
            )
        with reader:
            yield from _frames(reader, size)
    except (pd.errors.ParserError, pd.errors.ParserWarning, pd.errors.EmptyDataError) as error:
        raise _parse_error(error, path, dialect) from error


def _frames(reader: pd.io.parsers.TextFileReader, size: int | None) -> Iterator[pd.DataFrame]:
    num_read = 0
    while True:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", pd.errors.ParserWarning)
                frame = reader.read(size)
        except StopIteration:
            return
        num_read += 1
        if len(frame) or num_read == 1:
            yield frame
        if size is None or len(frame) < size:
            return


def _refuse_odd_cells(frame: pd.DataFrame, dialect: Dialect, path: Path, first_row: int) -> None:
    """Raises DataError for the first text cell, column by column, with a line break or another decimal sign."""
    quoted, hint = "an open quotation mark: the cell continues in the next row", "remove the quotation mark"
    signs, one_sign = "a decimal point, where the file has decimal commas", "write one decimal sign in the whole file"
    for name in frame.columns if dialect.quoted or dialect.decimal == "," else ():
        if pd.api.types.is_numeric_dtype(frame[name].dtype):
            continue
        text = frame[name].astype("string").str
        faults = [(text.contains("\n", regex=False), quoted, hint)] if dialect.quoted else []
        faults += [(text.fullmatch(_DECIMAL_POINT), signs, one_sign)] if dialect.decimal == "," else []
        for faulty, problem, remedy in faults:
            faulty_t = faulty.to_numpy(dtype=bool, na_value=False)
            if faulty_t.any():
                row = int(np.argmax(faulty_t)) + first_row
                raise DataError(problem, path=path, row=row, column=str(name).strip(), hint=remedy)


def _repeated_headers(frame: pd.DataFrame, path: Path, first_row: int) -> list[int]:
    """Positions of the rows that repeat the header.

    Raises DataError for a row of column names in another order, or with other names: the cells after it would be read
    as other channels.
    """
    if any(pd.api.types.is_numeric_dtype(dtype) for dtype in frame.dtypes):
        return []  # a name in every column makes every column text
    names, repeated = [str(name).strip() for name in frame.columns], []
    ends = [frame.iloc[:, at].astype("string").str.strip().isin(names) for at in {0, len(names) - 1}]
    for at in map(int, np.flatnonzero(np.logical_or.reduce(ends))):
        kind = second_header([str(cell) for cell in frame.iloc[at]], names)
        if kind == "another":
            raise DataError(SECOND_HEADER, path=path, row=at + first_row, hint=SPLIT_FILE)
        if kind:
            repeated.append(at)
    return repeated


def _between(frame: pd.DataFrame, positions: Sequence[int]) -> Iterator[tuple[int, pd.DataFrame]]:
    """The rows before, between and after these positions, each with the position of its first row."""
    starts, stops = [0, *(at + 1 for at in positions)], [*positions, len(frame)]
    for start, stop in zip(starts, stops, strict=True):
        if stop > start or not positions:
            yield start, frame.iloc[start:stop]


def second_header(cells: Sequence[str], names: Sequence[str]) -> Literal["same", "another"] | None:
    """Whether a row repeats the header, or is another header: at least half of its cells are names of columns."""
    cells = [cell.strip() for cell in cells]
    named = [(cell, name) for cell, name in zip(cells, names, strict=False) if not _UNNAMED.fullmatch(name)]
    if named and all(cell == name for cell, name in named):
        return "same"
    return "another" if 2 * sum(cell in names for cell in cells) >= len(names) else None


def with_decimal_points(frame: pd.DataFrame) -> pd.DataFrame:
    """Text columns with decimal points: one cell that is not a number makes a column of decimal commas text."""
    texts = [name for name in frame.columns if pd.api.types.is_string_dtype(frame[name].dtype)]
    return frame.assign(**{name: frame[name].replace(_DECIMAL_COMMA, r"\1.\2", regex=True) for name in texts})


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
        return DataError(f"not a table: {error}", path=path, hint="export it again")
    columns = counted(dialect.num_columns, "column")
    return DataError(
        f"the header names {columns} but this row has {found} cells",
        path=path,
        row=row,
        hint="correct the row, or remove lines above the header; the file was read with the delimiter "
        f"{dialect.delimiter!r} and names in the first line",
    )


def _note_on_short_rows(path: Path, dialect: Dialect) -> tuple[str, ...]:
    short = [row for row, width in row_widths(path, dialect) if width < dialect.num_columns]
    if not short:
        return ()
    rows = counted(len(short), "row")
    return (f"{rows} shorter than the header, the first is row {short[0]}: the last cells are missing",)
