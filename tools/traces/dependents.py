"""Finds the cells of a notebook that depend on statements with a finding."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence

from migration.notebook.findings import Finding
from migration.python.scopes import accesses_in, bound
from migration.python.source import CellSource


def dependents(cells: Sequence[str], findings: Sequence[Finding], ended: Collection[int] = ()) -> set[int]:
    """The positions of cells with a statement that uses a name which a statement with a finding binds, directly or
    through other statements. A cell that does not parse binds nothing. Imports are ignored, except in the cells
    `ended`, which fail at a statement with a finding and bind nothing after it."""
    flagged: dict[int, set[int]] = {}
    for finding in findings:
        if finding.cell is not None and finding.line is not None:
            flagged.setdefault(finding.cell, set()).add(finding.line)
    names: set[str] = set()
    found: set[int] = set()
    for index, text in enumerate(cells):
        has_ended = False
        source = CellSource(text, index=index)
        for first, last, statement in _statements(source):
            uses = not names.isdisjoint(_names(statement, ast.Load))
            if uses:
                found.add(index)
            is_flagged = any(first <= line <= last for line in flagged.get(index, ()))
            has_ended |= is_flagged and index in ended
            if has_ended:
                names |= bound(accesses_in(source, [statement]))
            elif uses or is_flagged:
                names |= _names(statement, ast.Store)
            else:
                names -= _assigned(statement)
    return found


def _statements(source: CellSource) -> Iterator[tuple[int, int, ast.stmt]]:
    """The statements of a cell with their lines, counted from 1."""
    for statement in source.tree.body if source.tree is not None else ():
        start, end = source.span(statement)
        yield source.line_of(start) + 1, source.line_of(max(start, end - 1)) + 1, statement


def _names(statement: ast.stmt, context: type[ast.expr_context]) -> set[str]:
    """The names that a statement reads or binds."""
    found = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, context):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and context is ast.Store:
            found.add(node.name)
    return found


def _assigned(statement: ast.stmt) -> set[str]:
    """The names that a statement replaces whenever it runs."""
    match statement:
        case ast.Assign(targets=targets):
            return {target.id for target in targets if isinstance(target, ast.Name)}
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
    return set()
