"""Form fields of a notebook that become papermill parameters. A cell of fields is moved to the parameters cell as a
whole if that changes nothing else: each value is a literal, its name is bound nowhere else, and it is not used before.
The other fields stay in their cells, next to the code that uses them.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Mapping, Sequence
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
    papermill_comment,
    text_comment,
    written_literal,
)
from migration.python.source import CellSource

_RESERVED = frozenset({"work_dir", "drive_dir", "WORK_DIR", "DRIVE_DIR", "START_DIR", "os", "sys"})
_WORD = re.compile(r"\w+")
_LOCAL_MEANING = re.compile(
    r"(?<![\w.<])/content\b|google\.colab|colab\.research|(?<![\w.])/g?drive\b|(?:^|\./)g?drive/(?:My ?Drive|Shared)|"
    r"^/(?:mydrive|root|usr|opt|home|datalab|tools)\b"
)


@dataclass(frozen=True)
class Parameter:
    """One form field: `name = value` of cell `cell` (its position in the original notebook).

    `value` is the literal in the parameters cell, `comment` the text after it (papermill's `# type: int …` form with
    range and options). `stays`: why a field is not moved, else empty. `above` and `below` are the lines of the cell
    that are moved with it: comments and blank lines.
    """

    cell: int
    name: str
    value: str
    comment: str = ""
    stays: str = ""
    above: tuple[str, ...] = ()
    below: tuple[str, ...] = ()


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
    return tuple(found for source, parameters in planned.items() for found in _of_cell(source, parameters))


def _of_cell(source: CellSource, parameters: Sequence[Parameter]) -> Iterator[Parameter]:
    """The parameters of a cell: they are moved together with all its comments, or none of them is."""
    if any(parameter.stays for parameter in parameters) or not is_form(source):
        reason = "another field of its cell stays" if is_form(source) else "its cell contains other code"
        yield from (replace(parameter, stays=parameter.stays or reason) for parameter in parameters)
        return
    lines = [_plain_comment(line) for line in source.text.split("\n")]
    for parameter, (first, row, last) in zip(parameters, rows_of(source), strict=True):
        yield replace(parameter, above=tuple(lines[first:row]), below=tuple(lines[row + 1 : last + 1]))


def rows_of(source: CellSource) -> list[tuple[int, int, int]]:
    """For each field of a form the first row that is moved with it, its own row, and the last one, from 0: the comments
    above it, and those below the last field."""
    rows = [source.line_of(field.mark.start) for field in form_fields(source)]
    return list(zip([0, *(row + 1 for row in rows[:-1])], rows, [*rows[:-1], source.text.count("\n")], strict=True))


def is_form(source: CellSource) -> bool:
    """Whether a cell contains only fields, without an obstacle of their own, and comments."""
    fields = form_fields(source)
    statements = {id(field.statement) for field in fields if not field.obstacle}
    body = source.tree.body if source.tree else []
    is_complete = len(statements) == len(fields) == len(body)
    return bool(fields) and is_complete and source.magic is None and all(id(node) in statements for node in body)


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
