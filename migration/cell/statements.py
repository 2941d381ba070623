"""Where a statement stands among the blocks of a cell, and how to take it out without leaving a block empty."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from migration.cell.source import CellSource
from migration.matching import Edit


@dataclass(frozen=True)
class Place:
    """A statement, the block it stands in, and the compound statements around it, the outermost first."""

    statement: ast.stmt
    block: tuple[ast.stmt, ...]
    around: tuple[ast.stmt | ast.ExceptHandler | ast.match_case, ...] = ()


def place_of(source: CellSource, offset: int) -> Place | None:
    """The innermost statement that holds `offset`; None between statements and where the cell does not parse."""
    if source.tree is None:
        return None
    found = None
    blocks = [_body(source, source.tree)]
    around: tuple[ast.stmt | ast.ExceptHandler | ast.match_case, ...] = ()
    while blocks:
        block = blocks.pop()
        statement = next((node for node in block if _holds(source, node, offset)), None)
        if statement is None:
            continue
        found = Place(statement, tuple(block), around)
        inner = next((part for part in _parts(statement) if _holds_block(source, part, offset)), None)
        around = (*around, statement) if inner is None or inner is statement else (*around, statement, inner)
        blocks = _blocks(inner or statement)
    return found


def removal(source: CellSource, start: int, end: int) -> tuple[Edit, ...]:
    """Edits that take the lines of the statement at `start:end` out of the cell.

    The only statement of a block becomes `pass`. Where others remain in its block, one of them is held by an edit that
    changes nothing, so that no other rule empties the block in the same round.
    """
    first, last = source.line_span(start, end)
    place = place_of(source, start)
    nested = source.text[first:start].strip(" \t") == "" and start > first if place is None else bool(place.around)
    others = [node for node in place.block if node is not place.statement] if place else []
    if source.text[first:start].strip() or (nested and not others):
        return (Edit(start, end, "pass"),)
    lines = Edit(first, last + 1, "") if last < len(source.text) else Edit(max(first - 1, 0), last, "")
    if not nested:
        return (lines,)
    held = min((source.span(node)[0] for node in others), key=lambda at: abs(at - start))
    return tuple(sorted((lines, Edit(held, held + 1, source.text[held]))))


def _body(source: CellSource, tree: ast.Module) -> list[ast.stmt]:
    """The cell's own statements: an indented cell is parsed below an `if` that is not in its text."""
    first = tree.body[0] if tree.body else None
    indented = isinstance(first, ast.If) and first.lineno == 1 and source.masked[:1] in (" ", "\t", "\n")
    return first.body if indented and isinstance(first, ast.If) else tree.body


def _parts(node: ast.stmt) -> list[ast.stmt | ast.ExceptHandler | ast.match_case]:
    """What holds the blocks of a compound statement: itself, or its handlers and cases."""
    return [*getattr(node, "handlers", []), *getattr(node, "cases", []), node]


def _blocks(node: ast.stmt | ast.ExceptHandler | ast.match_case) -> list[list[ast.stmt]]:
    return [block for name in ("body", "orelse", "finalbody") if (block := getattr(node, name, None))]


def _holds_block(source: CellSource, node: ast.stmt | ast.ExceptHandler | ast.match_case, offset: int) -> bool:
    return any(_holds(source, statement, offset) for block in _blocks(node) for statement in block)


def _holds(source: CellSource, node: ast.stmt, offset: int) -> bool:
    start, end = source.span(node)
    return start <= offset < max(end, start + 1)
