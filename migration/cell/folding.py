"""Takes statements out of a cell, or puts one branch in the place of an `if` or `try`, by whole lines.

Lines move with their comments; what stands inside a multi-line string does not. A block is never left empty.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from migration.cell.source import CellSource
from migration.cell.strings import read_strings
from migration.colab.local_branch import Choice, blocks_of, read_names_of
from migration.matching import Edit

NOT_HERE = 'raise ModuleNotFoundError("not available on this machine")'

_COLON = re.compile(r"#[^\n]*|:")
_INDENT = re.compile(r"[ \t]*")
_ABOUT_COLAB = re.compile(r"[ \t]*#(?![ \t]*@)[^\n]*colab", re.IGNORECASE)
_COMMENT = re.compile(r"[ \t]*#")


@dataclass(frozen=True)
class Block:
    """Statements of one suite, and the compound statement that holds them (None at module level)."""

    statements: tuple[ast.stmt, ...]
    owner: ast.stmt | None


def blocks(source: CellSource) -> list[Block]:
    """Every suite of a cell, outer ones first."""
    if source.tree is None:
        return []
    top = source.tree.body
    if top and isinstance(top[0], ast.If) and top[0].lineno == 1 and not source.masked.startswith("if"):
        top = [*top[0].body, *top[1:]]  # an indented cell is parsed below an `if` that is not in its text
    found = []
    waiting: list[Block] = [Block(tuple(top), None)]
    while waiting:
        block = waiting.pop(0)
        found.append(block)
        waiting += [Block(tuple(inner), node) for node in block.statements for inner in blocks_of(node)]
    return found


def take_out(source: CellSource, gone: Sequence[ast.stmt], note: str = "", *, always: bool = False) -> tuple[Edit, ...]:
    """Edits that take statements of one suite out of a cell.

    `note` is a comment that takes their place: `always`, or only where the cell would be left without a line. A suite
    that would be empty keeps a `pass`. The compound statement around is held by an edit that changes nothing, so that
    no two rules empty a suite between them in one round.
    """
    ids = {id(node) for node in gone}
    block = next(block for block in blocks(source) if id(gone[0]) in {id(node) for node in block.statements})
    empties = all(id(node) in ids for node in block.statements)
    first, last = line_span(source, block.statements[0], block.statements[-1])
    edits: list[Edit] = []
    if block.owner is not None:
        held = source.span(block.owner)[0]
        edits.append(Edit(held, held + 1, source.text[held]))
    if empties and block.owner is not None:
        start, end = source.span(gone[0])[0], _end(source, gone[-1])
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


def _with_blanks(source: CellSource, edit: Edit) -> Edit:
    """What is taken from the end of a cell takes the blank lines before it along."""
    if edit.text or source.text[edit.end :].strip():
        return edit
    return Edit(len(source.text[: edit.start].rstrip()), len(source.text), "")


def fold(source: CellSource, choice: Choice) -> tuple[Edit, ...]:
    """Edits that put the branch which runs here in the place of the whole statement."""
    if isinstance(choice.node, ast.Try):
        return _fold_try(source, choice, choice.node)
    return _fold_if(source, choice, choice.node)


def line_span(source: CellSource, first: ast.stmt, last: ast.stmt) -> tuple[int, int]:
    """The whole lines of some statements and of the commands in them, without the last newline."""
    return source.line_span(source.span(first)[0], _end(source, last))


# ------------------------------------------------------------------------------------------------------ taking it out
def _end(source: CellSource, node: ast.stmt) -> int:
    """Where a statement ends; a command in it may go on for lines of which the tree knows nothing."""
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
        end = _end(source, node)
    return rows


def _without(source: CellSource, row: Sequence[ast.stmt], gone: set[int], note: str) -> list[Edit]:
    """Edits that take statements out of a line."""
    kept = [node for node in row if id(node) not in gone]
    first, last = line_span(source, row[0], row[-1])
    text = source.text
    starts_line = not text[first : source.span(row[0])[0]].strip()
    if not kept and starts_line:
        if note:
            return [Edit(source.span(row[0])[0], last, note)]
        return [_lines(source, first, last)]
    if not kept:
        return [Edit(source.span(row[0])[0], _end(source, row[-1]), "pass")]
    edits = []
    for index, (node, following) in enumerate(pairwise(row)):
        if id(node) in gone and any(id(other) not in gone for other in row[index + 1 :]):
            edits.append(Edit(source.span(node)[0], source.span(following)[0], ""))
    if id(row[-1]) in gone:
        edits.append(Edit(_end(source, kept[-1]), _end(source, row[-1]), ""))
    return edits


def _merged(source: CellSource, edits: Sequence[Edit]) -> list[Edit]:
    """Removals that meet, as one."""
    merged: list[Edit] = []
    for edit in sorted(edits):
        before = merged[-1] if merged else None
        if before is not None and edit.start <= before.end and not edit.text and not before.text:
            merged[-1] = _lines(source, before.start, edit.end) if edit.end == len(source.text) else before
            merged[-1] = Edit(merged[-1].start, edit.end, "")
        else:
            merged.append(edit)
    return merged


def _lines(source: CellSource, first: int, last: int) -> Edit:
    """Removes whole lines with one newline."""
    if last < len(source.text):
        return Edit(first, last + 1, "")
    return Edit(max(first - 1, source.body), last, "")


# ------------------------------------------------------------------------------------------------- one branch instead
def _fold_if(source: CellSource, choice: Choice, node: ast.If) -> tuple[Edit, ...]:
    text = source.text
    start = source.span(node)[0]
    first, last = line_span(source, node, node)
    indent = text[first:start]
    last = _with_comments(source, last, indent)
    is_elif = text.startswith("elif", start)
    takes_body = choice.kept == tuple(node.body)
    if not is_elif and all(map(_does_nothing, choice.kept)):
        return _replace(source, choice, "")
    if takes_body and is_elif:
        colon = _colon(source, source.span(node.test)[1])
        end = _with_comments(source, line_span(source, node.body[0], node.body[-1])[1], indent)
        rest = (Edit(end, last, ""),) if end < last else ()
        return (Edit(start, colon, "else:"), *rest)
    if takes_body:
        colon = _colon(source, source.span(node.test)[1])
        return _replace(source, choice, _body_text(source, colon, node.body, indent))
    body_end = _with_comments(source, line_span(source, node.body[0], node.body[-1])[1], indent)
    if not node.orelse:
        return (_lines(source, first, last),) if is_elif else _replace(source, choice, "")
    other = node.orelse[0]
    if len(node.orelse) == 1 and isinstance(other, ast.If) and text.startswith("elif", source.span(other)[0]):
        keyword = source.span(other)[0]
        kept = _comments_between(source, body_end, source.line_span(keyword, keyword)[0])
        removed = Edit(_first_line(source, choice), source.line_span(keyword, keyword)[0], kept)
        return (removed,) if is_elif else (removed, Edit(keyword, keyword + 4, "if"))
    colon = _colon(source, _end(source, node.body[-1]))
    line = source.line_span(colon - 1, colon)[0]
    kept = _comments_between(source, body_end, line)
    if is_elif:
        return (Edit(first, line, kept),)
    return _replace(source, choice, kept + _body_text(source, colon, node.orelse, indent))


def _fold_try(source: CellSource, choice: Choice, node: ast.Try) -> tuple[Edit, ...]:
    """The handler takes the place of the `try`; where that would not be the same, the import raises what it would."""
    handler, failing = choice.handler, choice.failing
    if handler is None or failing is None:
        return ()
    start = source.span(node)[0]
    first = source.line_span(start, start)[0]
    indent = source.text[first:start]
    before = node.body[: next(index for index, part in enumerate(node.body) if part is failing)]
    in_a_line = "\n" not in source.text[start : source.span(node.body[0])[0]]
    shares_line = before and "\n" not in source.text[_end(source, before[-1]) : source.span(failing)[0]]
    uses_error = handler.name and handler.name in read_names_of(source, handler.body)
    if uses_error or not all(map(_cannot_fail, before)) or (before and (in_a_line or shares_line)):
        if not isinstance(failing, ast.Import | ast.ImportFrom) and source.command_of(failing) is None:
            return ()  # it raises KeyError by itself
        return (Edit(source.span(failing)[0], _end(source, failing), NOT_HERE),)
    inner = indent if not node.finalbody else indent + "    "
    pieces = [_body_text(source, _colon(source, start), before, inner)] if before else []
    if not all(map(_does_nothing, handler.body)):
        pieces.append(_body_text(source, _handler_colon(source, handler), handler.body, inner))
    if not node.finalbody:
        return _replace(source, choice, "\n".join(pieces))
    colon = _colon(source, _end(source, node.orelse[-1] if node.orelse else node.handlers[-1].body[-1]))
    if not pieces:
        return _replace(source, choice, _body_text(source, colon, node.finalbody, indent))
    final = _body_text(source, colon, node.finalbody, inner)
    return _replace(source, choice, "\n".join([f"{indent}try:", *pieces, f"{indent}finally:", final]))


def _replace(source: CellSource, choice: Choice, text: str) -> tuple[Edit, ...]:
    """Puts lines in the place of a whole statement, or takes it out where there are none."""
    node = choice.node
    if not text.strip():
        edits = take_out(source, [node], "# Nothing to do on this machine.")
        above = _comment_above(source, choice)
        if above is None or not (source.text[source.body : above.start] + source.text[edits[-1].end :]).strip():
            return edits  # the comment is all that is left
        return tuple(sorted([above, *edits]))
    first, last = line_span(source, node, node)
    indent = source.text[first : source.span(node)[0]]
    return (Edit(_first_line(source, choice), _with_comments(source, last, indent), text),)


def _first_line(source: CellSource, choice: Choice) -> int:
    above = _comment_above(source, choice)
    start = source.span(choice.node)[0]
    return above.start if above else source.line_span(start, start)[0]


def _comment_above(source: CellSource, choice: Choice) -> Edit | None:
    """The removal of a single comment line right above that tells of Colab, whose branch goes."""
    start = source.span(choice.node)[0]
    first = source.line_span(start, start)[0]
    if choice.colab or first <= source.body or source.text.startswith("elif", start):
        return None
    above, end = source.line_span(first - 1, first - 1)
    before = source.text[source.line_span(above - 1, above - 1)[0] : above] if above > source.body else ""
    same_indent = source.text[above:end].startswith(source.text[first:start] + "#")
    if not same_indent or not _ABOUT_COLAB.match(source.text, above, end) or _COMMENT.match(before):
        return None
    return Edit(above, first, "")


def _body_text(source: CellSource, colon: int, statements: Sequence[ast.stmt], indent: str) -> str:
    """The lines of a suite that begins after `colon`, moved to `indent`."""
    start = source.span(statements[0])[0]
    first, last = line_span(source, statements[0], statements[-1])
    if "\n" not in source.text[colon:start]:
        return indent + source.text[start:last]
    old = source.text[first:start]
    owner_indent = _INDENT.match(source.text, source.line_span(colon - 1, colon)[0])
    begin = source.text.index("\n", colon) + 1
    end = _with_comments(source, last, owner_indent[0] if owner_indent else "")
    return _moved(source, begin, end, old, indent)


def _moved(source: CellSource, start: int, end: int, old: str, new: str) -> str:
    """Whole lines with the indentation `new` in place of `old`; a line that begins inside a string stays."""
    inside = {
        line
        for literal in read_strings(source.masked, source.body)[0]
        for line in range(literal.start + 1, literal.end)
        if source.text[line - 1] == "\n"
    }
    lines = []
    at = start
    for line in source.text[start:end].split("\n"):
        if at in inside or not line.strip():
            lines.append(line)
        elif line.startswith(old):
            lines.append(new + line[len(old) :])
        else:
            spare = len(old) - len(new)
            own = len(line) - len(line.lstrip(" \t"))
            lines.append(line[min(max(spare, 0), own) :])
        at += len(line) + 1
    return "\n".join(lines)


def _with_comments(source: CellSource, end: int, indent: str) -> int:
    """`end`, or where the comments end that follow in deeper lines than `indent`: they belong to the suite before."""
    at = found = end
    while at < len(source.text):
        line = source.text[at + 1 : source.line_span(at + 1, at + 1)[1]]
        if line.strip():
            if not (_COMMENT.match(line) and line.startswith(indent) and line[len(indent) : len(indent) + 1] in " \t"):
                break
            found = at + 1 + len(line)
        at += 1 + len(line)
    return found


def _comments_between(source: CellSource, start: int, end: int) -> str:
    """The comment lines between two clauses: they tell of the second."""
    return "".join(f"{line}\n" for line in source.text[start:end].split("\n") if _COMMENT.match(line))


def _colon(source: CellSource, start: int) -> int:
    """Where the header ends whose last part ends at `start`."""
    return next(found.end() for found in _COLON.finditer(source.masked, start) if found[0] == ":")


def _handler_colon(source: CellSource, handler: ast.ExceptHandler) -> int:
    if handler.type is not None:
        return _colon(source, source.span(handler.type)[1])
    line = source.offset(handler.lineno, handler.col_offset)
    return _colon(source, line)


def _cannot_fail(node: ast.stmt) -> bool:
    """Imports, and assignments and prints of literals: what can stand outside of the `try` as well."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Pass():
            return True
        case ast.Assign():
            return all(isinstance(target, ast.Name) for target in node.targets) and _is_literal(node.value)
        case ast.Expr(value=ast.Constant(value=str())):
            return True
        case ast.Expr(value=ast.Call(func=ast.Name(id="print"), args=arguments, keywords=[])):
            return all(map(_is_literal, arguments))
    return False


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _does_nothing(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass)
