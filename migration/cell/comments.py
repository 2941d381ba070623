"""Where the `#` comments of a cell stand."""

from __future__ import annotations

import re
from collections.abc import Iterator

from migration import shell
from migration.cell.source import CellSource, once_a_cell
from migration.cell.strings import read_strings

# Cell magics, beside those of a shell, whose body takes `#` for a comment; others (files, HTML, JavaScript) hold text
# that is not ours.
_HASH_COMMENTS = frozenset(
    {"script", "python", "python2", "python3", "pypy", "timeit", "prun", "R", "ruby", "perl", "cython", "octave"}
)


@once_a_cell
def comments(source: CellSource) -> tuple[tuple[int, int], ...]:
    """The spans of a cell's `#` comments, up to the end of their lines."""
    return tuple(_comments(source))


def outside_comments(source: CellSource, pattern: re.Pattern[str]) -> list[re.Match[str]]:
    """The pattern's matches in a cell that do not begin inside a comment."""
    found = list(pattern.finditer(source.text))
    may_be_inside = any("#" in source.text[source.text.rfind("\n", 0, m.start()) + 1 : m.start() + 1] for m in found)
    spans = comments(source) if may_be_inside else ()
    return [match for match in found if not any(start <= match.start() < end for start, end in spans)]


def without_commands(source: CellSource) -> str:
    """The cell with blanks in the place of its magic and its commands; of the same length."""
    spans = [(0, source.body), *((command.start, command.end) for command in source.commands)]
    pieces, at = [], 0
    for start, end in spans:
        pieces += [source.text[at:start], re.sub(r"[^\n]", " ", source.text[start:end])]
        at = max(at, end)
    return "".join([*pieces, source.text[at:]])


def _comments(source: CellSource) -> Iterator[tuple[int, int]]:
    magic = source.magic
    if magic is not None:
        yield from _whole_lines(source.text, 0, magic.start)
    if source.is_shell:
        yield from shell.read(source.text[source.body :], source.body, script=True).comments
    elif source.is_python:
        yield from read_strings(without_commands(source), source.body)[1]
    elif magic is not None and magic.name in _HASH_COMMENTS:
        yield from _whole_lines(source.text, magic.body, len(source.text))


def _whole_lines(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Lines that are nothing but a comment; what follows an odd number of triple quotes may be text and is left out."""
    for match in re.compile(r"^[ \t]*(#[^\n]*)", re.MULTILINE).finditer(text, start, end):
        if not any(text.count(quotes, start, match.start()) % 2 for quotes in ('"""', "'''")):
            yield match.span(1)
