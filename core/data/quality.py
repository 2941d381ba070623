"""Data quality and label validation (DQVL): whether a file can be used for training, and if not, why.

Every rule is a row of `RULES`: a metric, its limit in the configuration, and a message. A hard rule that fires drops
the file; a warning keeps it.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from core.config.schema import STREAMS, Quality, Stream
from core.documents import SCHEMA_VERSION, Document, Figure, Text
from core.workspace import json_text, write_text

log = logging.getLogger(__name__)


class QualityFinding(Document):
    rule: Text = Field(description="The rule that was violated.")
    channel: Text | None = Field(None, description="The channel, for a rule about one.")
    value: Figure = Field(None, description="Measured value.")
    limit: Figure = Field(None, description="The limit.")
    message: Text = Field("", description="The finding in words.")


class Judgement(Document):
    """The decision on one file."""

    file_id: Text = Field(description="The data file.")
    decision: Literal["keep", "drop"] = Field(description="Whether the file is used.")
    hard_fails: tuple[QualityFinding, ...] = Field((), description="Findings that dropped the file.")
    warnings: tuple[QualityFinding, ...] = Field((), description="Findings that did not drop the file.")


class QualityReport(Judgement):
    """The decision on one file with its metrics, as `core.data.quality_metrics.measure` returned them."""

    schema_version: Literal[1] = SCHEMA_VERSION
    run_id: Text = Field("", description="The run that checked it.")
    metrics: dict[Text, Any] = Field(description="Metrics of the file, and of each channel.")

    def to_json(self) -> str:
        return json_text(self.model_dump(mode="json"))


# ------------------------------------------------------------------------------------------------------------ the rules
Measured = Iterable[tuple[float | None, str | None]]
"""Values to compare with a limit, each with its channel; None is a value that does not apply."""


@dataclass(frozen=True)
class Rule:
    """`measure` returns values, `limit` their bound; a value above it (below it, if `at_least`) fires."""

    id: str
    severity: Literal["hard", "warn"]
    measure: Callable[[dict[str, Any]], Measured]
    limit: Callable[[Quality], float]
    sentence: str
    streams: tuple[Stream, ...] = STREAMS
    at_least: bool = False


def _of_file(metric: str) -> Callable[[dict[str, Any]], Measured]:
    return lambda metrics: [(metrics[metric], None)]


def _of_channels(metric: str) -> Callable[[dict[str, Any]], Measured]:
    return lambda metrics: [(values[metric], name) for name, values in metrics["channels"].items()]


_VIBRATION: tuple[Stream, ...] = ("swinmae",)

RULES = (
    Rule("invalid_timestamps", "hard", _of_file("invalid_timestamp_ratio"), lambda q: q.hard.invalid_timestamp_ratio,
         "{value:.2%} of the rows have no readable time stamp (limit {limit:.2%})"),
    Rule("non_monotonic", "hard", _of_file("non_monotonic_ratio"), lambda q: q.hard.non_monotonic_ratio,
         "{value:.2%} of the steps go back in time (limit {limit:.2%})"),
    Rule("duplicates", "hard", _of_file("duplicate_ratio"), lambda q: q.hard.duplicate_ratio,
         "{value:.2%} of the rows repeat a time stamp (limit {limit:.2%}), so they would be left out; "
         "time stamps need all their digits"),
    Rule("missing", "hard", _of_file("missing_ratio"), lambda q: q.hard.missing_ratio,
         "{value:.2%} of all values are missing (limit {limit:.2%})"),
    Rule("constant_channels", "hard", _of_file("constant_channel_ratio"), lambda q: q.hard.constant_channel_ratio,
         "{value:.2%} of the channels never change (limit {limit:.2%})"),
    Rule("sampling_rate", "hard", _of_file("sampling_rate_mismatch"), lambda q: q.hard.sampling_rate_tolerance,
         "the time stamps differ from the declared sampling rate by {value:.2%} (limit {limit:.2%})", _VIBRATION),
    Rule("rms_low", "hard", _of_channels("rms"), lambda q: q.hard.rms_min,
         "RMS {value:.4g} is below the plausible {limit:.4g}", _VIBRATION, at_least=True),
    Rule("rms_high", "hard", _of_channels("rms"), lambda q: q.hard.rms_max,
         "RMS {value:.4g} is above the plausible {limit:.4g}", _VIBRATION),
    Rule("gaps", "warn", _of_file("gap_count"), lambda q: q.warn.gap_count,
         "number of gaps in time: {value:.0f} (limit {limit:.0f}); no window crosses a gap"),
    Rule("missing_channel", "warn", _of_channels("missing_ratio"), lambda q: q.warn.missing_ratio,
         "{value:.2%} of the values are missing (limit {limit:.2%})"),
    Rule("stuck", "warn", _of_channels("stuck_ratio"), lambda q: q.warn.stuck_ratio,
         "one value repeats without a break for {value:.2%} of the file (limit {limit:.2%})"),
    Rule("jumps", "warn", _of_channels("largest_jump_sigma"), lambda q: q.warn.jump_sigma,
         "the largest step is {value:,.5g} robust standard deviations of the channel's steps (limit {limit:.4g})"),
    Rule("clipping", "warn", _of_channels("clipping_ratio"), lambda q: q.warn.clipping_ratio,
         "{value:.2%} of the values are exactly the minimum or maximum (limit {limit:.2%})"),
    Rule("flat", "warn", _of_channels("flat_ratio"), lambda q: q.warn.flat_ratio,
         "{value:.2%} of the samples repeat the one before (limit {limit:.2%})", _VIBRATION),
)  # fmt: skip


def judge(metrics: dict[str, Any], limits: Quality, *, stream: Stream, file_id: str, run_id: str = "") -> QualityReport:
    """Applies the rules of the stream to what `core.data.quality_metrics.measure` returned."""
    findings: dict[str, list[QualityFinding]] = {"hard": [], "warn": []}
    for rule in RULES:
        if stream in rule.streams:
            findings[rule.severity] += _findings(rule, metrics, float(rule.limit(limits)))
    report = QualityReport(
        run_id=run_id,
        file_id=file_id,
        decision="drop" if findings["hard"] else "keep",
        hard_fails=findings["hard"],
        warnings=findings["warn"],
        metrics=metrics,
    )
    log.debug("%s: %s, %d warnings", report.file_id, report.decision, len(report.warnings))
    return report


# A run of one value that is so many times as long as any in the reference files, and at least so many rows, is not due
# to chance or rounding. Channels that hold their value in most steps, such as switches, may rest at any time.
_LONG_RUN, _LONG_RUN_ROWS, _RESTS = 10, 30, 0.5


def with_long_runs(reports: Sequence[QualityReport], reference: Collection[str]) -> list[QualityReport]:
    """The reports, with a warning for each channel that repeats one value far longer than in the reference files.

    reference: file ids; other files are compared with them.
    """
    of_reference = [each.metrics for each in reports if each.file_id in reference and each.decision == "keep"]
    longest: dict[str, int] = {}
    for metrics in of_reference:
        for name in metrics["channels"]:
            longest[name] = max(longest.get(name, 0), _longest_run(metrics, name))
    rests = {
        name
        for metrics in of_reference
        for name, values in metrics["channels"].items()
        if values["constant"] or (values["flat_ratio"] or 0.0) > _RESTS
    }
    compared = {name: rows for name, rows in longest.items() if name not in rests}
    return [each if each.file_id in reference else _with_long_runs(each, compared) for each in reports]


def _with_long_runs(report: QualityReport, reference: dict[str, int]) -> QualityReport:
    known = {warning.channel for warning in report.warnings if warning.rule == "stuck"}
    found = []
    for name, most in reference.items():
        if name in known or name not in report.metrics["channels"]:
            continue
        rows, limit = _longest_run(report.metrics, name), max(_LONG_RUN * most, _LONG_RUN_ROWS)
        if rows >= limit:
            message = (
                f"{name}: one value repeats for {rows:,} rows, in the reference data for {max(most, 1):,} at most: the "
                "sensor may be stuck"
            )
            found.append(QualityFinding(rule="long_run", value=rows, limit=limit, channel=name, message=message))
    return report.model_copy(update={"warnings": (*report.warnings, *found)}) if found else report


def _longest_run(metrics: dict[str, Any], channel: str) -> int:
    """Rows of the longest run of one value. The metric is a share of the rows that cleaning kept."""
    kept = metrics["rows"] * (1.0 - metrics["invalid_timestamp_ratio"]) * (1.0 - metrics["duplicate_ratio"])
    return round(metrics["channels"][channel]["stuck_ratio"] * kept)


def _findings(rule: Rule, metrics: dict[str, Any], limit: float) -> list[QualityFinding]:
    found = []
    for value, channel in rule.measure(metrics):
        if value is None or not (value < limit if rule.at_least else value > limit):
            continue
        sentence = rule.sentence.format(value=value, limit=limit).replace("%", " %")
        message = f"{channel}: {sentence}" if channel else sentence
        found.append(QualityFinding(rule=rule.id, value=value, limit=limit, channel=channel, message=message))
    return found


def write_report(report: QualityReport, folder: Path) -> Path:
    """Writes `<file name>.<digest of the file id>.json`, so that equal names of two folders do not collide."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", report.file_id.rsplit("/", 1)[-1]).strip(".") or "recording"
    digest = hashlib.blake2b(report.file_id.encode("utf-8"), digest_size=4).hexdigest()
    path = folder / f"{name[:120]}.{digest}.json"
    write_text(path, report.to_json())
    return path
