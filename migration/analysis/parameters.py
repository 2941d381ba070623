"""Form fields of a notebook that become papermill parameters. A field is moved to the parameters cell if that changes
nothing else: its value is a literal, its name is bound nowhere else, and it is not used before. The other fields stay
in their cells.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.secrets.finding import find_secrets, is_placeholder, masked
from core.secrets.names import is_secret_name
from migration.analysis.variables import MAY_BIND_ANYTHING, CellNames, names_of
from migration.colab.forms import (
    FIELD_TRIGGER,
    MARK,
    Declaration,
    FormField,
    declaration,
    form_fields,
    marks,
    papermill_comment,
    text_comment,
    written_literal,
)
from migration.python.source import CellSource
from migration.python.strings import comments

_RESERVED = frozenset({"work_dir", "drive_dir", "WORK_DIR", "DRIVE_DIR", "START_DIR", "os", "sys"})
_WORD = re.compile(r"\w+")
_LOCAL_MEANING = re.compile(
    r"(?<![\w.<])/content\b|google\.colab|colab\.research|(?<![\w.])/g?drive\b|(?:^|\./)g?drive/(?:My ?Drive|Shared)|"
    r"^/(?:mydrive|root|usr|opt|home|datalab|tools)\b"
)


_SECTION = re.compile(r"@[ \t]*markdown[ \t]*(?:<[^>]*>[ \t]*)?(?:#|\*\*(?!.*[.!]\W*$)|-{3}|_{3}|&nbsp;|$)")
_HEADING = re.compile(r"@[ \t]*markdown[ \t]*(#+)(?!.*:\W*$).*\w")
_OF_CELL = re.compile(r"\bth(?:is|e) cell\b", re.IGNORECASE)
_RULE = re.compile(r"@[ \t]*markdown[ \t]*(?:-{3,}|_{3,}|\*{3,})[ \t]*$")
_ITEM = re.compile(r"@[ \t]*markdown[ \t]*(?:[-*•][ \t]+\w|[↑^(])")
_OPENS, _CLOSES = (re.compile(rf"@[ \t]*markdown[#\s]*{bracket}\s*$") for bracket in (r"[({\[]", r"[)}\]]"))
_NOTE = re.compile(r"@[ \t]*markdown[ \t]*(?:[-*•>][ \t]|[↑^(_])")


@dataclass(frozen=True)
class Parameter:
    """One form field: `name = value` of cell `cell` (its position in the original notebook).

    `value` is the literal in the parameters cell, `comment` the text after it (papermill's `# type: int …` form with
    range and options). `stays`: why a field is not moved, else empty. `above` and `below` are the comments that
    describe it and are moved with it. `apart`: something else is between it and the moved field before it.
    """

    cell: int
    name: str
    value: str
    comment: str = ""
    stays: str = ""
    above: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    apart: bool = False


def plan_parameters(cells: Sequence[CellSource]) -> tuple[Parameter, ...]:
    """Every form field of a notebook's code cells in order: its parameter, or why it stays."""
    fields = [(source, field) for source in cells if FIELD_TRIGGER.fires(source.text) for field in form_fields(source)]
    if not fields:
        return ()
    named = {field.name for _, field in fields}
    names = {
        source.index: names_of(source, without=_movable(source))
        for source in cells
        if (any(name in source.text for name in named) and not named.isdisjoint(_WORD.findall(source.text)))
        or MAY_BIND_ANYTHING.search(source.text)
    }
    groups: dict[str, list[tuple[CellSource, FormField]]] = {}
    for source, field in fields:
        if field.name and not field.obstacle:
            groups.setdefault(field.name, []).append((source, field))
    obstacles = {name: _obstacle(name, group, names) for name, group in groups.items()}
    planned: dict[CellSource, list[Parameter]] = {}
    for source, field in fields:
        stays = field.obstacle or obstacles.get(field.name, "")
        planned.setdefault(source, []).append(_parameter(source, field, stays=stays))
    return tuple(found for source, parameters in planned.items() for found in _with_comments(source, parameters))


def _with_comments(source: CellSource, parameters: Sequence[Parameter]) -> Iterator[Parameter]:
    """The parameters of a cell with the comments that describe their fields."""
    leaving = {parameter.name for parameter in parameters if not parameter.stays}
    rows = rows_of(source, [field for field in form_fields(source) if field.name in leaving])
    texts = source.text.split("\n")
    end = -1
    for parameter in parameters:
        if parameter.stays:
            yield parameter
            continue
        first, row, last = rows[parameter.name]
        apart = end < 0 or any(map(str.strip, texts[end:first]))
        end = last + 1
        above, below = map(_comment_lines, (texts[first:row], texts[row + 1 : last + 1]))
        yield replace(parameter, above=above, below=below, apart=apart)


def _comment_lines(texts: Sequence[str]) -> tuple[str, ...]:
    """The lines as plain comments, without blank ones and without a `#` that separates nothing."""
    lines = list(filter(None, map(_plain_comment, texts)))
    while lines and "#" in (lines[0], lines[-1]):
        del lines[0 if lines[0] == "#" else -1]
    return tuple(lines)


def rows_of(source: CellSource, leaving: Sequence[FormField]) -> dict[str, tuple[int, int, int]]:
    """For each moved field its first row, its own row, and its last row, from 0. The form texts directly above or below
    that describe it are moved with it; in a cell with only such fields and comments, all others move with the next
    field, and those below the last one with that.
    """
    texts = source.text.split("\n")
    names = {source.line_of(field.mark.start): field.name for field in form_fields(source)}
    own = {field.name: source.line_of(field.mark.start) for field in leaving}
    spans = {row: [row, row] for row in own.values()}
    for (first, last), row in _described(source, texts, names):
        if row in spans:
            spans[row] = [min(first, spans[row][0]), max(last, spans[row][1])]
    _add_plain_comments(source, texts, spans, names)
    if is_form(source, leaving):
        start = 0
        for row in sorted(spans):
            spans[row][0], start = start, spans[row][1] + 1
        spans[max(spans)][1] = len(texts) - 1
    return {name: (spans[row][0], row, spans[row][1]) for name, row in own.items()}


def _runs(source: CellSource, texts: Sequence[str], fields: Collection[int]) -> Iterator[tuple[int, int]]:
    """The first and the last row of each group of form texts in adjacent lines. A horizontal line ends a group, and
    below a field a heading begins another one."""
    marked = [
        row
        for row in (source.line_of(mark.start) for mark in marks(source) if mark.kind == "markdown")
        if texts[row].lstrip().startswith("#")
    ]
    while marked:
        last = first = marked.pop(0)
        while marked and marked[0] == last + 1 and not _RULE.search(texts[last]):
            if first - 1 in fields and _SECTION.search(texts[last + 1]):
                break
            last = marked.pop(0)
        yield first, last


def _described(
    source: CellSource, texts: Sequence[str], names: Mapping[int, str]
) -> Iterator[tuple[tuple[int, int], int | None]]:
    """Each group of form texts with the row of the field that it describes. A group without one belongs to the next or
    the previous group, if only blank lines separate them and the second does not begin a section."""
    titles = {source.line_of(mark.start) for mark in marks(source) if mark.kind == "title"}
    runs = list(_runs(source, texts, names))
    if runs and _starts_cell(texts, runs[0][0]):
        runs[:1] = _without_title(texts, *runs[0], has_title=bool(titles))
    # A text directly below a title describes the cell, except one that introduces what follows.
    runs = [(first, last) for first, last in runs if first - 1 not in titles or texts[last].rstrip(" *_").endswith(":")]
    rows = [_described_row(texts, first, last, names) for first, last in runs]
    pairs = [
        (number, number + 1) for number in range(len(runs) - 1) if _are_adjacent(texts, runs[number], runs[number + 1])
    ]
    for upper, lower in reversed(pairs):
        row = rows[lower]
        if rows[upper] is None and row is not None and row > runs[lower][1] and not _starts_cell(texts, runs[upper][0]):
            rows[upper] = row
    yield from zip(runs, rows, strict=True)


def _without_title(texts: Sequence[str], first: int, last: int, *, has_title: bool) -> list[tuple[int, int]]:
    """The group of form texts at the start of a cell without its heading, which is the title of a cell without one,
    except above others of its level; nothing of a group about "this cell"."""
    if any(_OF_CELL.search(text) for text in texts[first : last + 1]):
        return []
    levels = [found[1] if (found := _HEADING.search(text)) else "" for text in texts[first:]]
    first += not has_title and levels[0] != "" and levels.count(levels[0]) == 1
    return [(first, last)] if first <= last else []


def _are_adjacent(texts: Sequence[str], upper: tuple[int, int], lower: tuple[int, int]) -> bool:
    """Whether only blank lines separate two groups of form texts, and the second does not begin a section."""
    between = texts[upper[1] + 1 : lower[0]]
    return not (any(map(str.strip, between)) or _RULE.search(texts[upper[1]]) or _SECTION.search(texts[lower[0]]))


def _starts_cell(texts: Sequence[str], row: int) -> bool:
    """Whether only blank lines and comments precede a row."""
    return all(text.lstrip()[:1] in ("", "#") for text in texts[:row])


def _add_plain_comments(
    source: CellSource, texts: Sequence[str], spans: dict[int, list[int]], fields: Mapping[int, str]
) -> None:
    """Adds to the rows of each field the plain comment directly above, if nothing would be left directly below it but
    the comment of another field, or if another moved field is directly above it. A comment at the start of a cell
    describes the cell. A comment alone directly below a field is added if it contains the words of the field's
    name."""
    plain = {source.line_of(start) for start, _ in comments(source)}
    plain = {row for row in plain if texts[row].lstrip().startswith("#") and not MARK.search(texts[row])}
    moved = {row for first, last in spans.values() for row in range(first, last + 1)}
    for span in spans.values():
        first, last = span
        while first - 1 in plain:
            first -= 1
        while last + 1 in moved:
            last += 1
        following = next((row for row in range(last + 1, len(texts)) if row not in plain), len(texts))
        is_alone = not any(map(str.strip, texts[last + 1 : last + 2])) or (following > last + 1 and following in fields)
        has_words = re.search(r"\w", "".join(texts[first : span[0]])) is not None
        is_second = first - 1 > 0 and not texts[first - 1].strip() and any(map(str.strip, texts[: first - 1]))
        if has_words and (is_alone or first - 1 in moved) and (is_second or not _starts_cell(texts, first)):
            span[0] = first
    for row, span in spans.items():
        words = set(re.findall(r"[^\W_]+", fields[row].lower()))
        if span[1] == row and row + 1 in plain and not any(map(str.strip, texts[row + 2 : row + 3])):
            span[1] += words <= set(re.findall(r"[^\W_]+", texts[row + 1].lower()))


def _described_row(texts: Sequence[str], first: int, last: int, names: Mapping[int, str]) -> int | None:
    """The row of the field that the form texts `first` to `last` describe: the one below them, unless they name only
    the one above, are items of a list, or no field follows. Between a text and its field there may be blank lines,
    which a form does not show, except at the start of a cell: that text describes the cell. Below a field, only a note
    (a list, a quotation, in brackets or italic) may follow after blank lines."""
    run, above, following = texts[first : last + 1], names.get(first - 1), last + 1
    is_of_below = above is None or (_SECTION.search(run[0]) and not _CLOSES.search(run[0]))
    if is_of_below and not _starts_cell(texts, first) and not _ITEM.search(run[0]):
        following += next((count for count, text in enumerate(texts[following:]) if text.strip()), 0)
    below = names.get(following)
    if not is_of_below:
        words = re.findall(r"\w+", "\n".join(run))
        is_of_above = above in words and below not in words and not run[-1].rstrip(" *_").endswith(":")
        is_of_above = is_of_above or _follow_fields(texts, names)
        if below is None or is_of_above or _ITEM.search(run[0]):
            return first - 1
    if below is None and _NOTE.search(run[0]):
        upper = next((row for row in range(first - 1, -1, -1) if texts[row].strip()), -1)
        return upper if upper in names else None
    return following if below is not None else None


def _follow_fields(texts: Sequence[str], names: Collection[int]) -> bool:
    """Whether a text or another field follows each field of a cell directly, and none but a heading precedes the first
    field, so that each text describes the field above it."""

    def is_text(row: int) -> bool:
        text = texts[row] if 0 <= row < len(texts) else ""
        found = MARK.search(text)
        return found is not None and found["kind"] == "markdown" and not _SECTION.search(text)

    follow = all(row + 1 in names or is_text(row + 1) for row in names)
    return len(names) > 1 and follow and not is_text(min(names) - 1)


def is_form(source: CellSource, leaving: Sequence[FormField]) -> bool:
    """Whether a cell contains only moved fields and comments."""
    body = source.tree.body if source.tree else []
    statements = {id(field.statement) for field in leaving}
    return bool(leaving) and source.magic is None and all(id(node) in statements for node in body)


def _plain_comment(line: str) -> str:
    """`#@title Training {display-mode: "form"}` as `# Training`."""
    mark = MARK.search(line)
    if mark is None:
        return line.strip()
    return masked(f"{line[: mark.start()].strip()} {text_comment(mark['kind'], mark['text'])}".strip())


def _movable(source: CellSource) -> list[ast.stmt]:
    """The assignments of the fields without an obstacle of their own."""
    return [field.statement for field in form_fields(source) if field.statement is not None and not field.obstacle]


def _obstacle(name: str, group: list[tuple[CellSource, FormField]], names: Mapping[int, CellNames]) -> str:
    """Why the fields of one name, none with an obstacle of its own, must stay; empty if they can be moved. `names` are
    those of the other statements, by cell."""
    if name in _RESERVED or name.startswith("_"):
        return "its name has another meaning in the local notebook"
    if others := [cell for cell, found in names.items() if name in found.bound]:
        return f"the name is also assigned in cell {others[0]}"
    for cell, found in names.items():
        if found.computes:
            return f"cell {cell} may assign the name by its text, as `globals()[name] = value` does"
    if len(group) > 1:
        own = ", ".join(str(cell) for cell in sorted({source.index for source, _ in group}))
        return f"cells {own} have a field of this name each"
    source, field = group[0]
    start = source.span(field.statement)[0] if field.statement is not None else 0
    before = {cell: found for cell, found in names.items() if cell < source.index}
    above = source.text[:start]
    if name in above or MAY_BIND_ANYTHING.search(above):
        before[source.index] = names_of(source, until=start)
    for cell, found in before.items():
        if name in found.used or (name in found.deferred and hasattr(builtins, name)):
            return f"the name is used before, in cell {cell}"
    anything = next((found.anything for found in before.values() if found.anything), "")
    return f"`{anything}` runs before it and may set the name" if anything else ""


def _parameter(source: CellSource, field: FormField, *, stays: str) -> Parameter:
    if stays:
        return Parameter(source.index, field.name, "", stays=stays)
    node = field.value
    value = ast.literal_eval(node)
    declared = declaration(field.mark.text)
    written = source.segment(node)
    if masked(written) != written or (isinstance(value, str) and _is_secret(field.name, value)):
        return Parameter(source.index, field.name, "", stays="papermill would write its secret to the notebook")
    if any(_LOCAL_MEANING.search(text) for text in _texts(value)):
        return Parameter(source.index, field.name, "", stays="it names a path of Colab's machine")
    if "\n" in written:
        written = written_literal(value)
    comment = masked(papermill_comment(_without_colab(declared), value))
    return Parameter(source.index, field.name, written, comment)


def _is_secret(name: str, value: str) -> bool:
    """Whether a text is a secret, or a placeholder for one, by its name or value."""
    is_opaque = re.fullmatch(r"(?=.*\d)[\w./+=:-]{16,}", value)
    is_password = re.search("pass|pwd", name, re.IGNORECASE)
    named = is_secret_name(name) and (is_placeholder(value) or is_opaque or is_password)
    return bool(named or find_secrets(value))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for pair in value.items() for part in pair for text in _texts(part))
    elif isinstance(value, list | tuple):
        yield from (text for part in value for text in _texts(part))


def _without_colab(declared: Declaration) -> Declaration:
    """The declaration without texts that are valid on Colab only."""
    options = tuple(option for option in declared.options if not _LOCAL_MEANING.search(str(option)))
    settings = tuple((key, value) for key, value in declared.settings if not _LOCAL_MEANING.search(value))
    return Declaration(options, settings, "" if _LOCAL_MEANING.search(declared.note) else declared.note)
