"""The dialect of a csv file: encoding, delimiter and decimal sign. Also finds faults of its text that a parser
misses."""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from core.data.files import refuse_bomb, refuse_large
from core.errors import DataError

_DELIMITERS = ("\t", ";", "|", ",")  # the comma last: it may also be the decimal sign
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+(?:[eE][+-]?\d+)?\s*")
_STAMP = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}")
# Whole numbers up to this may be names of columns; larger ones are time stamps.
_LARGEST_NAME = 1e8
_BLOCK_BYTES = 1 << 16
# A header of a hundred thousand channels fits; a file with a longer first line is not a table.
_MAX_HEAD_BYTES = 1 << 24
# Each column takes a fifth of a millisecond, however few rows there are.
_MAX_COLUMNS = 100_000
csv.field_size_limit(_MAX_HEAD_BYTES)  # the default is too small for a wide header read with the wrong delimiter


class Dialect(NamedTuple):
    """The form of a csv file. num_columns: of the header. row_bytes: mean size of a row. quoted: whether the file has a
    quotation mark."""

    encoding: str
    delimiter: str
    decimal: str
    num_columns: int
    row_bytes: int
    quoted: bool


def sniff(path: Path, scratch: Path | None = None, *, is_growing: bool = False) -> Dialect:
    """The dialect, from the first rows of the file, after a check of all its bytes. is_growing: without that check.

    Raises DataError with the row for NUL bytes, for a header of values and for two columns of one name; also if memory
    or disk is too small for the file.
    """
    head, is_cut = _head(path)
    if is_cut and not re.search(rb"[\r\n]", head):
        raise DataError(
            f"the first line is longer than {_MAX_HEAD_BYTES >> 20} MiB", path=path, row=1, hint="this is not a table"
        )
    encoding = _encoding(head, is_cut)
    quoted = is_growing or _scan(path, scratch, is_text=not encoding.startswith("utf-16"))
    # Only line feeds and carriage returns end a row, unlike in str.splitlines.
    lines = io.StringIO(head.decode(encoding, errors="replace"), newline=None).read().split("\n")
    lines = [line for line in (lines[:-1] if is_cut else lines) if line.strip()][:100]
    if not lines:
        raise DataError("the file is empty", path=path, hint="remove it from data.splits or export it again")
    delimiter = next((mark for mark in _DELIMITERS if _divides(lines, mark)), ",")
    header, *rows = csv.reader(lines, delimiter=delimiter)
    _check_header(header, path)
    decimal = delimiter != "," and any(_DECIMAL_COMMA.fullmatch(cell) for row in rows for cell in row)
    row_bytes = 1 + len(head) // max(1, head.count(b"\n") or head.count(b"\r"))
    return Dialect(encoding, delimiter, "," if decimal else ".", len(header), row_bytes, quoted)


def row_widths(path: Path, dialect: Dialect) -> Iterator[tuple[int, int]]:
    """Number and cell count of each row that is not blank; the header is row 1. Empty cells beyond the header are not
    counted."""
    with io.TextIOWrapper(_opened(path), dialect.encoding, errors="replace", newline="") as lines:
        reader = csv.reader(lines, delimiter=dialect.delimiter)
        for cells in reader:
            while len(cells) > dialect.num_columns and not cells[-1].strip():
                cells.pop()
            if cells:
                yield reader.line_num, len(cells)


def _opened(path: Path) -> BinaryIO:
    return gzip.open(path, "rb") if path.name.lower().endswith(".gz") else path.open("rb")


def _head(path: Path) -> tuple[bytes, bool]:
    """The first lines of the file, and whether more follow."""
    blocks, num_lines = [], 0
    with _opened(path) as stream:
        while num_lines < 2 and len(blocks) * _BLOCK_BYTES < _MAX_HEAD_BYTES and (block := stream.read(_BLOCK_BYTES)):
            blocks.append(block)
            num_lines += block.count(b"\n") + block.count(b"\r")
        return b"".join(blocks), bool(stream.read(1))


def _scan(path: Path, scratch: Path | None, *, is_text: bool) -> bool:
    """Reads all bytes; returns whether the file has a quotation mark. Raises DataError for more text than fits or than
    its size allows and, with `is_text`, for a NUL byte."""
    row, size, quoted = 1, 0, False
    with _opened(path) as stream:
        while block := stream.read(16 * _BLOCK_BYTES):
            nul = block.find(b"\0") if is_text else -1
            if nul >= 0:
                raise DataError(
                    "a NUL byte, typical after a power cut",
                    path=path,
                    row=row + block.count(b"\n", 0, nul),
                    hint="cut the file before this row, or export it again",
                )
            row, size, quoted = row + block.count(b"\n"), size + len(block), quoted or b'"' in block
            refuse_large(path, size, scratch)
            refuse_bomb(path, size)
    return quoted


def _encoding(head: bytes, is_cut: bool) -> str:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    even, odd = head[::2].count(0), head[1::2].count(0)
    if 4 * abs(even - odd) > len(head):  # Latin letters of two bytes each: every second byte is 0
        return "utf-16-le" if odd > even else "utf-16-be"
    try:
        # The head may end inside a character.
        head[:-4].decode("utf-8") if is_cut else head.decode("utf-8")
    except UnicodeDecodeError as error:
        return "utf-8-sig" if is_cut and error.start >= len(head) - 8 else "cp1252"
    return "utf-8-sig" if head.startswith(b"\xef\xbb\xbf") else "utf-8"


def _divides(lines: list[str], delimiter: str) -> bool:
    """Whether `delimiter` divides the header and at least half of the rows into columns."""
    header, *widths = (len(row) for row in csv.reader(lines, delimiter=delimiter))
    return header > 1 and 2 * sum(width > 1 for width in widths) >= len(widths)


def _check_header(header: list[str], path: Path) -> None:
    names = [name.strip() for name in header if name.strip()]
    if len(header) > 1 and all(map(_is_value, names)) and not all(map(_may_be_a_name, names)):
        raise DataError(
            "the first line holds values, not names", path=path, row=1, hint="add a line with the column names"
        )
    check_names(names, path, row=1)


def check_names(names: Sequence[str], path: Path, row: int | None = None) -> None:
    """Raises DataError for too many columns, and for a name that two of them share, ignoring spaces around it."""
    if len(names) > _MAX_COLUMNS:
        raise DataError(
            f"{len(names)} columns, more than {_MAX_COLUMNS}",
            path=path,
            row=row,
            hint="write one row for each time, or split the file by channel",
        )
    name, count = max(Counter(map(str.strip, names)).items(), key=lambda item: item[1], default=("", 0))
    if count > 1:
        raise DataError("two columns have this name", path=path, row=row, column=name, hint="rename one of them")


def _is_value(text: str) -> bool:
    try:
        float(text.replace(",", "."))
    except ValueError:
        return _STAMP.match(text) is not None
    return True


def _may_be_a_name(text: str) -> bool:
    return text.isdigit() and float(text) <= _LARGEST_NAME
