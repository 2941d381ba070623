"""Converts a parsed notebook of any version to nbformat 4: every field is present and valid, and there are no others.
The rest of the migrator relies on it: `cells` is a list of dictionaries of a known type, sources are texts, code cells
have outputs. Valid parts stay the same objects.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from migration.notebook.findings import Notes, listed
from migration.notebook.repairing_outputs import (
    INVALID,
    as_int,
    is_count,
    joined,
    repaired_bundle,
    repaired_count,
    repaired_outputs,
)

_CELL_FIELDS = {
    "code": {"cell_type", "id", "metadata", "source", "outputs", "execution_count"},
    "markdown": {"cell_type", "id", "metadata", "source", "attachments"},
    "raw": {"cell_type", "id", "metadata", "source", "attachments"},
}
_CELL_TYPES = {"heading": "markdown", "html": "markdown", "text": "markdown", "md": "markdown", "rawnbconvert": "raw"}
# Field names of cells and outputs in nbformat 1 to 3, and fields that were removed since.
_OLD_FIELDS = {"input", "prompt_number", "language", "collapsed", "level", "trusted", "rendered", "code", "text"}


def repaired(notebook: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
    """The notebook as nbformat 4 (its minor version is kept), with a note for each repair. The input is not changed."""
    old = _is_old(notebook)
    if old:
        notes.add("LF103", f"was written as nbformat {notebook.get('nbformat', 1)}")
    cells: list[dict[str, Any]] = []
    for cell in _cells_of(notebook, notes):
        if isinstance(cell, Mapping):
            cells.append(_cell(cell, len(cells), notes, old))
        else:
            notes.add(INVALID, "a cell that is not an object was removed")
    unknown = notebook.keys() - {"cells", "metadata", "nbformat", "nbformat_minor"} - ({"worksheets"} if old else set())
    if unknown:
        notes.add(INVALID, f"unknown fields of the notebook were removed: {listed(unknown)}")
    return {
        "cells": cells,
        "metadata": _metadata(notebook, notes, old),
        "nbformat": 4,
        "nbformat_minor": 0 if old else _minor(notebook, notes),
    }


def _is_old(notebook: Mapping[str, Any]) -> bool:
    version = str(notebook.get("nbformat", ""))[:1]
    return version in ("1", "2", "3") or ("cells" not in notebook and "worksheets" in notebook)


def _minor(notebook: Mapping[str, Any], notes: Notes) -> int:
    version, minor = notebook.get("nbformat"), notebook.get("nbformat_minor")
    if version == 4 and is_count(minor) and minor <= 5:
        return minor
    notes.add(INVALID, f"the version `{version}.{minor}` is not one of nbformat 4.0 to 4.5; it was read as one of them")
    return 5 if is_count(minor) and minor > 5 else 0


def _cells_of(notebook: Mapping[str, Any], notes: Notes) -> list[Any]:
    cells = notebook.get("cells")
    worksheets = notebook.get("worksheets")
    if not isinstance(cells, list) and isinstance(worksheets, list):
        sheets = [sheet.get("cells") for sheet in worksheets if isinstance(sheet, Mapping)]
        return [cell for cells in sheets if isinstance(cells, list) for cell in cells]
    if not isinstance(cells, list):
        notes.add(INVALID, "the list of cells was missing: the notebook is empty")
        return []
    return cells


def _metadata(notebook: Mapping[str, Any], notes: Notes, old: bool) -> dict[str, Any]:
    metadata = notebook.get("metadata")
    if not isinstance(metadata, Mapping):
        notes.add(INVALID, "the notebook's metadata was missing")
        return {}
    wrong = {
        key for key, kind in (("title", str), ("authors", list)) if not isinstance(metadata.get(key, kind()), kind)
    }
    if wrong:
        notes.add(INVALID, f"invalid metadata of the notebook was removed: {listed(wrong)}")
    wrong |= {"name", "signature"} if old else set()
    return {key: value for key, value in metadata.items() if key not in wrong}


# -------------------------------------------------------------------------------------------------------------- cells
def _cell(cell: Mapping[str, Any], index: int, notes: Notes, old: bool) -> dict[str, Any]:
    kind = _cell_type(cell, index, notes, old)
    new = {
        "cell_type": kind,
        "metadata": _cell_metadata(cell, kind, index, notes),
        "source": _source(cell, index, notes, old),
    }
    if "id" in cell:
        new["id"] = cell["id"]
    if kind == "code":
        count = cell.get("execution_count", cell.get("prompt_number"))
        new["execution_count"] = repaired_count(count, index, notes)
        new["outputs"] = repaired_outputs(cell, index, notes, old)
        if "execution_count" not in cell and not old:
            notes.add(INVALID, "a code cell without `execution_count` was given `null`", index)
    elif "attachments" in cell:
        new["attachments"] = _attachments(cell["attachments"], index, notes)
    if cell.get("cell_type") == "heading":
        new["source"] = f"{'#' * max(1, min(6, as_int(cell.get('level')) or 1))} {' '.join(new['source'].splitlines())}"
    moved = {name for name, to in (("input", "source"), ("prompt_number", "execution_count")) if cell.get(to) is None}
    unknown = cell.keys() - _CELL_FIELDS[kind] - (_OLD_FIELDS if old else moved)
    if unknown:
        notes.add(INVALID, f"invalid fields of a {kind} cell were removed: {listed(unknown)}", index)
    return new


def _cell_type(cell: Mapping[str, Any], index: int, notes: Notes, old: bool) -> str:
    stated = cell.get("cell_type")
    name = stated.lower() if isinstance(stated, str) else ""
    if stated in ("code", "markdown", "raw"):
        return name
    if name in ("code", "markdown", "raw"):
        kind = name
    elif {"outputs", "execution_count", "input"} & cell.keys():
        kind = "code"
    else:
        kind = _CELL_TYPES.get(name, "raw" if name else "markdown")
    if not (old and name in _CELL_TYPES):
        notes.add(INVALID, f"a cell of the unknown type `{stated}` became a {kind} cell", index)
    return kind


def _source(cell: Mapping[str, Any], index: int, notes: Notes, old: bool) -> str:
    value = next((cell[key] for key in ("source", "input", "code", "text") if cell.get(key) is not None), None)
    text = joined(value, old)
    if text is None:
        notes.add(INVALID, "a cell without a source was given an empty one", index)
        return ""
    if not isinstance(value, str) and not (isinstance(value, list) and all(isinstance(line, str) for line in value)):
        notes.add(INVALID, "lines of a source that are not text were converted to text", index)
    return text


def _cell_metadata(cell: Mapping[str, Any], kind: str, index: int, notes: Notes) -> dict[str, Any]:
    metadata = cell.get("metadata")
    if not isinstance(metadata, dict):
        # nbformat 1 and 2 have cells without metadata.
        if metadata is not None or "source" in cell:
            notes.add(INVALID, "a cell's metadata was missing", index)
        metadata = {}
    if isinstance(cell.get("collapsed"), bool):
        metadata = {"collapsed": cell["collapsed"], **metadata}
    wrong = {key for key, accepts in _CELL_METADATA.items() if key in metadata and not accepts(metadata[key], kind)}
    if not wrong:
        return metadata
    notes.add(INVALID, f"invalid metadata was corrected or removed: {listed(wrong)}", index)
    new = {key: value for key, value in metadata.items() if key not in wrong}
    tags = _tags(metadata.get("tags"))
    return {**new, "tags": tags} if tags else new


def _tags(value: object) -> list[str]:
    """The tags in an invalid value: a text, or a list with duplicates, commas, other values."""
    values = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    tags = [tag.strip() for text in values if isinstance(text, str) for tag in text.split(",")]
    return list(dict.fromkeys(tag for tag in tags if tag))


def _are_tags(value: object) -> bool:
    return (
        isinstance(value, list)
        and all(isinstance(tag, str) and re.search(r"^[^,]+$", tag) for tag in value)
        and len(set(value)) == len(value)
    )


def _are_texts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


# The fields of a cell's metadata in the schema, and whether a value is valid for a type of cell.
_CELL_METADATA = {
    "tags": lambda value, kind: _are_tags(value),
    "name": lambda value, kind: isinstance(value, str) and re.search(r"^.+$", value),
    "jupyter": lambda value, kind: isinstance(value, dict),
    "collapsed": lambda value, kind: isinstance(value, bool) or kind != "code",
    "scrolled": lambda value, kind: isinstance(value, bool) or value == "auto" or kind != "code",
    "execution": lambda value, kind: _are_texts(value) or kind != "code",
    "format": lambda value, kind: isinstance(value, str) or kind != "raw",
}


def _attachments(value: object, index: int, notes: Notes) -> dict[str, Any]:
    bundles = value if isinstance(value, dict) else {}
    kept = {
        name: repaired_bundle(data, index, notes, False) for name, data in bundles.items() if isinstance(data, dict)
    }
    if not isinstance(value, dict) or len(kept) < len(bundles):
        notes.add(INVALID, "invalid attachments were removed", index)
    return kept
