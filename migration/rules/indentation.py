"""Cells whose first line is indented more than others, which IPython reads in two ways."""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import dedent

from migration.analysis.facts import NotebookFacts
from migration.notebook.findings import Keeps
from migration.notebook.texts import Edit, edited
from migration.python.source import CellSource
from migration.rules.rule import Example, Match, Rule

_INDENT = re.compile(r"\s*^(?P<indent>[ \t]+)\S", re.MULTILINE)
_INDENTED_CODE = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]+[^\s#]")


def _find_indented(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    first = _INDENT.match(source.text)
    if first is None or not _INDENTED_CODE.match(dedent(source.text)):  # what all lines have, IPython 9 removes
        return
    indent = first["indent"]
    starts = [start for start in source.line_starts if source.text.startswith(indent, start)]
    edits = tuple(Edit(start, start + len(indent), "") for start in starts)
    new = CellSource(edited(source.text, edits), own_magics=source.own_magics)
    if new.tree is not None or not new.is_python:
        message = "the first line is indented, and others are not: IPython 9 does not run such a cell"
        yield Match(first.start("indent"), first.end(), message, edits)


RULES: tuple[Rule, ...] = (
    Rule(
        "LF568",
        "indented first line",
        "a cell whose first line is indented, and others are not; the IPython of Colab removes that indentation from "
        "all lines that have it, IPython 9 only what all lines have",
        "the cell without that indentation",
        Keeps.EXACT,
        _find_indented,
        example=Example("  x = 1\ny = 2", "x = 1\ny = 2"),
    ),
)
