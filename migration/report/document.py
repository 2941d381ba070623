"""The report of a migration, as JSON: `landfall migrate --schema` prints the JSON Schema of the classes below.

Schema version 1. A reader ignores fields it does not know, so fields may be added without a new version; a changed
meaning needs one. It contains no names of people: paths are relative to the current folder, or to the home folder as
`~`, and secrets are described by kind and position.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from core.workspace import json_text
from migration.notebook.findings import Finding, Keeps
from migration.rules.table import RULES

SCHEMA_VERSION = 1
# Limit for long lines, such as minified JavaScript.
LONGEST_TEXT = 4_000

Mode = Literal["write", "check", "diff"]
Status = Literal["migrated", "unchanged", "failed"]
Severity = Literal["breaks", "decision", "information"]
KeepsText = Literal["exact", "equivalent", "needs-human"]

# Commands that change the machine, or delete its files.
HAZARDS = frozenset({"LF822", "LF823"})
# Rules whose findings make the notebook fail, or delete itself, until the user acts.
BREAKS = frozenset({"LF201", "LF218", "LF229", "LF308", "LF520", "LF523", "LF545"})
BREAKS |= {"LF563", "LF823", "LF831", "LF841", "LF901", "LF902"}
# Rules whose changes need one decision for the whole notebook.
_ONE_DECISION = frozenset({"LF561"})
# Rules whose changes with the same reason are one item.
_ONE_ITEM = frozenset({"LF603"})
# Rules with the same action for different findings, of which each is an item.
_BY_MESSAGE = frozenset({"LF218", "LF822", "LF823", "LF831", "LF842"})
SECRETS = frozenset({"LF123", "LF801", "LF803"})
_UPLOADS = "LF210"
_SEVERAL_UPLOADS = "LF205"
_UPLOADED_TO = "put them into the folder `uploads` of the work folder; if it is empty, the cell asks for their paths"
_EACH_UPLOADED_TO = (
    "put those of each call into a folder of its own below the work folder, `uploads/1`, `uploads/2`, …, by the "
    "number in the call; if it is empty, the cell asks for their paths"
)
# Rules that repair or update any notebook: their findings do not make it a Colab notebook.
UPKEEP = frozenset({"LF101", "LF103", "LF104", "LF105", "LF106", "LF107", "LF123"})
# Findings in notebooks of any origin that the user should check: log-ins, cells that are not Python.
_ANYWHERE = HAZARDS | UPKEEP | {"LF811", "LF901"}


class _Described:
    """A part of the report whose fields are described in its schema."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"use_attribute_docstrings": True}


@dataclass(frozen=True)
class Place(_Described):
    """A construct in a notebook that the user should know about: its kind and position, never its text."""

    rule: str
    """Id of the rule that found it."""
    kind: str
    """Kind of the construct."""
    cell: int | None
    """Position of the cell in the original notebook, from 0; null if it is about the complete notebook."""
    line: int | None
    """Line of the original cell, from 1."""


@dataclass(frozen=True)
class FoundItem(_Described):
    """One finding: what a rule found, the change, and what the user must do."""

    rule: str
    """Id of the rule."""
    name: str
    """Name of the rule."""
    keeps: KeepsText
    """Whether the behaviour is kept: the same, the same purpose by local means, or only if the user acts."""
    changed: bool
    """Whether the notebook was changed here."""
    cell: int | None
    """Position of the cell in the original notebook, from 0; null if it is about the complete notebook."""
    line: int | None
    """Line of the original cell, from 1."""
    file_line: int | None
    """Line of the notebook's file that contains that line, from 1; null if unknown."""
    message: str
    """The finding in words."""
    before: str
    """The original lines, with secrets masked."""
    after: str
    """The new lines; empty if nothing was changed or all lines were removed."""
    action: str
    """What the user must do; empty if nothing."""
    anchor: str
    """Link to the documentation of the rule."""
    output_cell: int | None = None
    """Position of the cell in the migrated notebook, from 0; null if it was removed, or nothing was written."""
    severity: Severity = "information"
    """`breaks`: it fails here until the user acts; `decision`: the user decides; `information`: all others."""
    also: tuple[int, ...] = ()
    """Other cells of the original with the same action."""
    also_lines: tuple[tuple[int, int], ...] = ()
    """Cell and line of each further change of this item; `before` and `after` contain the lines of all."""


@dataclass(frozen=True)
class Needs(_Described):
    """What the notebook needs: what it installs, and what it imports or calls and Colab has."""

    python: tuple[str, ...] = ()
    """Lines of a pip requirements file, without comments."""
    system: tuple[str, ...] = ()
    """Packages of the operating system."""


@dataclass(frozen=True)
class NotebookReport(_Described):
    """The result for one notebook."""

    input: str
    """The notebook that was read."""
    status: Status
    """`migrated`: it needed changes; `unchanged`: it is already local; `failed`: see `error`."""
    output: str | None = None
    """The notebook that was written, or that existed with the same content; null if there is none."""
    error: str | None = None
    """Why it failed; null if it did not."""
    sha256: str | None = None
    """SHA-256 of the input; null if it could not be read."""
    files: tuple[str, ...] = ()
    """Additional files next to the output: requirements, the runtime module."""
    changes: int = 0
    """Findings that changed the notebook, or would."""
    hardware: str | None = None
    """The accelerator it was made for, such as `GPU T4`; null if there is none."""
    rules: dict[str, int] = field(default_factory=dict)
    """Findings by rule."""
    keeps: dict[KeepsText, int] = field(default_factory=dict)
    """Findings by whether the behaviour is kept."""
    requirements: Needs = field(default_factory=Needs)
    """What it needs."""
    findings: tuple[FoundItem, ...] = ()
    """Everything found, in the order of the cells."""
    cells: tuple[int | None, ...] = ()
    """For each cell of the migrated notebook its position in the original, null if it was added."""
    hazards: tuple[Place, ...] = ()
    """Commands with effects outside the notebook's folder: writes elsewhere, sudo, deletions."""
    secrets: tuple[Place, ...] = ()
    """Positions of secrets in the input, without their values."""
    uses_drive: bool = False
    """Whether it mounts Google Drive, or names a path on it."""
    drive: dict[str, str] = field(default_factory=dict)
    """Files and folders on Google Drive that it may read, and where it looks for them here."""
    content: dict[str, str] = field(default_factory=dict)
    """Files of Colab's folder /content that it reads and no cell creates, and where it looks for them here."""
    secret_names: tuple[str, ...] = ()
    """Names of the secrets that it reads from the environment or, with `userdata.get`, from `.env`; also of those that
    were written in it."""

    @property
    def uploads(self) -> str:
        """Where `files.upload()` looks for files; empty if it is not called."""
        if _SEVERAL_UPLOADS in self.rules:
            return _EACH_UPLOADED_TO
        return _UPLOADED_TO if _UPLOADS in self.rules else ""

    @property
    def needs_human(self) -> list[FoundItem]:
        """Findings that break the notebook first, then decisions."""
        waiting = [item for item in self.findings if item.keeps == "needs-human"]
        return sorted(waiting, key=lambda item: item.severity != "breaks")


@dataclass(frozen=True)
class Summary(_Described):
    """Totals of a report, over all notebooks."""

    notebooks: int
    """Number of notebooks."""
    migrated: int
    """Notebooks that needed changes."""
    unchanged: int
    """Notebooks that are already local."""
    failed: int
    """Notebooks that could not be migrated."""
    needing_human: int
    """Notebooks that need manual changes."""
    rules: dict[str, int]
    """Findings by rule."""
    keeps: dict[KeepsText, int]
    """Findings by whether the behaviour is kept."""
    hardware: dict[str, int]
    """Notebooks by the accelerator they were made for."""


@dataclass(frozen=True)
class Report(_Described):
    """Report of `landfall migrate`."""

    schema_version: Literal[1]
    """Version of this document."""
    landfall: str
    """Version of Landfall."""
    mode: Mode
    """`write` wrote notebooks; `check` and `diff` wrote none and report what would change."""
    summary: Summary
    """Counts over all notebooks."""
    notebooks: tuple[NotebookReport, ...]
    """One entry per notebook."""


def make_report(notebooks: Sequence[NotebookReport], mode: Mode) -> Report:
    return Report(SCHEMA_VERSION, landfall_version(), mode, summarise(notebooks), tuple(notebooks))


def summarise(notebooks: Sequence[NotebookReport]) -> Summary:
    status = Counter(notebook.status for notebook in notebooks)
    rules: Counter[str] = Counter()
    keeps: Counter[KeepsText] = Counter()
    for notebook in notebooks:
        rules.update(notebook.rules)
        keeps.update(notebook.keeps)
    return Summary(
        notebooks=len(notebooks),
        migrated=status["migrated"],
        unchanged=status["unchanged"],
        failed=status["failed"],
        needing_human=sum("needs-human" in notebook.keeps for notebook in notebooks),
        rules=dict(sorted(rules.items())),
        keeps=dict(sorted(keeps.items())),
        hardware=dict(sorted(Counter(notebook.hardware for notebook in notebooks if notebook.hardware).items())),
    )


def found_items(findings: Iterable[Finding], file_lines: Sequence[Sequence[int]] = ()) -> tuple[FoundItem, ...]:
    """The findings as items of the report, in the order of the cells; those about the whole notebook are first.

    `file_lines` are those of `migration.notebook.positions.lines_of_cells`. An action for several cells is one item.
    """
    rows = {rule.id: rule for rule in RULES}
    ordered = sorted(findings, key=lambda found: (-1 if found.cell is None else found.cell, found.line or 0))
    items = [
        FoundItem(
            rule=found.rule,
            name=rows[found.rule].name,
            keeps=found.keeps.value,
            changed=found.changed,
            cell=found.cell,
            line=found.line,
            file_line=_file_line(found, file_lines),
            message=encodable(found.message),
            before=_clipped(found.before),
            after=_clipped(found.after),
            action=encodable(found.action),
            anchor=rows[found.rule].anchor,
            output_cell=found.output_cell,
            severity=_severity(found),
        )
        for found in ordered
    ]
    return _joined(items)


def _severity(found: Finding) -> Severity:
    if found.keeps is not Keeps.NEEDS_HUMAN:
        return "information"
    return "breaks" if found.rule in BREAKS else "decision"


def _joined(items: Sequence[FoundItem]) -> tuple[FoundItem, ...]:
    """Joins equal actions: a program is installed once. A change that needs the decision about an earlier one stays in
    the list, and refers to that. Form fields that stay for the same reason are one item, which has all their lines, as
    an action for several lines of a cell has."""
    first: dict[tuple[str, ...], int] = {}
    joined: list[FoundItem] = []
    for item in items:
        key = (item.rule, item.action, *[item.message] * (item.changed or item.rule in _BY_MESSAGE))
        is_own = item.changed and item.rule not in _ONE_DECISION
        is_own = is_own or item.keeps != "needs-human" or not item.action
        if item.cell is None or (is_own and item.rule not in _ONE_ITEM):
            joined.append(item)
        elif key not in first:
            first[key] = len(joined)
            joined.append(item)
        else:
            known = joined[first[key]]
            also = () if item.cell in (known.cell, *known.also) else (item.cell,)
            joined[first[key]] = replace(known, also=(*known.also, *also))
            if item.rule in _ONE_ITEM or (item.cell == known.cell and not item.changed):
                if (item.cell, item.line) not in ((known.cell, known.line), *known.also_lines):
                    joined[first[key]] = _with_lines(joined[first[key]], item)
            elif item.changed:
                message = f"{item.message}: see {where(known.cell, known.line)}"
                joined.append(replace(item, message=message, action="", keeps="equivalent", severity="information"))
    return tuple(_counted(item) if item.also_lines else item for item in joined)


def _with_lines(item: FoundItem, other: FoundItem) -> FoundItem:
    """The item with the lines of another one."""
    before, after = ("\n".join(texts) for texts in ((item.before, other.before), (item.after, other.after)))
    lines = (*item.also_lines, (other.cell or 0, other.line or 1))
    return replace(item, before=before, after=after, also_lines=lines)


def _counted(item: FoundItem) -> FoundItem:
    message = f"{item.message} ({len(item.also_lines) + 1} lines)"
    return replace(item, message=message, before=_clipped(item.before), after=_clipped(item.after))


def as_json(report: Report) -> str:
    return json_text(report, default=vars)


def landfall_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("landfall")
    except PackageNotFoundError:
        return "unknown"


def shown(path: Path) -> str:
    """A path as it is written in a report: relative to the current folder if it is below that, else `~/…` below the
    home folder, else absolute."""
    full = Path(os.path.normpath(Path.cwd() / path))
    for base, prefix in ((Path.cwd(), ""), (_home(), "~/")):
        if base is not None and full.is_relative_to(base):
            return encodable(prefix + full.relative_to(base).as_posix())
    return encodable(full.as_posix())


def where(cell: int | None, line: int | None) -> str:
    """The position of a finding as text: `cell 3, line 2`."""
    if cell is None:
        return "notebook"
    return f"cell {cell}" if line is None else f"cell {cell}, line {line}"


def place_of(item: FoundItem) -> str:
    """The position of an item: `cell 5 (in the original cell 3, line 2)`. Lines are those of the original."""
    place = where(item.cell, item.line)
    if item.cell is not None and item.output_cell is not None and item.output_cell != item.cell:
        place = f"cell {item.output_cell} (in the original {place})"
    if item.also:
        place += f", and in {len(item.also)} more"
    return place


def encodable(text: str) -> str:
    """The text without lone surrogates, which names of files and notebooks can contain but UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _file_line(found: Finding, file_lines: Sequence[Sequence[int]]) -> int | None:
    if found.cell is None or found.cell >= len(file_lines):
        return None
    lines = file_lines[found.cell]
    return lines[min((found.line or 1), len(lines)) - 1] if lines else None


def _clipped(text: str) -> str:
    text = encodable(text)
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]}… ({len(text) - LONGEST_TEXT} more characters)"


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:
        return None


def only_colab_has(found: Finding) -> bool:
    """Whether a finding must not exist in a local notebook: migration changes it, or the user must."""
    return (found.changed or found.keeps is Keeps.NEEDS_HUMAN) and found.rule not in _ANYWHERE


def places(findings: Iterable[Finding], rules: Collection[str]) -> tuple[Place, ...]:
    """Positions of the findings of the given rules."""
    return tuple(Place(found.rule, found.message, found.cell, found.line) for found in findings if found.rule in rules)
