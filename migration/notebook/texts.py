"""The text of a cell: edits, and quick tests of its content."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

FIELD = "\0"
"""Represents a replacement field among the characters of an f-string."""


@dataclass(frozen=True, order=True)
class Edit:
    """Replaces the characters `start:end` of a cell's source by `text`; `start == end` inserts."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, eq=False)
class Trigger:
    """Condition for applying a rule to a cell: it contains one of `words`, and matches the pattern if there is one. The
    words are searched first: that is about 50 times faster than the pattern, and few cells contain one.
    """

    words: frozenset[str]
    pattern: re.Pattern[str] | None = None

    def fires(self, text: str, present: Set[str] | None = None) -> bool:
        """Whether the text satisfies the condition. `present` are the words of several triggers that it contains, so
        that each is searched once."""
        has_word = any(map(text.__contains__, self.words)) if present is None else not self.words.isdisjoint(present)
        return has_word and (self.pattern is None or self.pattern.search(text) is not None)


def words_in(text: str, words: Iterable[str]) -> Set[str]:
    """Those of the words that the text contains."""
    return set(filter(text.__contains__, words))


def holding(*words: str, like: str | re.Pattern[str] | None = None) -> Trigger:
    """The trigger for cells that contain one of the words and match the pattern `like` (with `re.MULTILINE`)."""
    return Trigger(frozenset(words), re.compile(like, re.MULTILINE) if isinstance(like, str) else like)


def edited(text: str, edits: Iterable[Edit]) -> str:
    """The text after the edits, which must not overlap."""
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def apply(text: str, edits: Sequence[Edit], origin: list[int]) -> tuple[str, list[int]]:
    """The text after the edits (sorted, not overlapping), and for each new line the original line it comes from.

    That is the line of its first character, or of the place where an edit wrote it.
    """
    pieces: list[str] = []
    lines: list[int] = []
    at = row = 0
    started: int | None = None  # the origin of the current line

    def put(piece: str, *, moves: bool) -> None:
        nonlocal started, row
        pieces.append(piece)
        count = piece.count("\n")
        for _ in range(count):
            lines.append(origin[row] if started is None else started)
            started = None
            row = min(row + moves, len(origin) - 1)
        if started is None and not piece.endswith("\n") and piece:
            started = origin[row]

    for edit in edits:
        put(text[at : edit.start], moves=True)
        put(edit.text, moves=False)
        row = min(row + text.count("\n", edit.start, edit.end), len(origin) - 1)
        at = edit.end
    put(text[at:], moves=True)
    lines.append(origin[row] if started is None else started)
    return "".join(pieces), lines
