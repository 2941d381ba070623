"""A rule: a row with an id, what it matches, what it writes, whether the behaviour is kept, and an example. A rule's
`find` searches one cell and yields matches; a match contains the edits that rewrite it, or none if it needs manual
changes. Rules never change text themselves: `rules.rewriting` applies their edits.
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
    """One match of a rule in a cell. `start:end` is its span, in characters of the cell's source. Without edits it is
    only reported. `message` describes it, `action` is what the user must do (required if the behaviour is not kept).
    `keeps` replaces the rule's own value if this match differs. `prose` is Markdown for a new cell above.
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
    """A cell with a match of a rule, and the cell after this rule alone; None if it is unchanged.

    It is the rule's first test (tests/migration/rules/test_table.py) and a line of docs/migration-rules.md.
    """

    before: str
    after: str | None = None
    language: str = "python"


@dataclass(frozen=True, eq=False)
class Rule:
    """One row of the table.

    `find` is called only for cells with the `trigger` and, with `of_colab`, only for cells that may use Colab or ask
    about it (`ColabNames.concern`). `cells` are the cell types. Only rules with `any_language` apply to notebooks in
    other languages than Python. A row with `find` has an `example`. A rule must not match what it writes, so that
    migrating twice changes nothing. A row without `find` documents what another stage does (the file's structure,
    outputs, parameters); that stage reports under its id.
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
    example: Example | None = None

    @property
    def anchor(self) -> str:
        return f"docs/migration-rules.md#{self.id.lower()}"
