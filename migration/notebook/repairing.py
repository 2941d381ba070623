"""Converts a parsed notebook of any version to nbformat 4: every field is present and valid, and there are no others.
The rest of the migrator relies on it: `cells` is a list of dictionaries of a known type, sources are texts, code cells
have outputs. Valid parts stay the same objects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from core.errors import UsageError
from migration.notebook.findings import Notes, listed

INVALID = "LF106"
MANY_LINES = 200  # a list of more lines is long
_JSON_MIME = re.compile(r"application/(.*\+)?json$")


class _Field(NamedTuple):
    """One field of a cell or an output: the form that any value gets. A value that has it already is valid; so are
    those that `allows` accepts, such as a text in lines."""

    repair: Callable[[Any], Any]
    allows: Callable[[Any], bool] = lambda value: False


def repaired(notebook: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
    """The notebook as nbformat 4 (its minor version is kept), with a note for each repair. The input is not changed."""
    version = notebook.get("nbformat")
    if type(version) is int and 1 <= version <= 3:
        notebook = _converted(notebook, notes)
    cells = notebook.get("cells")
    if not isinstance(cells, list):
        notes.add(INVALID, "the list of cells was missing: the notebook is empty")
        cells = []
    if any(not isinstance(cell, dict) for cell in cells):
        notes.add(INVALID, "a cell that is not an object was removed")
    metadata = notebook.get("metadata")
    if not isinstance(metadata, dict):
        notes.add(INVALID, "the notebook's metadata was missing")
        metadata = {}
    wrong = {name for name, kind in _METADATA.items() if not isinstance(metadata.get(name, kind()), kind)}
    unknown = notebook.keys() - {"cells", "metadata", "nbformat", "nbformat_minor"}
    if wrong or unknown:
        notes.add(INVALID, f"invalid fields of the notebook were removed: {listed(wrong | unknown)}")
    minor = notebook.get("nbformat_minor")
    if notebook.get("nbformat") != 4 or not _is_count(minor) or minor > 5:
        notes.add(INVALID, f"the version `{version}.{minor}` is not one of nbformat 4.0 to 4.5; it was read as one")
        minor = 5 if _is_count(minor) and minor > 5 else 0
    return {
        "cells": [_cell(cell, index, notes) for index, cell in enumerate(filter(_is_mapping, cells))],
        "metadata": {key: value for key, value in metadata.items() if key not in wrong},
        "nbformat": 4,
        "nbformat_minor": minor,
    }


def _converted(notebook: Mapping[str, Any], notes: Notes) -> Mapping[str, Any]:
    """A notebook of nbformat 1 to 3 as nbformat converts it to 4."""
    try:
        from nbformat import convert, reader
    except ImportError:
        raise UsageError("it was written as nbformat 3 or older", hint='pip install "nbformat>=5.10"') from None
    try:
        new = convert(reader.reads(json.dumps(notebook)), 4)
    except Exception as error:
        raise UsageError(f"it was written as nbformat {notebook['nbformat']}, and is damaged: {error!r}") from None
    notes.add("LF103", f"was written as nbformat {notebook['nbformat']}")
    # Ids are given later, by position and content.
    cells = [{key: value for key, value in cell.items() if key != "id"} for cell in new["cells"]]
    return {**new, "cells": cells, "nbformat_minor": 0}


def _cell(cell: dict[str, Any], index: int, notes: Notes) -> dict[str, Any]:
    kind = cell.get("cell_type")
    if not isinstance(kind, str) or kind not in _CELLS:
        kind = "code" if {"outputs", "execution_count"} & cell.keys() else "raw" if kind else "markdown"
        notes.add(INVALID, f"a cell of the unknown type `{cell.get('cell_type')}` became a {kind} cell", index)
    new = {"cell_type": kind, **_fitted(cell, _CELLS[kind], f"{kind} cell", index, notes)}
    if kind == "code":
        outputs = [_output(output, index, notes) for output in new["outputs"]]
        new["outputs"] = [output for output in outputs if output is not None]
    return new


def _output(output: object, index: int, notes: Notes) -> dict[str, Any] | None:
    kind = output.get("output_type") if isinstance(output, dict) else None
    if not isinstance(output, dict) or not isinstance(kind, str) or kind not in _OUTPUTS:
        notes.add(INVALID, "an output of an unknown type was removed", index)
        return None
    new = {"output_type": kind, **_fitted(output, _OUTPUTS[kind], f"`{kind}` output", index, notes)}
    return output if new == output else new


def _fitted(
    record: dict[str, Any], fields: Mapping[str, _Field], what: str, index: int, notes: Notes
) -> dict[str, Any]:
    """The fields of a cell or an output, each with a valid value, and no others."""
    names = [name for name in fields if name in record or name not in _OPTIONAL]
    new = {name: fields[name].repair(record.get(name)) for name in names}
    wrong = {
        name
        for name in names
        if name not in record or not (new[name] == record[name] or fields[name].allows(record[name]))
    }
    if wrong:
        notes.add(INVALID, f"missing or invalid fields of a {what} were set: {listed(wrong)}", index)
    if unknown := record.keys() - fields.keys() - {"cell_type", "output_type"}:
        notes.add(INVALID, f"invalid fields of a {what} were removed: {listed(unknown)}", index)
    return new


# ------------------------------------------------------------------------------------------------------------- values
def _is_mapping(value: object) -> bool:
    return isinstance(value, dict)


def _is_text(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and set(map(type, value)) <= {str})


def _joined(value: object) -> str:
    """A text or a list of lines as one text; any other value as its text, if it is a number."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(value if _is_text(value) else map(_joined, value))
    return str(value) if isinstance(value, int | float) else ""


def _stream_text(value: object) -> str | list[str]:
    """Like `_joined`, except that a long list with non-ASCII characters stays a list, because the joined text could
    need four bytes per character."""
    if isinstance(value, list) and len(value) >= MANY_LINES and _is_text(value):
        return value if not all(line.isascii() for line in value) else _joined(value)
    return _joined(value)


def _is_count(value: object) -> bool:
    """Whether a value is an integer from 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_bundle(value: object) -> bool:
    return isinstance(value, dict) and all(_JSON_MIME.match(mime) or _is_text(part) for mime, part in value.items())


def _bundle(value: object) -> dict[str, Any]:
    """The formats of an output by MIME type: texts are joined, JSON is kept, others are removed."""
    if not isinstance(value, dict) or all(isinstance(part, str) for part in value.values()):
        return value if isinstance(value, dict) else {}
    kept = {mime: part for mime, part in value.items() if _JSON_MIME.match(mime) or _is_text(part)}
    return {mime: part if _JSON_MIME.match(mime) else _joined(part) for mime, part in kept.items()}


def _are_attachments(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_bundle, value.values()))


def _attachments(value: object) -> dict[str, Any]:
    return {name: _bundle(part) for name, part in value.items() if _is_mapping(part)} if _is_mapping(value) else {}


def _tags(value: object) -> list[str]:
    """The valid tags of a list, each once."""
    tags = value if isinstance(value, list) else []
    return list(dict.fromkeys(tag for tag in tags if isinstance(tag, str) and tag and not re.search("[,\n]", tag)))


_METADATA: dict[str, type] = {"title": str, "authors": list}
"""Fields of the notebook's metadata whose type the schema fixes."""
_CELL_METADATA: dict[str, Callable[[Any], bool]] = {
    "tags": lambda value: isinstance(value, list) and _tags(value) == value,
    "name": lambda value: isinstance(value, str) and value.splitlines() == [value],
    "jupyter": _is_mapping,
    "collapsed": lambda value: isinstance(value, bool),
    "scrolled": lambda value: isinstance(value, bool) or value == "auto",
    "execution": lambda value: _is_mapping(value) and all(isinstance(text, str) for text in value.values()),
    "format": lambda value: isinstance(value, str),
}
"""Fields of a cell's metadata whose values the schema restricts for some type of cell."""


def _metadata(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {}
    new = {key: part for key, part in value.items() if key not in _CELL_METADATA or _CELL_METADATA[key](part)}
    tags = _tags(value.get("tags"))
    return {**new, "tags": tags} if tags else new


_ID = _Field(lambda value: value)  # `structure` checks and sets the ids
_TEXT = _Field(_joined, _is_text)
_NAME = _Field(_joined)
_COUNT = _Field(lambda value: value if _is_count(value) else None)
_MAPPING = _Field(lambda value: value if _is_mapping(value) else {})
_LIST = _Field(lambda value: value if isinstance(value, list) else [])
_LINES = _Field(lambda value: value if isinstance(value, list) and _is_text(value) else [_joined(value)])
_BUNDLE = _Field(_bundle, _is_bundle)
_ANY_CELL = {"id": _ID, "metadata": _Field(_metadata), "source": _TEXT}
_TEXT_CELL = {**_ANY_CELL, "attachments": _Field(_attachments, _are_attachments)}
_CELLS = {
    "code": {**_ANY_CELL, "execution_count": _COUNT, "outputs": _LIST},
    "markdown": _TEXT_CELL,
    "raw": _TEXT_CELL,
}
_DISPLAY = {"data": _BUNDLE, "metadata": _MAPPING}
_OUTPUTS = {
    "stream": {
        "name": _Field(lambda value: _joined(value) or "stdout"),
        "text": _Field(_stream_text, _is_text),
    },
    "display_data": _DISPLAY,
    "execute_result": {**_DISPLAY, "execution_count": _COUNT},
    "error": {"ename": _NAME, "evalue": _NAME, "traceback": _LINES},
}
_OPTIONAL = {"id", "attachments"}
