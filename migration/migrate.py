"""One notebook from Colab to a local machine: read, learn its facts, rewrite, add what it needs, clean, check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from migration.facts import collect_facts
from migration.matching import Finding, Keeps
from migration.parameters import Folders, add_preamble
from migration.reading import language_of, source_text
from migration.requirements import Requirements, collect_requirements
from migration.rewriting import rewrite
from migration.rules import all_rules
from migration.rules.configurations import local_configs
from migration.source import CellSource
from migration.structure import clean, with_ids

RUNTIME_MODULE = "landfall_runtime"


@dataclass
class Migration:
    """What became of one notebook.

    `notebook` is valid nbformat 4.5; `uses_runtime` says that it imports the module `landfall_runtime`; `hardware`
    is the accelerator it was made for ("GPU T4", "TPU", …) or None.
    """

    notebook: dict[str, Any]
    findings: list[Finding]
    requirements: Requirements = field(default_factory=Requirements)
    hardware: str | None = None
    uses_runtime: bool = False

    @property
    def needs_human(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.keeps is Keeps.NEEDS_HUMAN]


def migrate(notebook: Mapping[str, Any], *, folders: Folders | None = None, workspace: Path | None = None) -> Migration:
    """Migrates a notebook in memory (nbformat 4, as `migration.reading.read` gives it); the input is not changed.

    `workspace` is the Landfall workspace that the output lies in, if any: its local configurations take the place of
    Colab's.

    Idempotent: migrating the result changes nothing.
    """
    language = language_of(notebook)
    sources = [
        CellSource(source_text(cell), index=index, language=language) for index, cell in enumerate(notebook["cells"])
    ]
    kinds = [cell["cell_type"] for cell in notebook["cells"]]
    code = [source for source, kind in zip(sources, kinds, strict=True) if kind == "code"]
    facts = collect_facts(code, language=language)
    if workspace is not None:
        facts = replace(facts, local_configs=local_configs(workspace))
    findings: list[Finding] = []
    cells = []
    for cell, source, kind in zip(notebook["cells"], sources, kinds, strict=True):
        new, found = rewrite(source, cell_type=kind, rules=all_rules(), facts=facts)
        if kind == "code" and new is not source and _broke(source, new):
            new, found = source, [_undone(source.index)]
        findings += found
        cells.append({**cell, "source": new.text})
    migrated, hardware, cleaned = clean({**notebook, "cells": cells})
    # Last, for a finding counts the cells of the original.
    cells = add_preamble(migrated["cells"], facts, folders or Folders())
    return Migration(
        notebook={**migrated, "cells": with_ids(cells)},
        findings=cleaned + findings,
        requirements=collect_requirements(code),
        hardware=hardware,
        uses_runtime=any(RUNTIME_MODULE in cell["source"] for cell in cells if cell["cell_type"] == "code"),
    )


def _broke(before: CellSource, after: CellSource) -> bool:
    return after.is_python and after.tree is None and before.tree is not None


def _undone(index: int) -> Finding:
    return Finding(
        rule="LF902",
        keeps=Keeps.NEEDS_HUMAN,
        cell=index,
        line=1,
        message="the rewritten cell would not compile, so it was left as it was",
        action="rewrite this cell's Colab parts by hand, and please report the notebook as a fault of Landfall",
    )
