"""Names of a cell that refer to parts of `google.colab`, by Python's rules of scope. A visitor processes a cell in the
order of execution. Functions are visited after the cell's own statements, because they use the names of the module at
the time of the call.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from migration.python.scopes import arguments_of, local_names, parameter_names, stored_names
from migration.python.trees import children

PACKAGE = "google.colab"
RUNTIME = "landfall_runtime"

# Meanings of a name other than a path below google.colab (`drive`, `drive.mount`, "" for the package itself).
GOOGLE = "<google>"  # the namespace package `google`, whose attribute `colab` is the package
FLAG = "<flag>"  # the answer to "does this run on Colab?"

# The parts of google.colab that landfall_runtime offers.
OFFERED = frozenset(
    {"_message", "ai", "auth", "cv2_imshow", "data_table", "drive", "errors", "files", "output", "patches", "runtime"}
    | {"snippets", "syntax", "userdata", "widgets"}
)

MOUNT = "drive.mount"
UNMOUNT = "drive.flush_and_unmount"
MOUNTS = frozenset({"drive", MOUNT, UNMOUNT})

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)


@dataclass(frozen=True)
class Use:
    """A reference to a part of google.colab: `node` is the longest chain of attributes, `path` its meaning, `root` the
    part for `google.colab` itself. `is_statement`: it is a call that is a statement of its own (`call`)."""

    node: ast.expr
    path: str
    root: ast.expr | None = None
    call: ast.Call | None = None
    is_statement: bool = False


@dataclass
class Names:
    """The meaning of a cell's names: `paths` by the id of a node, `uses` in order, and the module's names after it."""

    paths: dict[int, str] = field(default_factory=dict)
    uses: list[Use] = field(default_factory=list)
    bound: dict[str, str | None] = field(default_factory=dict)
    first: dict[str, str | None] = field(default_factory=dict)


@dataclass
class _Scope:
    """The names bound so far; `local` are those that the scope binds somewhere, None at module level."""

    names: dict[str, str | None]
    parent: _Scope | None = None
    local: frozenset[str] | None = None
    is_class: bool = False


def read_names(
    tree: ast.Module,
    *,
    before: dict[str, str | None] | None = None,
    later: Callable[[str], str | None] = lambda name: None,
    flags: Collection[str] = (),
    packages: Collection[str] = (PACKAGE,),
) -> Names:
    """The meaning of the names of a cell. `before` are the module's names after the cells above; `later` gives the
    meaning of a name that is not bound yet. `packages` are the modules that count as google.colab, for a cell whose
    imports are already rewritten.
    """
    reader = _Reader(_Scope(dict(before or {})), later, flags, packages)
    reader.block(tree.body, reader.module)
    while reader.waiting:
        reader.waiting.pop(0)()
    return reader.found


class _Reader:
    def __init__(
        self,
        module: _Scope,
        later: Callable[[str], str | None],
        flags: Collection[str],
        packages: Collection[str],
    ):
        self.module = module
        self.later = later
        self.flags = flags
        self.packages = packages
        self.found = Names()
        self.waiting: list[Callable[[], None]] = []

    # ------------------------------------------------------------------------------------------------------- binding
    def bind(self, name: str, scope: _Scope, path: str | None = None) -> None:
        while scope is not self.module and scope.local is not None and name not in scope.local:
            scope = scope.parent or self.module  # a walrus in a comprehension, or a name declared global
        if scope is self.module:
            if name in self.flags:
                path = FLAG
            self.found.first.setdefault(name, path)
            self.found.bound[name] = path
        scope.names[name] = path

    def lookup(self, name: str, scope: _Scope | None) -> str | None:
        inside = False
        while scope is not None and scope is not self.module:
            if not (scope.is_class and inside):
                if name in scope.names:
                    return scope.names[name]
                if scope.local is not None and name in scope.local and not scope.is_class:
                    return None
            inside = True
            scope = scope.parent
        if name in self.module.names:
            return self.module.names[name]
        if name in self.flags:
            return FLAG
        path = self.later(name)
        if path is None and name in ("google", RUNTIME):
            # Full names need no visible import.
            return GOOGLE if name == "google" else "" if RUNTIME in self.packages else None
        return path

    def targets(self, node: ast.expr, scope: _Scope, path: str | None = None) -> None:
        if isinstance(node, ast.Name):
            self.bind(node.id, scope, path)
        elif isinstance(node, ast.Tuple | ast.List):
            for part in node.elts:
                self.targets(part, scope)
        elif isinstance(node, ast.Starred):
            self.targets(node.value, scope)
        else:
            self.expression(node, scope)

    # ---------------------------------------------------------------------------------------------------- statements
    def block(self, statements: Sequence[ast.stmt], scope: _Scope) -> None:
        for statement in statements:
            self.statement(statement, scope)

    def statement(self, node: ast.stmt, scope: _Scope) -> None:
        match node:
            case ast.Import() | ast.ImportFrom():
                self.imports(node, scope)
            case ast.Assign():
                self.expression(node.value, scope)
                for target in node.targets:
                    self.targets(target, scope, self.found.paths.get(id(node.value)))
            case ast.AnnAssign():
                self.expression(node.annotation, scope)
                if node.value is not None:
                    self.expression(node.value, scope)
                    self.targets(node.target, scope, self.found.paths.get(id(node.value)))
            case ast.AugAssign():
                self.expression(node.value, scope)
                self.targets(node.target, scope)
            case ast.For() | ast.AsyncFor():
                self.expression(node.iter, scope)
                self.targets(node.target, scope)
                self.block([*node.body, *node.orelse], scope)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    self.expression(item.context_expr, scope)
                    if item.optional_vars is not None:
                        self.targets(item.optional_vars, scope)
                self.block(node.body, scope)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.function(node, scope)
            case ast.ClassDef():
                for part in [*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)]:
                    self.expression(part, scope)
                self.block(node.body, _Scope({}, scope, frozenset(stored_names(node.body)), is_class=True))
                self.bind(node.name, scope)
            case ast.Try() | ast.TryStar():
                self.block(node.body, scope)
                for handler in node.handlers:
                    if handler.type is not None:
                        self.expression(handler.type, scope)
                    if handler.name:
                        self.bind(handler.name, scope)
                    self.block(handler.body, scope)
                self.block([*node.orelse, *node.finalbody], scope)
            case ast.Match():
                self.expression(node.subject, scope)
                for case in node.cases:
                    for name in stored_names([case.pattern]):
                        self.bind(name, scope)
                    if case.guard is not None:
                        self.expression(case.guard, scope)
                    self.block(case.body, scope)
            case ast.Delete():
                for target in node.targets:
                    self.targets(target, scope)
            case ast.Expr(value=ast.Call() as call):
                self.expression(call, scope, is_statement=True)
            case _:
                for part in children(node):
                    if isinstance(part, ast.expr):
                        self.expression(part, scope)
                    elif isinstance(part, ast.stmt):
                        self.statement(part, scope)

    def imports(self, node: ast.Import | ast.ImportFrom, scope: _Scope) -> None:
        for name, path in imported_names(node, self.packages):
            self.bind(name, scope, path)

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: _Scope) -> None:
        arguments = node.args
        annotations = [argument.annotation for argument in arguments_of(arguments)]
        for part in [*node.decorator_list, *arguments.defaults, *arguments.kw_defaults, node.returns, *annotations]:
            if part is not None:
                self.expression(part, scope)
        inner = _Scope(dict.fromkeys(parameter_names(node)), scope, local_names(node))
        self.waiting.append(lambda: self.block(node.body, inner))
        self.bind(node.name, scope)

    # --------------------------------------------------------------------------------------------------- expressions
    def expression(self, node: ast.expr, scope: _Scope, *, is_statement: bool = False) -> None:
        if isinstance(node, ast.Call):
            self.chain(node.func, scope, call=node, is_statement=is_statement)
            for part in [*node.args, *(keyword.value for keyword in node.keywords)]:
                self.expression(part, scope)
        elif isinstance(node, ast.Attribute | ast.Name):
            self.chain(node, scope)
        elif isinstance(node, ast.NamedExpr):
            self.expression(node.value, scope)
            self.bind(node.target.id, scope)
        elif isinstance(node, ast.Lambda):
            for part in [*node.args.defaults, *node.args.kw_defaults]:
                if part is not None:
                    self.expression(part, scope)
            local = local_names(node)
            inner = _Scope(dict.fromkeys(local), scope, local)
            self.waiting.append(lambda: self.expression(node.body, inner))
        elif isinstance(node, _COMPREHENSIONS):
            local = local_names(node)
            inner = _Scope(dict.fromkeys(local), scope, local)
            self.children(node, inner)
        else:
            self.children(node, scope)

    def children(self, node: ast.AST, scope: _Scope) -> None:
        for part in children(node):
            if isinstance(part, ast.expr):
                self.expression(part, scope)
            elif isinstance(part, ast.comprehension | ast.keyword):
                self.children(part, scope)

    def chain(self, node: ast.expr, scope: _Scope, *, call: ast.Call | None = None, is_statement: bool = False) -> None:
        """Resolves `a.b.c`, from its first name on; a call or an item before a chain is visited separately."""
        links: list[ast.Attribute] = []
        base = node
        while isinstance(base, ast.Attribute):
            links.append(base)
            base = base.value
        if not isinstance(base, ast.Name):
            self.expression(base, scope)
            return
        path = self.lookup(base.id, scope) if isinstance(base.ctx, ast.Load) or links else None
        if path is None:
            return
        root: ast.expr | None = None
        if path != GOOGLE:
            self.found.paths[id(base)] = path
        for link in reversed(links):
            if path == GOOGLE:
                if link.attr != "colab":
                    return
                path, root = "", link
            elif path == FLAG:
                return
            else:
                path = f"{path}.{link.attr}" if path else link.attr
            self.found.paths[id(link)] = path
        if path not in (GOOGLE, FLAG):
            self.found.uses.append(Use(node, path, root, call, is_statement))


def imported_names(
    node: ast.Import | ast.ImportFrom, packages: Collection[str] = (PACKAGE,)
) -> list[tuple[str, str | None]]:
    """The names that an import binds and their meanings (None: not part of google.colab)."""
    if isinstance(node, ast.ImportFrom):
        module = "" if node.level else node.module or ""
        if module == "google" and PACKAGE in packages:
            return [(alias.asname or alias.name, "" if alias.name == "colab" else None) for alias in node.names]
        below = path_below(module, packages)
        return [(alias.asname or alias.name, _joined(below, alias.name)) for alias in node.names]
    names: list[tuple[str, str | None]] = []
    for alias in node.names:
        below = path_below(alias.name, packages)
        first = alias.name.partition(".")[0]
        if alias.asname:
            names.append((alias.asname, below))
        elif first == RUNTIME and below is not None:
            names.append((first, ""))
        else:
            names.append((first, GOOGLE if first == "google" else None))
    return names


def path_below(module: str, packages: Collection[str] = (PACKAGE,)) -> str | None:
    """The part of a module's name below google.colab, "" for the package itself, None for another module."""
    for package in packages:
        if module == package:
            return ""
        if module.startswith(package + "."):
            return module[len(package) + 1 :]
    return None


def _joined(below: str | None, name: str) -> str | None:
    if below is None:
        return None
    path = f"{below}.{name}" if below else name
    return "patches.cv2_imshow" if path == "cv2_imshow" else path
