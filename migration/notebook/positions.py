"""Positions of a cell's lines in the notebook's file, so that an annotation is shown at the line of a diff."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

_SOURCE = re.compile(r'(?P<indent>[ \t]+)"source": (?P<value>\[?)')


def lines_of_cells(data: bytes, count: int, wanted: Collection[int | None]) -> list[list[int]]:
    """For each of the `count` cells of a notebook the line of the file, from 1, of each line of its source; empty for
    cells that are not `wanted`.

    It reads files as Jupyter writes them, in which each line of a source has its own line. All lines of a source that
    is one string have the same line of the file. Empty for any other file.
    """
    lines = data.decode("utf-8", "replace").split("\n")
    cells = next((row for row, line in enumerate(lines) if re.match(r'[ \t]+"cells": \[', line)), len(lines))
    heads = [
        (row, found)
        for row, line in enumerate(lines)
        if '"source": ' in line and row > cells and (found := _SOURCE.match(line))
    ]
    # An output or an attachment may have a field of the same name, with a deeper indentation.
    depth = min((len(found["indent"]) for _, found in heads), default=0)
    starts = [row for row, found in heads if len(found["indent"]) == depth]
    if len(starts) != count:
        return []
    return [list(_rows(lines, row)) if index in wanted else [] for index, row in enumerate(starts)]


def _rows(lines: list[str], row: int) -> Iterator[int]:
    """The rows of the lines of the source that begins in a row of the file."""
    at = row if not lines[row].rstrip().endswith("[") else row + 1
    while at < len(lines):
        text = lines[at].strip().removeprefix('"source": ').rstrip(",")
        if len(text) < 2 or text[0] != '"' or text[-1] != '"':
            return
        # Pairs of backslashes are characters; another one before an `n` is the end of a line.
        piece = text[1:-1].replace("\\\\", "")
        if piece or at > row:
            yield from [at + 1] * max(1, piece.count("\\n") + (not piece.endswith("\\n")))
        if at == row:
            return
        at += 1
