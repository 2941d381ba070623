"""Every access to a name in a cell, resolved once by Python's rules of scope, in the order of execution. Functions run
after the cell's own statements, because they use the names of the module at the time of the call.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from migration.python.source import CellSource, once_a_cell
from migration.python.trees import children, walk

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
# Most nodes: they bind nothing, and their fields are in the order of execution.
_PLAIN = (
    ast.Call,
    ast.Attribute,
    ast.Constant,
    ast.keyword,
    ast.Subscript,
    ast.BinOp,
    ast.Compare,
    ast.Tuple,
    ast.List,
)
_WORDS = re.compile(r"\$([^\W\d]\w*)|\{([^{}]*)\}")

Assignment = ast.Assign | ast.AnnAssign


@dataclass(eq=False)
class Scope:
    """The module (without `parent`), a function, a class or a comprehension. `names` are those it binds, `outer` those
    it declares global or nonlocal. `is_deferred`: its code runs when a function is called."""

    node: ast.AST
    parent: Scope | None = None
    names: set[str] = field(default_factory=set)
    outer: set[str] = field(default_factory=set)
    is_deferred: bool = False

    def owner_of(self, name: str) -> Scope:
        """The scope whose name is meant. Functions and comprehensions in a class do not use the names of the class."""
        scope = self
        while scope.parent is not None:
            if name in scope.names and (scope is self or not isinstance(scope.node, ast.ClassDef)):
                return scope
            scope = scope.parent
        return scope


class Access(NamedTuple):
    """A name that is bound or read in a scope, and the node that does it, such as a definition or an import.
    `assignment` is the one that binds the name to its value."""

    name: str
    node: ast.AST
    scope: Scope
    binds: bool = False
    assignment: Assignment | None = None

    @property
    def owner(self) -> Scope:
        return self.scope.owner_of(self.name)

    @property
    def value(self) -> ast.expr | None:
        return self.assignment.value if self.assignment is not None else None

    @property
    def is_set_to_none(self) -> bool:
        return isinstance(self.value, ast.Constant) and self.value.value is None


@once_a_cell
def accesses(source: CellSource) -> tuple[Access, ...]:
    """The accesses of a cell; empty if it does not parse."""
    if source.tree is None:
        return ()
    reader = _Reader(source)
    try:
        reader.visit_all(source.tree.body, Scope(source.tree))
        while reader.waiting:
            reader.waiting.pop(0)()
    except RecursionError:
        pass  # an expression of thousands of terms: what follows is not known
    return tuple(reader.found)


def accesses_in(source: CellSource, block: Iterable[ast.AST], without: Iterable[ast.AST] = ()) -> list[Access]:
    """The accesses in some statements, except in those of `without`."""
    inside = ids_in(block) - ids_in(without)
    return [access for access in accesses(source) if id(access.node) in inside]


def ids_in(block: Iterable[ast.AST]) -> set[int]:
    """The ids of all nodes of some statements."""
    return {id(node) for statement in block for node in walk(statement)}


def bound(found: Iterable[Access], scope: ast.AST | None = None) -> set[str]:
    """The names of a scope that accesses bind; by default those of the module."""
    return {access.name for access in found if access.binds and _is_of(access, scope)}


def read(found: Iterable[Access], scope: ast.AST | None = None) -> set[str]:
    """The names of a scope that accesses read; by default those of the module."""
    return {access.name for access in found if not access.binds and _is_of(access, scope)}


def _is_of(access: Access, scope: ast.AST | None) -> bool:
    owner = access.owner
    return owner.parent is None if scope is None else owner.node is scope


def _is_bound_outside(name: str, scope: Scope) -> bool:
    """Whether `:=` binds a name in a comprehension, which binds its targets only."""
    return isinstance(scope.node, _COMPREHENSIONS) and name not in scope.names


class _Reader:
    """Visits the nodes of a cell in the order of execution."""

    def __init__(self, source: CellSource):
        self.source = source
        self.found: list[Access] = []
        self.waiting: list[Callable[[], None]] = []

    def bind(self, name: str, node: ast.AST, scope: Scope, assignment: Assignment | None = None) -> None:
        while scope.parent is not None and (name in scope.outer or _is_bound_outside(name, scope)):
            scope = scope.parent
        scope.names.add(name)
        self.found.append(Access(name, node, scope, binds=True, assignment=assignment))

    def visit_all(self, nodes: Iterable[ast.AST | None], scope: Scope) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node, scope)

    def visit(self, node: ast.AST, scope: Scope) -> None:
        match node:
            case _ if node.__class__ in _PLAIN:
                self.visit_all(children(node), scope)
            case ast.Name(ctx=ast.Load()):
                self.found.append(Access(node.id, node, scope))
            case ast.Name():
                self.bind(node.id, node, scope)
            case ast.Import() | ast.ImportFrom():
                for alias in node.names:
                    self.bind(alias.asname or alias.name.partition(".")[0], node, scope)
            case ast.Assign() | ast.AnnAssign() if node.value is not None:
                self.command(node, scope)
                self.visit(node.value, scope)
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Name):
                        self.bind(target.id, target, scope, node)
                    else:
                        self.visit(target, scope)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                self.function(node, scope)
            case ast.ClassDef():
                self.visit_all([*node.decorator_list, *node.bases, *node.keywords], scope)
                self.visit_all(node.body, Scope(node, scope, is_deferred=scope.is_deferred))
                self.bind(node.name, node, scope)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                inner = Scope(node, scope, is_deferred=scope.is_deferred)
                targets = [part for generator in node.generators for part in walk(generator.target)]
                inner.names |= {part.id for part in targets if isinstance(part, ast.Name)}
                self.visit_all(children(node), inner)
            case ast.Global() | ast.Nonlocal():
                scope.outer |= set(node.names)
            case _:
                self.other(node, scope)

    def other(self, node: ast.AST, scope: Scope) -> None:
        """A node that binds at most the name of a handler or a pattern."""
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            self.found.append(Access(node.target.id, node, scope))
        elif isinstance(node, ast.Expr):
            self.command(node, scope)
        name = getattr(node, "name", None) or getattr(node, "rest", None)
        if isinstance(name, str):
            self.bind(name, node, scope)
        first = getattr(node, "iter", None) or getattr(node, "value", None)  # evaluated before the target
        self.visit_all(sorted(children(node), key=lambda part: part is not first), scope)

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: Scope) -> None:
        arguments = node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        parameters = [argument for argument in every if argument is not None]
        inner = Scope(node, scope, is_deferred=True)
        self.visit_all(getattr(node, "decorator_list", ()), scope)
        self.visit_all([*arguments.defaults, *arguments.kw_defaults, getattr(node, "returns", None)], scope)
        self.visit_all([parameter.annotation for parameter in parameters], scope)
        for parameter in parameters:
            self.bind(parameter.arg, parameter, inner)
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        self.waiting.append(lambda: self.visit_all(body, inner))
        if not isinstance(node, ast.Lambda):
            self.bind(node.name, node, scope)

    def command(self, node: ast.stmt, scope: Scope) -> None:
        """The names that a shell line or magic interpolates."""
        command = self.source.command_of(node) if self.source.commands else None
        if command is not None:
            words = command_words(self.source.text[command.body : command.end])
            self.found += [Access(word, node, scope) for word in sorted(words)]


def command_words(text: str) -> set[str]:
    """The Python names that a shell line or magic interpolates."""
    found = (word for match in _WORDS.finditer(text) for word in re.findall(r"[^\W\d]\w*", match[1] or match[2] or ""))
    return set(found)
