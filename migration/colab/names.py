"""Names of a cell that refer to parts of `google.colab`, by Python's rules of scope. A visitor processes a cell in the
order of execution. Functions are visited after the cell's own statements, because they use the names of the module at
the time of the call.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable
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
    reader.visit_all(tree.body, reader.module)
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

    # ------------------------------------------------------------------------------------------------------ visiting
    def visit(self, node: ast.AST, scope: _Scope, *, is_statement: bool = False) -> None:
        match node:
            case ast.Import() | ast.ImportFrom():
                for name, path in imported_names(node, self.packages):
                    self.bind(name, scope, path)
            case ast.Assign() | ast.AnnAssign() if node.value is not None:
                self.visit(node.value, scope)
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Name):
                        self.bind(target.id, scope, self.found.paths.get(id(node.value)))
                    else:
                        self.visit(target, scope)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.function(node, scope)
            case ast.ClassDef():
                self.visit_all([*node.decorator_list, *node.bases, *node.keywords], scope)
                self.visit_all(node.body, _Scope({}, scope, frozenset(stored_names(node.body)), is_class=True))
                self.bind(node.name, scope)
            case ast.Lambda():
                self.visit_all([*node.args.defaults, *filter(None, node.args.kw_defaults)], scope)
                inner = _inner(node, scope)
                self.waiting.append(lambda: self.visit(node.body, inner))
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                self.visit_all(children(node), _inner(node, scope))
            case ast.Expr(value=ast.Call() as call):
                self.visit(call, scope, is_statement=True)
            case ast.Call():
                self.chain(node.func, scope, call=node, is_statement=is_statement)
                self.visit_all([*node.args, *node.keywords], scope)
            case ast.Attribute() | ast.Name(ctx=ast.Load()):
                self.chain(node, scope)
            case ast.Name():
                self.bind(node.id, scope)
            case _:
                if isinstance(name := getattr(node, "name", None) or getattr(node, "rest", None), str):
                    self.bind(name, scope)  # of a handler or a pattern
                parts = children(node)
                first = getattr(node, "iter", None) or getattr(node, "value", None)  # evaluated before the target
                self.visit_all(sorted(parts, key=lambda part: part is not first), scope)

    def visit_all(self, nodes: Iterable[ast.AST], scope: _Scope) -> None:
        for node in nodes:
            self.visit(node, scope)

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: _Scope) -> None:
        arguments = node.args
        annotations = [argument.annotation for argument in arguments_of(arguments)]
        outside = [*node.decorator_list, *arguments.defaults, *arguments.kw_defaults, node.returns, *annotations]
        self.visit_all(filter(None, outside), scope)
        inner = _Scope(dict.fromkeys(parameter_names(node)), scope, local_names(node))
        self.waiting.append(lambda: self.visit_all(node.body, inner))
        self.bind(node.name, scope)

    def chain(self, node: ast.expr, scope: _Scope, *, call: ast.Call | None = None, is_statement: bool = False) -> None:
        """Resolves `a.b.c`, from its first name on; a call or an item before a chain is visited separately."""
        links: list[ast.Attribute] = []
        base = node
        while isinstance(base, ast.Attribute):
            links.append(base)
            base = base.value
        if not isinstance(base, ast.Name):
            self.visit(base, scope)
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


def _inner(node: ast.AST, scope: _Scope) -> _Scope:
    """The scope of a lambda or comprehension."""
    local = local_names(node)
    return _Scope(dict.fromkeys(local), scope, local)


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
