"""Removes statements from a cell, or replaces an `if`, `try` or conditional expression by one branch; statements by
complete lines. Lines move with their comments; lines inside a multi-line string are not changed. A block is never left
empty.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from migration.colab.local_branch import Choice, cannot_fail
from migration.colab.names import PACKAGE
from migration.notebook.texts import Edit
from migration.python.scopes import accesses_in
from migration.python.source import CellSource
from migration.python.statements import end_of, line_span, take_out, whole_lines
from migration.python.strings import comments, read_strings

NOT_HERE = 'raise ModuleNotFoundError("not available on this machine")'

_COLON = re.compile(r"#[^\n]*|:")
_INDENT = re.compile(r"[ \t]*")
_COMMENT = re.compile(r"[ \t]*#")
_ELIF = re.compile(r"\Aelif\b")
_HASHES = re.compile(r"#+[ \t]*")
_COMMAND = re.compile(r"#[ \t]*[!%]")
_LABEL = re.compile(
    r"#\W*(?:(?:if|when|only|running|we(?:'re| are))\s+)*(?:(?:on|in|for)\s+)?(?:google\s+)?colab(?:\s+only)?\W*",
    re.IGNORECASE,
)


def fold(source: CellSource, choice: Choice, *, keep_import: bool = False) -> tuple[Edit, ...]:
    """Edits that replace the complete statement or expression by the branch that runs here. `keep_import`: the import
    of Colab's package in a `try` is used.
    """
    if not isinstance(choice.node, ast.Try) and choice.stays:
        return (Edit(*source.span(choice.node.test), operands_text(source, choice.node.test, choice.rest)),)
    if isinstance(choice.node, ast.If):
        return _fold_if(source, choice, choice.node)
    if isinstance(choice.node, ast.IfExp):
        return (_fold_expression(source, choice, choice.node),)
    if choice.colab:
        return _without_try(source, choice, choice.node, keep_import)
    return _fold_try(source, choice, choice.node)


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
        lost = "".join(f"\n{indent}{comment}" for comment in _comments_lost(source, end, last, ""))
        rest = (Edit(end, last, lost),) if end < last else ()
        return (Edit(start, colon, "else:"), *rest)
    if takes_body:
        colon = _colon(source, source.span(node.test)[1])
        return _replace(source, choice, _body_text(source, colon, node.body, indent))
    body_end = _with_comments(source, line_span(source, node.body[0], node.body[-1])[1], indent)
    if not node.orelse:
        return (whole_lines(source, first, last),) if is_elif else _replace(source, choice, "")
    other = node.orelse[0]
    if len(node.orelse) == 1 and isinstance(other, ast.If) and text.startswith("elif", source.span(other)[0]):
        keyword = source.span(other)[0]
        kept = _comments_between(source, body_end, source.line_span(keyword, keyword)[0])
        removed = Edit(first, source.line_span(keyword, keyword)[0], kept)
        return (removed,) if is_elif else (removed, Edit(keyword, keyword + 4, "if"))
    colon = _colon(source, end_of(source, node.body[-1]))
    line = source.line_span(colon - 1, colon)[0]
    kept = _comments_between(source, body_end, line)
    if is_elif:
        return (Edit(first, line, kept),)
    return _replace(source, choice, kept + _body_text(source, colon, node.orelse, indent))


def _fold_expression(source: CellSource, choice: Choice, node: ast.IfExp) -> Edit:
    """The edit that leaves one value, or a constant test if a comment would be lost."""
    is_body = source.span(choice.kept[0]) == source.span(node.body)
    value = node.body if is_body else node.orelse
    (first, last), (start, end) = source.span(node), source.span(value)
    if any(first < low < start or end <= low < last for low, _ in comments(source)):
        return Edit(*source.span(node.test), repr(is_body))
    needs_brackets = isinstance(value, ast.NamedExpr | ast.Yield | ast.YieldFrom) or "\n" in source.text[start:end]
    new = f"({source.segment(value)})" if needs_brackets else source.segment(value)
    edge = source.text[first - 1 : first]
    before = " " * (_are_words(edge, new[0]) or edge + new[0] == "{{")  # `return'a'if x else b`, `f"{a if x else {}}"`
    after = " " * _are_words(new[-1], source.text[last : last + 1])  # `[a if x else'b'for c in d]`
    return Edit(first, last, before + new + after)


def _are_words(*characters: str) -> bool:
    """Whether all are characters of a name or number."""
    return all(re.match(r"\w", character) for character in characters)


def operands_text(source: CellSource, test: ast.expr, operands: Sequence[ast.expr]) -> str:
    """The text of a test with `and` or `or` that has only some of its operands."""
    loose = ast.BoolOp | ast.IfExp | ast.Lambda | ast.NamedExpr
    texts = [f"({source.segment(part)})" if isinstance(part, loose) else source.segment(part) for part in operands]
    return (" or " if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else " and ").join(texts)


def _without_try(source: CellSource, choice: Choice, node: ast.Try, keep_import: bool) -> tuple[Edit, ...]:
    """The edits that keep what a `try` does on Colab: they remove the import that only tests, and the `try` itself if
    it is not needed."""
    asks = [part for part in node.body if _only_asks(part)] if not keep_import else []
    body = [part for part in node.body if part not in asks]
    if choice.stays:
        return take_out(source, asks) if asks and body else ()
    start = source.span(node)[0]
    indent = source.text[source.line_span(start, start)[0] : start]
    without = line_span(source, asks[0], asks[0]) if len(asks) == 1 and len(body) < len(node.body) else None
    pieces = [_body_text(source, _colon(source, start), node.body, indent, without)] if body else []
    if node.orelse:
        colon = _colon(source, end_of(source, node.handlers[-1].body[-1]))
        pieces.append(_body_text(source, colon, node.orelse, indent))
    return _replace(source, choice, "\n".join(pieces))


def _only_asks(node: ast.stmt) -> bool:
    """Whether a statement is `import google.colab`."""
    return isinstance(node, ast.Import) and all(alias.name == PACKAGE and not alias.asname for alias in node.names)


def _fold_try(source: CellSource, choice: Choice, node: ast.Try) -> tuple[Edit, ...]:
    """The handler replaces the `try`; if that would not be equivalent, the import is replaced by a `raise`."""
    handler, failing = choice.handler, choice.failing
    if handler is None or failing is None:
        return ()
    start = source.span(node)[0]
    indent = source.text[source.line_span(start, start)[0] : start]
    before = node.body[: next(index for index, part in enumerate(node.body) if part is failing)]
    in_a_line = "\n" not in source.text[start : source.span(node.body[0])[0]]
    shares_line = before and "\n" not in source.text[end_of(source, before[-1]) : source.span(failing)[0]]
    uses_error = any(not access.binds and access.name == handler.name for access in accesses_in(source, handler.body))
    if node.finalbody or uses_error or not all(map(_needs_no_try, before)) or (before and (in_a_line or shares_line)):
        # An inner `try` raises its error by itself.
        is_import = isinstance(failing, ast.Import | ast.ImportFrom) or source.command_of(failing) is not None
        at, end = source.span(failing)[0], end_of(source, node.body[-1])
        margin = _INDENT.match(source.text, source.line_span(at, at)[0])
        gone = _comments_lost(source, at, end, "", of_colab=True)
        lost = [f"\n{margin[0] if margin else ''}{comment}" for comment in gone]
        return (Edit(at, end, NOT_HERE + "".join(lost)),) if is_import else ()
    pieces = [_body_text(source, _colon(source, start), before, indent)] if before else []
    if not all(map(_does_nothing, handler.body)):
        pieces.append(_body_text(source, _handler_colon(source, handler), handler.body, indent))
    return _replace(source, choice, "\n".join(pieces))


def _replace(source: CellSource, choice: Choice, text: str) -> tuple[Edit, ...]:
    """Replaces a complete statement by lines, or removes it if there are none. Comments on lines of their own are kept
    where they are, also those of the removed branch."""
    node = choice.node
    first, last = line_span(source, node, node)
    indent = source.text[first : source.span(node)[0]]
    end = _with_comments(source, last, indent)
    if not text.strip():
        lost = _comments_lost(source, first, end, "")
        removed = take_out(source, [node], f"\n{indent}".join(lost), always=bool(lost))
        return (*removed, Edit(last, end, "")) if lost else removed
    after = max((end_of(source, part) for part in choice.kept), default=end)
    parts = (first, after), (after, end)
    above, below = (_comments_lost(source, *part, text, of_colab=not choice.colab) for part in parts)
    if below and choice.colab and choice.removed:
        kept = {line.strip() for line in text.split("\n")}
        below = [line for line in _as_comments(source, choice.removed, after, end) if line not in kept]
    above = [*_of_header(source, choice, first, indent), *above]
    lines = [indent + comment for comment in above], [indent + comment for comment in below]
    return (Edit(first, end, "\n".join([*lines[0], text, *lines[1]])),)


def _of_header(source: CellSource, choice: Choice, first: int, indent: str) -> list[str]:
    """The comment behind the header of the kept branch, except one that only names Colab."""
    start = source.span(choice.kept[0])[0] if choice.kept else first
    at, header = first, (first, first)
    for line in source.text[first:start].split("\n")[:-1]:
        if line[len(indent) : len(indent) + 1].strip(" \t#"):
            header = at, at + len(line)
        at += len(line) + 1
    found = (source.text[low:high].strip() for low, high in comments(source) if header[0] < low < header[1])
    return [comment for comment in found if not _LABEL.fullmatch(comment)]


def _as_comments(source: CellSource, removed: Sequence[ast.stmt], start: int, end: int) -> list[str]:
    """The comments in `start:end`, with the removed local statements that they describe as comments."""
    first, last = line_span(source, removed[0], removed[-1])
    old = source.span(removed[0])[0] - first
    lines = []
    for row in range(source.line_of(start) + 1, source.line_of(end) + 1):
        low, high = source.line_span(source.line_starts[row], source.line_starts[row])
        line = source.text[low:high]
        if line.lstrip().startswith("#"):
            lines.append(line.strip())
        elif line.strip() and first <= low < last:
            lines.append(f"# {_ELIF.sub('if', line[old:], count=1) if low == first else line[old:]}")
    return lines


def _comments_lost(source: CellSource, start: int, end: int, text: str, *, of_colab: bool = False) -> list[str]:
    """The comments on lines of their own in `start:end` that do not occur in the new text, marked as `of_colab`. A
    command that is commented out belongs to the removed commands, except directly below one of these comments, which
    describes it."""
    kept = {line.strip() for line in text.split("\n")}
    found: dict[int, str] = {}
    for low, high in comments(source):
        row = source.line_of(low)
        comment = source.text[low:high].strip()
        if not start <= low < end or source.text[source.line_starts[row] : low].strip() or comment in kept:
            continue
        if row - 1 not in found and _COMMAND.match(comment):
            continue
        is_unclear = of_colab and row - 1 not in found and "colab" not in comment.lower()
        found[row] = _HASHES.sub("# On Colab: ", comment, count=1) if is_unclear else comment
    return list(found.values())


def _body_text(
    source: CellSource,
    colon: int,
    statements: Sequence[ast.stmt],
    indent: str,
    without: tuple[int, int] | None = None,
) -> str:
    """The lines of a suite that begins after `colon`, moved to `indent`, except the lines `without`."""
    start = source.span(statements[0])[0]
    first, last = line_span(source, statements[0], statements[-1])
    if "\n" not in source.text[colon:start]:
        return indent + source.text[start:last]
    old = source.text[first:start]
    owner_indent = _INDENT.match(source.text, source.line_span(colon - 1, colon)[0])
    begin = source.text.index("\n", colon) + 1
    end = _with_comments(source, last, owner_indent[0] if owner_indent else "")
    if without is None:
        return _moved(source, begin, end, old, indent)
    above = _moved(source, begin, without[0], old, indent) if without[0] > begin else ""
    return above + (_moved(source, without[1] + 1, end, old, indent) if without[1] < end else "")


def _moved(source: CellSource, start: int, end: int, old: str, new: str) -> str:
    """Complete lines with the indentation `new` instead of `old`; a line that begins inside a string is not changed."""
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
    """`end`, or the end of following comments that are indented deeper than `indent`: they belong to the suite
    before."""
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
    """The comment lines between two clauses, which describe the second one."""
    return "".join(f"{line}\n" for line in source.text[start:end].split("\n") if _COMMENT.match(line))


def _colon(source: CellSource, start: int) -> int:
    """The end of the header whose last part ends at `start`."""
    return next(found.end() for found in _COLON.finditer(source.masked, start) if found[0] == ":")


def _handler_colon(source: CellSource, handler: ast.ExceptHandler) -> int:
    if handler.type is not None:
        return _colon(source, source.span(handler.type)[1])
    line = source.offset(handler.lineno, handler.col_offset)
    return _colon(source, line)


def _needs_no_try(node: ast.stmt) -> bool:
    """Whether a statement can be moved out of the `try`; a failing import ends the cell with or without it."""
    return isinstance(node, ast.Import | ast.ImportFrom) or cannot_fail(node)


def _does_nothing(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass)
