"""Reports of migrations that are stored in a workspace for the dashboard."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from core.workspace import relative, write_text
from migration.report.document import NotebookReport, as_json, make_report, shown

log = logging.getLogger(__name__)

FOLDER = "artifacts/migration"


def keep(done: Iterable[tuple[Path, Path, Path, NotebookReport]]) -> None:
    """Writes the reports of notebooks that were written to workspaces: root of the workspace, input, output, report.
    One file for notebooks that were migrated together; a repeated migration replaces it. If it cannot be written, a
    warning is logged; the notebooks are kept.
    """
    by_root: dict[Path, list[NotebookReport]] = {}
    for root, source, output, report in done:
        by_root.setdefault(root, []).append(_seen_from(root, source, output, report))
    for root, reports in by_root.items():
        names = "\n".join(sorted(str(report.output) for report in reports))
        digest = hashlib.blake2b(names.encode("utf-8", "replace"), digest_size=6).hexdigest()
        try:
            write_text(root / FOLDER / f"{digest}.json", as_json(make_report(reports, "write")))
        except OSError as error:
            log.warning("the dashboard will not show this migration: %s", error)


def _seen_from(root: Path, source: Path, output: Path, report: NotebookReport) -> NotebookReport:
    """The report with paths relative to the workspace; the path of an input from elsewhere is unchanged."""
    full = source.resolve()
    name = relative(full, root) if full.is_relative_to(root) else shown(source)
    return replace(report, input=name, output=relative(output.resolve(), root), files=())
