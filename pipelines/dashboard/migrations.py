"""Migrated notebooks, their findings, and what the user must do."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from core.workspace import relative
from migration.report.document import FoundItem, NotebookReport, Report, place_of
from migration.report.kept import FOLDER
from migration.rules.table import RULES
from pipelines.dashboard.state_documents import MigratedNotebook, MigrationState, RuleCount
from pipelines.folders import changed_at, paths_in
from pipelines.problems import Problems, read_model

# A notebook, and the file of its report; None if it was migrated again in memory.
Reported = tuple[NotebookReport, Path | None]


def read_migration(root: Path, problems: Problems) -> MigrationState | None:
    """Every notebook that has a local version in the workspace; None if there is none."""
    reports = {**_bundled(root, problems), **_kept(root, problems)}
    if not reports:
        return None
    count = sum((Counter(report.rules) for report, _ in reports.values()), Counter())
    names = {rule.id: rule.name for rule in RULES}
    by_count = sorted(count, key=lambda rule: (-count[rule], rule))
    return MigrationState(
        notebooks=[_entry(root, *reports[name]) for name in sorted(reports)],
        rules=[RuleCount(rule=rule, title=names.get(rule, ""), count=count[rule]) for rule in by_count],
    )


def _kept(root: Path, problems: Problems) -> dict[str, Reported]:
    """The migrated notebooks, from the newest report of each."""
    reports: dict[str, Reported] = {}
    for path in sorted(paths_in(root / FOLDER, "*.json"), key=changed_at):
        report = read_model(path, Report, problems)
        for notebook in report.notebooks if report else ():
            if notebook.output is not None and (root / notebook.output).is_file():
                reports[notebook.input] = notebook, path
    return reports


def _bundled(root: Path, problems: Problems) -> dict[str, Reported]:
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

    reports: dict[str, Reported] = {}
    for source, local in pairs.items():
        report = migrate_file(Task(source, None, source.stat().st_size), Options(mode="diff")).report
        if report.error is not None:
            problems.add(source, report.error)
            continue
        name = relative(source, root)
        reports[name] = replace(report, input=name, output=relative(local, root)), None
    return reports


def _entry(root: Path, notebook: NotebookReport, report: Path | None) -> MigratedNotebook:
    return MigratedNotebook(
        source=notebook.input,
        target=notebook.output,
        at=datetime.fromtimestamp(changed_at(report), UTC) if report else None,
        findings=notebook.rules,
        needs_you=[_to_do(item) for item in notebook.needs_human],
        report=relative(report, root) if report else None,
    )


def _to_do(item: FoundItem) -> str:
    """What the user must do, and in which cell of the migrated notebook."""
    return f"{place_of(item)}: {item.message}" + (f" → {item.action}" if item.action else "")
