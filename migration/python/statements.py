"""Positions of statements in the blocks of a cell, and their removal without leaving a block empty."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from migration.notebook.texts import Edit
from migration.python.source import CellSource, once_a_cell
from migration.python.trees import last_name, walk

_BLANK_LINES = re.compile(r"(?:[ \t]*\n)*")
_ASKS = re.compile(r"exists|is_?dir|is_?file|islink|ismount|is_mount|join|Path|get|listdir|len")


@dataclass(frozen=True)
class Place:
    """A statement and the compound statements around it, the outermost first."""

    statement: ast.stmt
    around: tuple[ast.stmt, ...] = ()


def place_of(source: CellSource, offset: int) -> Place | None:
    """The innermost statement at `offset`; None between statements and if the cell does not parse."""
    found = [
        (node, block.owner)
        for block in blocks(source)
        for node in block.statements
        if (span := source.span(node))[0] <= offset < max(span[1], span[0] + 1)
    ]
    return Place(found[-1][0], tuple(owner for _, owner in found if owner is not None)) if found else None


def catching(source: CellSource, offset: int, names: Collection[str]) -> ast.ExceptHandler | None:
    """The first handler of a `try` around `offset` for one of these errors."""
    place = place_of(source, offset)
    return next(
        (
            handler
            for outer, inner in pairwise([*place.around, place.statement] if place else [])
            if isinstance(outer, ast.Try) and inner in outer.body
            for handler in outer.handlers
            if catches(handler, names)
        ),
        None,
    )


def catches(handler: ast.ExceptHandler, names: Collection[str]) -> bool:
    """Whether a handler is for one of these errors, or for all."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or last_name(kind) in names for kind in kinds)


def removal(source: CellSource, start: int, end: int) -> tuple[Edit, ...]:
    """Edits that remove the statement at `start:end`. In a cell that cannot be parsed its lines are removed; an
    indented one becomes `pass`."""
    if (place := place_of(source, start)) is not None:
        return take_out(source, [place.statement])
    first, last = source.line_span(start, end)
    return (Edit(start, end, "pass"),) if first < start else (whole_lines(source, first, last),)


def blocks_of(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The blocks of statements inside a compound statement, in the order of the text."""
    for name in ("body", "handlers", "cases", "orelse", "finalbody"):
        part = getattr(node, name, None)
        if not isinstance(part, list) or not part:
            continue
        if isinstance(part[0], ast.stmt):
            yield part
        else:
            for holder in part:
                yield from blocks_of(holder)


@dataclass(frozen=True)
class Block:
    """Statements of one suite, and their compound statement (None at module level)."""

    statements: tuple[ast.stmt, ...]
    owner: ast.stmt | None


@once_a_cell
def blocks(source: CellSource) -> list[Block]:
    """Every suite of a cell, outer ones first."""
    if source.tree is None:
        return []
    found = []
    waiting: list[Block] = [Block(tuple(source.tree.body), None)]
    while waiting:
        block = waiting.pop(0)
        found.append(block)
        waiting += [Block(tuple(inner), node) for node in block.statements for inner in blocks_of(node)]
    return found


def take_out(
    source: CellSource, targets: Sequence[ast.stmt], note: str = "", *, always: bool = False
) -> tuple[Edit, ...]:
    """Edits that remove statements of one suite from a cell. `note` is a comment that replaces them: `always`, or only
    if the cell would be empty. A suite that would be empty gets a `pass`; an `if` that contains nothing else is removed
    too. An edit that changes nothing protects the surrounding compound statement, so that two rules together cannot
    empty a suite in one round.
    """
    ids = {id(node) for node in targets}
    block = next(block for block in blocks(source) if id(targets[0]) in {id(node) for node in block.statements})
    empties = all(id(node) in ids for node in block.statements)
    first, last = line_span(source, block.statements[0], block.statements[-1])
    edits: list[Edit] = []
    if block.owner is not None:
        held = source.span(block.owner)[0]
        edits.append(Edit(held, held + 1, source.text[held]))
    if empties and block.owner is not None:
        if not note and _is_only_test(source, block.owner):
            return take_out(source, [block.owner])
        start, end = source.span(targets[0])[0], end_of(source, targets[-1])
        indent = source.text[first:start]
        comment = f"{note}\n{indent}" if note and always and not indent.strip() else ""
        return tuple(sorted([*edits, Edit(start, end, f"{comment}pass")]))
    rest = source.text[source.body : first] + source.text[last:]
    if not always and not (empties and not rest.strip()):
        note = ""
    removed: list[Edit] = []
    for row in _rows(source, block.statements):
        removed += _without(source, row, ids, note)
        if any(id(node) in ids for node in row):
            note = ""
    return tuple(sorted([*edits, *(_with_blanks(source, edit) for edit in _merged(source, removed))]))


def _is_only_test(source: CellSource, node: ast.stmt) -> bool:
    """Whether a statement is an `if` without `else` and comments that only asks for values or files."""
    text = source.text[slice(*source.span(node))]
    return (
        isinstance(node, ast.If)
        and not node.orelse
        and text.startswith("if")
        and not re.search(r"#|:=|\bawait\b", text)
        and all(_ASKS.fullmatch(last_name(part.func)) for part in walk(node.test) if isinstance(part, ast.Call))
    )


def _with_blanks(source: CellSource, edit: Edit) -> Edit:
    """A removal at the end of a cell includes the blank lines before it, but not a last newline; one at the start
    includes those after it."""
    if edit.text:
        return edit
    if not source.text[edit.end :].strip():
        start = len(source.text[: edit.start].rstrip())
        return Edit(start, len(source.text) - (start > 0 and source.text.endswith("\n")), "")
    blank = _BLANK_LINES.match(source.text, edit.end)
    return Edit(0, blank.end(), "") if blank and not edit.start else edit


def line_span(source: CellSource, first: ast.stmt, last: ast.stmt) -> tuple[int, int]:
    """The complete lines of some statements and of the commands in them, without the last newline."""
    return source.line_span(source.span(first)[0], end_of(source, last))


def end_of(source: CellSource, node: ast.stmt) -> int:
    """The end of a statement; a command in it may continue on lines that are not in the tree."""
    start, end = source.span(node)
    return max([end, *(command.end for command in source.commands if start <= command.start < end)])


def _rows(source: CellSource, statements: Sequence[ast.stmt]) -> list[list[ast.stmt]]:
    """The statements grouped by the line they share, which may be continued by a backslash."""
    rows: list[list[ast.stmt]] = []
    end = -1
    for node in statements:
        if rows and "\n" not in source.text[end : source.span(node)[0]].replace("\\\n", ""):
            rows[-1].append(node)
        else:
            rows.append([node])
        end = end_of(source, node)
    return rows


def _without(source: CellSource, row: Sequence[ast.stmt], targets: set[int], note: str) -> list[Edit]:
    """Edits that remove statements from a line."""
    kept = [node for node in row if id(node) not in targets]
    first, last = line_span(source, row[0], row[-1])
    text = source.text
    starts_line = not text[first : source.span(row[0])[0]].strip()
    if not kept and starts_line:
        if note:
            return [Edit(source.span(row[0])[0], last, note)]
        return [whole_lines(source, first, last)]
    if not kept:
        return [Edit(source.span(row[0])[0], end_of(source, row[-1]), "pass")]
    edits = []
    for index, (node, following) in enumerate(pairwise(row)):
        if id(node) in targets and any(id(other) not in targets for other in row[index + 1 :]):
            edits.append(Edit(source.span(node)[0], source.span(following)[0], ""))
    if id(row[-1]) in targets:
        edits.append(Edit(end_of(source, kept[-1]), end_of(source, row[-1]), ""))
    return edits


def _merged(source: CellSource, edits: Sequence[Edit]) -> list[Edit]:
    """Joins adjacent removals."""
    merged: list[Edit] = []
    for edit in sorted(edits):
        before = merged[-1] if merged else None
        if before is not None and edit.start <= before.end and not edit.text and not before.text:
            merged[-1] = whole_lines(source, before.start, edit.end) if edit.end == len(source.text) else before
            merged[-1] = Edit(merged[-1].start, edit.end, "")
        else:
            merged.append(edit)
    return merged


def whole_lines(source: CellSource, first: int, last: int) -> Edit:
    """Removes complete lines with one newline."""
    if last < len(source.text):
        return Edit(first, last + 1, "")
    return Edit(max(first - 1, source.body), last, "")
