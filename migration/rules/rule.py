"""What a rule is: a row with an id, what it matches, what it writes, whether the behaviour is kept, and an example.

A rule's `find` looks at one cell and yields matches; a match carries the edits that rewrite it, or none where only a
person can act. Rules never change text themselves: `rules.rewriting` applies their edits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from migration.analysis.facts import NotebookFacts
from migration.notebook.findings import Keeps
from migration.notebook.texts import Edit, Trigger
from migration.python.source import CellSource


@dataclass(frozen=True)
class Match:
    """One place in a cell that a rule found.

    `start:end` is the span found, in characters of the cell's source. Without edits it is only reported. `message`
    says what was found there, `action` what a person must do (needed where behaviour is not kept). `keeps` replaces
    the rule's own value where this one place differs from the rule's usual case. `prose` is for a Markdown cell above.
    """

    start: int
    end: int
    message: str
    edits: tuple[Edit, ...] = ()
    action: str = ""
    keeps: Keeps | None = None
    prose: str = ""


Find = Callable[[CellSource, NotebookFacts], Iterator[Match]]


@dataclass(frozen=True)
class Example:
    """A cell in which a rule finds something, and what the rule alone makes of it; None where the cell stays.

    It is the rule's first test (tests/migration/rules/test_table.py) and a line of docs/migration-rules.md.
    """

    before: str
    after: str | None = None
    language: str = "python"


@dataclass(frozen=True, eq=False)
class Rule:
    """One row of the table.

    A cell without the `trigger` is never given to `find`, nor, where `of_colab` says so, one that can neither ask about
    Colab nor use it (`ColabNames.concern`). `cells` are the cell types looked at. Only rules for `any_language` look
    at the notebooks of another language than Python. Rules with `opt_in` are about running a notebook again, not about
    Colab: they apply where `--rerunnable` asks for them. A row with `find` has an `example`.
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
    any_language: bool = False
    opt_in: bool = False
    example: Example | None = None

    @property
    def anchor(self) -> str:
        return f"docs/migration-rules.md#{self.id.lower()}"
