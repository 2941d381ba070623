"""What the rules must know of the whole notebook before they look at one cell.

Collected once, from the original cells: which names stand for parts of `google.colab` and where, which names only tell
whether the notebook runs there, where the drive is mounted, which parameters can be hoisted.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar, cast

from migration.cell.source import CellSource
from migration.colab.drive_mounts import is_static, mount_points
from migration.colab.flags import Flags, find_flags, find_needed
from migration.colab.local_branch import Choice, choices
from migration.colab.local_value import Answer, FlagOf
from migration.colab.names import FLAG, GOOGLE, PACKAGE, RUNTIME, Names, Use, imported_names, path_below, read_names
from migration.parameters.hoisting import Parameter, plan_parameters

DEFAULT_MOUNTS = ("/content/drive", "/content/gdrive", "/gdrive", "/content/google_drive")
PACKAGE_WORDS = re.compile(r"google\s*\.\s*colab|google\s+import\b[^\n]*\bcolab")
# In lower case, and each begins with a literal, which the engine finds fast.
_COLAB = tuple(map(re.compile, (r"google\s*\.\s*colab", r"import\s+colab\b", r"\"colab", r"'colab")))
_COLAB_BOUND_OR_CALLED = re.compile(r"colab\w*\s*(?:=|\(\s*\))")
_TEXT_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+google|import[ \t]+google)\b[^\n#;]*", re.MULTILINE)
_SETUP = re.compile(
    r'^(\w+) = os\.environ\["\1"\] = (?:os\.path\.abspath\(.*expanduser\((work|drive)_dir\)\)\)|sys\.executable)$',
    re.MULTILINE,
)
_FOLDER_NAMES = {"work": "WORK_DIR", "drive": "DRIVE_DIR", "python": "KERNEL_PYTHON"}
_MOST_ROUNDS = 6

Binding = tuple[int, int, str | None]

_T = TypeVar("_T")


@dataclass(frozen=True)
class NotebookFacts:
    """Facts of one notebook.

    `work` and `drive` name the Python variables, and the environment variables of the same value, that hold the two
    folders at run time; they differ from the defaults only where the notebook already has such names. `mounts` are the
    absolute folders at which the notebook mounts its drive, longest first (the customary ones where it names none).
    `parameters` are the form fields in the order of the notebook, and what becomes of each. `flags` are names that hold
    nothing but the answer to "does this run on Colab?", with their values here; `needed` names that only Colab
    branches bind though the rest of the notebook reads them. `static_mount` says that the drive is only ever mounted,
    at literal places. `bindings` are the places (cell, order in the cell) that bind a name to a path below
    google.colab, or to anything else.
    `uses_colab` says that google.colab is named at all: then what a rule has rewritten for `landfall_runtime` still is
    what it was. `local_configs` are the workspace's configurations that have a local twin.
    """

    language: str = "python"
    work: str = "WORK_DIR"
    drive: str = "DRIVE_DIR"
    python: str = "KERNEL_PYTHON"
    mounts: tuple[str, ...] = DEFAULT_MOUNTS
    parameters: tuple[Parameter, ...] = ()
    flags: frozenset[str] = frozenset()
    bindings: Mapping[str, tuple[Binding, ...]] = field(default_factory=dict)
    answers: Flags = field(default_factory=Flags)
    needed: frozenset[str] = frozenset()
    static_mount: bool = False
    uses_colab: bool = False
    local_configs: frozenset[str] = frozenset()
    _answers: dict[tuple[Callable[..., Any], CellSource], object] = field(
        default_factory=dict, compare=False, repr=False, init=False
    )

    def once(self, function: Callable[[CellSource, NotebookFacts], _T], source: CellSource) -> _T:
        """What a function says of a cell in the light of these facts; asked once, for many rules want to know."""
        key = (function, source)
        if key not in self._answers:
            self._answers[key] = function(source, self)
        return cast("_T", self._answers[key])

    def colab_path(self, source: CellSource, node: ast.expr) -> str | None:
        """The dotted path below `google.colab` that a name or attribute stands for at this place of this cell, such as
        `drive.mount`, or "" for the package itself; None for anything else."""
        path = self.names(source).paths.get(id(node))
        return None if path in (GOOGLE, FLAG) else path

    def uses(self, source: CellSource) -> list[Use]:
        """The places of a cell that refer to a part of google.colab, in the order in which they are read."""
        return self.names(source).uses

    def names(self, source: CellSource) -> Names:
        """What the names of a cell stand for; nothing where the cell cannot hold one of interest."""
        return self.once(_names, source)

    def choices(self, source: CellSource) -> list[Choice]:
        """The branches of a cell that hang on Colab; see `local_branch.choices`."""
        return self.once(_choices, source)

    def flag_of(self, source: CellSource) -> FlagOf:
        """Knows the names and calls of this cell that only answer the question."""
        paths = self.names(source).paths if self.flags else {}

        def value(node: ast.expr) -> Answer | None:
            is_call = isinstance(node, ast.Call) and not node.args and not node.keywords
            name = node.func if is_call else node
            if not isinstance(name, ast.Name) or paths.get(id(name)) != FLAG:
                return None
            known = self.answers.functions if is_call else self.answers.variables
            return Answer(known[name.id], tpu=name.id in self.answers.tpu) if name.id in known else None

        return value

    def concern(self, source: CellSource) -> bool:
        """Whether a cell's text can ask about Colab or use it; no other cell is parsed."""
        return self.once(_concern, source)

    @cached_property
    def words(self) -> re.Pattern[str] | None:
        """Finds the names that stand for a part of google.colab or tell whether the notebook runs there."""
        paths = {name: {path for _, _, path in places} - {None, GOOGLE} for name, places in self.bindings.items()}
        names = self.flags | {name for name, found in paths.items() if found}
        return re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(names)))})\b") if names else None


def _concern(source: CellSource, facts: NotebookFacts) -> bool:
    text = source.text
    return (
        _names_colab(text) or (facts.uses_colab and RUNTIME in text) or bool(facts.words and facts.words.search(text))
    )


def _choices(source: CellSource, facts: NotebookFacts) -> list[Choice]:
    return choices(source, facts.flag_of(source), facts.needed) if facts.concern(source) else []


def _names(source: CellSource, facts: NotebookFacts) -> Names:
    if not facts.concern(source) or source.tree is None:
        return Names()
    before = {
        name: [place for place in places if place[0] < source.index][-1][2]
        for name, places in facts.bindings.items()
        if places and places[0][0] < source.index
    }

    def later(name: str) -> str | None:
        return next((path for cell, _, path in facts.bindings.get(name, ()) if cell >= source.index), None)

    # What this run has rewritten already still is what it was.
    packages = (PACKAGE, RUNTIME) if facts.uses_colab else (PACKAGE,)
    try:
        return read_names(source.tree, before=before, later=later, flags=facts.flags, packages=packages)
    except RecursionError:
        return Names()


def collect_facts(cells: Sequence[CellSource], *, language: str = "python") -> NotebookFacts:
    """The facts of a notebook's code cells, given in order with their positions as `index`."""
    from migration.rules.paths_links import drive_links

    folders = _folder_names(cells)
    if language != "python":
        return NotebookFacts(language=language, **folders)
    parameters = tuple(plan_parameters(cells))
    if not any(_names_colab(source.text) for source in cells):
        return NotebookFacts(language=language, parameters=parameters, **folders)
    bindings = _bindings(cells)
    uses_colab = any(PACKAGE_WORDS.search(source.text) for source in cells)
    facts = NotebookFacts(language=language, parameters=parameters, bindings=bindings, uses_colab=uses_colab, **folders)
    facts = _with_flags(cells, facts)
    while True:
        facts = replace(facts, static_mount=is_static(cells, facts))
        lacking = find_needed(cells, facts) - facts.needed
        if not lacking:
            break
        facts = _with_flags(cells, replace(facts, needed=facts.needed | lacking))
    mounts = mount_points(cells, facts) or DEFAULT_MOUNTS
    links = {link for source in cells for link in drive_links(source, mounts)}
    return replace(facts, mounts=(*mounts, *sorted(links)))


def _names_colab(text: str) -> bool:
    """Whether a cell asks about Colab or imports it, as far as its text tells; a link to Colab does not count."""
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
    """Whether the name around a place begins as a name does, not within a path or after a dot."""
    while at > 0 and (text[at - 1].isalnum() or text[at - 1] == "_"):
        at -= 1
    return at == 0 or text[at - 1] not in "./-"


def _with_flags(cells: Sequence[CellSource], facts: NotebookFacts) -> NotebookFacts:
    """The facts with the flags that are left once each branch is known that runs here; one may tell of another."""
    for _ in range(_MOST_ROUNDS):
        found = find_flags(cells, facts)
        if found == facts.answers:
            break
        facts = replace(facts, answers=found, flags=found.names)
    return facts


def _bindings(cells: Sequence[CellSource]) -> dict[str, tuple[Binding, ...]]:
    """What binds the names that stand for parts of google.colab anywhere; nothing for a name of functions alone."""
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
    """The names that a cell's imports bind to parts of google.colab, wherever in the cell they stand."""
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


def _folder_names(cells: Sequence[CellSource]) -> dict[str, str]:
    """The names for the folders and the interpreter: those of a set-up cell of Landfall's, else ones that are free."""
    names = dict(_FOLDER_NAMES)
    text = "\n".join(source.text for source in cells if any(name in source.text for name in names.values()))
    setup = {match[2] or "python": match[1] for match in _SETUP.finditer(text)}
    if setup:
        return {**names, **setup}
    for key, name in _FOLDER_NAMES.items():
        number = 0
        while re.search(rf"(?<!\w){names[key]}(?!\w)", text):
            number += 1
            names[key] = f"LANDFALL_{name}" if number == 1 else f"LANDFALL_{name}_{number}"
    return names
