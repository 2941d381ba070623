"""Where a notebook mounts its drive, and whether it only mounts it."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Mapping, Sequence

from migration.analysis.names import ColabNames
from migration.colab.names import MOUNT, UNMOUNT, Use
from migration.python.scopes import accesses
from migration.python.source import CellSource
from migration.python.strings import comments
from migration.python.trees import walk

TEXT_MOUNT = re.compile(r"\bdrive\s*\.\s*mount\s*\(\s*[\"']([^\"'\n]+)[\"']")
_TEXT_USE = re.compile(r"\bdrive\s*\.\s*\w+\s*\(|google\.colab[^\n#]*\bdrive\b")
_DRIVE = re.compile(r"\b(?:drive|gdrive)\b", re.IGNORECASE)
SAYS_MOUNT = re.compile(
    r"\b(?:(?:un)?mount|connect)\w*\b.{0,40}\b(?:g|google)?drive\b|\bdrive\b.{0,20}\b(?:un)?mount(?:ed|s|ing)?\b",
    re.IGNORECASE,
)
"""A text about mounting the drive."""

_MAX_VALUES = 8
_CONTENT = "/content"


def is_mount(use: Use) -> bool:
    """A statement that only mounts or unmounts the drive, at a literal path."""
    if not use.is_statement or use.call is None:
        return False
    if use.path == UNMOUNT:
        return True
    return use.place is not None and len(_texts(use.place, {})) == 1


def introduced_mounts(cells: Sequence[CellSource], colab: ColabNames, texts: Mapping[int, str]) -> frozenset[int]:
    """The cells that only mount the drive, and whose comments or text cell above, of `texts` by position, name it."""
    found = set()
    for source in cells:
        calls = {id(use.call): use.path for use in colab.cell(source).uses if is_mount(use)}
        if MOUNT not in calls.values() or source.tree is None:
            continue
        own = "".join(source.text[start:end] for start, end in comments(source))
        only_mounts = all(
            isinstance(node, ast.Import | ast.ImportFrom) or id(getattr(node, "value", None)) in calls
            for node in source.tree.body
        )
        if only_mounts and _DRIVE.search(own + texts.get(source.index - 1, "")):
            found.add(source.index)
    return frozenset(found)


def is_static(cells: Sequence[CellSource], colab: ColabNames) -> bool:
    """Whether Colab's drive is only mounted, at literal paths, or unmounted. A mount that is only a comment may be used
    later, and needs its import."""
    if not colab.bindings:
        return False
    is_mounted = False
    for source in cells:
        if not colab.cell(source).concerned:
            continue
        if source.tree is None and source.is_python and _TEXT_USE.search(source.text):
            return False
        for use in colab.cell(source).uses:
            if use.path == "drive" or use.path.startswith("drive."):
                is_mounted = True
                if not is_mount(use):
                    return False
    return is_mounted or not any(_commented_mounts(source) for source in cells)


def _commented_mounts(source: CellSource) -> list[str]:
    """The folders of mounts that are commented out."""
    named = "mount" in source.text and TEXT_MOUNT.search(source.text)
    spans = comments(source) if named and source.tree is not None else []
    return [point for start, end in spans for point in TEXT_MOUNT.findall(source.text, start, end)]


def last_sign_in(source: CellSource, colab: ColabNames) -> int | None:
    """The last row in which a cell mounts the drive, or signs in in a branch that is removed."""
    cell = colab.cell(source)
    rows = [
        source.line_of(source.span(use.node)[0])
        for use in cell.names.uses
        if use.path == MOUNT or (use.path.startswith("auth.") and id(use.node) in cell.removed)
    ]
    return max(rows, default=None)


def mount_points(cells: Sequence[CellSource], colab: ColabNames) -> tuple[str, ...]:
    """The absolute folders at which the drive is mounted, as far as the text contains them; longest first."""
    points: set[str] = set()
    constants: Mapping[str, set[str]] | None = None
    for source in cells:
        if "mount" not in source.text or not colab.cell(source).concerned:
            continue
        if source.tree is None and source.is_python:
            points |= set(TEXT_MOUNT.findall(source.text))
        for use in colab.cell(source).uses:
            if use.place is None:
                continue
            if constants is None:
                constants = _constants(cells, _free_names(use.place))
            points |= _texts(use.place, constants)
    points = points or {point for source in cells for point in _commented_mounts(source)}
    absolute = {posixpath.normpath(posixpath.join(_CONTENT, point)) for point in points if point.strip("/. ")}
    return tuple(sorted(absolute - {_CONTENT}, key=lambda point: (-len(point), point)))


def _free_names(node: ast.expr) -> set[str]:
    return {part.id for part in walk(node) if isinstance(part, ast.Name)}


def _constants(cells: Sequence[CellSource], names: set[str]) -> Mapping[str, set[str]]:
    """The texts that are assigned to names of the module; empty for a name that also has other values."""
    values: dict[str, set[str]] = {}
    unknown: set[str] = set()
    for source in cells:
        for access in accesses(source) if any(name in source.text for name in names) else ():
            if access.name in names and access.value is not None and access.owner.parent is None:
                texts = _texts(access.value, values)
                values.setdefault(access.name, set()).update(texts)
                unknown.update(set() if texts else {access.name})
    return {name: texts for name, texts in values.items() if name not in unknown}


def _texts(node: ast.expr, constants: Mapping[str, set[str]]) -> set[str]:
    """The possible texts of an expression of literals and known names; empty if unknown."""
    match node:
        case ast.Constant(value=str(text)):
            return {text}
        case ast.Name():
            return set(constants.get(node.id, ()))
        case ast.BinOp(op=ast.Add()):
            left, right = _texts(node.left, constants), _texts(node.right, constants)
            return {a + b for a in left for b in right} if len(left) * len(right) <= _MAX_VALUES else set()
    return set()
