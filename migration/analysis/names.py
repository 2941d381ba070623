"""Names of a notebook that refer to parts of `google.colab`, and the values of its branches and flags here, by cell.
All other facts about Colab depend on `ColabNames`. `find_names` computes it from the imports; `analysis.flags` adds the
results of later passes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, cast

from migration.colab.local_branch import Choice, choices
from migration.colab.local_value import Answer, FlagOf
from migration.colab.names import FLAG, GOOGLE, PACKAGE, RUNTIME, Names, Use, imported_names, path_below, read_names
from migration.python.source import CellSource
from migration.python.trees import walk

PACKAGE_WORDS = re.compile(r"google\s*\.\s*colab|google\s+import\b[^\n]*\bcolab")
# For text in lower case. Each begins with a literal, which the regular expression engine finds fast.
_COLAB = tuple(map(re.compile, (r"google\s*\.\s*colab", r"import\s+colab\b", r"\"colab", r"'colab")))
_COLAB_BOUND_OR_CALLED = re.compile(r"colab\w*\s*(?:=|\(\s*\))")
_TEXT_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+google|import[ \t]+google)\b[^\n#;]*", re.MULTILINE)
_SPELT_OUT = re.compile(r"^(?![ \t]*(?:import|from)\b)[^\n#]*\bgoogle\.colab\.\w", re.MULTILINE)
Binding = tuple[int, int, str | None]

_T = TypeVar("_T")


@dataclass(frozen=True)
class ColabNames:
    """The names of a notebook with a meaning on Colab. `bindings` are the positions (cell, order in the cell) that bind
    a name to a path below google.colab, or to anything else. `uses_colab`: google.colab occurs at all; then names that
    a rule has rewritten for `landfall_runtime` are still included. `flags` are names whose value only says whether the
    notebook runs on Colab, with that value here; `needed` are names that only Colab branches bind although the rest of
    the notebook reads them, `as_on_colab`: a kept branch for Colab creates files and folders that other cells expect.
    `repository` is the one that contains the notebook, if known. `spelt_out`: code contains `google.colab.x` outside of
    imports.
    """

    bindings: Mapping[str, tuple[Binding, ...]] = field(default_factory=dict)
    uses_colab: bool = False
    spelt_out: bool = False
    flags: Mapping[str, Any] = field(default_factory=dict)
    needed: frozenset[str] = frozenset()
    as_on_colab: bool = False
    repository: str = ""
    _answers: dict[tuple[Callable[..., Any], CellSource], object] = field(
        default_factory=dict, compare=False, repr=False, init=False
    )

    def _once(self, function: Callable[[CellSource, ColabNames], _T], source: CellSource) -> _T:
        """The result of a function for a cell, given these names; computed once, because many rules need it."""
        key = (function, source)
        if key not in self._answers:
            self._answers[key] = function(source, self)
        return cast("_T", self._answers[key])

    def concern(self, source: CellSource) -> bool:
        """Whether a cell's text may use Colab or ask about it; other cells are not parsed."""
        return self._once(_concern, source)

    def names(self, source: CellSource) -> Names:
        """The meaning of the names of a cell; empty if the cell cannot contain a relevant one."""
        return self._once(_names, source)

    def choices(self, source: CellSource) -> list[Choice]:
        """The branches of a cell that depend on Colab; see `local_branch.choices`."""
        return self._once(_choices, source)

    def removed(self, source: CellSource) -> frozenset[int]:
        """The ids of all nodes in branches that are not taken here."""
        return self._once(_removed, source)

    def uses(self, source: CellSource) -> list[Use]:
        """The positions in a cell that refer to a part of google.colab and run here, in order."""
        return self._once(_uses, source)

    def flag_of(self, source: CellSource) -> FlagOf:
        """Evaluates the names of this cell that only say whether it runs on Colab."""
        paths = self.names(source).paths if self.flags else {}

        def value(node: ast.expr) -> Answer | None:
            if not isinstance(node, ast.Name) or paths.get(id(node)) != FLAG:
                return None
            return Answer(self.flags[node.id])

        return value

    @cached_property
    def words(self) -> re.Pattern[str] | None:
        """Pattern of the names that refer to a part of google.colab or say whether the notebook runs there."""
        paths = {name: {path for _, _, path in places} - {None, GOOGLE} for name, places in self.bindings.items()}
        names = self.flags.keys() | {name for name, found in paths.items() if found}
        return re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(names)))})\b") if names else None


def find_names(cells: Sequence[CellSource]) -> ColabNames | None:
    """The names as bound by the imports of all cells; None if no cell asks about Colab."""
    if not any(_asks_about_colab(source.text) for source in cells):
        return None
    return ColabNames(
        bindings=_bindings(cells),
        uses_colab=any(PACKAGE_WORDS.search(source.text) for source in cells),
        spelt_out=any(_SPELT_OUT.search(source.text) for source in cells),
    )


def _concern(source: CellSource, colab: ColabNames) -> bool:
    text = source.text
    return (
        _asks_about_colab(text)
        or (colab.uses_colab and RUNTIME in text)
        or bool(colab.words and colab.words.search(text))
    )


def _choices(source: CellSource, colab: ColabNames) -> list[Choice]:
    if not colab.concern(source):
        return []
    more = {"as_on_colab": colab.as_on_colab, "repository": colab.repository}
    return choices(source, colab.flag_of(source), colab.needed, **more)


def _removed(source: CellSource, colab: ColabNames) -> frozenset[int]:
    return frozenset(
        id(node) for choice in colab.choices(source) for statement in choice.removed for node in walk(statement)
    )


def _uses(source: CellSource, colab: ColabNames) -> list[Use]:
    return [use for use in colab.names(source).uses if id(use.node) not in colab.removed(source)]


def _names(source: CellSource, colab: ColabNames) -> Names:
    if not colab.concern(source) or source.tree is None:
        return Names()
    before = {
        name: [place for place in places if place[0] < source.index][-1][2]
        for name, places in colab.bindings.items()
        if places and places[0][0] < source.index
    }

    def later(name: str) -> str | None:
        return next((path for cell, _, path in colab.bindings.get(name, ()) if cell >= source.index), None)

    # Includes names that this run has already rewritten.
    packages = (PACKAGE, RUNTIME) if colab.uses_colab else (PACKAGE,)
    try:
        return read_names(source.tree, before=before, later=later, flags=colab.flags.keys(), packages=packages)
    except RecursionError:
        return Names()


def _asks_about_colab(text: str) -> bool:
    """Whether the text of a cell asks about Colab or imports it; a link to Colab does not count."""
    lower = text.lower()
    if "colab" not in lower:
        return "tensorflow_version" in lower
    return (
        "COLAB" in text
        or any(pattern.search(lower) for pattern in _COLAB)
        or any(_is_whole_name(lower, found.start()) for found in _COLAB_BOUND_OR_CALLED.finditer(lower))
        or "tensorflow_version" in lower
    )


def _is_whole_name(text: str, at: int) -> bool:
    """Whether the name at a position is a complete name, not part of a path or an attribute."""
    while at > 0 and (text[at - 1].isalnum() or text[at - 1] == "_"):
        at -= 1
    return at == 0 or text[at - 1] not in "./-"


def _bindings(cells: Sequence[CellSource]) -> dict[str, tuple[Binding, ...]]:
    """The bindings of the names that refer to parts of google.colab anywhere; empty for a name that is bound only
    inside functions."""
    tracked: dict[str, list[Binding]] = {}
    for source in cells:
        if PACKAGE_WORDS.search(source.text):
            tracked.update((name, []) for name in _imported(source))
    now: dict[str, str | None] = {}
    for source in cells:
        if not any(name in source.text for name in tracked):
            continue
        if source.tree is None:
            found = Names(bound=_imported(source))
        else:
            try:
                found = read_names(source.tree, before=now)
            except RecursionError:
                continue
        for name, path in found.bound.items():
            if name in tracked or path not in (None, GOOGLE):
                first = found.first.get(name, path)
                tracked.setdefault(name, []).extend([(source.index, 0, first), (source.index, 1, path)])
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
