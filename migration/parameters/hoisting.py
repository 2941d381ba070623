"""Colab's form fields become one cell of parameters that papermill fills.

A field is hoisted where nothing else can tell the difference: its value is a literal, its name is bound nowhere else,
and nothing uses it before. The others stay where they are.
"""

from __future__ import annotations

import ast
import builtins
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from migration.cell.source import CellSource
from migration.matching import Edit, Keeps, Match, Rule, holding
from migration.parameters.bindings import NotebookNames
from migration.parameters.environment import is_secret_name, variable_for
from migration.parameters.form_fields import FormField, declaration, form_fields, papermill_comment
from migration.parameters.preamble import Folders, with_preamble
from migration.secrets import find_secrets, is_placeholder, masked

if TYPE_CHECKING:
    from migration.facts import NotebookFacts

__all__ = ["RULES", "Folders", "Parameter", "add_preamble", "plan_parameters"]

_TRIGGER = holding("param", like=r"#[ \t]*@[ \t]*param\b")
_RESERVED = frozenset({"work_dir", "drive_dir", "WORK_DIR", "DRIVE_DIR", "START_DIR", "KERNEL_PYTHON", "os", "sys"})
_DRIVE_PATH = re.compile(
    r"(?:/content/[\w-]+|/gdrive|(?:\./)?g?drive)/(?:My ?Drive/(?=[^/])|(?=Shared ?drives/))(?P<rest>.+)"
)
_WORK_PATH = re.compile(r"/content/(?!g?drive\b|google_drive\b)(?P<rest>[^/].*)")
_CONTENT = re.compile(r"/content/?")
_LOCAL_MEANING = re.compile(
    r"(?<![\w.])/content\b|google\.colab|colab\.research|(?<![\w.])/g?drive\b|(?:^|\./)g?drive/(?:My ?Drive|Shared)|"
    r"^/(?:mydrive|root|usr|opt|home|datalab|tools)\b"
)


@dataclass(frozen=True)
class Parameter:
    """One form field: `name = value` of cell `cell` (its position in the original notebook).

    `value` is the literal as it is written in the parameters cell, `comment` what follows it there (papermill's
    `# type: int …` form with range and options). `folder` is `work` or `drive` where the value is a path below that
    folder. `environment` names the variable that a secret is read from, and `fallback` is the literal used where
    nothing is given, empty where only a real secret would do. A field with `stays` is not hoisted, and that says why.
    """

    cell: int
    name: str
    value: str
    comment: str = ""
    folder: str = ""
    environment: str = ""
    fallback: str = ""
    stays: str = ""


def plan_parameters(cells: Sequence[CellSource]) -> tuple[Parameter, ...]:
    """Every form field of a notebook's code cells in its order: what becomes of it, or why it stays."""
    fields = [(source, field) for source in cells if _TRIGGER.fires(source.text) for field in form_fields(source)]
    if not fields:
        return ()
    names = NotebookNames(cells, {field.name for _, field in fields})
    groups: dict[str, list[tuple[CellSource, FormField]]] = {}
    for source, field in fields:
        if field.name and not field.obstacle:
            groups.setdefault(field.name, []).append((source, field))
    obstacles = {name: _obstacle(name, group, names) for name, group in groups.items()}
    return tuple(
        _parameter(source, field, stays=field.obstacle or obstacles.get(field.name, "")) for source, field in fields
    )


def _obstacle(name: str, group: list[tuple[CellSource, FormField]], names: NotebookNames) -> str:
    """Why the fields of one name, each of which could be hoisted by itself, must stay; empty where they need not."""
    own = sorted((source.index, source.span(field.statement)[0]) for source, field in group if field.statement)
    if name in _RESERVED or name.startswith("_"):
        return "its name has another meaning in the local notebook"
    others = [place for place in names.bindings(name) if place not in own]
    if others:
        return f"the name is also assigned in cell {others[0][0]}"
    if len({ast.dump(field.value) for _, field in group}) > 1:
        return f"cells {', '.join(str(cell) for cell in sorted({cell for cell, _ in own}))} give it different values"
    before = [use for use in names.uses_before(name, own[0]) if not use.deferred or hasattr(builtins, name)]
    if before:
        return f"the name is used before, in cell {before[0].place[0]}"
    anything = names.anything_before(own[-1])
    if anything:
        return f"`{anything}` runs before it and may set the name"
    return ""


def _parameter(source: CellSource, field: FormField, *, stays: str) -> Parameter:
    if stays:
        return Parameter(source.index, field.name, "", stays=stays)
    node = field.value
    value = ast.literal_eval(node)
    declared = declaration(field.mark.text)
    environment = secret_variable(field.name, value) if isinstance(value, str) else ""
    if environment:
        is_real = not is_placeholder(value)
        comment = f"# type: str secret: leave it empty and set {environment} in the environment"
        fallback = "" if is_real else source.segment(node)
        return Parameter(source.index, field.name, '""', comment, environment=environment, fallback=fallback)
    folder = ""
    if isinstance(value, str):
        if _CONTENT.fullmatch(value):
            return Parameter(source.index, field.name, "", stays="its value is the work folder itself, now `work_dir`")
        folder, value = below_folder(value)
    if masked(source.segment(node)) != source.segment(node):
        return Parameter(source.index, field.name, "", stays="its value holds a secret")
    if any(_LOCAL_MEANING.search(text) for text in _texts(value)):
        return Parameter(source.index, field.name, "", stays="its value holds a path of Colab's machine")
    options = tuple(below_folder(option)[1] if isinstance(option, str) else option for option in declared.options)
    declared = _without_colab(type(declared)(options, declared.settings, declared.note))
    written = source.segment(node) if not folder else _written(value)
    if re.search("[=#\n]", written):
        written = _written(value)
    comment = masked(papermill_comment(declared, value, relative_to=f"{folder}_dir" if folder else ""))
    return Parameter(source.index, field.name, written, comment, folder=folder)


def below_folder(path: str) -> tuple[str, str]:
    """Which folder of Colab's a path lies in, `work` or `drive`, and the rest of it; ("", path) for any other text."""
    found = _DRIVE_PATH.fullmatch(path)
    if found:
        return "drive", found["rest"]
    found = _WORK_PATH.fullmatch(path)
    return ("work", found["rest"]) if found else ("", path)


def secret_variable(name: str, value: str) -> str:
    """The environment variable for a secret of this name or value; empty where neither looks like one."""
    found = find_secrets(value)
    if found:
        return variable_for(name, found[0].kind)
    is_opaque = re.fullmatch(r"(?=.*\d)[\w./+=:-]{16,}", value)
    is_password = re.search("pass|pwd", name, re.IGNORECASE)
    if is_secret_name(name) and (is_placeholder(value) or is_opaque or is_password):
        return variable_for(name)
    return ""


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for pair in value.items() for part in pair for text in _texts(part))
    elif isinstance(value, list | tuple):
        yield from (text for part in value for text in _texts(part))


def _without_colab(declared: Any) -> Any:
    """The declaration without the texts that only mean something on Colab's machine."""
    options = tuple(option for option in declared.options if not _LOCAL_MEANING.search(str(option)))
    settings = tuple((key, value) for key, value in declared.settings if not _LOCAL_MEANING.search(value))
    note = "" if _LOCAL_MEANING.search(declared.note) else declared.note
    return type(declared)(options, settings, note)


def _written(value: Any) -> str:
    """A literal that papermill's help can read: it takes a second `=` for an assignment and `#` for a comment."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("=", r"\x3d").replace("#", r"\x23")
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_written(key)}: {_written(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_written, value)) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_written, value)) + ("," if len(value) == 1 else "") + ")"
    return repr(value)


# --------------------------------------------------------------------------------------------------------- the rules
def _fields_to_hoist(source: CellSource, facts: NotebookFacts) -> list[tuple[FormField, Parameter]]:
    planned = {p.name: p for p in facts.parameters if p.cell == source.index and not p.stays}
    if not planned or source.tree is None:
        return []
    fields = [field for field in form_fields(source) if not field.obstacle and field.name in planned]
    return [(field, planned[field.name]) for field in fields]


def _find_literals(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    hoisted = _fields_to_hoist(source, facts)
    removed = [field for field, parameter in hoisted if not parameter.folder and not parameter.environment]
    kept = _needs_statement(source, removed)
    for field in removed:
        start, end = source.line_span(field.mark.start, field.mark.end)
        if field is kept:
            edit = Edit(start, end, f"pass  # {field.name} is a parameter")
        elif end < len(source.text):
            edit = Edit(start, end + 1, "")
        else:
            edit = Edit(max(start - 1, 0), end, "")
        yield Match(start, end, f"form field `{field.name}` becomes a parameter of the notebook", (edit,))


def _needs_statement(source: CellSource, removed: list[FormField]) -> FormField | None:
    """The last field, where the cell would be empty below its magic or would show a value without it."""
    statements = {id(field.statement): field for field in removed}
    body = source.tree.body if source.tree else []
    if not body or id(body[-1]) not in statements:
        return None
    left = [statement for statement in body if id(statement) not in statements]
    if not left:
        return statements[id(body[-1])] if source.magic else None
    last = left[-1]
    if not isinstance(last, ast.Expr) or _shows_nothing(source, last):
        return None
    return statements[id(body[-1])]


def _shows_nothing(source: CellSource, statement: ast.Expr) -> bool:
    command = source.command_of(statement)
    if command is not None:
        return command.kind == "shell"
    call = statement.value
    is_print = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "print"
    return is_print or source.text.startswith(";", source.span(statement)[1])


def _find_paths(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for field, parameter in _fields_to_hoist(source, facts):
        if parameter.folder:
            folder = facts.drive if parameter.folder == "drive" else facts.work
            start, end = source.line_span(field.mark.start, field.mark.end)
            line = f"{field.name} = os.path.join({folder}, {field.name})"
            message = f"form field `{field.name}`, a path, becomes a parameter relative to {folder}"
            yield Match(start, end, message, (Edit(start, end, line),))


def _find_secrets(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for field, parameter in _fields_to_hoist(source, facts):
        if not parameter.environment:
            continue
        start, end = source.line_span(field.mark.start, field.mark.end)
        variable = parameter.environment
        if parameter.fallback:
            keeps, lookup = Keeps.EQUIVALENT, f'os.environ.get("{variable}", {parameter.fallback})'
            action = f"set {variable} in the environment: papermill writes the parameters it is given into the notebook"
        else:
            keeps, lookup = Keeps.NEEDS_HUMAN, f'os.environ["{variable}"]'
            action = f"revoke the secret that was written here, and set {variable} in the environment"
        message = f"form field `{field.name}` holds a secret and is read from the environment where it is empty"
        edit = Edit(start, end, f"{field.name} = {field.name} or {lookup}")
        yield Match(start, end, message, (edit,), action, keeps)


RULES: tuple[Rule, ...] = (
    Rule(
        "LF610",
        "form field to parameter",
        "`name = literal  #@param {…}` at the top level of a cell, where the name is bound nowhere else and not used "
        "before",
        "`name = literal  # type: int slider, 1 to 100` in the one cell tagged `parameters`; the line goes",
        Keeps.EXACT,
        _find_literals,
        _TRIGGER,
    ),
    Rule(
        "LF611",
        "path field to parameter",
        '`out = "/content/out"  #@param {…}`, or a path on the drive, where it can be hoisted',
        '`out = "out"` in the parameters cell; in its place `out = os.path.join(WORK_DIR, out)`, so that an absolute '
        "path given by papermill wins",
        Keeps.EQUIVALENT,
        _find_paths,
        _TRIGGER,
    ),
    Rule(
        "LF612",
        "secret field to environment",
        '`api_key = ""  #@param {…}` and other fields for tokens, keys and passwords, where they can be hoisted',
        '`api_key = ""` in the parameters cell; in its place `api_key = api_key or os.environ.get("API_KEY", "")`',
        Keeps.EQUIVALENT,
        _find_secrets,
        _TRIGGER,
    ),
    Rule(
        "LF615",
        "parameters and set-up cells",
        "a notebook with form fields, or with paths below the work or the drive folder",
        "before the first code cell one tagged `parameters` with `work_dir`, `drive_dir` and the fields, and one "
        "tagged `landfall-setup` that defines `WORK_DIR` and `DRIVE_DIR`",
        Keeps.EQUIVALENT,
    ),
)


def add_preamble(
    cells: list[dict[str, Any]], facts: NotebookFacts, folders: Folders, known: Iterable[CellSource] = ()
) -> list[dict[str, Any]]:
    """The cells with the parameters cell and the set-up cell before the first code cell, where the notebook needs them.

    Cells that have the tags are extended where something is missing, and left alone otherwise. `known` are code cells
    that were read before; one with the same text is not read again.
    """
    return with_preamble(cells, facts, folders, known)
