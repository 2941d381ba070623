"""Module-level names that the cells of a notebook bind and use."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from migration.python.scopes import accesses, bound, ids_in, read
from migration.python.source import CellSource
from migration.python.statements import blocks

_QUIET_MAGICS = frozenset(
    {"cd", "pip", "conda", "env", "set_env", "matplotlib", "config", "load_ext", "reload_ext", "autoreload", "time"}
    | {"timeit", "ls", "mkdir", "cp", "mv", "rm", "cat", "pwd", "tensorflow_version", "tensorboard", "shell", "who"}
    | {"watermark", "whos", "who_ls", "rehashx", "precision"}
)
_TEXT_CELLS = frozenset(
    {"writefile", "file", "html", "HTML", "javascript", "js", "latex", "markdown", "svg", "time", "prun", "memit"}
)
_SHELL_CELLS = frozenset({"bash", "sh", "shell", "script", "system", "perl", "ruby", "python2"})
_OWN_NAMESPACE = frozenset({"python", "python3", "pypy", "timeit"})
_BINDS_ANYTHING = frozenset({"run", "reset", "pylab", "store", "load", "rerun", "recall", "macro"})
_ANY_NAME = re.compile(
    r"(?:exec|execfile)\("
    r"|get_ipython\(\)\.(?:run_cell|ex|push|run_code|safe_execfile|reset)\("
    rf"|get_ipython\(\)\.(?:run_line_magic|magic)\(\W*(?:{'|'.join(sorted(_BINDS_ANYTHING))})\b"
    r"|(?:globals|locals|vars)\(\)(?:\.(?:update|setdefault|pop|clear)\(|\[.*\] = )"
)
_BOUND_BY_SHELL, _BOUND_BY_MAGIC = map(re.compile, (r"--(?:out|err|proc)[ =](\w+)", r"(?<![\w{$./-])([^\W\d]\w*)"))
_ROOTS = frozenset({"exec", "execfile", "get_ipython", "globals", "locals", "vars"})  # first names of `_ANY_NAME`
_NAMESPACE = re.compile(r"\b(?:globals|locals|vars)\(\)")
MAY_BIND_ANYTHING = re.compile(
    rf"import\s*\(?\s*\*|\bexec|{_NAMESPACE.pattern}|get_ipython|%\s*(?:{'|'.join(sorted(_BINDS_ANYTHING))})\b"
)

_MAX_DEPTH = 3  # of names whose value is another name


@dataclass
class CellNames:
    """The module-level names of a part of a cell: those it binds, those it uses when it runs, and those that its
    functions use when they are called. `anything` is a construct that may bind any name (`from m import *`, `exec`,
    `%run`), empty if there is none. `computes`: the cell assigns names by their texts:
    `globals()[name] = 1`."""

    bound: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    deferred: set[str] = field(default_factory=set)
    anything: str = ""
    computes: bool = False


def names_of(source: CellSource, *, without: Iterable[ast.stmt] = (), until: int | None = None) -> CellNames:
    """The names of a cell, without some of its statements, or of the part of it before the offset `until`, where a
    statement begins. A cell that cannot be parsed is searched as text."""
    found = CellNames()
    magic = source.magic
    if magic is not None and magic.name not in _TEXT_CELLS | _OWN_NAMESPACE:
        pattern = _BOUND_BY_SHELL if magic.name in _SHELL_CELLS else _BOUND_BY_MAGIC
        found.bound.update(pattern.findall(magic.argument))
    if magic is not None and (magic.name in _OWN_NAMESPACE or (not source.is_python and magic.name in _TEXT_CELLS)):
        return found
    if source.tree is None or not source.is_python:
        if magic is None or magic.name not in _SHELL_CELLS:
            _read_text(source.text[:until], found)
        return found
    left_out = list(without)
    if until is not None:
        left_out += [node for node in blocks(source)[0].statements if source.span(node)[0] >= until]
    for command in source.commands:
        if command.kind != "magic" or (until is not None and command.start >= until):
            continue
        if command.name in _BINDS_ANYTHING:
            found.anything = f"%{command.name}"
        elif command.name not in _QUIET_MAGICS:
            words = source.text[command.body + len(command.name) : command.end]
            found.bound.update(_BOUND_BY_MAGIC.findall(words))
    outside = ids_in(left_out)
    inside = [access for access in accesses(source) if id(access.node) not in outside]
    found.bound |= bound(inside)
    found.used |= read(access for access in inside if not access.scope.is_deferred)
    found.deferred |= read(inside) - found.used
    if MAY_BIND_ANYTHING.search(source.masked):
        _read_namespaces(source.masked, [node for node in source.nodes if id(node) not in outside], found)
    return found


def _read_namespaces(text: str, nodes: Sequence[ast.AST], found: CellNames) -> None:
    """`from m import *`, `exec(code)`, `globals()["x"] = 1`; a name in a string counts as used next to `globals()`."""
    may_use_texts = _NAMESPACE.search(text) is not None
    found.computes = _computes_names(nodes)
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            found.anything = found.anything or f"from {node.module or ''} import *"
        elif isinstance(node, ast.Call | ast.Assign):
            if _root(node) in _ROOTS and (match := _ANY_NAME.match(ast.unparse(node))):
                found.anything = match[0].rstrip("(= ")
        elif may_use_texts and isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.used.add(node.value)


def _computes_names(nodes: Sequence[ast.AST]) -> bool:
    """Whether statements assign names by their texts: `globals()[name] = 1`, `globals().update(settings)`,
    `exec(f"{name} = 1")`."""
    aliases = {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign) and _is_namespace(node.value, frozenset())
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in nodes:
        match node:
            case ast.Subscript(value=value, ctx=ast.Store()) if _is_namespace(value, aliases):
                return True
            case ast.Call(func=ast.Attribute(value=value, attr="update"), args=[_]) if _is_namespace(value, aliases):
                return True
            case ast.Call(func=ast.Name(id="exec"), args=[code, *_]) if "=" in ast.unparse(code):
                return True
    return False


def _is_namespace(node: ast.expr, aliases: Collection[str]) -> bool:
    """Whether an expression is the namespace of the module: `globals()`, or a name for it."""
    match node:
        case ast.Call(func=ast.Name(id="globals" | "locals" | "vars"), args=[], keywords=[]):
            return True
    return isinstance(node, ast.Name) and node.id in aliases


def _root(node: ast.AST) -> str:
    """The first name of a call, or of the target of an assignment."""
    while not isinstance(node, ast.Name):
        match node:
            case ast.Call(func=inner) | ast.Assign(targets=[inner]) | ast.Attribute(inner) | ast.Subscript(inner):
                node = inner
            case _:
                return ""
    return node.id


def _read_text(text: str, found: CellNames) -> None:
    """Reads text that Python cannot parse: every word counts as used, words in the position of a target as bound."""
    found.used.update(re.findall(r"\b[^\W\d]\w*", text))
    for names in re.findall(
        r"^[ \t]*((?:[\w.]+\s*,\s*)*\w+)\s*(?:[-+*/%&|^@]|//|\*\*|<<|>>)?=(?!=)", text, re.MULTILINE
    ):
        found.bound.update(re.split(r"\s*,\s*", names))
    for names in re.findall(r"\b(?:for|import|as|global|def|class|del)\s+((?:[\w.]+\s*,\s*)*[^\W\d]\w*)", text):
        found.bound.update(re.split(r"\s*,\s*", names))


def literal_values(name: str, source: CellSource, sources: Sequence[CellSource], depth: int = 0) -> list[str]:
    """The texts that a name has in a cell, or else in the notebook, also one after the other in a loop; none if one of
    them is unknown."""
    is_own = any(access.binds and access.name == name for access in accesses(source))
    found: list[str] = []
    for cell in [source] if is_own else [cell for cell in sources if name in cell.text]:
        assigned = [(node.targets[0], node.value) for node in cell.nodes if isinstance(node, ast.Assign)]
        assigned += [(node.target, node.iter) for node in cell.nodes if isinstance(node, ast.For)]
        values = [value for target, value in assigned if isinstance(target, ast.Name) and target.id == name]
        binds = sum(access.binds and access.name == name for access in accesses(cell))
        if binds != len(values) or (cell.is_python and cell.tree is None and name in names_of(cell).bound):
            return []
        for value in values:
            parts = value.elts if isinstance(value, ast.List | ast.Tuple | ast.Set) else [value]
            texts = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
            if isinstance(value, ast.Name) and depth < _MAX_DEPTH:
                texts, parts = literal_values(value.id, cell, sources, depth + 1), []
            if not texts or len(texts) < len(parts):
                return []
            found += texts
    return found
