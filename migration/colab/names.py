"""Names of a cell that refer to parts of `google.colab`."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from migration.python.scopes import Access, Scope, accesses
from migration.python.source import CellSource, once_a_cell

PACKAGE = "google.colab"
RUNTIME = "landfall_runtime"
RUNTIME_FILE = Path(__file__).resolve().parents[2] / f"{RUNTIME}.py"

# Meanings of a name other than a path below google.colab (`drive`, `drive.mount`, "" for the package itself).
GOOGLE = "<google>"  # the namespace package `google`, whose attribute `colab` is the package
FLAG = "<flag>"  # the answer to "does this run on Colab?"

_NONE: Mapping[str, str | None] = {}

MOUNT = "drive.mount"
UNMOUNT = "drive.flush_and_unmount"
MOUNTS = frozenset({"drive", MOUNT, UNMOUNT})
OUTPUT = "output"
MODULES = frozenset({"auth", "drive", "files", "userdata"})
"""Modules whose effects happen here, too."""
IDLE = frozenset({"output.enable_custom_widget_manager", "output.disable_custom_widget_manager"})
"""Calls that only Colab's page needs."""


@dataclass(frozen=True)
class Use:
    """A reference to a part of google.colab: `node` is the longest chain of attributes, `path` its meaning, `root` the
    part for `google.colab` itself. `is_statement`: it is a call that is a statement of its own (`call`)."""

    node: ast.expr
    path: str
    root: ast.expr | None = None
    call: ast.Call | None = None
    is_statement: bool = False

    @property
    def place(self) -> ast.expr | None:
        """The folder of a mount."""
        if self.call is None or self.path != MOUNT:
            return None
        named = (key.value for key in self.call.keywords if key.arg == "mountpoint")
        return next(iter(self.call.args), None) or next(named, None)


@dataclass
class Names:
    """The meaning of a cell's names: `paths` by the id of a node, `uses` in order, and the module's names after it."""

    paths: dict[int, str] = field(default_factory=dict)
    uses: list[Use] = field(default_factory=list)
    bound: dict[str, str | None] = field(default_factory=dict)


def uploads(uses: Sequence[Use]) -> list[ast.Call]:
    """The calls that upload files and whose result is used, in the order of the text: each has files of its own."""
    calls = (
        use.call
        for use in uses
        if use.call is not None
        and (use.path == "files.upload_file" or (use.path == "files.upload" and not use.is_statement))
    )
    return sorted(calls, key=lambda call: (call.lineno, call.col_offset))


@cache
def offered() -> Mapping[str, frozenset[str]]:
    """The modules of google.colab that landfall_runtime offers, each with its names."""
    tree = ast.parse(RUNTIME_FILE.read_text(encoding="utf-8"))
    return {
        module.name: frozenset(
            name
            for node in module.body
            for name in (
                [getattr(target, "id", "") for target in node.targets]
                if isinstance(node, ast.Assign)
                else [getattr(node, "name", "")]
            )
        )
        for module in tree.body
        if isinstance(module, ast.ClassDef)
    }


def is_offered(path: str) -> bool:
    """Whether landfall_runtime has the name of a path below google.colab; `*` are all names of a module."""
    module, _, name = path.partition(".")
    return module in offered() and name.partition(".")[0] in {*offered()[module], "", "*"}


def read_names(
    source: CellSource,
    *,
    before: Mapping[str, str | None] = _NONE,
    later: Mapping[str, str | None] = _NONE,
    flags: Collection[str] = (),
    packages: Collection[str] = (PACKAGE,),
) -> Names:
    """The meaning of the names of a cell. `before` are the module's names after the cells above; `later` are those that
    are not bound yet. `packages` are the modules that count as google.colab, for a cell whose imports are already
    rewritten.
    """
    found = Names()
    known: dict[tuple[Scope | None, str], str | None] = {(None, name): path for name, path in before.items()}
    for access in accesses(source):
        name, owner = access.name, access.owner
        scope = owner if owner.parent is not None else None
        if access.binds:
            path = _bound_path(access, found, packages)
            if access.is_set_to_none and (module := known.get((scope, name))) in MODULES:
                path = module  # `drive = None` where its import fails
            if scope is None:
                path = FLAG if name in flags else path
                found.bound[name] = path
            known[scope, name] = path
        elif isinstance(access.node, ast.Name):
            path = known.get((scope, name))
            if scope is None and (None, name) not in known:
                path = FLAG if name in flags else later.get(name)
                if path is None and name in ("google", RUNTIME):
                    # Full names need no visible import.
                    path = GOOGLE if name == "google" else "" if RUNTIME in packages else None
            if path is not None:
                _follow(source, access.node, path, found)
    return found


def _bound_path(access: Access, found: Names, packages: Collection[str]) -> str | None:
    """The meaning that an import or an assignment gives to a name."""
    if isinstance(access.node, ast.Import | ast.ImportFrom):
        return dict(imported_names(access.node, packages)).get(access.name)
    path = found.paths.get(id(access.value))
    return path if path != FLAG else None


def _follow(source: CellSource, name: ast.Name, path: str, found: Names) -> None:
    """Resolves `a.b.c`, from its first name on."""
    attributes, calls, statements = _links(source)
    node: ast.expr = name
    root: ast.expr | None = None
    if path != GOOGLE:
        found.paths[id(node)] = path
    while path != FLAG and (link := attributes.get(id(node))) is not None:
        if path == GOOGLE and link.attr != "colab":
            return
        if path == GOOGLE:
            path, root = "", link
        else:
            path = f"{path}.{link.attr}" if path else link.attr
        node = link
        found.paths[id(node)] = path
    if path not in (GOOGLE, FLAG):
        call = calls.get(id(node))
        found.uses.append(Use(node, path, root, call, id(call) in statements))


@once_a_cell
def _links(source: CellSource) -> tuple[dict[int, ast.Attribute], dict[int, ast.Call], set[int]]:
    """The attribute of each expression, the call of each function, and the calls that are statements, by their ids."""
    attributes = {id(node.value): node for node in source.nodes if isinstance(node, ast.Attribute)}
    calls = {id(node.func): node for node in source.nodes if isinstance(node, ast.Call)}
    return attributes, calls, {id(node.value) for node in source.nodes if isinstance(node, ast.Expr)}


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
