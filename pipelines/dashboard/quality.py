"""The quality reports of a stream: a summary for the state, and the reports file by file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from core.config.schema import AnyConfig, Stream
from core.data.files import matches
from core.workspace import relative
from pipelines.dashboard.detail_documents import FileQuality, Quality
from pipelines.dashboard.publish import write_document
from pipelines.dashboard.state_documents import QualityMessage, QualitySummary
from pipelines.folders import changed_at, has_file, paths_in, skipped_by_glob
from pipelines.problems import Problems, read_model

WORST_MESSAGES = 5


def read_reports(root: Path, config: AnyConfig, problems: Problems) -> list[FileQuality]:
    """The newest report of each file of the data, by file name.

    Reports of other files, such as those of a command with another folder, are left out. If no file of the data exists,
    because the model was imported without them, all reports count.
    """
    reports: dict[str, FileQuality] = {}
    folder = root / config.dqvl.report_dir
    for path, reason in skipped_by_glob(folder):
        problems.add(path, reason)
    # Oldest first, so that the newest report of a file replaces older ones.
    for path in sorted(paths_in(folder, "*.json"), key=changed_at):
        report = read_model(path, FileQuality, problems)
        if report is not None:
            reports[report.file_id] = report
    data_root = root / config.data.root
    present = {file_id for file_id in reports if has_file(data_root / file_id)}
    globs = config.data.splits.globs if present else ()  # without permission, a glob may raise
    of_splits = {relative(path, data_root) for glob in globs for path in matches(glob, data_root)}
    return [reports[file_id] for file_id in sorted(present & of_splits or present or reports)]


def quality_summary(reports: Sequence[FileQuality]) -> QualitySummary | None:
    """Number of kept, dropped and warned files, with the worst findings; None if no file was checked."""
    if not reports:
        return None
    kept = [report for report in reports if report.decision == "keep"]
    messages = _worst_of_each_kind(message for report in reports for message in _messages(report))
    return QualitySummary(
        files=len(reports),
        kept=len(kept),
        dropped=len(reports) - len(kept),
        warned=sum(1 for report in kept if report.warnings),
        worst=messages[:WORST_MESSAGES],
        more=max(0, len(messages) - WORST_MESSAGES),
    )


def _messages(report: FileQuality) -> Iterator[QualityMessage]:
    findings = [("drop", each) for each in report.hard_fails] + [("warn", each) for each in report.warnings]
    for severity, finding in findings:
        yield QualityMessage(severity=severity, file_id=report.file_id, **finding.model_dump())


def publish_quality(stream: Stream, reports: Sequence[FileQuality], data: Path) -> str | None:
    """Writes the quality of each file; returns the document's name, None if no file was checked."""
    if not reports:
        return None
    name = f"quality/{stream}.json"
    write_document(data / name, Quality(stream=stream, files=list(reports)))
    return name


def _worst_of_each_kind(messages: Iterable[QualityMessage]) -> list[QualityMessage]:
    """One message per rule and channel, with the number of its files; a rule often fires in every file."""
    kinds: dict[tuple[str, str, str | None], list[QualityMessage]] = {}
    for message in sorted(messages, key=_urgency):
        kinds.setdefault((message.severity, message.rule, message.channel), []).append(message)
    return [same[0].model_copy(update={"files": len({m.file_id for m in same})}) for same in kinds.values()]


def _urgency(message: QualityMessage) -> tuple[bool, float, str]:
    """Sort key: findings that dropped a file first, then by the ratio of value and limit."""
    low, high = sorted((abs(message.value or 0.0), abs(message.limit or 0.0)))
    return message.severity != "drop", -high / low if low else -math.inf, message.file_id
