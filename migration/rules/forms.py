"""Form comments: titles and text become plain comments, and so do fields that stay in their cells."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from migration.analysis.facts import NotebookFacts
from migration.analysis.parameters import Parameter, is_form, rows_of
from migration.colab.forms import (
    FIELD_TRIGGER,
    MARK,
    FormField,
    Mark,
    form_fields,
    marks,
    plain_comment,
    text_comment,
)
from migration.notebook.findings import Keeps
from migration.notebook.texts import Edit, holding
from migration.python.source import CellSource
from migration.rules.rule import Example, Match, Rule

_RUNS_ITSELF = re.compile(r"""\{\s*["']?run["']?\s*:\s*["']auto\b""")
_RUN = "run the cell after each change of a value: only Colab does so by itself; reword texts that say so"

_BLANK_LINES = re.compile(r"(?:[ \t]*\n)*")
_BLANK_LINE, _ENDS_BLANK = re.compile(r"[ \t]*\n"), re.compile(r"\n[ \t]*\n\Z")


def _find_texts(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    runs_itself = bool(_RUNS_ITSELF.search(source.text) and form_fields(source))
    for mark in _marks(source, facts, "title", "markdown"):
        what = "title" if mark.kind == "title" else "text"
        edit = _comment(source, mark, text_comment(mark.kind, mark.text))
        keeps, action = (Keeps.EQUIVALENT, _RUN) if runs_itself and what == "title" else (None, "")
        yield Match(mark.start, mark.end, f"{what} of a form", (edit,), action, keeps)


def _find_fields(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    planned = _planned(source, facts)
    for field in form_fields(source):
        stays = planned[field.name].stays if field.name in planned else ""
        if field.name in planned and not (stays or field.obstacle):
            continue
        mark = field.mark
        edit = _comment(source, mark, plain_comment(mark.text))
        reason = stays or field.obstacle or "it is not a field of the original notebook"
        action = "" if mark.comment != mark.start else "to run with another value, edit it in this cell"
        yield Match(mark.start, mark.end, f"a form field stays in its cell: {reason}", (edit,), action)


def _marks(source: CellSource, facts: NotebookFacts, *kinds: str) -> list[Mark]:
    found = [mark for mark in marks(source) if mark.kind in kinds]
    return [] if found and _leaving(source, facts) else found


def _comment(source: CellSource, mark: Mark, comment: str) -> Edit:
    """Replaces the mark by a plain comment. An empty one removes the mark, and its line if nothing else is on it; at
    the start of a cell also the blank lines below. A `#` that separates nothing is empty, too."""
    if comment and (comment != "#" or _separates(source, mark)):
        is_tight = mark.start == mark.comment > 0 and not source.text[mark.start - 1].isspace()
        return Edit(mark.start, mark.end, f"  {comment}" if is_tight else comment)
    first = source.text.rfind("\n", 0, mark.start) + 1
    if source.text[first : mark.start].strip():
        return Edit(first + len(source.text[first : mark.start].rstrip()), mark.end, "")
    if not source.text[mark.end :].strip():
        return Edit(len(source.text[:first].rstrip()), len(source.text), "")
    if not source.text[:first].strip() and (blanks := _BLANK_LINES.match(source.text, mark.end + 1)):
        return Edit(first, blanks.end(), "")
    # Of the blank lines above and below, one stays.
    below = _BLANK_LINE.match(source.text, mark.end + 1) if _ENDS_BLANK.search(source.text[:first]) else None
    return Edit(first, below.end() if below else mark.end + 1, "")


def _separates(source: CellSource, mark: Mark) -> bool:
    """Whether comments are directly above and below an empty text of a form."""
    lines, row = source.text.split("\n"), source.line_of(mark.start)
    for step in (-1, 1):
        at, text, found = row, "", MARK.search("#@markdown")
        while found and text in ("", "#"):  # another empty text
            at += step
            line = lines[at].strip() if 0 <= at < len(lines) else ""
            found = MARK.search(line) if line.startswith("#") else None
            text = text_comment(found["kind"], found["text"]) if found else line
        if not text.startswith("#"):
            return False
    return True


# ------------------------------------------------------------------------------------------------------- parameters
def _planned(source: CellSource, facts: NotebookFacts) -> dict[str, Parameter]:
    """The parameters of a cell by their names."""
    return {parameter.name: parameter for parameter in facts.parameters if parameter.cell == source.index}


def _find_literals(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    if not (fields := _leaving(source, facts)):
        return
    is_described = source.index in facts.described
    for field, (first, _, last) in zip(fields, rows_of(source), strict=True):
        low, high = source.line_starts[first], source.line_span(source.line_starts[last], source.line_starts[last])[1]
        is_last = high == len(source.text)
        text = _mention([one.name for one in fields]) if is_last and is_described else ""
        edit = Edit(low, high if is_last else high + 1, text)
        start, end = source.line_span(field.mark.start, field.mark.end)
        yield Match(start, end, f"form field `{field.name}` becomes a parameter of the notebook", (edit,))


def _mention(names: Sequence[str]) -> str:
    """What stays of a cell that a text describes: a comment with the names."""
    *others, last = (f"`{name}`" for name in names)
    text = f"{', '.join(others)} and {last} are" if others else f"{last} is"
    return f"# {text} set in the parameters cell above."


def _leaving(source: CellSource, facts: NotebookFacts) -> tuple[FormField, ...]:
    """The fields of a cell that is moved."""
    planned = _planned(source, facts)
    is_moved = bool(planned) and not any(parameter.stays for parameter in planned.values()) and is_form(source)
    fields = form_fields(source) if is_moved else ()
    return fields if {field.name for field in fields} <= planned.keys() else ()


RULES: tuple[Rule, ...] = (
    Rule(
        "LF601",
        "form text",
        '`#@title X {display-mode: "form"}`, `#@markdown X`, also indented or after code',
        "`# X`, without the marks of a heading; nothing for an empty title or a line such as `---` or `<br>`",
        Keeps.EXACT,
        _find_texts,
        holding("title", "markdown", like=r"#[ \t]*@[ \t]*(?:title|markdown)\b"),
        example=Example('#@title Training {display-mode: "form"}', "# Training"),
    ),
    Rule(
        "LF603",
        "form field that stays",
        "`#@param {…}` in a cell with other code, or of a value that cannot be moved: an expression, assigned twice, a "
        "secret, commented out",
        "the same line; options and notes stay as a comment, the type is removed. The notebook runs with the value in "
        "the cell",
        Keeps.EQUIVALENT,
        _find_fields,
        FIELD_TRIGGER,
        example=Example('steps = count() #@param [10, 20] {type:"raw"}', "steps = count() # one of [10, 20]"),
    ),
)

PARAMETER_RULES: tuple[Rule, ...] = (
    Rule(
        "LF610",
        "form field to parameter",
        "a cell of `name = literal  #@param {…}` and comments, where each name is bound nowhere else and not used "
        "before",
        "its lines in the one cell tagged `parameters`, as `name = literal  # type: int slider, 1 to 100`. Of a cell "
        "that a text describes, a comment with the names stays",
        Keeps.EXACT,
        _find_literals,
        FIELD_TRIGGER,
        example=Example('steps = 100 #@param {type:"integer"}', ""),
    ),
    Rule(
        "LF615",
        "parameters and set-up cells",
        "a notebook with form fields, or with paths below the work or the drive folder",
        "before the first code cell one tagged `parameters` with `work_dir`, `drive_dir` and the fields, and one "
        "tagged `landfall-setup` that defines `WORK_DIR` and `DRIVE_DIR`",
        Keeps.EQUIVALENT,
    ),
    Rule(
        "LF616",
        "cell of comments",
        "a cell of which the other rules leave only comments, such as one that only mounts the drive",
        "a Markdown cell with the comments, unless they are code",
        Keeps.EQUIVALENT,
    ),
)
