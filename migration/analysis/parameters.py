"""Which form fields of a notebook become parameters that papermill fills.

A field is hoisted where it changes nothing else: its value is a literal, its name is bound nowhere else,
and nothing uses it before. The others stay where they are.
"""

from __future__ import annotations

import ast
import builtins
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from core.secrets import find_secrets, is_placeholder, is_secret_name, masked, variable_for
from migration.analysis.variables import NotebookNames
from migration.colab.forms import FIELD_TRIGGER, FormField, declaration, form_fields, papermill_comment
from migration.python.source import CellSource

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
    fields = [(source, field) for source in cells if FIELD_TRIGGER.fires(source.text) for field in form_fields(source)]
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
    written = source.segment(node) if not folder else written_literal(value)
    if re.search("[=#\n]", written):
        written = written_literal(value)
    comment = masked(papermill_comment(declared, value, relative_to=f"{folder}_dir" if folder else ""))
    return Parameter(source.index, field.name, written, comment, folder=folder)


def below_folder(path: str) -> tuple[str, str]:
    """The folder of Colab's that a path is in, `work` or `drive`, and the rest of it; ("", path) for any other text."""
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


def written_literal(value: Any) -> str:
    """A literal that papermill's help can read: it takes a second `=` for an assignment and `#` for a comment."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("=", r"\x3d").replace("#", r"\x23")
    if isinstance(value, dict):
        return "{" + ", ".join(f"{written_literal(key)}: {written_literal(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written_literal, value)) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(written_literal, value)) + ("," if len(value) == 1 else "") + ")"
    return repr(value)
