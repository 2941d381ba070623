"""Form comments that need no form: titles and text become plain comments, and so do fields that stay in their place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from migration.cell.source import CellSource
from migration.matching import Edit, Keeps, Match, Rule, holding
from migration.parameters.form_fields import Mark, form_fields, marks

if TYPE_CHECKING:
    from migration.facts import NotebookFacts

_OPTIONS = re.compile(r"""\s*\{\s*["']?(?:run|isTemplate|default|[a-z]+-[a-z-]+)["']?\s*:[^{}]*\}\s*$""")
_TITLE = re.compile(r"#[ \t]*@[ \t]*title\b")
_MARKDOWN = re.compile(r"#[ \t]*@[ \t]*markdown\b")
_PARAM = re.compile(r"#[ \t]*@[ \t]*param\b")


def _find_titles(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for mark in _marks(source, facts, "title"):
        text = _OPTIONS.sub("", mark.text).strip()
        yield Match(mark.start, mark.end, "title of a form", (_comment(source, mark, text, keep_empty=False),))


def _find_markdown(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for mark in _marks(source, facts, "markdown"):
        yield Match(
            mark.start, mark.end, "text of a form", (_comment(source, mark, mark.text.strip(), keep_empty=True),)
        )


def _find_fields(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    if not source.is_python:
        for mark in _marks(source, facts, "param"):
            edit = Edit(mark.start, mark.end, f"# param: {mark.text.strip()}".removesuffix(": "))
            yield Match(mark.start, mark.end, "a form field stays in its cell: it is not written in Python", (edit,))
        return
    hoisted = {p.name for p in facts.parameters if p.cell == source.index and not p.stays}
    reasons = {p.name: p.stays for p in facts.parameters if p.cell == source.index and p.stays}
    for field in form_fields(source):
        if field.name in hoisted and not field.obstacle:
            continue
        mark = field.mark
        text = mark.text.strip()
        edit = Edit(mark.start, mark.end, f"# param: {text}" if text else "# param")
        reason = reasons.get(field.name) or field.obstacle or "it is no field of the original notebook"
        name = f"form field `{field.name}`" if field.name else "a form field"
        action = "" if mark.comment != mark.start else "to run with another value, edit it in this cell"
        yield Match(mark.start, mark.end, f"{name} stays in its cell: {reason}", (edit,), action)


def _marks(source: CellSource, facts: NotebookFacts, kind: str) -> list[Mark]:
    return [mark for mark in marks(source) if mark.kind == kind] if facts.language == "python" else []


def _comment(source: CellSource, mark: Mark, text: str, *, keep_empty: bool) -> Edit:
    """The mark as a plain comment; one without text goes, with its line where nothing else stands there."""
    if text or keep_empty:
        return Edit(mark.start, mark.end, f"# {text}".rstrip())
    first = source.text.rfind("\n", 0, mark.start) + 1
    if source.text[first : mark.start].strip():
        return Edit(first + len(source.text[first : mark.start].rstrip()), mark.end, "")
    return Edit(first, min(mark.end + 1, len(source.text)), "")


RULES: tuple[Rule, ...] = (
    Rule(
        "LF601",
        "form title",
        '`#@title X {display-mode: "form"}`, also indented or behind code',
        "`# X`",
        Keeps.EXACT,
        _find_titles,
        holding("title", like=_TITLE),
    ),
    Rule(
        "LF602",
        "form text",
        "`#@markdown X`",
        "`# X`",
        Keeps.EXACT,
        _find_markdown,
        holding("markdown", like=_MARKDOWN),
    ),
    Rule(
        "LF603",
        "form field that stays",
        "`#@param {…}` of a value that cannot be hoisted: in a branch, an expression, assigned twice, commented out",
        "`# param: {…}`; the notebook runs with the value in the cell",
        Keeps.EQUIVALENT,
        _find_fields,
        holding("param", like=_PARAM),
    ),
)
