"""How the string literals of a cell are used: as values, texts, shell commands, or where no variable can stand."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal as OneOf

from migration.cell.source import CellSource
from migration.cell.strings import Literal
from migration.cell.trees import fields
from migration.rules.paths_text import begins_path

_RUNS_SHELL = frozenset({"system", "popen", "getoutput", "getstatusoutput", "create_subprocess_shell", "getpipeoutput"})
_MAY_RUN_SHELL = frozenset({"run", "call", "check_call", "check_output", "Popen"})
_ROUTES = frozenset({"route", "get", "post", "put", "delete", "patch", "head", "options", "websocket", "api_route"})
_DECORATOR = re.compile(r"^[ \t]*@(?:\w+\.)*(\w+)\($", re.MULTILINE)
_IS_PART = re.compile(r"[=(\[,+:%]\s*$")

Use = OneOf["value", "text", "shell", "pattern", "annotation", "route", "appended"]


@dataclass(frozen=True)
class Group:
    """Literals that Python joins to one string, and how it is used."""

    literals: tuple[Literal, ...]
    use: Use


def groups(source: CellSource, literals: list[Literal]) -> Iterator[Group]:
    """The literals in groups, by the syntax tree; without one, each by itself."""
    nodes = _string_nodes(source)
    at = 0
    for start, end, use in nodes:
        while at < len(literals) and literals[at].start < start:
            # Where the tree has none: in a command's code.
            yield Group((literals[at],), "value")
            at += 1
        inside = []
        while at < len(literals) and literals[at].end <= end:
            inside.append(literals[at])
            at += 1
        if inside:
            yield Group(tuple(literal for literal in inside if not literal.depth), use)
        yield from (Group((literal,), _use_in_text(source, literal)) for literal in inside if literal.depth)
    yield from (Group((literal,), _use_in_text(source, literal)) for literal in literals[at:])


def _use_in_text(source: CellSource, literal: Literal) -> Use:
    """How a literal is used that the tree does not show: in a cell without one, or inside an f-string."""
    before = source.text[: literal.start].rstrip(" \t")
    if before.endswith("+") and not re.search(r"[\"']\s*\+$", before):
        return "appended"
    route = _DECORATOR.search(before)
    if route and route[1] in _ROUTES:
        return "route"
    is_bare = len(literal.quote) == 3 and not literal.depth and not _IS_PART.search(before)
    return "text" if is_bare else "value"


def _string_nodes(source: CellSource) -> list[tuple[int, int, Use]]:
    """The spans of the tree's strings with their uses, in order; nothing inside an f-string."""
    if source.tree is None:
        return []
    found: list[tuple[int, int, Use]] = []
    stack: list[tuple[ast.AST, Use]] = [(source.tree, "value")]
    while stack:
        node, use = stack.pop()
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)):
            found.append((*source.span(node), use))
        else:
            stack += _children(node, use)
    return sorted(found)


def _children(node: ast.AST, use: Use) -> Iterator[tuple[ast.AST, Use]]:
    """The parts of a node, with the use of a string that stands there."""
    for name in fields(node):
        value = getattr(node, name, None)
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child, _use_of(node, name, child, use)


def _use_of(node: ast.AST, name: str, child: ast.AST, use: Use) -> Use:
    if isinstance(node, ast.Expr):
        return "text" if isinstance(child, ast.Constant) else "value"
    if isinstance(node, ast.MatchValue | ast.MatchMapping):
        return "pattern"
    if name in ("annotation", "returns") or (isinstance(node, ast.Subscript) and _last_name(node.value) == "Literal"):
        return "annotation"
    if name == "decorator_list":
        return "route" if isinstance(child, ast.Call) and _last_name(child.func) in _ROUTES else "value"
    if isinstance(node, ast.Call):
        if name == "args" and child is node.args[0] and _runs_shell(node):
            return "shell"
        return use if use in ("route", "annotation") or (name == "func" and use == "shell") else "value"
    if isinstance(child, ast.Constant | ast.JoinedStr) and _is_appended(node, name):
        return "appended"
    if isinstance(node, ast.List | ast.Tuple | ast.Subscript | ast.keyword):
        return use if use != "shell" else "value"
    return use if isinstance(node, ast.BinOp | ast.IfExp | ast.Attribute) else "value"


def _is_appended(node: ast.AST, name: str) -> bool:
    """Whether the part `name` of a node is added to a text in which no path can begin there."""
    if isinstance(node, ast.AugAssign):
        return isinstance(node.op, ast.Add) and name == "value"
    is_sum = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)
    return is_sum and name == "right" and not _ends_open(node.left)


def _ends_open(node: ast.expr) -> bool:
    """Whether a path may begin after this left side of a sum: a string that ends neither in a name nor in a field."""
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        node = node.right
    if isinstance(node, ast.JoinedStr) and node.values:
        node = node.values[-1]
    value = node.value if isinstance(node, ast.Constant) else None
    return isinstance(value, str) and begins_path(value, len(value))


def _runs_shell(call: ast.Call) -> bool:
    name = _last_name(call.func)
    if name in _RUNS_SHELL:
        return True
    return name in _MAY_RUN_SHELL and any(
        keyword.arg == "shell" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True
        for keyword in call.keywords
    )


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
