"""Findings: one per position, and notes, which join the same finding of several cells."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from core.secrets.finding import masked

_CELLS_NAMED = 8


class Keeps(StrEnum):
    """Whether the behaviour is kept.

    `exact`: the same values, files and output as before. `equivalent`: the same purpose, by local means. `needs-human`:
    the user must act, and the finding says how.
    """

    EXACT = "exact"
    EQUIVALENT = "equivalent"
    NEEDS_HUMAN = "needs-human"


@dataclass(frozen=True)
class Finding:
    """A finding of a rule, as in the report: cells count from 0, lines of the original cell from 1.

    `cell` is None if the finding is about the complete notebook; `output_cell` is its position in the migrated
    notebook, None if it was removed. `before` and `after` are complete lines of source with masked secrets, `line` is
    the first of `before`.
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
    output_cell: int | None = field(default=None, kw_only=True)


@dataclass
class Notes:
    """Collects notes about findings and changes; the same note on several cells becomes one finding."""

    _cells: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    _kinds: dict[tuple[str, str], tuple[Keeps, str, bool]] = field(default_factory=dict)

    def add(
        self,
        rule: str,
        message: str,
        cell: int | None = None,
        *,
        keeps: Keeps = Keeps.EXACT,
        action: str = "",
        changed: bool = True,
    ) -> None:
        """Notes `message` under a rule's id, for a cell (its position) or, without one, for the notebook.

        A note that needs manual changes becomes one finding per cell.
        """
        self._kinds[rule, message] = (keeps, action, changed)
        cells = self._cells.setdefault((rule, message), [])
        if cell is not None:
            cells.append(cell)

    def findings(self) -> list[Finding]:
        """In the order of the rules' ids. A finding on several cells names them in its message."""
        return [finding for key in sorted(self._cells) for finding in self._findings(*key)]

    def _findings(self, rule: str, message: str) -> list[Finding]:
        keeps, action, changed = self._kinds[rule, message]
        cells = list(dict.fromkeys(self._cells[rule, message]))
        message = masked(message)
        if cells and (keeps is Keeps.NEEDS_HUMAN or len(cells) == 1):
            return [Finding(rule, keeps, cell, 1, message, action=action, changed=changed) for cell in cells]
        if cells:
            message = f"{message} ({_named(cells)})"
        return [Finding(rule, keeps, None, None, message, action=action, changed=changed)]


def _named(cells: list[int]) -> str:
    """`cells 1, 2 and 5`, or the first few and how many more."""
    shown = [str(cell) for cell in cells[:_CELLS_NAMED]]
    rest = len(cells) - len(shown)
    last = f"{rest} more" if rest else shown.pop()
    return f"cells {', '.join(shown)} and {last}"


def listed(names: Iterable[str]) -> str:
    """Names in backticks, in order, each once: "`a`, `b`"."""
    return ", ".join(f"`{name}`" for name in sorted(set(names)))
