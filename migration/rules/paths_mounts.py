"""Questions whether the drive is mounted: on this machine it is a folder, and no mount point."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migration.cell.source import CellSource
from migration.facts import NotebookFacts
from migration.matching import Edit, Match
from migration.rules.paths_text import find_paths

_INSTEAD = {"ismount": "isdir", "is_mount": "is_dir"}


def questions(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """`os.path.ismount("/content/drive")` and `Path("/content/drive").is_mount()`, before and after the place itself is
    rewritten."""
    for node in source.nodes if source.is_python else ():
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in _INSTEAD:
            continue
        holder = node if node.func.attr == "ismount" else node.func.value
        if isinstance(holder, ast.Call) and len(holder.args) == 1 and _is_drive(holder.args[0], facts):
            name, end = node.func.attr, source.span(node.func)[1]
            edit = Edit(end - len(name), end, _INSTEAD[name])
            yield Match(*source.span(node), "the mounted drive is a folder here, and no mount point", (edit,))


def _is_drive(node: ast.expr, facts: NotebookFacts) -> bool:
    if isinstance(node, ast.Name):
        return node.id == facts.drive
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return False
    place = node.value.rstrip("/")
    return [(span.folder, span.end) for span in find_paths(place, facts.mounts)] == [("drive", len(place))]
