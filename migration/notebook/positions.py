"""Positions of a cell's lines in the notebook's file, so that an annotation is shown at the line of a diff."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from json import JSONDecoder
from json.decoder import scanstring

_DECODER = JSONDecoder(strict=False)
_GAP = re.compile(r"[ \t\r\n]*")


def lines_of_cells(data: bytes) -> list[list[int]]:
    """For each cell of a notebook of format 4 the line of the file, from 1, of each line of its source.

    All lines of a multi-line string have the same line of the file. Empty if the file is not such a notebook.
    """
    # As Latin-1 a file needs one byte per character; the search is for ASCII only.
    text = data.removeprefix(BOM_UTF8).decode("latin-1")
    try:
        starts = list(_cells(text))
    except (ValueError, IndexError, RecursionError):
        return []
    at, line = 0, 1
    for cell in starts:
        for position, start in enumerate(cell):
            line += text.count("\n", at, start)
            cell[position], at = line, start
    return starts


def _cells(text: str) -> Iterator[list[int]]:
    """Offsets of the lines of each cell's source. Other parts are skipped at the speed of the C parser."""
    at = _after(text, 0)
    if text[at] != "{":
        return
    at = _after(text, at + 1)
    while text[at] == '"':
        key, at = _key(text, at)
        if key == "cells" and text[at] == "[":
            at = _after(text, at + 1)
            while text[at] != "]":
                lines, at = _cell(text, at)
                yield lines
                at = _next(text, at)
            return
        at = _next(text, _end(text, at))


def _cell(text: str, at: int) -> tuple[list[int], int]:
    """The offsets of one cell's source lines, and the end of the cell."""
    if text[at] != "{":
        return [], _end(text, at)
    lines: list[int] = []
    at = _after(text, at + 1)
    while text[at] == '"':
        key, at = _key(text, at)
        if key == "source":
            pieces = _elements(text, at) if text[at] == "[" else [at]
            lines = [piece for piece in pieces for _ in range(_line_count(text, piece))]
        at = _next(text, _end(text, at))
    return lines, at + 1


def _line_count(text: str, start: int) -> int:
    piece = str(_DECODER.raw_decode(text, start)[0])
    return max(1, piece.count("\n") + (not piece.endswith("\n")))


def _key(text: str, at: int) -> tuple[str, int]:
    """The key of an object that begins at `at`, and the start of its value."""
    key, at = scanstring(text, at + 1, False)
    return key, _after(text, _after(text, at) + 1)


def _elements(text: str, at: int) -> Iterator[int]:
    """The start of each element of the array at `at`."""
    at = _after(text, at + 1)
    while text[at] != "]":
        yield at
        at = _next(text, _end(text, at))


def _end(text: str, at: int) -> int:
    """The end of the value at `at`."""
    return _DECODER.raw_decode(text, at)[1]


def _next(text: str, at: int) -> int:
    """From the end of a value to the next one, or to the closing bracket."""
    at = _after(text, at)
    return _after(text, at + 1) if text[at] == "," else at


def _after(text: str, at: int) -> int:
    """The first position from `at` on that is not white space."""
    gap = _GAP.match(text, at)
    return gap.end() if gap else at
