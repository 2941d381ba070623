"""A folder of the mounted drive whose parts Python joins: `os.path.join("gdrive", "MyDrive", "x")`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from migration.analysis.facts import NotebookFacts
from migration.colab.paths import DEFAULT_MOUNTS, ROOT, PathSpan
from migration.notebook.texts import Edit
from migration.python.source import CellSource
from migration.python.trees import last_name
from migration.rules.paths_found import changed
from migration.rules.rule import Match

_MY_DRIVE = frozenset({"MyDrive", "My Drive"})
_JOINS = frozenset({"join", "Path", "PurePath", "PosixPath"})


def joined(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """The mount point, relative to `/content`, and `MyDrive` as the first parts of a path."""
    if not source.is_python or source.is_program or source.tree is None or "Drive" not in source.text:
        return
    mounts = {mount.removeprefix(f"{ROOT}/") for mount in (*facts.mounts, *DEFAULT_MOUNTS) if mount.startswith(ROOT)}
    for node in source.nodes:
        found = _parts(node)
        if found is None:
            continue
        first, last = found
        texts = [_text(part) for part in (first, last)]
        if texts[0].removeprefix("./").strip("/") not in mounts or texts[1].strip("/") not in _MY_DRIVE:
            continue
        (start, low), (high, end) = source.span(first), source.span(last)
        between = re.fullmatch(r"\s*(?P<close>\)?)\s*[,/]\s*", source.text[low:high])
        if between is not None:
            edit = Edit(start, end, facts.drive + between["close"])
            yield changed(edit, "a path names {0}", [PathSpan(start, end, "drive", is_relative=True)])


def _parts(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """The first two parts of a joined path."""
    match node:
        case ast.Call(func=function, args=[first, second, *_]) if last_name(function) in _JOINS:
            return first, second
        case ast.BinOp(left=ast.Call(func=function, args=[first]), op=ast.Div(), right=second) if (
            last_name(function) in _JOINS
        ):
            return first, second
    return None


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
