"""Positions of a cell's lines in the notebook's file, so that an annotation is shown at the line of a diff."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

_CELLS = re.compile(r'\n[ \t]+"cells": \[')
_SOURCE = re.compile(r'\n(?P<indent>[ \t]+)"source": ')


def lines_of_cells(data: bytes, count: int, wanted: Collection[int | None]) -> list[list[int]]:
    """For each of the `count` cells of a notebook the line of the file, from 1, of each line of its source; empty for
    cells that are not `wanted`.

    It reads files as Jupyter writes them, in which each line of a source has its own line. All lines of a source that
    is one string have the same line of the file. Empty for any other file.
    """
    text = data.decode("utf-8", "replace")
    cells = _CELLS.search(text)
    heads = list(_SOURCE.finditer(text, cells.end())) if cells else []
    # An output or an attachment may have a field of the same name, with a deeper indentation.
    depth = min((len(found["indent"]) for found in heads), default=0)
    starts = [found.start("indent") for found in heads if len(found["indent"]) == depth]
    if len(starts) != count:
        return []
    rows, row, at = [], 1, 0
    for index, start in enumerate(starts):
        row, at = row + text.count("\n", at, start), start
        rows.append(list(_rows(text, start, row)) if index in wanted else [])
    return rows


def _rows(text: str, at: int, first: int) -> Iterator[int]:
    """The rows of the lines of a source that begins at a position of the file, in the row `first`."""
    for row, line in enumerate(_lines(text, at), start=first):
        if row == first and line.rstrip().endswith("["):
            continue
        line = line.strip().removeprefix('"source": ').rstrip(",")
        if len(line) < 2 or line[0] != '"' or line[-1] != '"':
            return
        # Pairs of backslashes are characters; another one before an `n` is the end of a line.
        piece = line[1:-1].replace("\\\\", "")
        if piece or row > first:
            yield from [row] * max(1, piece.count("\\n") + (not piece.endswith("\\n")))
        if row == first:
            return


def _lines(text: str, at: int) -> Iterator[str]:
    """The lines of a text from a position on."""
    while at < len(text):
        end = text.find("\n", at) + 1 or len(text)
        yield text[at:end]
        at = end
