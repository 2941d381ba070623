"""What a rule is: a row with an id, what it matches, what it writes, and whether the behaviour is kept.

A rule's `find` looks at one cell and yields matches; a match carries the edits that rewrite it, or none where only a
person can act. Rules never change text themselves: `migration.rewriting` applies their edits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from migration.cell.source import CellSource
    from migration.facts import NotebookFacts


class Keeps(StrEnum):
    """Whether the behaviour is kept.

    `exact`: the same values, files and output as before. `equivalent`: the same purpose, by local means.
    `needs-human`: a person must act, and the finding says how.
    """

    EXACT = "exact"
    EQUIVALENT = "equivalent"
    NEEDS_HUMAN = "needs-human"


@dataclass(frozen=True, order=True)
class Edit:
    """Replaces the characters `start:end` of a cell's source by `text`; `start == end` inserts."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Match:
    """One place in a cell that a rule found.

    `start:end` is the span found, in characters of the cell's source. Without edits it is only reported. `message`
    says what was found there, `action` what a person must do (needed where behaviour is not kept). `keeps` replaces
    the rule's own value where this one place differs from the rule's usual case.
    """

    start: int
    end: int
    message: str
    edits: tuple[Edit, ...] = ()
    action: str = ""
    keeps: Keeps | None = None


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


Find = Callable[["CellSource", "NotebookFacts"], Iterator[Match]]


@dataclass(frozen=True, eq=False)
class Rule:
    """One row of the table.

    A cell without the `trigger` is never given to `find`, nor, where `of_colab` says so, one that can neither ask about
    Colab nor use it (`NotebookFacts.concern`). `cells` are the cell types looked at.
    A rule must not match what it writes, so that migrating twice changes nothing. A row without `find` documents what
    another stage does (the file's structure, outputs, parameters); that stage reports under its id.
    """

    id: str
    name: str
    matches: str
    writes: str
    keeps: Keeps
    find: Find | None = None
    trigger: Trigger | None = None
    cells: tuple[str, ...] = ("code",)
    of_colab: bool = False

    @property
    def anchor(self) -> str:
        return f"docs/migration-rules.md#{self.id.lower()}"


@dataclass(frozen=True)
class Finding:
    """What a rule found and did, as the report says it: cells count from 0, lines of the original cell from 1.

    `cell` is None where the finding is about the notebook as a whole. `before` and `after` are whole lines of source,
    `line` is the first of `before`;
    both are free of secrets (`migration.secrets` masks them when the finding is made).
    """

    rule: str
    keeps: Keeps
    cell: int | None
    line: int | None
    message: str
    before: str = ""
    after: str = ""
    action: str = ""
    changed: bool = field(default=False, kw_only=True)
