"""Bindings and uses of a notebook's module-level names, over all cells."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from migration.python.scopes import arguments_of, command_words, local_names, stored_names
from migration.python.source import CellSource, Command
from migration.python.trees import children, walk

Place = tuple[int, int]  # the cell's position, and the offset in its text

_QUIET_MAGICS = frozenset(
    [
        "cd",
        "pip",
        "conda",
        "env",
        "set_env",
        "matplotlib",
        "config",
        "load_ext",
        "reload_ext",
        "autoreload",
        "time",
        "timeit",
        "ls",
        "mkdir",
        "cp",
        "mv",
        "rm",
        "cat",
        "pwd",
        "tensorflow_version",
        "tensorboard",
        "shell",
        "watermark",
        "who",
        "whos",
        "who_ls",
        "rehashx",
        "precision",
    ]
)
_TEXT_CELLS = frozenset(
    [
        "writefile",
        "file",
        "html",
        "HTML",
        "javascript",
        "js",
        "latex",
        "markdown",
        "svg",
        "time",
        "timeit",
        "prun",
        "memit",
    ]
)
_SHELL_CELLS = frozenset(
    ["bash", "sh", "shell", "script", "system", "perl", "ruby", "python", "python2", "python3", "pypy"]
)
_OWN_NAMESPACE = frozenset({"python", "python3", "pypy", "timeit"})
_BINDS_ANYTHING = frozenset({"run", "reset", "pylab", "store", "load", "rerun", "recall", "macro"})
_MAY_BIND_ANYTHING = re.compile(
    r"import\s*\(?\s*\*|\bexec|\b(?:globals|locals|vars)\s*\(|get_ipython"
    rf"|%\s*(?:{'|'.join(sorted(_BINDS_ANYTHING))})\b"
)
_KERNEL_CALLS = frozenset({"run_cell", "ex", "push", "run_code", "safe_execfile", "reset", "run_line_magic", "magic"})


@dataclass(frozen=True)
class Use:
    """A use of a module-level name; `deferred` if it is in a function, and so may run later."""

    place: Place
    deferred: bool


class NotebookNames:
    """The module-level bindings and uses of some names in a notebook's cells, which come in order.

    `bound` and `used` contain the positions of each name; `anything` the positions that may bind any name (`from m
    import *`, `exec`, `%run`), with their text. A cell that cannot be parsed is searched as text; one whose text
    contains none of the names, and nothing that may bind them, is not parsed.
    """

    def __init__(self, cells: Sequence[CellSource], names: Collection[str]):
        self.bound: dict[str, list[Place]] = {}
        self.used: dict[str, list[Use]] = {}
        self.anything: list[tuple[Place, str]] = []
        self._unparsed: list[CellSource] = []
        named = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(names)))})\b")
        for source in cells:
            if named.search(source.text) or _MAY_BIND_ANYTHING.search(source.text):
                self._read(source)

    def bindings(self, name: str) -> list[Place]:
        """Every position where `name` is bound, in order."""
        unparsed = self._unparsed_with(name)
        if not unparsed:
            return sorted(self.bound.get(name, []))
        pattern = re.compile(
            rf"^[ \t]*(?:[\w.]+\s*,\s*)*{re.escape(name)}\s*(?:,[^=\n(]*)?(?:[-+*/%&|^@]|//|\*\*|<<|>>)?=(?!=)|"
            rf"\b(?:for|import|as|global|def|class|del)\s+(?:[\w.]+\s*,\s*)*{re.escape(name)}\b",
            re.MULTILINE,
        )
        by_text = [(source.index, match.start()) for source in unparsed for match in pattern.finditer(source.text)]
        return sorted(self.bound.get(name, []) + by_text)

    def uses_before(self, name: str, place: Place) -> list[Use]:
        """The uses of `name` before a position, in order."""
        by_text = [
            Use((source.index, match.start()), deferred=False)
            for source in self._unparsed_with(name)
            if source.index < place[0] and (match := re.search(rf"\b{re.escape(name)}\b", source.text))
        ]
        found = [use for use in self.used.get(name, []) if use.place < place]
        return sorted(found + by_text, key=lambda use: use.place)

    def anything_before(self, place: Place) -> str:
        """A construct before a position that may bind any name, or an empty text."""
        return next((text for where, text in sorted(self.anything) if where < place), "")

    def _unparsed_with(self, name: str) -> list[CellSource]:
        return [source for source in self._unparsed if name in source.text]

    def _read(self, source: CellSource) -> None:
        magic = source.magic
        if magic is not None and magic.name not in _TEXT_CELLS:
            pattern = r"--(?:out|err|proc)[ =](\w+)" if magic.name in _SHELL_CELLS else r"(?<![\w{$./-])([^\W\d]\w*)"
            for match in re.finditer(pattern, magic.argument):
                self._bind(match[1], (source.index, magic.start))
        if magic is not None and magic.name in _OWN_NAMESPACE:
            return
        if not source.is_python:
            if magic is None or magic.name not in _TEXT_CELLS | _SHELL_CELLS:
                self._unparsed.append(source)
            return
        if source.tree is None:
            self._unparsed.append(source)
            return
        for command in source.commands:
            self._command(source, command)
        _Reader(self, source).visit_all(source.tree.body)

    def _command(self, source: CellSource, command: Command) -> None:
        text = source.text[command.body : command.end]
        place = (source.index, command.start)
        if command.kind == "magic":
            if command.name in _BINDS_ANYTHING:
                self.anything.append((place, f"%{command.name}"))
            elif command.name not in _QUIET_MAGICS:
                for match in re.finditer(r"(?<![\w{$./-])([^\W\d]\w*)", text[len(command.name) :]):
                    self._bind(match[1], place)
        for word in command_words(text):
            self._use(word, place, deferred=False)

    def _bind(self, name: str, place: Place) -> None:
        self.bound.setdefault(name, []).append(place)

    def _use(self, name: str, place: Place, *, deferred: bool) -> None:
        self.used.setdefault(name, []).append(Use(place, deferred))


class _Reader(ast.NodeVisitor):
    """Records the module-level bindings and uses of one cell, with Python's rules of scope."""

    def __init__(self, names: NotebookNames, source: CellSource):
        self.names = names
        self.source = source
        self.functions: list[frozenset[str]] = []  # local names of the enclosing functions and comprehensions
        self.classes: frozenset[str] = frozenset()
        self.deferred = False

    def generic_visit(self, node: ast.AST) -> None:
        self.visit_all(children(node))

    def visit_all(self, nodes: Sequence[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def bind(self, name: str, node: ast.AST) -> None:
        if not self.deferred and name not in self.classes:
            self.names._bind(name, self.place(node))

    def use(self, name: str, node: ast.AST) -> None:
        if not any(name in local for local in self.functions) and name not in self.classes:
            self.names._use(name, self.place(node), deferred=self.deferred)

    def place(self, node: ast.AST) -> Place:
        return self.source.index, self.source.offset(getattr(node, "lineno", 1), getattr(node, "col_offset", 0))

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.use(node.id, node)
        elif not any(node.id in local for local in self.functions):
            self.bind(node.id, node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.generic_visit(node)
        if isinstance(node.target, ast.Name):
            self.use(node.target.id, node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self.bind(node.target.id, node)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if alias.name == "*":
                module = getattr(node, "module", None) or ""
                self.names.anything.append((self.place(node), f"from {module} import *"))
            else:
                self.bind(alias.asname or alias.name.partition(".")[0], node)

    visit_ImportFrom = visit_Import

    def visit_Global(self, node: ast.Global) -> None:
        for name in node.names:
            self.names._bind(name, self.place(node))

    def visit_ExceptHandler(self, node: ast.ExceptHandler | ast.MatchAs | ast.MatchStar) -> None:
        if node.name:
            self.bind(node.name, node)
        self.generic_visit(node)

    visit_MatchAs = visit_MatchStar = visit_ExceptHandler

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest:
            self.bind(node.rest, node)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.bind(node.name, node)
        self.visit_all(node.decorator_list)
        self._visit_signature(node.args)
        if node.returns:
            self.visit(node.returns)
        self._visit_function(local_names(node), node.body)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_signature(node.args)
        self._visit_function(local_names(node), [node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.bind(node.name, node)
        self.visit_all([*node.decorator_list, *node.bases, *node.keywords])
        outer, self.classes = self.classes, frozenset(stored_names(node.body))
        self.visit_all(node.body)
        self.classes = outer

    def visit_comprehension_of(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        self.visit(node.generators[0].iter)
        self.functions.append(local_names(node))
        self.generic_visit(node)
        self.functions.pop()

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_comprehension_of

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if isinstance(node.func, ast.Name) and name in ("exec", "execfile"):
            self.names.anything.append((self.place(node), f"{name}()"))
        elif isinstance(node.func, ast.Attribute) and name in _KERNEL_CALLS and "get_ipython" in ast.dump(node.func):
            first = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else ""
            if name not in ("run_line_magic", "magic") or str(first).lstrip("%").split(" ")[0] in _BINDS_ANYTHING:
                self.names.anything.append((self.place(node), f"get_ipython().{name}()"))
        elif name in ("update", "setdefault", "pop", "clear") and _is_namespace(getattr(node.func, "value", None)):
            self.names.anything.append((self.place(node), f"globals().{name}()"))
        elif _is_namespace(node):
            # `if "x" in globals()`: a name in a string counts as used.
            for text in _strings(self.source.tree):
                self.names._use(text, self.place(node), deferred=False)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if _is_namespace(node.value) and not isinstance(node.ctx, ast.Load):
            self.names.anything.append((self.place(node), "globals()[…]"))
        self.generic_visit(node)

    def _visit_signature(self, arguments: ast.arguments) -> None:
        self.visit_all([*arguments.defaults, *(default for default in arguments.kw_defaults if default)])
        self.visit_all([argument.annotation for argument in arguments_of(arguments) if argument.annotation])

    def _visit_function(self, local: frozenset[str], body: Sequence[ast.AST]) -> None:
        outer, self.deferred, self.classes = (self.deferred, self.classes), True, frozenset()
        self.functions.append(local)
        self.visit_all(body)
        self.functions.pop()
        self.deferred, self.classes = outer


def _is_namespace(node: ast.AST | None) -> bool:
    """`globals()`, `locals()` or `vars()`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("globals", "locals", "vars")
        and not node.args
    )


def _strings(tree: ast.AST | None) -> set[str]:
    nodes = walk(tree) if tree else ()
    return {
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier()
    }
