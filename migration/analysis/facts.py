"""Facts about a complete notebook that the rules need for each cell, collected once from the original cells.

The passes run in a fixed order, each a function of the cells and of earlier facts: the form fields that can be moved
(`parameters`), the names of google.colab (`names`), then alternately the flags, the names and files that only Colab's
branches create, and whether the drive is only mounted (`flags`, `mounts`), until none of these changes; last the mount
points.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from migration.analysis.flags import find_context, find_flags
from migration.analysis.mounts import TEXT_MOUNT, introduced_mounts, is_static, last_sign_in, mount_points
from migration.analysis.names import ColabNames, find_names
from migration.analysis.parameters import Parameter, is_form, plan_parameters
from migration.analysis.root_paths import root_paths
from migration.analysis.unused import unused_imports, uses_sys_for_tests
from migration.colab.forms import FIELD_TRIGGER, form_fields
from migration.colab.local_branch import Context
from migration.colab.names import IDLE, OUTPUT, uploads
from migration.colab.paths import DEFAULT_MOUNTS, find_paths, may_name_folder
from migration.notebook.texts import Edit, edited, holding, words_in
from migration.python.shell_texts import shell_texts
from migration.python.source import CellSource
from migration.python.strings import comments, without_comments

_SETUP = re.compile(
    r'^(\w+) = os\.environ\["\1"\] = (?:os\.path\.abspath\(.*expanduser\((?:landfall_)?(work|drive)_dir\)\)\))$',
    re.MULTILINE,
)
# A quotation mark after a letter would end a string, so that no path begins there.
_NO_PATH = re.compile(rf"{TEXT_MOUNT.pattern}|\b[rbfu]{{1,2}}(?=[\"'])", re.IGNORECASE)
_DRIVE_SERVICE = holding(
    *("pydrive", "gspread", "build("),  # in small letters, as the text that it is applied to
    like=r"^(?![ \t]*#)[^\n]*(?:\b(?:pydrive2?|gspread)\b|\bbuild\(\s*[\"'](?:drive|sheets)[\"'])",
)
# An OAuth scope, without those that a sign-in has by default.
_SCOPE = re.compile(r"https://www\.googleapis\.com/auth/(?!(?:cloud-platform|userinfo\.email)\b)[a-z](?:[\w.-]*\w)?")
# A variable that is a complete command: `!$cmd`, `!{cmd}`, `os.system(cmd)`, `run(cmd, shell=True)`.
_RUN_NAME = re.compile(
    r"^[ \t]*!+[ \t]*(?:\$(\w+)|\{(\w+)\})[ \t]*$|\b(?:system|popen|getoutput)\([ \t]*(\w+)[ \t]*\)"
    r"|\b(?:run|call|check_call|check_output|Popen)\([ \t]*(\w+)[ \t]*,[^\n]*\bshell[ \t]*=[ \t]*True",
    re.MULTILINE,
)
_RUNS = ("!", "system", "popen", "getoutput", "shell")  # a match contains one of them
_IMPORTS_OS = re.compile(r"^import[ \t]+(?:[\w.]+[ \t]*,[ \t]*)*os\b(?![ \t]+as\b|\.)", re.MULTILINE)
_ABOUT_FORM = re.compile(
    r"\b(?:drop-?\s?downs?|sliders?|check-?\s?box(?:es)?|text (?:box|field)(?:es|s)?|fields? (?:above|below)"
    r"|th(?:e|is) form(?! of)"
    r"|(?:select|choose|set|edit|change|adjust|enter|fill|specify|provide|pick)\b[^.\n]{0,60}\bbelow)\b",
    re.IGNORECASE,
)
_DELETES = re.compile(r"\brm\s+-")
_RELATIVE = re.compile(r"(?!sample_data\b|__MACOSX\b)\w[\w.-]*(?:/|$)")
_SAMPLES = r"f?[\"'](?:\./|/content/|\{\w+\}/)?sample_data/?[\"'][ \t]*"
_MAKES_SAMPLES = re.compile(
    r"\bmkdir\b[^\n;&|]*[\s\"'](?:\./|/content/|[\"'{$]+\w+[\"'}]*/)?sample_data/?[\"']?(?=[\s;&|)]|$)"
    rf"|\b(?:mkdirs?|makedirs)\([ \t]*{_SAMPLES}|\bPath\([ \t]*{_SAMPLES}\)\.mkdir\("
)
_MAX_ROUNDS = 20
_FOLDER_NAMES = {"work": "WORK_DIR", "drive": "DRIVE_DIR"}


@dataclass(frozen=True)
class NotebookFacts:
    """Facts of one notebook.

    `work` and `drive` name the Python variables, and the environment variables of the same value, that hold the two
    folders at run time; they differ from the defaults only where the notebook already has such names. `folders` are
    those that the code names ("work", "drive"), or a text about a mount: only their variables exist. `mounts` are the
    absolute folders at which the notebook mounts its drive, longest first (the default ones if it names none).
    `parameters` are the form fields in the order of the notebook, with the treatment of each. `colab`: its names with a
    meaning on Colab. `static_mount`: the drive is only mounted, at literal paths; `idle_output`: Colab's `output` is
    only used for calls that have no effect here; `unused` are names that are imported from google.colab and never used;
    `unused_sys`: only replaced questions about Colab use `sys`. `local_configs` are the workspace's configurations that
    have a local version. `headings`: those of each text cell, by the id that Colab gave it.
    `first_code`: the position of the first code cell. `names_badge`: a text names the badge.
    `described`: the code cells between two text cells, without the first code cell, and those whose text is about the
    mount or the form fields in them: a text would describe nothing if they were removed. `tests`: the code cells with a
    test for Colab that one of its branches replaces.
    `commands` are names whose text the notebook runs as a shell command.
    `drive_service`: a package uses Google Drive or Sheets by their web service; `scopes`: the OAuth scopes that
    the code names, without those that a sign-in has by default.
    `signed_in`: the code cells that mount the drive or sign in on Colab, and not here, with the last row of it.
    `makes_samples`: a cell creates the folder of Colab's samples, `sample_data`, which is then the notebook's own.
    `deletes_unknown`: what a cell deletes with `rm -r` and no other code names, so it may be the user's own.
    `root_paths`: the strings of each cell that name a path below the root of the file system that code uses.
    `uploads`: for each cell the number of uploads in the cells above whose files the notebook uses by the result of the
    call; empty if it has only one.
    `imports_os`: the position of the first code cell that imports `os`.
    """

    language: str = "python"
    work: str = "WORK_DIR"
    drive: str = "DRIVE_DIR"
    folders: frozenset[str] = frozenset({"work", "drive"})
    mounts: tuple[str, ...] = DEFAULT_MOUNTS
    parameters: tuple[Parameter, ...] = ()
    colab: ColabNames = field(default_factory=ColabNames)
    static_mount: bool = False
    idle_output: bool = False
    unused: frozenset[str] = frozenset()
    unused_sys: bool = False
    local_configs: frozenset[str] = frozenset()
    headings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    first_code: int = sys.maxsize
    names_badge: bool = False
    described: frozenset[int] = frozenset()
    tests: frozenset[int] = frozenset()
    commands: frozenset[str] = frozenset()
    drive_service: bool = False
    scopes: frozenset[str] = frozenset()
    signed_in: Mapping[int, int] = field(default_factory=dict)
    makes_samples: bool = False
    deletes_unknown: frozenset[str] = frozenset()
    root_paths: Mapping[int, frozenset[str]] = field(default_factory=dict)
    uploads: Mapping[int, int] = field(default_factory=dict)
    imports_os: int = sys.maxsize


def collect_facts(
    cells: Sequence[CellSource],
    *,
    texts: Mapping[int, str] = MappingProxyType({}),
    language: str = "python",
    repository: str = "",
    here: Path | None = None,
) -> NotebookFacts:
    """The facts of a notebook's code cells, given in order; `index` of each is its position in the notebook.

    `texts` are its text cells by position. `repository` is the one that contains the notebook, `here` its folder, if
    known.
    """
    first_code = min((source.index for source in cells), default=sys.maxsize)
    known: dict[str, Any] = {**_folder_names(cells), "described": _described(cells, texts), "first_code": first_code}
    if language != "python":
        return NotebookFacts(language=language, **known)
    imports = (source.index for source in cells if source.is_python and _IMPORTS_OS.search(source.masked))
    known["imports_os"] = min(imports, default=sys.maxsize)
    known["makes_samples"] = any(map(_makes_samples, cells))
    known["deletes_unknown"] = _deletes_unknown(cells)
    known["commands"] = frozenset(name for source in cells for name in _run_names(source.text))
    parameters = plan_parameters(cells)
    colab = find_names(cells)
    if colab is None:
        named = _named_folders(cells, DEFAULT_MOUNTS)
        known["root_paths"] = root_paths(cells, DEFAULT_MOUNTS)
        return NotebookFacts(language=language, parameters=parameters, folders=named, **known)
    context = Context(repository=repository, here=here)
    colab = _evaluated(cells, replace(colab, context=context))
    static = is_static(cells, colab)
    mounts = mount_points(cells, colab) or DEFAULT_MOUNTS
    folders = _named_folders(cells, mounts)
    introduced = introduced_mounts(cells, colab, texts) if static else frozenset()
    if "drive" in folders:
        introduced -= {cells[0].index}  # the set-up cell is in its place
    elif introduced:
        folders = frozenset({"work", "drive"})
    return NotebookFacts(
        language=language,
        folders=folders,
        mounts=mounts,
        parameters=parameters,
        root_paths=root_paths(cells, mounts),
        uploads=_uploads(cells, colab),
        colab=colab,
        static_mount=static,
        idle_output=_is_idle(cells, colab),
        unused=unused_imports(cells),
        unused_sys=uses_sys_for_tests(cells, colab),
        tests=frozenset(source.index for source in cells if colab.cell(source).choices),
        drive_service=any(_DRIVE_SERVICE.fires(source.text.lower()) for source in cells),
        scopes=frozenset(
            scope
            for source in cells
            if "googleapis.com/auth/" in source.text
            for scope in _SCOPE.findall(without_comments(source))
        ),
        signed_in={source.index: row for source in cells if (row := last_sign_in(source, colab)) is not None},
        **{**known, "described": known["described"] | introduced},
    )


def _evaluated(cells: Sequence[CellSource], colab: ColabNames) -> ColabNames:
    """The names, completed by the passes that depend on each other, until nothing changes: first the flags, because one
    may depend on another; then the names that the kept branches need, which can change further flags."""
    for _ in range(_MAX_ROUNDS):
        found = replace(colab, flags=find_flags(cells, colab))
        if found == colab:
            found = replace(colab, context=find_context(cells, colab, static_mount=is_static(cells, colab)))
            if found == colab:
                break
        colab = found
    return colab


def _run_names(text: str) -> Iterator[str]:
    """The names that a cell runs as complete shell commands."""
    if words_in(text, _RUNS):
        yield from (name for found in _RUN_NAME.findall(text) for name in found if name)


def _makes_samples(source: CellSource) -> bool:
    return "sample_data" in source.text and _MAKES_SAMPLES.search(without_comments(source)) is not None


def _deletes_unknown(cells: Sequence[CellSource]) -> frozenset[str]:
    """Relative paths of which `rm -r` deletes the first folder or file, and no other code names that."""
    if not any(_DELETES.search(source.text) for source in cells):
        return frozenset()
    deleted: set[str] = set()
    others = []
    for source in cells:
        spans = list(comments(source))
        for text in shell_texts(source) if _DELETES.search(source.text) else ():
            deletions = [command for command in text.commands if command.deleted]
            deleted.update(value for command in deletions for value in command.deleted if _RELATIVE.match(value))
            spans += map(text.span, deletions)
        others.append(edited(source.text, [Edit(*span, "") for span in spans]))
    code = "\n".join(others)
    return frozenset(path for path in deleted if path.partition("/")[0] not in code)


def _uploads(cells: Sequence[CellSource], colab: ColabNames) -> dict[int, int]:
    """The number of uploads above each cell, if the notebook has several."""
    above, count = {}, 0
    for source in (source for source in cells if "upload" in source.text):
        above[source.index] = count
        count += len(uploads(colab.cell(source).uses))
    return above if count > 1 else {}


def _is_idle(cells: Sequence[CellSource], colab: ColabNames) -> bool:
    """Whether a notebook uses Colab's `output` only for calls that have no effect here."""
    concerned = [source for source in cells if colab.cell(source).concerned]
    if any(source.is_python and source.tree is None and OUTPUT in source.text for source in concerned):
        return False
    uses = [use for source in concerned for use in colab.cell(source).uses if use.path.partition(".")[0] == OUTPUT]
    return bool(uses) and all(use.is_statement and use.path in IDLE for use in uses)


def _described(cells: Sequence[CellSource], texts: Mapping[int, str]) -> frozenset[int]:
    code = {source.index for source in cells}
    forms = {
        source.index
        for source in cells
        if FIELD_TRIGGER.fires(source.text) and is_form(source)
        if any(_is_about_form(texts.get(source.index + step, ""), source) for step in (-1, 1))
    }
    between = {index for index in code if not {index - 1, index + 1} & code}
    return frozenset((between | forms) - {min(code, default=0)})


def _is_about_form(text: str, source: CellSource) -> bool:
    """Whether a text names a field of a form, or what Colab shows in its place."""
    names = "|".join(re.escape(field.name) for field in form_fields(source))
    return bool(text and (_ABOUT_FORM.search(text) or re.search(rf"[`*\"'](?:{names})[`*\"']", text)))


def _named_folders(cells: Sequence[CellSource], mounts: tuple[str, ...]) -> frozenset[str]:
    """The folders that the code names, except where it mounts the drive. That of the drive is relative to the other."""
    found = {
        span.folder
        for source in cells
        if may_name_folder(source.text, mounts)
        for span in find_paths(_NO_PATH.sub("", without_comments(source)), mounts)
    }
    return frozenset({*found, "work"} if found else ())


def _folder_names(cells: Sequence[CellSource]) -> dict[str, str]:
    """The names for the two folders: those of an existing set-up cell, else names that the notebook does not use."""
    names = dict(_FOLDER_NAMES)
    text = "\n".join(source.text for source in cells if any(name in source.text for name in names.values()))
    setup = {match[2]: match[1] for match in _SETUP.finditer(text)}
    if setup:
        return {**names, **setup}
    for key, name in _FOLDER_NAMES.items():
        number = 0
        while re.search(rf"(?<!\w){names[key]}(?!\w)", text):
            number += 1
            names[key] = f"LANDFALL_{name}" if number == 1 else f"LANDFALL_{name}_{number}"
    return names
