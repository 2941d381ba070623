"""Names that a block, a function or a comprehension binds, by Python's rules of scope."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence

from migration.python.source import CellSource
from migration.python.trees import children, walk

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_CLOSED = (*_SCOPES, ast.Name, ast.Constant)  # nodes whose children do not belong to the block
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)

_WORDS = re.compile(r"\$([^\W\d]\w*)|\{([^{}]*)\}")


def local_names(node: ast.AST) -> frozenset[str]:
    """The local names of a function, lambda or comprehension; none for any other node."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            own = own_nodes(node.body)
            outer = [part.names for part in own if isinstance(part, ast.Global | ast.Nonlocal)]
            return frozenset((_stored(own) | parameter_names(node)).difference(*outer))
        case ast.Lambda():
            return frozenset(parameter_names(node))
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            return frozenset(stored_names([part.target for part in node.generators]))
    return frozenset()


def parameter_names(node: ast.AST) -> set[str]:
    """The parameters of a function or lambda; none for any other node."""
    arguments = getattr(node, "args", None)
    return {argument.arg for argument in arguments_of(arguments)} if isinstance(arguments, ast.arguments) else set()


def arguments_of(arguments: ast.arguments) -> list[ast.arg]:
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return [argument for argument in every if argument is not None]


def stored_names(nodes: Sequence[ast.AST], without: Sequence[ast.AST] = ()) -> set[str]:
    """The names that a block binds in its own scope, outside of the statements in `without`."""
    return _stored(own_nodes(nodes, without))


def _stored(nodes: Iterable[ast.AST]) -> set[str]:
    return {name for node in nodes for name in names_bound_by(node)}


def names_bound_by(node: ast.AST) -> tuple[str, ...]:
    """The names that a node itself binds, without those of the nodes inside it."""
    match node:
        case ast.Name():
            return () if isinstance(node.ctx, ast.Load) else (node.id,)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return (node.name,)
        case ast.Import() | ast.ImportFrom():
            return tuple(alias.asname or alias.name.partition(".")[0] for alias in node.names)
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return (name,)
        case ast.MatchMapping(rest=str(rest)):
            return (rest,)
    return ()


def own_nodes(nodes: Sequence[ast.AST], without: Sequence[ast.AST] = ()) -> list[ast.AST]:
    """The nodes of a block in the order of the text, but not those inside its functions, classes and comprehensions,
    nor the nodes in `without` and what is inside them."""
    found: list[ast.AST] = []
    left_out = {id(node) for node in without}
    waiting = list(reversed(nodes))
    while waiting:
        node = waiting.pop()
        if left_out and id(node) in left_out:
            continue
        found.append(node)
        if isinstance(node, _COMPREHENSIONS):
            waiting += [part for part in walk(node) if isinstance(part, ast.NamedExpr)]
        elif not isinstance(node, _CLOSED):
            waiting += reversed(children(node))
    return found


def read_names_of(source: CellSource, block: Sequence[ast.AST], without: Sequence[ast.AST] = ()) -> set[str]:
    """The names of this scope that a block and the commands in it read, those of the statements in `without` left out.

    Names that functions and comprehensions read are included unless they are local to them.
    """
    left_out = {id(node) for node in without}
    names: set[str] = set()
    waiting = list(block)
    while waiting:
        node = waiting.pop()
        if id(node) in left_out:
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.Expr | ast.Assign) and source.commands:
            command = source.command_of(node)
            if command is not None:
                names |= command_words(source.text[command.body : command.end])
        inside = children(node)
        own = local_names(node)
        if own:
            names |= read_names_of(source, inside, without) - own
        else:
            waiting += inside
    return names


def command_words(text: str) -> set[str]:
    """The Python names that a shell line or magic interpolates."""
    found = (word for match in _WORDS.finditer(text) for word in re.findall(r"[^\W\d]\w*", match[1] or match[2] or ""))
    return set(found)
