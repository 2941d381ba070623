"""Migrates one notebook from Colab to a local machine: analyse, rewrite, add cells, clean, check."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from core.secrets.finding import masked
from migration.analysis.facts import NotebookFacts, collect_facts
from migration.analysis.parameters import Parameter
from migration.analysis.requirements import Requirements, collect_requirements
from migration.analysis.userdata import secret_names
from migration.colab.forms import hides_code
from migration.colab.paths import may_name_folder
from migration.notebook.findings import Finding, Keeps
from migration.notebook.reading import language_of, source_text
from migration.notebook.structure import clean, with_ids
from migration.python.source import RUNS_CELL, CellSource, find_own_magics
from migration.report.content import content_files
from migration.report.drive import drive_files
from migration.rules import credentials
from migration.rules.cell_magics import prose_left
from migration.rules.colab_prose import ABOUT_ACTION, RESTART_ACTION, comments_about_colab
from migration.rules.configurations import local_configs
from migration.rules.detection import tries_as_written
from migration.rules.human import unparsed
from migration.rules.preamble import PARAMETERS_TAG, SETUP_TAG, Folders, add_preamble, parameter_name, tagged
from migration.rules.prose import headings, names_badge
from migration.rules.rewriting import rewrite
from migration.rules.table import RULES

RUNTIME_MODULE = "landfall_runtime"
_REPOSITORY = "landfall"  # the repository that a notebook of a workspace clones on Colab
_ADDED = {PARAMETERS_TAG: "a cell of parameters", SETUP_TAG: "a set-up cell"}
_ORIGIN = "origin"  # a cell key that exists only during migration
_ONLY_MAGIC = re.compile(rf"%%(?:{'|'.join(sorted(RUNS_CELL))})\b[^\n]*")


@dataclass
class Migration:
    """The result for one notebook. `notebook` is valid nbformat 4.5; `uses_runtime`: it names the module
    `landfall_runtime`; `hardware` is the accelerator it was made for ("GPU T4", "TPU", …) or None. `origins` are the
    positions of its cells in the original, None for added cells. `drive` are the files on Google Drive that it may
    read, `content` those of /content that it reads and no cell creates, `secrets` the names of the secrets that it
    reads with `userdata.get`, or from the environment instead.
    """

    notebook: dict[str, Any]
    findings: list[Finding]
    requirements: Requirements = field(default_factory=Requirements)
    hardware: str | None = None
    uses_runtime: bool = False
    origins: tuple[int | None, ...] = ()
    drive: tuple[str, ...] = ()
    content: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()

    @property
    def needs_human(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.keeps is Keeps.NEEDS_HUMAN]


def migrate(
    notebook: Mapping[str, Any],
    *,
    folders: Folders | None = None,
    workspace: Path | None = None,
    here: Path | None = None,
) -> Migration:
    """Migrates a notebook in memory (nbformat 4, as `notebook.reading.read` gives it); the input is not changed.

    `workspace` is the Landfall workspace of the output, if any: its local configurations replace those for Colab, and a
    clone of Landfall is not needed. `here` is the folder of the notebook, if any: a branch for other machines that
    names files in it is kept.

    Idempotent: migrating the result changes nothing.
    """
    language = language_of(notebook)
    texts = [source_text(cell) for cell in notebook["cells"]]
    own = find_own_magics(texts)
    sources = [
        CellSource(_unix(text), index=index, language=language, own_magics=own) for index, text in enumerate(texts)
    ]
    kinds = [cell["cell_type"] for cell in notebook["cells"]]
    code = [source for source, kind in zip(sources, kinds, strict=True) if kind == "code"]
    text_cells = {index: text for index, (text, kind) in enumerate(zip(texts, kinds, strict=True)) if kind != "code"}
    repository = _REPOSITORY if workspace is not None else ""
    facts = collect_facts(code, texts=text_cells, language=language, repository=repository, here=here)
    if workspace is not None:
        facts = replace(facts, local_configs=local_configs(workspace))
    facts = replace(facts, headings=headings(notebook["cells"]), names_badge=names_badge(notebook["cells"]))
    facts = replace(facts, parameters=tuple(_with_local_comments(parameter, facts) for parameter in facts.parameters))
    findings: list[Finding] = []
    cells, rewritten = [], []
    for cell, text, source, kind in zip(notebook["cells"], texts, sources, kinds, strict=True):
        new, found = rewrite(source, cell_type=kind, rules=RULES, facts=facts)
        if kind == "code" and new is not source and _broke(source, new):
            new, found = rewrite(source, cell_type=kind, rules=credentials.RULES, facts=facts)
            found = [_undone(source.index), *found]
        is_concerned = kind == "code" and (new is not source or _may_be_of_colab(source, facts))
        if is_concerned and new.error and (said := unparsed(source)):
            found = [said, *found]
        findings += found
        if kind == "code":
            findings += [*tries_as_written(source, facts), *comments_about_colab(source, new, facts)]
        if kind == "code" and new is not source and (prose := prose_left(source, new)):
            new = CellSource("", index=source.index, prose=prose)
            findings.append(_became_text(source))
        rewritten += [new] if kind == "code" else []
        hidden = {"cellView": "form"} if kind == "code" and hides_code(source) else {}
        text = text if new is source else _with_ends_of(text, new.text)
        cells.append({**cell, "metadata": {**hidden, **cell["metadata"]}, "source": text})
    migrated, hardware, cleaned = clean({**notebook, "cells": cells}, is_python_3=lambda: not any(map(unparsed, code)))
    # Last, because findings count the cells of the original.
    prose: dict[int, str] = {}
    for source in rewritten:
        if source.prose:
            above, found = rewrite(_prose(source), cell_type="markdown", rules=RULES, facts=facts)
            prose[source.index] = above.text
            findings += found
    placed = _placed(migrated["cells"], texts, prose)
    cells = add_preamble(placed, facts, folders or Folders(), rewritten, start=_start(placed, kinds))
    if added := [
        what for tag, what in _ADDED.items() if tagged(cells, tag) is not None and tagged(placed, tag) is None
    ]:
        findings.append(_added(added))
    origins = tuple(cell.get(_ORIGIN) for cell in cells)
    now = {origin: index for index, origin in enumerate(origins) if origin is not None}
    cells = [{key: value for key, value in cell.items() if key != _ORIGIN} for cell in cells]
    return Migration(
        notebook={**migrated, "cells": with_ids(cells)},
        findings=[
            replace(found, output_cell=now.get(found.cell), action=_for_cells(found.action, cells))
            for found in cleaned + findings
        ],
        origins=origins,
        drive=drive_files(findings, code),
        content=content_files(code),
        secrets=tuple(dict.fromkeys([*secret_names(code, facts.colab), *credentials.written_secrets(code)])),
        requirements=collect_requirements(code, facts.colab),
        hardware=hardware,
        uses_runtime=any(RUNTIME_MODULE in cell["source"] for cell in cells if cell["cell_type"] == "code"),
    )


def _for_cells(action: str, cells: Sequence[dict[str, Any]]) -> str:
    """The action with the name that the parameter for the drive has in these cells, and about no added cells if there
    are none."""
    if action == RESTART_ACTION and all(tagged(cells, tag) is None for tag in _ADDED):
        return ABOUT_ACTION
    if "`drive_dir`" not in action:
        return action
    return action.replace("`drive_dir`", f"`{parameter_name('drive_dir', cells)}`")


def _placed(cells: Sequence[dict[str, Any]], texts: Sequence[str], prose: Mapping[int, str]) -> list[dict[str, Any]]:
    """The cells, with Markdown cells for comments that were moved out of them, and without cells that the rules
    emptied."""
    placed: list[dict[str, Any]] = []
    for index, (cell, text) in enumerate(zip(cells, texts, strict=True)):
        stays = not _is_emptied(cell["source"], text) or bool(cell["metadata"].get("tags"))
        if index in prose:
            above = {"cell_type": "markdown", "metadata": {}, "source": prose[index]}
            placed.append(above if stays else {**above, _ORIGIN: index})
        if stays:
            placed.append({**cell, _ORIGIN: index})
    return placed


def _start(placed: Sequence[dict[str, Any]], kinds: Sequence[str]) -> int | None:
    """The position of the first code cell of the original among the cells; None without any."""
    first = next((index for index, kind in enumerate(kinds) if kind == "code"), None)
    if first is None:
        return None
    return sum(1 for cell in placed if cell.get(_ORIGIN, first) < first)


def _with_local_comments(parameter: Parameter, facts: NotebookFacts) -> Parameter:
    """The parameter with its comments after the rules were applied."""

    def local(lines: tuple[str, ...]) -> tuple[str, ...]:
        if not lines:
            return lines
        text = rewrite(CellSource("\n".join(lines)), cell_type="code", rules=RULES, facts=facts)[0].text
        return tuple(text.split("\n"))

    return replace(parameter, above=local(parameter.above), below=local(parameter.below))


def _prose(source: CellSource) -> CellSource:
    return CellSource(source.prose, index=source.index)


def _is_emptied(source: str, original: str) -> bool:
    """Whether the rules left nothing of a cell but its cell magic."""
    return source != original and not _ONLY_MAGIC.sub("", source).strip()


def _unix(text: str) -> str:
    """The text for the rules: Windows line endings are replaced by newlines if all lines have them."""
    unix = text.replace("\r\n", "\n")
    return text if "\r" in unix or unix.count("\n") != text.count("\r\n") else unix


def _with_ends_of(original: str, text: str) -> str:
    """The text with the line endings of the original, if `_unix` replaced them."""
    return text.replace("\n", "\r\n") if "\r\n" in original and _unix(original) != original else text


def _may_be_of_colab(source: CellSource, facts: NotebookFacts) -> bool:
    """Whether a cell may use Colab or its folders, so that an error in its syntax is reported."""
    is_named = "colab" in source.text.lower() or may_name_folder(source.text, facts.mounts)
    return is_named or facts.colab.cell(source).concerned


def _broke(before: CellSource, after: CellSource) -> bool:
    return after.is_python and after.tree is None and before.tree is not None


def _became_text(source: CellSource) -> Finding:
    """The finding for a cell whose code only Colab needs."""
    message = "only comments are left of the cell, so they are a Markdown cell now"
    return Finding("LF616", Keeps.EQUIVALENT, source.index, 1, message, before=masked(source.text), changed=True)


def _added(cells: Sequence[str]) -> Finding:
    what = f"{' and '.join(cells)} {'were' if len(cells) > 1 else 'was'}"
    return Finding("LF615", Keeps.EQUIVALENT, None, None, f"{what} added before the first code cell", changed=True)


def _undone(index: int) -> Finding:
    return Finding(
        rule="LF902",
        keeps=Keeps.NEEDS_HUMAN,
        cell=index,
        line=1,
        message="the rewritten cell would not compile, so it is unchanged except for its secrets",
        action="rewrite this cell's Colab parts by hand, and please report the notebook as a bug of Landfall",
    )
