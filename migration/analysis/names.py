"""Names of a notebook that refer to parts of `google.colab`, and the values of its branches and flags here, by cell.
All other facts about Colab depend on `ColabNames`. `find_names` computes it from the imports; `analysis.flags` adds the
results of later passes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from migration.colab.local_branch import Choice, Context, choices
from migration.colab.local_value import Answer, answer, folder_asked_for
from migration.colab.names import (
    FLAG,
    GOOGLE,
    MOUNT,
    PACKAGE,
    RUNTIME,
    Names,
    Use,
    imported_names,
    path_below,
    read_names,
)
from migration.notebook.texts import holding
from migration.python.scopes import ids_in
from migration.python.source import CellSource
from migration.python.trees import children, walk

PACKAGE_WORDS = re.compile(r"google\s*\.\s*colab|google\s+import\b[^\n]*\bcolab")
# For text in lower case. Each begins with a literal, which the regular expression engine finds fast.
_COLAB = tuple(map(re.compile, (r"google\s*\.\s*colab", r"import\s+colab\b", r"\"colab", r"'colab")))
_COLAB_BOUND_OR_CALLED = re.compile(r"colab\w*\s*(?:=|\(\s*\))")
_TEXT_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+google|import[ \t]+google)\b[^\n#;]*", re.MULTILINE)
_MOUNTS = holding("mount(", like=r"^[^#\n]*\bmount\(")
_DRIVE_ROOT = re.compile(r"/?(?:/My ?Drive/?)?(['\"])$")
_SPELT_OUT = holding("google.colab.", like=r"^(?![ \t]*(?:import|from)\b)[^\n#]*\bgoogle\.colab\.\w")


@dataclass(frozen=True)
class ColabNames:
    """The names of a notebook with a meaning on Colab. `bindings` are the cells that bind a name to a path below
    google.colab, or to anything else, with its path after the cell. `uses_colab`: google.colab occurs at all; then
    names that a rule has rewritten for `landfall_runtime` are still included. `flags` are names whose value only says
    whether the notebook runs on Colab, with that value here; `context` decides between branches. `spelt_out`: code
    contains `google.colab.x` outside of imports. `first_mount` is the first cell that calls `mount`, if any.
    """

    bindings: Mapping[str, tuple[tuple[int, str | None], ...]] = field(default_factory=dict)
    uses_colab: bool = False
    spelt_out: bool = False
    first_mount: int | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)
    context: Context = field(default_factory=Context)
    _cells: dict[CellSource, ColabCell] = field(default_factory=dict, compare=False, repr=False, init=False)

    def cell(self, source: CellSource) -> ColabCell:
        """The meaning of a cell."""
        if source not in self._cells:
            self._cells[source] = ColabCell(source, self)
        return self._cells[source]

    def bound_to(self, paths: Collection[str]) -> set[str]:
        """The names that are bound to one of these parts anywhere."""
        return {name for name, places in self.bindings.items() if any(path in paths for _, path in places)}

    @cached_property
    def words(self) -> re.Pattern[str] | None:
        """Pattern of the names that refer to a part of google.colab or say whether the notebook runs there."""
        bound = {
            name for name, places in self.bindings.items() if any(path not in (None, GOOGLE) for _, path in places)
        }
        names = sorted(self.flags.keys() | bound)
        return re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b") if names else None


class ColabCell:
    """The meaning of a cell in its notebook. Each part is computed once, on first use, because many rules need it."""

    def __init__(self, source: CellSource, notebook: ColabNames):
        self.source = source
        self.notebook = notebook

    @cached_property
    def concerned(self) -> bool:
        """Whether the text may use Colab or ask about it; other cells are not parsed."""
        text, words = self.source.text, self.notebook.words
        return (
            _asks_about_colab(text)
            or (self.notebook.uses_colab and RUNTIME in text)
            or bool(words and words.search(text))
        )

    @cached_property
    def names(self) -> Names:
        """The meaning of the names."""
        if not self.concerned:
            return Names()
        bindings, index = self.notebook.bindings, self.source.index
        before = {
            name: [path for cell, path in places if cell < index][-1]
            for name, places in bindings.items()
            if places and places[0][0] < index
        }
        later = {name: places[0][1] for name, places in bindings.items() if places}
        # Includes names that this run has already rewritten.
        packages = (PACKAGE, RUNTIME) if self.notebook.uses_colab else (PACKAGE,)
        return read_names(self.source, before=before, later=later, flags=self.notebook.flags, packages=packages)

    @cached_property
    def choices(self) -> list[Choice]:
        """The branches that depend on Colab; see `local_branch.choices`."""
        if not self.concerned:
            return []
        return choices(self.source, self.answer, self.notebook.context, self.mount_tests)

    @cached_property
    def mount_tests(self) -> frozenset[int]:
        """The ids of the questions whether the drive is mounted, in the test of an `if` that mounts it for the first
        time: here the set-up cell creates the folder before them. A branch with nothing but the mount does not
        matter."""
        mount = next((use for use in self.names.uses if use.path == MOUNT), None)
        if mount is None or mount.place is None or self.source.index != self.notebook.first_mount:
            return frozenset()
        place = _DRIVE_ROOT.sub(r"\1", ast.unparse(mount.place))
        return frozenset(
            id(question)
            for node in self.source.nodes
            if isinstance(node, ast.If)
            for question, block in _questions(node)
            if _DRIVE_ROOT.sub(r"\1", folder_asked_for(question)) == place and id(mount.call) in ids_in(block)
            if node.orelse or len(block) > 1 or not isinstance(block[0], ast.Expr)
        )

    @cached_property
    def removed(self) -> set[int]:
        """The ids of all nodes in branches that are not taken here."""
        return ids_in(statement for choice in self.choices for statement in choice.removed)

    @cached_property
    def uses(self) -> list[Use]:
        """The references to parts of google.colab that run here, in order."""
        return [use for use in self.names.uses if id(use.node) not in self.removed]

    @cached_property
    def expressions(self) -> list[ast.expr]:
        """The expressions that run here, without the tests of branches. Those in f-strings are omitted: up to Python
        3.11 their positions are not exact."""
        skipped = self.removed | {
            id(choice.node.test) for choice in self.choices if not isinstance(choice.node, ast.Try)
        }
        found: list[ast.expr] = []
        waiting: list[ast.AST] = [self.source.tree] if self.source.tree else []
        while waiting:
            node = waiting.pop()
            if id(node) in skipped or isinstance(node, ast.Assert | ast.JoinedStr):
                continue
            if isinstance(node, ast.expr):
                found.append(node)
            waiting += reversed(children(node))
        return found

    def answer(self, node: ast.expr) -> Answer | None:
        """The value of an expression that asks about Colab, with the flags of the notebook."""
        return answer(node, self._flag_of)

    def _flag_of(self, node: ast.Name | ast.Call) -> Answer | None:
        if isinstance(node, ast.Call):
            return Answer(False) if id(node) in self.mount_tests else None
        return Answer(self.notebook.flags[node.id]) if self.names.paths.get(id(node)) == FLAG else None


def find_names(cells: Sequence[CellSource]) -> ColabNames | None:
    """The names as bound by the imports of all cells; None if no cell asks about Colab."""
    if not any(_asks_about_colab(source.text) for source in cells):
        return None
    return ColabNames(
        bindings=_bindings(cells),
        uses_colab=any(PACKAGE_WORDS.search(source.text) for source in cells),
        spelt_out=any(_SPELT_OUT.fires(source.text) for source in cells),
        first_mount=next((source.index for source in cells if _MOUNTS.fires(source.text)), None),
    )


def _questions(node: ast.If) -> Iterator[tuple[ast.expr, list[ast.stmt]]]:
    """What the test of an `if` asks, each with the branch that runs if the answer is no."""
    yield node.test, node.orelse
    for part in walk(node.test):
        if isinstance(part, ast.UnaryOp):
            yield part.operand, node.body


def _asks_about_colab(text: str) -> bool:
    """Whether the text of a cell asks about Colab or imports it; a link to Colab does not count."""
    lower = text.lower()
    if "tensorflow_version" in lower:
        return True
    return "colab" in lower and (
        "COLAB" in text
        or any(pattern.search(lower) for pattern in _COLAB)
        or any(_is_whole_name(lower, found.start()) for found in _COLAB_BOUND_OR_CALLED.finditer(lower))
    )


def _is_whole_name(text: str, at: int) -> bool:
    """Whether the name at a position is a complete name, not part of a path or an attribute."""
    while at > 0 and (text[at - 1].isalnum() or text[at - 1] == "_"):
        at -= 1
    return at == 0 or text[at - 1] not in "./-"


def _bindings(cells: Sequence[CellSource]) -> dict[str, tuple[tuple[int, str | None], ...]]:
    """The bindings of the names that refer to parts of google.colab anywhere; empty for a name that is bound only
    inside functions."""
    tracked: dict[str, list[tuple[int, str | None]]] = {}
    for source in cells:
        if PACKAGE_WORDS.search(source.text):
            tracked.update((name, []) for name in _imported(source))
    now: dict[str, str | None] = {}
    for source in cells:
        if not any(name in source.text for name in tracked):
            continue
        bound = _imported(source) if source.tree is None else read_names(source, before=now).bound
        for name, path in bound.items():
            if name in tracked or path not in (None, GOOGLE):
                tracked.setdefault(name, []).append((source.index, path))
                now[name] = path
    return {name: tuple(places) for name, places in tracked.items()}


def _imported(source: CellSource) -> dict[str, str | None]:
    """The names that imports anywhere in a cell bind to parts of google.colab."""
    if source.tree is not None:
        nodes = [node for node in source.nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    else:
        nodes = []
        for match in _TEXT_IMPORT.finditer(source.text) if source.is_python else ():
            try:
                nodes += ast.parse(match[0].strip()).body
            except (SyntaxError, ValueError):
                continue
    found: dict[str, str | None] = {}
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = imported_names(node)
            if isinstance(node, ast.ImportFrom) or any(path_below(alias.name) is not None for alias in node.names):
                found.update((name, path) for name, path in names if path is not None)
    return found
