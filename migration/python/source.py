r"""A code cell as IPython reads it: its cell magic, its shell and magic commands, and the Python around them.

Commands are found by IPython's rules (`python.scanning`). The Python is parsed from a *masked* copy of the cell, in
which every command is replaced by a placeholder and every other character keeps its line and column, so that a node's
position is a position in the cell: rules replace spans of the original text and leave every other byte unchanged.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import TypeVar, cast

from migration.python.scanning import Command, find_commands, parse
from migration.python.trees import walk

_T = TypeVar("_T")
_CELL_MAGIC = re.compile(r"(?P<above>(?:[ \t]*(?:#[^\n]*)?\n)*)[ \t]*%%(?P<name>\S+)[ \t]*(?P<argument>[^\n]*)")
_LEADING_INDENT = re.compile(r"(?:[ \t]*\n|[ \t]+#[^\n]*\n)*(?P<indent>[ \t]+)[^\s#]")
# These run the rest of the cell like IPython, including another cell magic at its top.
RUNS_CELL = frozenset({"capture", "time", "timeit", "prun", "memit"})
_PROGRAM_CELL_MAGICS = frozenset({"python", "python3", "pypy"})
_PYTHON_CELL_MAGICS = RUNS_CELL | _PROGRAM_CELL_MAGICS
_PYTHON_PROGRAM = re.compile(r"(?:--?\S+\s+)*(?:\S*/)?python[\d.]*\b")
LINE_MAGICS = "cd|ls|ll|mkdir|rmdir|rm|cp|mv|cat|pip"
BARE_MAGIC = re.compile(
    rf"^[ \t]*(?P<line>(?P<name>{LINE_MAGICS}|tensorflow_version)"
    r"(?:[ \t]+[^\s=(.,:\[)\]]|/content)[^\n]*)$",
    re.MULTILINE,
)
# `ls -lh` and `cd /tmp` are also valid differences and quotients of names, but code is not written like this.
_CERTAINLY_BARE = re.compile(
    r"\w+/content\b|(?:cd|ls|mkdir|rmdir)[ \t]+(?:-[A-Za-z]|[/~.]\S|\.)|(?:rm|cat)[ \t]+(?:-[A-Za-z]+[ \t]+)?/content\b"
)
_SHELL_CELL_MAGICS = frozenset({"bash", "sh", "shell"})
_OWN_MAGIC = re.compile(
    r"^@register_(?:line_)?cell_magic\b[^\n]*\n(?:@[^\n]*\n)*def[ \t]+(?P<name>\w+)[^\n]*\n"
    r"(?:(?:[ \t][^\n]*)?\n)*?[ \t][^\n]*\b(?:run_cell|exec)\(",
    re.MULTILINE,
)


@dataclass(frozen=True)
class CellMagic:
    """`%%name argument`: the start of the magic, of its argument, and of the body below."""

    name: str
    argument: str
    start: int
    argument_start: int
    body: int


class CellSource:
    """The source of one code cell, parsed on first use.

    `index` is the cell's position in the original notebook, `prose` Markdown to insert above it, `own_magics` the cell
    magics of the notebook that run the cell (`find_own_magics`). Raises nothing: if the Python does not parse, `tree`
    is None and `error` contains the reason.
    """

    def __init__(
        self,
        text: str,
        *,
        index: int = 0,
        language: str = "python",
        prose: str = "",
        own_magics: frozenset[str] = frozenset(),
    ):
        self.text = text
        self.own_magics = own_magics
        self.index = index
        self.prose = prose
        self.language = language
        self.answers: dict[Callable[[CellSource], object], object] = {}  # of functions marked `once_a_cell`

    @cached_property
    def line_starts(self) -> list[int]:
        """Offset of each line's first character."""
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

    def line_of(self, offset: int) -> int:
        """The line of `offset`, counted from 0."""
        return self.text.count("\n", 0, offset)

    def line_span(self, start: int, end: int) -> tuple[int, int]:
        """The complete lines of `start:end`, without the last line's newline."""
        first = self.text.rfind("\n", 0, start) + 1
        last = self.text.find("\n", max(start, end - 1))
        return first, len(self.text) if last < 0 else last

    @cached_property
    def magic(self) -> CellMagic | None:
        """The cell magic, also if there are comments above it (which only Colab accepts). Of several magics the one
        that determines the language: `%%bash` in a cell that begins with `%%time` and `%%bash`."""
        found = _CELL_MAGIC.match(self.text)
        if found is None:
            return None
        inner: re.Match[str] | None = found
        while inner and inner["name"] in RUNS_CELL | self.own_magics:
            inner = _CELL_MAGIC.match(self.text, inner.end() + 1)
        if inner and inner["name"] not in _PYTHON_CELL_MAGICS | self.own_magics:
            found = inner
        body = self.text.find("\n", found.end())
        return CellMagic(
            name=found["name"],
            argument=found["argument"],
            start=found.end("above"),
            argument_start=found.start("argument"),
            body=len(self.text) if body < 0 else body + 1,
        )

    @cached_property
    def bare_magic(self) -> re.Match[str] | None:
        """A magic alone in its cell, or below a magic that runs the cell, where IPython accepts it without `%`. Such a
        cell has no tree."""
        found = self._possible_magic
        return found if found and self.tree is None else None

    @cached_property
    def _possible_magic(self) -> re.Match[str] | None:
        is_run = self.magic is None or self.magic.name in RUNS_CELL
        is_alone = self.is_python and is_run and "\n" not in self.text[self.body :].strip()
        return BARE_MAGIC.search(self.masked, self.body) if is_alone else None

    @property
    def is_shell(self) -> bool:
        """The body is a shell script: `%%bash`, `%%sh`, `%%shell`, `%%script bash`."""
        if self.magic is None:
            return False
        if self.magic.name == "script":
            return bool(re.match(r"(?:--?\S+\s+)*(?:\S*/)?(?:ba)?sh\b", self.magic.argument))
        return self.magic.name in _SHELL_CELL_MAGICS

    @property
    def is_program(self) -> bool:
        """The body is a program for a separate Python process, without the variables of the notebook."""
        if self.magic is None:
            return False
        return self.magic.name in _PROGRAM_CELL_MAGICS or (
            self.magic.name == "script" and bool(_PYTHON_PROGRAM.match(self.magic.argument))
        )

    @property
    def is_python(self) -> bool:
        """The cell, or the body of its cell magic, is IPython code."""
        runs = _PYTHON_CELL_MAGICS | self.own_magics
        return self.language == "python" and (self.magic is None or self.magic.name in runs)

    @property
    def body(self) -> int:
        """The start of the code: after the line of a cell magic."""
        return self.magic.body if self.magic else 0

    @cached_property
    def commands(self) -> tuple[Command, ...]:
        """The shell and magic commands of an IPython cell, in order."""
        return self._scan[0]

    @cached_property
    def masked(self) -> str:
        """The cell with placeholders of the same length for its magic and its commands."""
        return self._scan[1]

    @cached_property
    def tree(self) -> ast.Module | None:
        """The syntax tree of the masked cell, or None if it is not Python 3."""
        return self._parsed[0]

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of the tree, level by level; empty if it does not parse."""
        return walk(self.tree) if self.tree else []

    @cached_property
    def error(self) -> SyntaxError | None:
        return self._parsed[1]

    def offset(self, line: int, column: int) -> int:
        """The offset in the cell of a position in the tree: `lineno` from 1, `col_offset` in UTF-8 bytes."""
        start = self.line_starts[line - 1]
        start += len(self._indent) * self.masked.startswith(self._indent, start)
        if self.text.isascii():
            return start + column
        end = self.line_starts[line] if line < len(self.line_starts) else len(self.text)
        return start + len(self.text[start:end].encode()[:column].decode(errors="ignore"))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """The span of a node in the cell; a decorated definition begins at its first decorator."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.decorator_list:
            decorator = node.decorator_list[0]
            start = self.text.rfind("@", 0, self.offset(decorator.lineno, decorator.col_offset))
        else:
            start = self.offset(node.lineno, node.col_offset)
        return start, self.offset(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def segment(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.span(node)
        return self.text[start:end]

    def command_of(self, node: ast.expr | ast.stmt) -> Command | None:
        """The command that a placeholder in the tree stands for."""
        start, end = self.span(node)
        return next((command for command in self.commands if start <= command.start < max(end, start + 1)), None)

    def is_in_command(self, offset: int) -> bool:
        """Whether a position is in a shell or magic command."""
        return any(command.start <= offset < command.end for command in self.commands)

    @cached_property
    def _indent(self) -> str:
        """The indentation of the first line of code, which IPython removes from the lines that have it."""
        found = _LEADING_INDENT.match(self.text, self.body)
        return found["indent"] if found else ""

    @cached_property
    def _scan(self) -> tuple[tuple[Command, ...], str]:
        if not self.is_python:
            return (), ""
        body = self.body
        blank = re.sub(r"[^\n]", " ", self.text[:body])
        commands, masked = find_commands(self.text, body)
        return tuple(commands), blank + masked

    @cached_property
    def _parsed(self) -> tuple[ast.Module | None, SyntaxError | None]:
        if not self.is_python:
            return None, None
        if (magic := self._possible_magic) and _CERTAINLY_BARE.match(magic["line"]):
            return None, None
        text = re.sub(rf"^{self._indent}", "", self.masked, flags=re.MULTILINE) if self._indent else self.masked
        if re.search(r"\r(?!\n)", text):
            # Python ends a line there, the scanner does not: positions in the tree would be in other lines.
            return None, SyntaxError("a carriage return inside a line")
        try:
            return parse(text), None
        except SyntaxError as error:
            return None, error
        except (ValueError, RecursionError, MemoryError) as error:
            return None, SyntaxError(str(error))


def find_own_magics(texts: Iterable[str]) -> frozenset[str]:
    """The cell magics that a notebook defines with a function that runs the cell: its body is IPython code."""
    return frozenset(found["name"] for text in texts if "cell_magic" in text for found in _OWN_MAGIC.finditer(text))


def once_a_cell(function: Callable[[CellSource], _T]) -> Callable[[CellSource], _T]:
    """Caches the result of a function of a cell for the lifetime of the cell, because many rules need it."""

    @wraps(function)
    def kept(source: CellSource) -> _T:
        answers = source.answers
        if function not in answers:
            answers[function] = function(source)
        return cast("_T", answers[function])

    return kept
