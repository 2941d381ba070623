"""Which branch of an `if` or a `try` runs on this machine, where the code asks whether it runs on Colab.

The local branch is the one that stays. The Colab branch stays in its place where the local one refuses to run, or
where the rest of the notebook needs names that only the Colab branch binds.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from migration.colab.local_value import FlagOf, answer
from migration.colab.names import PACKAGE, imported_names
from migration.python.scopes import parameter_names, read_names_of, stored_names
from migration.python.source import CellSource
from migration.python.statements import blocks_of
from migration.python.trees import last_name, walk

Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

_CATCHES_IMPORT = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
_CATCHES_KEY = frozenset({"KeyError", "LookupError", "Exception", "BaseException"})
_CATCHES_ALL = frozenset({"Exception", "BaseException"})
_EXITS = frozenset({"exit", "quit", "_exit", "abort"})


@dataclass(frozen=True)
class Choice:
    """An `if` or `try` one of whose branches runs here.

    `kept` stays, `gone` goes: blocks of statements, for a `try` what its body holds up to the import that fails and
    the handler. `colab` says that the Colab branch is the one that stays, `because` why: "refuses", or the names that
    are needed. `tpu` says that the branch which goes is for Colab's TPU.
    """

    node: ast.If | ast.Try
    kept: tuple[ast.stmt, ...]
    gone: tuple[ast.stmt, ...]
    scope: Scope
    failing: ast.stmt | None = None
    handler: ast.ExceptHandler | None = None
    colab: bool = False
    because: str = ""
    tpu: bool = False


def choices(
    source: CellSource,
    flag_of: FlagOf,
    needed: Collection[str] = (),
    *,
    block: Sequence[ast.stmt] | None = None,
    scope: Scope | None = None,
) -> list[Choice]:
    """The choices of a cell, an outer one before those inside it; nothing inside a branch that goes is looked at.

    `needed` are names that only Colab branches bind though other cells need them. `block` is looked at in place of the
    whole cell, with the `scope` it stands in.
    """
    found: list[Choice] = []
    if source.tree is not None:
        _look(source, source.tree.body if block is None else block, scope or source.tree, flag_of, needed, found)
    return found


def _look(
    source: CellSource,
    block: Sequence[ast.stmt],
    scope: Scope,
    flag_of: FlagOf,
    needed: Collection[str],
    found: list[Choice],
) -> None:
    for node in block:
        choice = None
        if isinstance(node, ast.If):
            choice = _of_if(node, scope, flag_of)
        elif isinstance(node, ast.Try):
            choice = _of_try(source, node, scope)
        if choice is not None and not choice.colab:
            choice = _unless_needed(source, choice, needed)
        if choice is not None:
            found.append(choice)
            _look(source, choice.kept, scope, flag_of, needed, found)
            if isinstance(node, ast.Try) and not choice.colab:
                _look(source, node.finalbody, scope, flag_of, needed, found)
            continue
        inner = node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else scope
        for part in blocks_of(node):
            _look(source, part, inner, flag_of, needed, found)


def _of_if(node: ast.If, scope: Scope, flag_of: FlagOf) -> Choice | None:
    found = answer(node.test, flag_of)
    if found is None:
        return None
    local, other = (node.body, node.orelse) if found.value else (node.orelse, node.body)
    if found.tpu and _raises(local):
        return None
    if _refuses(local):
        return Choice(node, tuple(other), tuple(local), scope, colab=True, because="refuses")
    return Choice(node, tuple(local), tuple(other), scope, tpu=found.tpu)


def _of_try(source: CellSource, node: ast.Try, scope: Scope) -> Choice | None:
    """A `try` whose body asks for something that only Colab has, its package above all: the handler runs here."""
    for index, statement in enumerate(node.body):
        caught = _fails(source, statement)
        if caught is None:
            continue
        handler = next((handler for handler in node.handlers if _catches(handler, caught)), None)
        if handler is None or _refuses(handler.body):
            return None
        kept = (*node.body[:index], *handler.body)
        gone = (*node.body[index:], *node.orelse)
        return Choice(node, kept, gone, scope, failing=statement, handler=handler)
    return None


def _fails(source: CellSource, statement: ast.stmt) -> frozenset[str] | None:
    """The exceptions that catch what a statement raises here for want of Colab; None where it raises nothing."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        of_colab = isinstance(statement, ast.ImportFrom) or all(
            alias.name == PACKAGE or alias.name.startswith(PACKAGE + ".") for alias in statement.names
        )
        paths = [path for _, path in imported_names(statement)]
        if isinstance(statement, ast.Import):
            return _CATCHES_IMPORT if of_colab else None
        return _CATCHES_IMPORT if all(path is not None for path in paths) else None
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        command = source.command_of(statement)
        if command is not None and command.kind == "magic" and command.name == "tensorflow_version":
            return _CATCHES_ALL
    if isinstance(statement, ast.Assign | ast.Expr) and any(map(_reads_variable, walk(statement.value))):
        return _CATCHES_KEY
    return None


def _reads_variable(node: ast.AST) -> bool:
    """`os.environ["COLAB_TPU_ADDR"]`: nothing sets it here."""
    match node:
        case ast.Subscript(value=ast.Attribute(attr="environ"), slice=ast.Constant(value=str(name)), ctx=ast.Load()):
            return name.startswith("COLAB_")
    return False


def _catches(handler: ast.ExceptHandler, names: frozenset[str]) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(kind, ast.Name) and kind.id in names for kind in kinds)


def _raises(block: Sequence[ast.stmt]) -> bool:
    return bool(block) and isinstance(block[-1], ast.Raise)


def _refuses(block: Sequence[ast.stmt]) -> bool:
    """The branch ends the run: it raises, asserts a falsehood, or leaves the interpreter."""
    if not block:
        return False
    last = block[-1]
    if isinstance(last, ast.Raise):
        return True
    if isinstance(last, ast.Assert):
        return isinstance(last.test, ast.Constant) and not last.test.value
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        function = last.value.func
        name = last_name(function)
        return name in _EXITS
    return False


def _unless_needed(source: CellSource, choice: Choice, needed: Collection[str]) -> Choice | None:
    """The choice, or the Colab branch where only that one binds names which are used elsewhere; None where that one
    cannot run here, for want of Colab's TPU."""
    names = only_bound_in(choice)
    if isinstance(choice.scope, ast.Module):
        lacking = names & set(needed)
    else:
        outside = [choice.node]
        lacking = names & read_names_of(source, choice.scope.body, outside)
        lacking -= stored_names(choice.scope.body, outside) | parameter_names(choice.scope)
    if not lacking:
        return choice
    if choice.tpu:
        return None
    because = ", ".join(f"`{name}`" for name in sorted(lacking))
    if isinstance(choice.node, ast.Try):
        return Choice(choice.node, tuple(choice.node.body), (), choice.scope, colab=True, because=because)
    return Choice(choice.node, choice.gone, choice.kept, choice.scope, colab=True, because=because)


def only_bound_in(choice: Choice) -> set[str]:
    """The names that the branch which goes binds, and the one that stays does not."""
    return stored_names(choice.gone) - stored_names(choice.kept)
