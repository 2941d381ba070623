"""The branch of an `if`, a `try` or a conditional expression that runs on this machine, if the code asks whether it
runs on Colab.

The notebook must do here what it does on Colab. The branch for Colab is therefore kept in three cases: it has an effect
(`colab.effects`: downloads, installs, reads secrets, names folders) that the other branch does not have; the other
branch refuses to run; or the rest of the notebook needs names that only the branch for Colab binds. Otherwise the local
branch is kept, for example for flags, settings and displays in Colab's page. A branch for Colab that deletes files
which it does not create is never kept: here they may be the user's own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from migration.colab.effects import (
    FILES,
    PLACES,
    RUN,
    Effect,
    Functions,
    clones,
    deletes,
    different,
    effects,
    needs_colab,
    uncovered,
)
from migration.colab.forms import is_literal
from migration.colab.local_value import Answer, AnswerOf
from migration.colab.names import MODULES, imported_names, path_below
from migration.python.scopes import accesses_in, bound, ids_in, read
from migration.python.source import CellSource
from migration.python.statements import blocks_of, catches
from migration.python.trees import children, imported_packages, last_name, walk

Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

_CATCHES_IMPORT = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
_OF_IMPORTS = frozenset({"ImportError", "ModuleNotFoundError"})
_OF_FILES = frozenset({"FileNotFoundError", "OSError", "IOError"})
_CATCHES_ALL = frozenset({"Exception", "BaseException"})
_EXISTS = frozenset({"exists", "isdir", "isfile", "is_dir", "is_file"})
_ELSEWHERE = re.compile(r"[/~]|[A-Za-z]:[\\/]")  # a path on the machine of the author
_COLAB_PYTHON = re.compile(r"/usr/local/lib/python[\d.*]*/(?:dist|site)-packages")
_EXITS = frozenset({"exit", "quit", "_exit", "abort"})


@dataclass(frozen=True)
class Choice:
    """An `if`, `try` or `a if x else b` one of whose branches runs here.

    `kept` and `removed` are the kept and the removed blocks of statements; for a `try`, its body up to the import that
    fails, and the handler; for an expression, see `branches`. `colab`: the Colab branch is kept; `because` is the
    reason, if it is not its effects: "refuses", "mounts", or the needed names. `stays`: the statement itself remains
    around the branch: a `try` that catches more than the import, an `if` with the test `rest`. `effects` are those of
    the branch for Colab that decided for it or, if it is removed, that the other one does not have. `uploads` are those
    of the removed branch for Colab that the local one replaces by files of this machine, which are not next to the
    notebook.
    """

    node: ast.If | ast.IfExp | ast.Try
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
    uploads: tuple[Effect, ...] = ()

    @property
    def idle(self) -> tuple[ast.stmt, ...]:
        """The branch that does not run here: the removed one, or the handlers of a `try` that stays."""
        if self.colab and self.stays and isinstance(self.node, ast.Try):
            return tuple(statement for handler in self.node.handlers for statement in handler.body)
        return self.removed


@dataclass(frozen=True)
class Context:
    """What the notebook knows about its branches. `needed` are names that only branches bind which do not run here,
    although other cells need them. `repository` is the one that contains the notebook: a branch that clones it is not
    needed. `functions` are the notebook's functions that branches call, with the kinds of their effects. `here` is the
    folder of the notebook, if known. `flags_of_imports` are flags of the author for an import of google.colab: a
    condition on one stays as written if its local branch runs here.
    """

    needed: frozenset[str] = frozenset()
    repository: str = ""
    functions: Functions = field(default_factory=dict)
    here: Path | None = None
    flags_of_imports: frozenset[str] = frozenset()


def choices(
    source: CellSource, answer_of: AnswerOf, context: Context, mount_tests: Collection[int] = ()
) -> list[Choice]:
    """The choices of a cell, an outer one before those inside it; removed branches are not searched. `mount_tests` are
    the ids of the questions whether the drive is mounted."""
    if source.tree is None:
        return []
    search = _Search(source, answer_of, context, mount_tests)
    search.look(source.tree.body, source.tree)
    search.look_in_expressions(source.tree)
    return search.found


class _Search:
    """The choices of one cell, found block by block."""

    def __init__(self, source: CellSource, answer_of: AnswerOf, context: Context, mount_tests: Collection[int]):
        self.source = source
        self.mount_tests = mount_tests
        self.answer_of = answer_of
        self.context = context
        self.found: list[Choice] = []

    def look(self, block: Sequence[ast.stmt], scope: Scope) -> None:
        for node in block:
            choice = self._choice(node, scope)
            if choice is not None:
                self.found.append(choice)
                self.look(choice.kept, scope)
                if isinstance(node, ast.Try) and (choice.stays or not choice.colab):
                    self.look(node.finalbody, scope)
                continue
            inner = node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else scope
            for part in blocks_of(node):
                self.look(part, inner)

    def look_in_expressions(self, tree: ast.Module) -> None:
        removed = ids_in(statement for choice in self.found for statement in choice.removed)
        waiting: list[ast.AST] = [tree]
        for node in waiting:
            if id(node) in removed:
                continue
            choice = self._choice(node, tree) if isinstance(node, ast.IfExp) and self._is_exact(node) else None
            if choice is not None:
                self.found.append(choice)
                removed |= ids_in(choice.removed)
            waiting += children(node)

    def _is_exact(self, node: ast.expr) -> bool:
        """Whether the position of an expression is exact: up to Python 3.11 it need not be in an f-string."""
        try:
            return ast.dump(ast.parse(f"({self.source.segment(node)}\n)", mode="eval").body) == ast.dump(node)
        except (SyntaxError, ValueError, IndexError, RecursionError):
            return False

    def _choice(self, node: ast.stmt | ast.IfExp, scope: Scope) -> Choice | None:
        choice = None
        if isinstance(node, ast.If | ast.IfExp):
            choice = self._of_if(node, scope)
        elif isinstance(node, ast.Try):
            choice = _of_try(self.source, node, scope)
        if choice is None or choice.colab:
            return choice
        choice = self._unless_lost(choice)
        if choice is None or choice.colab:
            return choice
        is_test = not isinstance(choice.node, ast.Try) and self._asks_for_import(choice.node.test)
        return None if is_test and not choice.uploads else choice

    def _of_if(self, node: ast.If | ast.IfExp, scope: Scope) -> Choice | None:
        found = self.answer_of(node.test)
        operands = node.test.values if isinstance(node.test, ast.BoolOp) else []
        is_or = isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.Or)
        answers = [self.answer_of(operand) for operand in operands]
        body, other = branches(node)
        if found is None:
            # On Colab the body of `if IN_COLAB or x:` always runs; here it need not if `x` asks for a missing file.
            asks = is_or and any(known is not None and known.value is False for known in answers)
            asks = asks and not all(map(asks_if_missing, without_answer(operands, answers)))
            asks = asks and not deletes(self.source, body)
            lost = uncovered(self._effects(body), self._effects(other)) if asks else []
            return Choice(node, body, other, scope, colab=True, effects=tuple(lost)) if lost else None
        local, colab = (body, other) if found.value else (other, body)
        if any(id(part) in self.mount_tests for part in walk(node.test)):
            return Choice(node, local, colab, scope, colab=True, because="mounts")
        if _refuses(local):
            return Choice(node, colab, local, scope, colab=True, because="refuses")
        unknown = without_answer(operands, answers)
        return Choice(node, local, colab, scope, rest=tuple(unknown) if is_or is bool(found.value) else ())

    def _unless_lost(self, choice: Choice) -> Choice | None:
        """The choice, or the branch for Colab if an effect would be lost without it."""
        colab, local = self._effects(choice.removed), self._effects(choice.kept)
        missing = uncovered(colab, local)
        lost = [effect for effect in missing if not self._replaces(choice, effect)]
        uploads = [effect for effect in missing if effect not in lost and self._uploads(effect)]
        if uploads and not self._is_here(choice, uploads, local):
            choice = replace(choice, uploads=tuple(uploads))
        if self.context.repository and any(clones(effect, self.context.repository) for effect in lost):
            return choice
        if lost and self._is_here(choice, lost, local):
            return choice
        stays_away = needs_colab(self.source, choice.removed) or deletes(self.source, choice.removed)
        if lost and not stays_away and not self._runs_elsewhere(colab, local):
            return _for_colab(self.source, choice, effects=tuple(lost))
        if not lost and _mounts(choice.removed) and any(effect.kind == FILES for effect in different(local, colab)):
            return _for_colab(self.source, choice, because="mounts")
        others = (effect for effect in different(colab, local) if not self._replaces(choice, effect))
        return self._unless_needed(replace(choice, effects=tuple(others)))

    def _asks_for_import(self, node: ast.expr) -> bool:
        """Whether a condition contains a flag of the author for an import of google.colab."""
        return any(isinstance(part, ast.Name) and part.id in self.context.flags_of_imports for part in walk(node))

    def _effects(self, block: Sequence[ast.stmt]) -> list[Effect]:
        return effects(self.source, block, self.context.functions)

    def _replaces(self, choice: Choice, effect: Effect) -> bool:
        """Whether the local branch is the author's way without an upload or download in the browser, or without files
        that may be missing on Colab, too: it binds the same name, or the file is on this machine anyway."""
        if self.source.text.startswith("files.download", effect.start):
            return isinstance(choice.node, ast.If) and not all(isinstance(node, ast.Pass) for node in choice.kept)
        may_fail = effect.kind == FILES and any(
            isinstance(part, ast.Try)
            and self.source.span(part)[0] <= effect.start < self.source.span(part)[1]
            and any(handler.type is not None and catches(handler, _OF_FILES) for handler in part.handlers)
            for node in choice.removed
            for part in walk(node)
        )
        if not (may_fail or self._uploads(effect)) or not self._bind_same(choice):
            return False
        named = (path for local in self._effects(choice.kept) for path in local.about if local.kind == FILES)
        return not any(_ELSEWHERE.match(path) for path in named)

    def _uploads(self, effect: Effect) -> bool:
        return self.source.text.startswith("files.upload", effect.start)

    def _bind_same(self, choice: Choice) -> bool:
        """Whether both branches bind the same name, or are values of the same expression."""
        if isinstance(choice.node, ast.IfExp):
            return True
        local, colab = (bound(accesses_in(self.source, block), choice.scope) for block in (choice.kept, choice.removed))
        return not local.isdisjoint(colab)

    def _runs_elsewhere(self, colab: Sequence[Effect], local: Sequence[Effect]) -> bool:
        """Whether the branch for Colab runs a program of Colab's Python folder, and the local one another program."""
        runs = [effect for effect in colab if effect.kind == RUN]
        is_elsewhere = any(_COLAB_PYTHON.search(self.source.text, effect.start, effect.end) for effect in runs)
        return is_elsewhere and any(effect.kind == RUN for effect in local)

    def _is_here(self, choice: Choice, lost: Sequence[Effect], local: Sequence[Effect]) -> bool:
        """Whether the local branch names a file that is next to the notebook, in place of files or folders of Colab."""
        here = self.context.here
        if here is None or not all(effect.kind in PLACES for effect in lost) or not self._bind_same(choice):
            return False
        named = {path for effect in local if effect.kind == FILES for path in effect.about}
        relative = (path for path in named if not path.startswith("/") and set(path) - {".", "/"})
        return any(_exists(here / path) for path in relative)

    def _unless_needed(self, choice: Choice) -> Choice | None:
        """The choice, or the Colab branch if only that one binds names which are used elsewhere; None if that one
        cannot run here."""
        missing = missing_names(self.source, choice, self.context)
        if not missing:
            return choice
        if needs_colab(self.source, choice.removed) or deletes(self.source, choice.removed):
            return None
        return _for_colab(self.source, choice, because=", ".join(f"`{name}`" for name in sorted(missing)))


def branches(node: ast.If | ast.IfExp) -> tuple[tuple[ast.stmt, ...], tuple[ast.stmt, ...]]:
    """The body and the other branch; a value of an expression as an assignment to nothing, which has its effects."""
    if isinstance(node, ast.If):
        return tuple(node.body), tuple(node.orelse)
    body, other = (ast.copy_location(ast.Assign(targets=[], value=value), value) for value in (node.body, node.orelse))
    return (body,), (other,)


def _mounts(block: Sequence[ast.stmt]) -> bool:
    """Whether a block mounts the drive, which is a folder here."""
    calls = (part for node in block for part in walk(node) if isinstance(part, ast.Call))
    return any(last_name(call.func) == "mount" for call in calls)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # the text is too long for a path
        return False


def without_answer(operands: Sequence[ast.expr], answers: Sequence[Answer | None]) -> list[ast.expr]:
    return [operand for operand, known in zip(operands, answers, strict=True) if known is None]


def asks_if_missing(node: ast.expr) -> bool:
    """Whether an expression asks whether a file or folder is missing: `not os.path.exists(path)`."""
    match node:
        case ast.UnaryOp(op=ast.Not(), operand=ast.Call(func=function)):
            return last_name(function) in _EXISTS
    return False


def missing_names(source: CellSource, choice: Choice, context: Context) -> set[str]:
    """The names that only the branch binds which does not run here, although the rest of the notebook needs them."""
    names = only_bound_in(source, choice)
    if isinstance(choice.scope, ast.Module):
        return names & context.needed
    outside = accesses_in(source, [choice.scope], [choice.node])
    return names & read(outside, choice.scope) - bound(outside, choice.scope)


def only_bound_in(source: CellSource, choice: Choice) -> set[str]:
    """The names that the branch binds which does not run here, and the kept one does not."""
    idle, kept = (accesses_in(source, block) for block in (choice.idle, choice.kept))
    imports = [node for node in choice.idle if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {name for node in imports for name, path in imported_names(node) if path in MODULES}
    kept = [access for access in kept if access.name not in modules or not access.is_set_to_none]
    return bound(idle, choice.scope) - bound(kept, choice.scope)


def _for_colab(source: CellSource, choice: Choice, *, because: str = "", effects: tuple[Effect, ...] = ()) -> Choice:
    """The choice for the branch for Colab."""
    node, stays, kept, removed = choice.node, bool(choice.rest), choice.removed, choice.kept
    if isinstance(node, ast.Try):
        stays, kept = not _needs_no_try(source, node), (*node.body, *node.orelse)
        removed = tuple(statement for handler in node.handlers for statement in handler.body)
    elif stays:
        body, other = branches(node)
        kept = (*body, *other)
    removed = () if stays else removed
    return replace(choice, kept=kept, removed=removed, colab=True, because=because, stays=stays, effects=effects)


def _needs_no_try(source: CellSource, node: ast.Try) -> bool:
    """Whether the body does the same without the `try`: its handlers can only catch errors of the Colab import."""
    if node.finalbody or len(node.handlers) != 1:
        return False
    others = [part for part in node.body if _fails(source, part) is None or imported_packages(part) - {"google"}]
    caught = node.handlers[0].type
    kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    if all(isinstance(kind, ast.Name) and kind.id in _OF_IMPORTS for kind in kinds):
        return not any(isinstance(part, ast.Import | ast.ImportFrom) for other in others for part in walk(other))
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


def _of_try(source: CellSource, node: ast.Try, scope: Scope) -> Choice | None:
    """A `try` whose body needs something that exists on Colab only, usually its package: the handler runs here."""
    index, _, handler = _failure(source, node)
    if handler is None or _refuses(handler.body):
        return None
    kept = (*node.body[:index], *handler.body)
    removed = (*node.body[index:], *node.orelse)
    return Choice(node, kept, removed, scope, failing=node.body[index], handler=handler)


def _failure(source: CellSource, node: ast.Try) -> tuple[int, frozenset[str] | None, ast.ExceptHandler | None]:
    """The first statement of a `try` that fails without Colab, the names that catch its error, and its handler."""
    for index, statement in enumerate(node.body):
        caught = _fails(source, statement)
        if caught is not None:
            return index, caught, next((handler for handler in node.handlers if catches(handler, caught)), None)
    return 0, None, None


def _fails(source: CellSource, statement: ast.stmt) -> frozenset[str] | None:
    """The names of the exception classes that catch the error of a statement without Colab; None if it has none."""
    if isinstance(statement, ast.Import):
        return _CATCHES_IMPORT if any(path_below(alias.name) is not None for alias in statement.names) else None
    if isinstance(statement, ast.ImportFrom):
        is_below = not statement.level and path_below(statement.module or "") is not None
        return _CATCHES_IMPORT if is_below or all(path is not None for _, path in imported_names(statement)) else None
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        command = source.command_of(statement)
        if command is not None and command.kind == "magic" and command.name == "tensorflow_version":
            return _CATCHES_ALL
    if isinstance(statement, ast.Try) and not statement.finalbody:
        _, caught, handler = _failure(source, statement)
        last = handler.body[-1] if handler is not None else ast.Raise()
        if isinstance(last, ast.Raise):
            raised = last.exc.func if isinstance(last.exc, ast.Call) else last.exc
            is_same = raised is None or (handler is not None and last_name(raised) == handler.name)
            return caught if is_same else _CATCHES_ALL | {last_name(raised)}
    return None


def _refuses(block: Sequence[ast.stmt]) -> bool:
    """Whether the branch ends the run: it raises, has a false assert, or exits the interpreter."""
    match block[-1] if block else None:
        case ast.Raise():
            return True
        case ast.Assert(test=ast.Constant(value=value)):
            return not value
        case ast.Expr(value=ast.Call(func=function)) | ast.Assign(targets=[], value=ast.Call(func=function)):
            return last_name(function) in _EXITS  # an assignment to nothing: a value of a conditional expression
    return False
