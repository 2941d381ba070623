"""The text of a cell: edits that change it, and quick tests of what it holds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

FIELD = "\0"
"""Stands for what Python fills in: a replacement field among the characters of an f-string."""


@dataclass(frozen=True, order=True)
class Edit:
    """Replaces the characters `start:end` of a cell's source by `text`; `start == end` inserts."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, eq=False)
class Trigger:
    """What a cell must hold before a rule looks at it: one of `words`, and the pattern where there is one.

    Looking for a word takes a fiftieth of the time of a pattern, and few cells hold one.
    """

    words: frozenset[str]
    pattern: re.Pattern[str] | None = None

    def fires(self, text: str) -> bool:
        """Whether the text has what is asked for."""
        for word in self.words:  # a loop: `any` costs more than the look itself
            if word in text:
                return self.pattern is None or self.pattern.search(text) is not None
        return False


def holding(*words: str, like: str | re.Pattern[str] | None = None) -> Trigger:
    """The trigger of a cell that holds one of some words and a text like the pattern (of several lines)."""
    return Trigger(frozenset(words), re.compile(like, re.MULTILINE) if isinstance(like, str) else like)


def apply(text: str, edits: Sequence[Edit], origin: list[int]) -> tuple[str, list[int]]:
    """The text after the edits (sorted, not overlapping), and for each new line the original line it comes from."""
    pieces: list[str] = []
    lines: list[int] = []
    at = row = 0

    def keep(piece: str) -> None:
        nonlocal row
        pieces.append(piece)
        count = piece.count("\n")
        lines.extend(origin[row : row + count])
        row += count

    for edit in edits:
        keep(text[at : edit.start])
        pieces.append(edit.text)
        lines.extend([origin[min(row, len(origin) - 1)]] * edit.text.count("\n"))
        row += text.count("\n", edit.start, edit.end)
        at = edit.end
    keep(text[at:])
    lines.append(origin[min(row, len(origin) - 1)])
    return "".join(pieces), lines
