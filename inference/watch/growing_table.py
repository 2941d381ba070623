"""A csv file to which a logger appends rows: each complete new line once, a limited number at a time.

Cells are read as in a complete file (`core.data.tables`, `core.data.channels`). A time column without dates, or with
dates whose order of day and month would be a guess, is refused, because a few rows cannot decide it; dates with dots
have the day first. A row that cannot be used is left out and reported; reading continues.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from core.config.schema import Data
from core.data.dialects import Dialect, sniff
from core.data.files import PLAIN_TEXT_SUFFIXES, data_suffix, refuse_foreign
from core.data.recording import NOT_A_TIME
from core.data.sentinels import SENTINEL
from core.data.tables import SECOND_HEADER, require, second_header, time_column, with_decimal_points
from core.data.timestamps import parse_times
from core.errors import DataError

# Maximum and minimum number of bytes per read; a longer line is not a row.
BLOCK_BYTES, _MIN_BYTES = 2**20, 2**13
# Earlier dates mean that the column counts seconds or rows.
_EARLIEST_NS = 10**17
# The most common form of time stamps. `parse_times` reads all forms, but takes several times as long as scoring a row.
_PLAIN_TIME = re.compile(r"(?:19|20|21)\d{2}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?")


@dataclass(frozen=True)
class NewRows:
    """Rows in the order of the file.

    values_nc: float32 (n, C), NaN is missing. time_n: int64 (n,), nanoseconds since 1970. line_n: int64 (n,), line
    numbers in the file, from 1 for the header. problems: rows and cells that were left out, each with file, row and
    remedy.
    """

    values_nc: np.ndarray
    time_n: np.ndarray
    line_n: np.ndarray
    problems: tuple[DataError, ...] = ()


@dataclass
class GrowingTable:
    """A growing csv file, and the position up to which it has been read.

    path: the file. channels: names of the columns to read, in order. offset: number of bytes that have been read. line:
    number of lines that have been read.
    """

    path: Path
    channels: Sequence[str]
    settings: Data
    offset: int = 0
    line: int = 0
    _dialect: Dialect | None = field(default=None, repr=False)
    _header: str = field(default="", repr=False)
    _names: list[str] = field(default_factory=list, repr=False)
    _time_columns: tuple[str, ...] = field(default=(), repr=False)

    def read(self, limit: int, *, is_complete: bool = False) -> NewRows | None:
        """At most `limit` new rows; None if there is none. is_complete: whether a last line without a line break is a
        row too.

        Raises DataError for a file that became shorter, that is not a csv file with the channels and with dates, or
        that has a line longer than `BLOCK_BYTES`; OSError if it cannot be read.
        """
        if self.path.stat().st_size < self.offset:
            hint = "write new data to a file with a new name"
            raise DataError("the file is shorter than the part that was read", path=self.path, hint=hint)
        if self._dialect is None and not self._open(is_complete):
            return None
        block, is_all = self._block(min(BLOCK_BYTES, max(_MIN_BYTES, 2 * limit * self._dialect.row_bytes)))
        lines = block.split(b"\n")
        rest = lines.pop()
        if not lines and len(rest) == BLOCK_BYTES:
            hint = "remove the line; a row ends with a line break"
            raise DataError("a line of more than 1 MiB", path=self.path, row=self.line + 1, hint=hint)
        if is_complete and is_all and rest and len(lines) < limit:
            lines.append(rest)
        lines = self._of_one_header(lines[:limit])
        if not lines:
            return None
        first_line = self.line + 1
        self.offset = min(self.offset + sum(map(len, lines)) + len(lines), self.offset + len(block))
        self.line += len(lines)
        return self._rows([line.decode(self._dialect.encoding, errors="replace") for line in lines], first_line)

    def _block(self, size: int) -> tuple[bytes, bool]:
        """About `size` new bytes, with a complete line if there is one; and whether there are no more."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            block = file.read(size)
            if b"\n" not in block:
                block += file.read(BLOCK_BYTES - len(block))
            return block, not file.read(1)

    # ---------------------------------------------------------------------------------------------------------- header
    def _open(self, is_complete: bool) -> bool:
        """Finds dialect and columns as soon as the file has a header and a complete row."""
        with self.path.open("rb") as file:
            first = file.readline(BLOCK_BYTES)
            row = next((line for line in iter(lambda: file.readline(BLOCK_BYTES), b"") if line.strip()), b"")
        if not row or not (is_complete or row.endswith(b"\n") or len(row) == BLOCK_BYTES):
            return False
        if data_suffix(self.path) not in PLAIN_TEXT_SUFFIXES:
            kinds = " or ".join(PLAIN_TEXT_SUFFIXES)
            raise DataError(f"cannot be followed: only {kinds} files grow", path=self.path, hint="write rows as csv")
        refuse_foreign(self.path)
        dialect = sniff(self.path, is_growing=True)
        if dialect.encoding.startswith("utf-16"):
            raise DataError("is UTF-16, which cannot be followed", path=self.path, hint="write UTF-8")
        self._header = first.decode(dialect.encoding, errors="replace").rstrip("\r\n")
        self._names = [name.strip() for name in next(csv.reader([self._header], delimiter=dialect.delimiter))]
        require(pd.DataFrame(columns=self._names), self.channels, self.path)
        self._dialect = dialect
        if self.offset == 0:
            self.offset, self.line = len(first), 1
        return True

    # ------------------------------------------------------------------------------------------------------------ rows
    def _rows(self, lines: list[str], first_line: int) -> NewRows:
        kept, problems = self._usable(lines, first_line)
        if not kept:
            return self._none(problems)
        numbers, texts = zip(*kept, strict=True)
        line_n = np.array(numbers)
        frame = pd.read_csv(
            io.StringIO("\n".join([self._header, *texts]) + "\n"),
            engine="c", low_memory=False, index_col=False, sep=self._dialect.delimiter, decimal=self._dialect.decimal,
        )  # fmt: skip
        if self._dialect.decimal == ",":
            frame = with_decimal_points(frame)
        frame.columns = [str(name).strip() for name in frame.columns]
        time_n = self._times(frame, line_n)
        values_nc, unread = self._values(frame, line_n)
        has_time_n = time_n != NOT_A_TIME
        for at in np.flatnonzero(~has_time_n):
            cell = " ".join(str(frame[name].iloc[at]) for name in self._time_columns)
            problems.append(self._problem(f"its time stamp {cell!r} cannot be read: the row is left out", line_n[at],
                                          "write ISO time stamps"))  # fmt: skip
        return NewRows(values_nc[has_time_n], time_n[has_time_n], line_n[has_time_n], (*problems, *unread))

    def _of_one_header(self, lines: list[bytes]) -> list[bytes]:
        """The lines before another header. Raises DataError if the first is one: later cells are other channels."""
        encoding = self._dialect.encoding
        starts = {start.encode(encoding, errors="replace")[:1] for start in self._starts()}
        for at, line in enumerate(lines):
            # Parsing every line here too would take as long as reading it.
            if line[:1] not in starts:
                continue
            if second_header(self._cells(line.decode(encoding, errors="replace")), self._names) != "another":
                continue
            if at:
                return lines[:at]
            raise self._problem(SECOND_HEADER, self.line + 1, "write the rows after it to a new file")
        return lines

    def _cells(self, line: str) -> list[str]:
        return next(csv.reader([line.rstrip("\r\n")], delimiter=self._dialect.delimiter), [])

    def _starts(self) -> set[str]:
        """The first characters that a line has if it begins with the name of a column."""
        return {*(name[:1] or self._dialect.delimiter for name in self._names), '"', " "}

    def _usable(self, lines: list[str], first_line: int) -> tuple[list[tuple[int, str]], list[DataError]]:
        """Lines that are rows, with their numbers, and problems. Blank lines and repeated headers are skipped."""
        kept, problems, starts = [], [], self._starts()
        for number, line in enumerate(lines, first_line):
            line = line.rstrip("\r")
            if not line.strip():
                continue
            if "\0" in line or line.count('"') % 2:
                what = "a NUL byte" if "\0" in line else "an open quotation mark"
                problems.append(self._problem(f"{what}: the row is left out", number, "correct what writes the file"))
                continue
            cells = self._cells(line)
            if line[0] in starts and second_header(cells, self._names) == "same":
                continue
            if len(cells) > self._dialect.num_columns:
                problem = f"{len(cells)} cells, the header names {self._dialect.num_columns}: the row is left out"
                problems.append(self._problem(problem, number, "write one cell for each name"))
                continue
            if len(cells) < self._dialect.num_columns:
                problem = f"{len(cells)} cells, the header names {self._dialect.num_columns}: the others are missing"
                problems.append(self._problem(problem, number, "write complete rows"))
            kept.append((number, line))
        return kept, problems

    def _times(self, frame: pd.DataFrame, line_n: np.ndarray) -> np.ndarray:
        """int64 (n,). Raises DataError for a column from which single rows cannot be dated."""
        wanted = self._time_columns[0] if len(self._time_columns) == 1 else self.settings.timestamp
        column, self._time_columns = time_column(frame, wanted, self.path)
        if column is None:
            hint = "write a column timestamp, or name it in data.timestamp"
            raise DataError("has no time column: late and repeated rows cannot be detected", path=self.path, hint=hint)
        if (plain_n := _plain_times(column)) is not None:
            return plain_n
        times = parse_times(column, few_rows=True)
        known_n = times.time_ns[times.time_ns != NOT_A_TIME]
        if times.by_majority or times.source == "index" or (np.abs(known_n) < _EARLIEST_NS).any():
            raise DataError(
                f"the time stamp {column.iloc[0]!r} is ambiguous or incomplete",
                path=self.path,
                row=int(line_n[0]),
                column=" + ".join(self._time_columns),
                hint="write ISO time stamps, or seconds since 1970",
            )
        return times.time_ns

    def _values(self, frame: pd.DataFrame, line_n: np.ndarray) -> tuple[np.ndarray, list[DataError]]:
        problems, columns, chosen = [], [], frame[list(self.channels)]
        for name, cells in chosen.items() if any(dtype.kind not in "iufb" for dtype in chosen.dtypes) else ():
            if not pd.api.types.is_numeric_dtype(cells.dtype):
                numbers = pd.to_numeric(cells, errors="coerce")
                filled_n = cells.notna() & (cells.astype("string").str.strip().fillna("") != "")
                for at in np.flatnonzero((filled_n & numbers.isna()).to_numpy(dtype=bool)):
                    problem = f"{str(cells.iloc[at])[:40]!r} is not a number: read as missing"
                    problems.append(self._problem(problem, line_n[at], "write plain numbers", column=name))
                cells = numbers
            columns.append(cells.to_numpy(dtype=np.float64, na_value=np.nan))
        with np.errstate(over="ignore"):
            values_nc = (np.stack(columns, axis=1) if columns else chosen.to_numpy(dtype=np.float64)).astype(np.float32)
        values_nc[np.abs(values_nc) >= SENTINEL] = np.nan
        return values_nc, problems

    def _none(self, problems: list[DataError]) -> NewRows:
        empty = np.empty(0, dtype=np.int64)
        return NewRows(np.empty((0, len(self.channels)), dtype=np.float32), empty, empty, tuple(problems))

    def _problem(self, problem: str, row: int, hint: str, column: str | None = None) -> DataError:
        return DataError(problem, path=self.path, row=int(row), column=column, hint=hint)


def _plain_times(column: pd.Series) -> np.ndarray | None:
    """The result of `parse_times`, int64 (n,), if all time stamps have the most common form; else None."""
    cells = column.tolist()
    if not all(isinstance(cell, str) and _PLAIN_TIME.fullmatch(cell) for cell in cells):
        return None
    try:
        return np.array(cells, dtype="datetime64[ns]").astype(np.int64)
    except ValueError:  # 2026-02-30
        return None
