"""The branch of an `if` or a `try` that runs on this machine, if the code asks whether it runs on Colab.

The notebook must do here what it does on Colab. The branch for Colab is therefore kept in three cases: it has an effect
(`colab.effects`: downloads, installs, reads secrets, names folders) that the other branch does not have; the other
branch refuses to run; or the rest of the notebook needs names that only the branch for Colab binds. Otherwise the local
branch is kept, for example for flags, settings and displays in Colab's page.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from migration.colab.effects import PLACES, Effect, clones, different, effects, needs_colab, uncovered
from migration.colab.forms import is_literal
from migration.colab.local_value import FlagOf, answer
from migration.colab.names import PACKAGE, imported_names
from migration.python.scopes import parameter_names, read_names_of, stored_names
from migration.python.source import CellSource
from migration.python.statements import blocks_of
from migration.python.trees import last_name, walk

Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

_CATCHES_IMPORT = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
_CATCHES_KEY = frozenset({"KeyError", "LookupError", "Exception", "BaseException"})
_OF_IMPORTS = frozenset({"ImportError", "ModuleNotFoundError"})
_CATCHES_ALL = frozenset({"Exception", "BaseException"})
_EXITS = frozenset({"exit", "quit", "_exit", "abort"})


@dataclass(frozen=True)
class Choice:
    """An `if` or `try` one of whose branches runs here.

    `kept` and `removed` are the kept and the removed blocks of statements; for a `try`, its body up to the import that
    fails, and the handler. `colab`: the Colab branch is kept; `because` is the reason: "refuses", "places", the needed
    names, or its effects. `stays`: the statement itself remains around the branch: a `try` that catches more than the
    import, an `if` with the test `rest`. `effects` are those of the
    branch for Colab that decided for it or, if it is removed, that the other one does not have.
    """

    node: ast.If | ast.Try
    kept: tuple[ast.stmt, ...]
    removed: tuple[ast.stmt, ...]
    scope: Scope
    failing: ast.stmt | None = None
    handler: ast.ExceptHandler | None = None
    colab: bool = False
    because: str = ""
    stays: bool = False
    rest: tuple[ast.expr, ...] = ()
    effects: tuple[Effect, ...] = ()

    @property
    def sets_place(self) -> bool:
        """The branch for Colab is kept and creates files, folders or variables that other cells expect."""
        return self.colab and any(effect.kind in PLACES for effect in self.effects)


def choices(
    source: CellSource,
    flag_of: FlagOf,
    needed: Collection[str] = (),
    *,
    as_on_colab: bool = False,
    repository: str = "",
) -> list[Choice]:
    """The choices of a cell, an outer one before those inside it; removed branches are not searched. `needed` are names
    that only Colab branches bind although other cells need them; `as_on_colab`: another branch for Colab creates files
    in its own folders, so that other folders are not used. `repository` is the one that contains the notebook: a branch
    that clones it is not needed.
    """
    if source.tree is None:
        return []
    search = _Search(source, flag_of, needed, as_on_colab, repository)
    search.look(source.tree.body, source.tree)
    return search.found


class _Search:
    """The choices of one cell, found block by block."""

    def __init__(
        self, source: CellSource, flag_of: FlagOf, needed: Collection[str], as_on_colab: bool, repository: str
    ):
        self.source = source
        self.flag_of = flag_of
        self.needed = needed
        self.as_on_colab = as_on_colab
        self.repository = repository
        self.found: list[Choice] = []

    def look(self, block: Sequence[ast.stmt], scope: Scope) -> None:
        for index, node in enumerate(block):
            choice = self._choice(node, scope, block[index + 1 :])
            if choice is not None:
                self.found.append(choice)
                self.look(choice.kept, scope)
                if isinstance(node, ast.Try) and (choice.stays or not choice.colab):
                    self.look(node.finalbody, scope)
                continue
            inner = node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else scope
            for part in blocks_of(node):
                self.look(part, inner)

    def _choice(self, node: ast.stmt, scope: Scope, after: Sequence[ast.stmt]) -> Choice | None:
        choice = None
        if isinstance(node, ast.If):
            choice = _of_if(node, scope, self.flag_of) or self._of_alternative(node, scope)
        elif isinstance(node, ast.Try):
            choice = _of_try(self.source, node, scope)
        if choice is None or choice.colab:
            return choice
        if _leaves(choice.kept) and not choice.removed:
            return self._unless_left(choice, after)
        return self._unless_lost(choice)

    def _of_alternative(self, node: ast.If, scope: Scope) -> Choice | None:
        """`if IN_COLAB or x:` whose body has effects of its own: on Colab it always runs."""
        if not isinstance(node.test, ast.BoolOp) or not isinstance(node.test.op, ast.Or):
            return None
        found = [answer(operand, self.flag_of) for operand in node.test.values]
        if not any(operand is not None and operand.value is False for operand in found):
            return None
        lost = uncovered(effects(self.source, node.body), effects(self.source, node.orelse))
        if not lost:
            return None
        kept, removed = tuple(node.body), tuple(node.orelse)
        return Choice(node, kept, removed, scope, colab=True, because=_effect_words(lost), effects=tuple(lost))

    def _unless_left(self, choice: Choice, after: Sequence[ast.stmt]) -> Choice:
        """`if not IN_COLAB: return` before statements that do something."""
        lost = uncovered(effects(self.source, after), ())
        if not lost:
            return choice
        return replace(
            choice, kept=(), removed=choice.kept, colab=True, because=_effect_words(lost), effects=tuple(lost)
        )

    def _unless_lost(self, choice: Choice) -> Choice | None:
        """The choice, or the branch for Colab if an effect would be lost without it."""
        colab, local = effects(self.source, choice.removed), effects(self.source, choice.kept)
        lost = uncovered(colab, local)
        if self.repository and any(clones(effect, self.repository) for effect in lost):
            return choice
        if not (lost and needs_colab(self.source, choice.removed)):
            if lost:
                return _for_colab(self.source, choice, _effect_words(lost), lost)
            if self.as_on_colab and not colab and any(effect.kind in PLACES for effect in local):
                return _for_colab(self.source, choice, "places", ())
        choice = replace(choice, effects=tuple(different(colab, local)))
        return _unless_needed(self.source, choice, self.needed)


def _of_if(node: ast.If, scope: Scope, flag_of: FlagOf) -> Choice | None:
    found = answer(node.test, flag_of)
    if found is None:
        return None
    local, other = (node.body, node.orelse) if found.value else (node.orelse, node.body)
    rest: tuple[ast.expr, ...] = ()
    if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.Or) is bool(found.value):
        rest = tuple(operand for operand in node.test.values if answer(operand, flag_of) is None)
    if _refuses(local):
        return Choice(node, tuple(other), tuple(local), scope, colab=True, because="refuses")
    return Choice(node, tuple(local), tuple(other), scope, rest=rest)


def _for_colab(source: CellSource, choice: Choice, because: str, lost: Sequence[Effect]) -> Choice:
    """The choice for the branch for Colab."""
    node = choice.node
    if isinstance(node, ast.Try):
        stays = not _needs_no_try(source, choice, node)
        kept, removed = (*node.body, *node.orelse), () if stays else tuple(s for h in node.handlers for s in h.body)
    elif choice.rest:
        stays, kept, removed = True, (*node.body, *node.orelse), ()
    else:
        stays, kept, removed = False, choice.removed, choice.kept
    return replace(choice, kept=kept, removed=removed, colab=True, because=because, stays=stays, effects=tuple(lost))


def _needs_no_try(source: CellSource, choice: Choice, node: ast.Try) -> bool:
    """Whether the body does the same without the `try`: its handlers can only catch errors of the Colab import."""
    if node.finalbody or len(node.handlers) != 1:
        return False
    others = [statement for statement in node.body if _fails(source, statement) is None]
    caught = node.handlers[0].type
    kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    if all(isinstance(kind, ast.Name) and kind.id in _OF_IMPORTS for kind in kinds):
        return not any(isinstance(statement, ast.Import | ast.ImportFrom) for statement in others)
    return all(_raises_nothing(source, statement) for statement in others)


def _raises_nothing(source: CellSource, node: ast.stmt) -> bool:
    """Whether a statement raises nothing: it cannot fail, mounts the drive, or is a shell line or magic."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="mount"))):
            return True  # at a literal path: any other mount is an effect
    return cannot_fail(node) or (isinstance(node, ast.Expr) and source.command_of(node) is not None)


def cannot_fail(node: ast.stmt) -> bool:
    """Whether a statement raises nothing whatever ran before it: `pass`, a string, a literal assigned or printed."""
    match node:
        case ast.Pass() | ast.Expr(value=ast.Constant(value=str())):
            return True
        case ast.Assign():
            return all(isinstance(target, ast.Name) for target in node.targets) and is_literal(node.value)
        case ast.Expr(value=ast.Call(func=ast.Name(id="print"), args=arguments, keywords=[])):
            return all(map(is_literal, arguments))
    return False


def _effect_words(lost: Sequence[Effect]) -> str:
    """The effects of a branch in words: "fetches and installs"."""
    kinds = list(dict.fromkeys(effect.kind for effect in lost))
    return " and ".join([", ".join(kinds[:-1]), kinds[-1]] if len(kinds) > 1 else kinds)


def _leaves(block: Sequence[ast.stmt]) -> bool:
    return len(block) == 1 and isinstance(block[0], ast.Return) and block[0].value is None


def _of_try(source: CellSource, node: ast.Try, scope: Scope) -> Choice | None:
    """A `try` whose body needs something that exists on Colab only, usually its package: the handler runs here."""
    for index, statement in enumerate(node.body):
        caught = _fails(source, statement)
        if caught is None:
            continue
        handler = next((handler for handler in node.handlers if _catches(handler, caught)), None)
        if handler is None or _refuses(handler.body):
            return None
        kept = (*node.body[:index], *handler.body)
        removed = (*node.body[index:], *node.orelse)
        return Choice(node, kept, removed, scope, failing=statement, handler=handler)
    return None


def _fails(source: CellSource, statement: ast.stmt) -> frozenset[str] | None:
    """The names of the exception classes that catch the error of a statement without Colab; None if it has none."""
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
    """Whether a node reads a variable such as `os.environ["COLAB_TPU_ADDR"]`, which is not set here."""
    match node:
        case ast.Subscript(value=ast.Attribute(attr="environ"), slice=ast.Constant(value=str(name)), ctx=ast.Load()):
            return name.startswith("COLAB_")
    return False


def _catches(handler: ast.ExceptHandler, names: frozenset[str]) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(kind, ast.Name) and kind.id in names for kind in kinds)


def _refuses(block: Sequence[ast.stmt]) -> bool:
    """Whether the branch ends the run: it raises, has a false assert, or exits the interpreter."""
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
    """The choice, or the Colab branch if only that one binds names which are used elsewhere; None if that one cannot
    run here."""
    names = only_bound_in(choice)
    if isinstance(choice.scope, ast.Module):
        missing = names & set(needed)
    else:
        outside = [choice.node]
        missing = names & read_names_of(source, choice.scope.body, outside)
        missing -= stored_names(choice.scope.body, outside) | parameter_names(choice.scope)
    if not missing:
        return choice
    if needs_colab(source, choice.removed):
        return None
    return _for_colab(source, choice, ", ".join(f"`{name}`" for name in sorted(missing)), ())


def only_bound_in(choice: Choice) -> set[str]:
    """The names that the removed branch binds, and the kept one does not."""
    return stored_names(choice.removed) - stored_names(choice.kept)
