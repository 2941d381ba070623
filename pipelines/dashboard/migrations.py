"""Migrated notebooks, their findings, and what the user must do."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import Field

from core.workspace import relative
from migration.report.kept import FOLDER
from pipelines.dashboard.inputs import Input, Problems, changed_at, listed, read_model
from pipelines.dashboard.state_documents import MigratedNotebook, MigrationState, RuleCount


class _Found(Input):
    rule: str
    keeps: str
    cell: int | None = None
    line: int | None = None
    message: str = ""
    action: str = ""

    def to_do(self) -> str:
        """What the user must do, and in which cell. Cells count from 0, as in the report."""
        line = "" if self.line is None else f", line {self.line}"
        where = "notebook" if self.cell is None else f"cell {self.cell}{line}"
        return f"{where}: {self.message}" + (f" → {self.action}" if self.action else "")


class _Notebook(Input):
    input: str
    output: str | None = None
    rules: dict[str, int] = Field(default_factory=dict)
    keeps: dict[str, int] = Field(default_factory=dict)
    findings: list[_Found] = Field(default_factory=list)


class _Report(Input):
    """The reports of `landfall migrate` in the workspace of its outputs."""

    notebooks: list[_Notebook]


def read_migration(root: Path, problems: Problems) -> MigrationState | None:
    """Every notebook that has a local version in the workspace; None if there is none."""
    notebooks = {**_bundled(root, problems), **_kept(root, problems)}
    if not notebooks:
        return None
    found = sum((Counter(notebook.findings) for notebook in notebooks.values()), Counter())
    return MigrationState(notebooks=[notebooks[name] for name in sorted(notebooks)], rules=_named(found))


def _kept(root: Path, problems: Problems) -> dict[str, MigratedNotebook]:
    """The migrated notebooks, from the newest report of each."""
    notebooks: dict[str, MigratedNotebook] = {}
    for path in sorted(listed(root / FOLDER, "*.json"), key=changed_at):
        report = read_model(path, _Report, problems)
        at = datetime.fromtimestamp(changed_at(path), UTC)
        for notebook in report.notebooks if report else ():
            if notebook.output is not None and (root / notebook.output).is_file():
                notebooks[notebook.input] = _entry(notebook, at=at, report=relative(path, root))
    return notebooks


def _bundled(root: Path, problems: Problems) -> dict[str, MigratedNotebook]:
    """The notebooks that come with the workspace have no stored reports: their originals are migrated again, in
    memory."""
    pairs = {
        source: local
        for source in sorted((root / "notebooks").glob("colab_*.ipynb"))
        if (local := source.with_name(f"local_{source.name.removeprefix('colab_')}")).is_file()
    }
    if not pairs:
        return {}
    from migration.batch import Options, migrate_file
    from migration.planning import Task

    notebooks = {}
    for source, local in pairs.items():
        report = migrate_file(Task(source, None, source.stat().st_size), Options(mode="diff")).report
        if report.error is not None:
            problems.add(source, report.error)
            continue
        notebook = _Notebook.model_validate(report, from_attributes=True)
        named = notebook.model_copy(update={"input": relative(source, root), "output": relative(local, root)})
        notebooks[named.input] = _entry(named)
    return notebooks


def _entry(notebook: _Notebook, **facts: Any) -> MigratedNotebook:
    return MigratedNotebook(
        source=notebook.input,
        target=notebook.output,
        findings=notebook.rules,
        by_kind=notebook.keeps,
        needs_you=[found.to_do() for found in notebook.findings if found.keeps == "needs-human"],
        **facts,
    )


def _named(found: Counter[str]) -> list[RuleCount]:
    from migration.rules.table import RULES

    titles = {rule.id: rule.name for rule in RULES}
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return [RuleCount(rule=rule, title=titles.get(rule, ""), count=count) for rule, count in ordered]
