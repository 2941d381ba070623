"""DQVL, the data quality validation layer: is a recording fit to learn from, and if not, exactly why.

Every rule is a row of `RULES`: what it measures, against which limit of the configuration, and the sentence it says.
A hard rule that fires drops the file; a warning keeps it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from core.config.schema import STREAMS, Quality, Stream
from core.data.blocks import blocks, by_column, gathered
from core.data.channel_metrics import channel_metrics
from core.data.medians import median
from core.data.recording import NOT_A_TIME, Recording
from core.data.sampling import sampling_rate, steps
from core.workspace import write_text

log = logging.getLogger(__name__)

SCHEMA_VERSION = 1

_NS_PER_S = 1e9


@dataclass(frozen=True)
class QualityReport:
    """The verdict on one recording; `hard_fails` and `warnings` hold {rule, value, limit, channel, message}."""

    schema_version: int
    run_id: str
    file_id: str
    decision: Literal["keep", "drop"]
    hard_fails: tuple[dict[str, Any], ...]
    warnings: tuple[dict[str, Any], ...]
    metrics: dict[str, Any]

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


# ------------------------------------------------------------------------------------------------------------ the rules
Measured = Iterable[tuple[float | None, str | None]]
"""Values to hold against a limit, each with the channel it belongs to; None is a value that does not apply."""


@dataclass(frozen=True)
class Rule:
    """`measure` gives values, `limit` their bound; a value beyond it (below it, if `at_least`) fires `sentence`."""

    id: str
    severity: Literal["hard", "warn"]
    measure: Callable[[dict[str, Any]], Measured]
    limit: Callable[[Quality], float]
    sentence: str
    streams: tuple[Stream, ...] = STREAMS
    at_least: bool = False


def _whole(metric: str) -> Callable[[dict[str, Any]], Measured]:
    return lambda metrics: [(metrics[metric], None)]


def _each(metric: str) -> Callable[[dict[str, Any]], Measured]:
    return lambda metrics: [(values[metric], name) for name, values in metrics["channels"].items()]


_VIBRATION: tuple[Stream, ...] = ("swinmae",)

RULES = (
    Rule("invalid_timestamps", "hard", _whole("invalid_timestamp_ratio"), lambda q: q.hard.invalid_timestamp_ratio,
         "{value:.2%} of the rows have no readable time stamp (limit {limit:.2%})"),
    Rule("non_monotonic", "hard", _whole("non_monotonic_ratio"), lambda q: q.hard.non_monotonic_ratio,
         "{value:.2%} of the steps go back in time (limit {limit:.2%})"),
    Rule("duplicates", "hard", _whole("duplicate_ratio"), lambda q: q.hard.duplicate_ratio,
         "{value:.2%} of the rows repeat a time stamp (limit {limit:.2%})"),
    Rule("missing", "hard", _whole("missing_ratio"), lambda q: q.hard.missing_ratio,
         "{value:.2%} of all values are missing (limit {limit:.2%})"),
    Rule("constant_channels", "hard", _whole("constant_channel_ratio"), lambda q: q.hard.constant_channel_ratio,
         "{value:.2%} of the channels never change (limit {limit:.2%})"),
    Rule("sampling_rate", "hard", _whole("sampling_rate_mismatch"), lambda q: q.hard.sampling_rate_tolerance,
         "the time stamps differ from the declared sampling rate by {value:.2%} (limit {limit:.2%})", _VIBRATION),
    Rule("rms_low", "hard", _each("rms"), lambda q: q.hard.rms_min,
         "RMS {value:.4g} is below the plausible {limit:.4g}", _VIBRATION, at_least=True),
    Rule("rms_high", "hard", _each("rms"), lambda q: q.hard.rms_max,
         "RMS {value:.4g} is above the plausible {limit:.4g}", _VIBRATION),
    Rule("gaps", "warn", _whole("gap_count"), lambda q: q.warn.gap_count,
         "{value:.0f} gaps in time (limit {limit:.0f}); no window crosses one"),
    Rule("missing_channel", "warn", _each("missing_ratio"), lambda q: q.warn.missing_ratio,
         "{value:.2%} of the values are missing (limit {limit:.2%})"),
    Rule("stuck", "warn", _each("stuck_ratio"), lambda q: q.warn.stuck_ratio,
         "one value repeats without a break for {value:.2%} of the file (limit {limit:.2%})"),
    Rule("jumps", "warn", _each("largest_jump_sigma"), lambda q: q.warn.jump_sigma,
         "the largest step is {value:.4g} robust standard deviations of the channel's steps (limit {limit:.4g})"),
    Rule("clipping", "warn", _each("clipping_ratio"), lambda q: q.warn.clipping_ratio,
         "{value:.2%} of the values sit at the exact minimum or maximum (limit {limit:.2%})"),
    Rule("flat", "warn", _each("flat_ratio"), lambda q: q.warn.flat_ratio,
         "{value:.2%} of the samples repeat their neighbour (limit {limit:.2%})", _VIBRATION),
)  # fmt: skip


def assess(
    recording: Recording,
    limits: Quality,
    *,
    stream: Stream,
    gap_factor: float,
    declared_rate_hz: float | None = None,
    run_id: str = "",
) -> QualityReport:
    """Measures a recording as it was read, and judges it by the rules of its stream."""
    metrics = measure(recording, stream=stream, gap_factor=gap_factor, declared_rate_hz=declared_rate_hz)
    return judge(metrics, limits, stream=stream, file_id=recording.file_id, run_id=run_id)


def measure(
    recording: Recording,
    *,
    stream: Stream,
    gap_factor: float,
    declared_rate_hz: float | None = None,
    folder: Path | None = None,
) -> dict[str, Any]:
    """What the rules hold against their limits, of a recording as it was read: JSON values.

    `declared_rate_hz` is held against the time stamps; without it, `recording.sampling_rate_hz` is. `notes` say what
    the reader left out or read as missing, and which rows mending drops. folder: where what is longer than memory
    should hold lies meanwhile; None takes memory.
    """
    metrics = _time_metrics(recording, gap_factor, declared_rate_hz or recording.sampling_rate_hz, stream)
    mended = cleaned(recording, folder)
    metrics |= _value_metrics(mended, gap_factor, folder)
    metrics["notes"] = list(mended.notes)
    num_missing = sum(int(np.count_nonzero(np.isnan(block))) for block in blocks(recording.values_tc))
    metrics["missing_ratio"] = num_missing / recording.values_tc.size if recording.values_tc.size else 1.0
    return metrics


def judge(metrics: dict[str, Any], limits: Quality, *, stream: Stream, file_id: str, run_id: str = "") -> QualityReport:
    """The verdict of the stream's rules on what was measured."""
    findings: dict[str, list[dict[str, Any]]] = {"hard": [], "warn": []}
    for rule in RULES:
        if stream in rule.streams:
            findings[rule.severity] += _findings(rule, metrics, float(rule.limit(limits)))
    report = QualityReport(
        schema_version=SCHEMA_VERSION,
        run_id=run_id,
        file_id=file_id,
        decision="drop" if findings["hard"] else "keep",
        hard_fails=tuple(findings["hard"]),
        warnings=tuple(findings["warn"]),
        metrics=metrics,
    )
    log.debug("%s: %s, %d warnings", report.file_id, report.decision, len(report.warnings))
    return report


def _findings(rule: Rule, metrics: dict[str, Any], limit: float) -> list[dict[str, Any]]:
    found = []
    for value, channel in rule.measure(metrics):
        if value is None or not (value < limit if rule.at_least else value > limit):
            continue
        message = (f"{channel}: " if channel else "") + rule.sentence.format(value=value, limit=limit)
        found.append({"rule": rule.id, "value": value, "limit": limit, "channel": channel, "message": message})
    return found


def write_report(report: QualityReport, folder: Path) -> Path:
    """Writes `<file name>.<digest of the whole file id>.json`, so that equal names of two folders stay apart."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", report.file_id.rsplit("/", 1)[-1]).strip(".") or "recording"
    digest = hashlib.blake2b(report.file_id.encode("utf-8"), digest_size=4).hexdigest()
    path = folder / f"{name[:120]}.{digest}.json"
    write_text(path, report.to_json())
    return path


# ----------------------------------------------------------------------------------------------------------------- time
def cleaned(recording: Recording, folder: Path | None = None) -> Recording:
    """The recording in order of time, without rows that have no time and without repeated time stamps.

    The first of several rows with one time stamp is kept. Returns `recording` itself where nothing is to be done; else
    the order of all rows is worked out in memory, at 32 bytes a row, and the rows go to `folder` if they are many.
    """
    time_ns = recording.time_ns
    if not len(recording) or _is_in_order(time_ns):
        return recording
    row_n = np.flatnonzero(time_ns != NOT_A_TIME)
    num_untimed = len(recording) - len(row_n)
    backward = any((step_n < 0).any() for step_n in steps(time_ns))
    row_n = row_n[np.argsort(time_ns[row_n], kind="stable")] if backward else row_n
    first_n = np.diff(time_ns[row_n], prepend=NOT_A_TIME) != 0
    num_repeated = int(len(row_n) - first_n.sum())
    row_n = row_n[first_n]
    mended = (
        (num_untimed > 0, f"{num_untimed} rows without a time stamp dropped"),
        (backward, "rows sorted by time"),
        (num_repeated > 0, f"{num_repeated} rows with a repeated time stamp dropped"),
    )
    return dataclasses.replace(
        recording,
        values_tc=_chosen(recording.values_tc, row_n, folder),
        time_ns=_chosen(time_ns, row_n, folder),
        notes=(*recording.notes, *(note for happened, note in mended if happened)),
    )


def _is_in_order(time_ns: np.ndarray) -> bool:
    in_order = (bool(np.all(block[1:] > block[:-1])) for block in blocks(time_ns, overlap=1))
    return time_ns[0] != NOT_A_TIME and all(in_order)


def _chosen(array: np.ndarray, row_n: np.ndarray, folder: Path | None) -> np.ndarray:
    """Rows of an array, in this order."""
    if not len(row_n):
        return array[:0]
    return gathered((array[block] for block in blocks(row_n)), folder)


def segments(recording: Recording, gap_factor: float) -> np.ndarray:
    """Row ranges [start, stop) free of gaps, int64 (S, 2), of a cleaned recording."""
    rows = len(recording)
    if not rows:
        return np.empty((0, 2), dtype=np.int64)
    edge_g = _gaps(recording.time_ns, gap_factor) + 1
    return np.stack([np.r_[0, edge_g], np.r_[edge_g, rows]], axis=1).astype(np.int64)


def _gaps(time_ns: np.ndarray, gap_factor: float) -> np.ndarray:
    """int64 (G,) rows whose step to the next is longer than `gap_factor` median steps. `time_ns` is sorted."""
    longest = gap_factor * median(partial(steps, time_ns), max(len(time_ns) - 1, 0))
    found, row = [np.empty(0, dtype=np.int64)], 0
    for block in blocks(time_ns, overlap=1):
        found.append(row + np.flatnonzero(np.diff(block) > longest))
        row += len(block) - 1
    return np.concatenate(found)


def _time_metrics(recording: Recording, gap_factor: float, declared_hz: float | None, stream: Stream) -> dict[str, Any]:
    rows, time_ns = len(recording), recording.time_ns
    num_valid = sum(int(np.count_nonzero(block != NOT_A_TIME)) for block in blocks(time_ns))
    backward = sum(int(np.count_nonzero(step_n < 0)) for step_n in steps(time_ns))
    ordered_ns = np.sort(time_ns[time_ns != NOT_A_TIME]) if backward else time_ns

    def forward() -> Iterator[np.ndarray]:
        return (step_n[step_n > 0] for step_n in steps(ordered_ns))

    num_forward = sum(map(len, forward()))
    longest = gap_factor * median(forward, num_forward)
    gap_n = np.concatenate([np.empty(0, dtype=np.int64), *(step_n[step_n > longest] for step_n in forward())])
    measured_hz = None
    if recording.time_source == "timestamp":
        measured_hz = sampling_rate(ordered_ns, quantised=stream == "swinmae")
    return {
        "rows": rows,
        "duration_s": sum(int(step_n.sum()) for step_n in steps(ordered_ns)) / _NS_PER_S,
        "time_source": recording.time_source,
        "invalid_timestamp_ratio": 1.0 - num_valid / rows if rows else 1.0,
        "non_monotonic_ratio": backward / max(1, num_valid - 1),
        "duplicate_ratio": (max(num_valid, 1) - 1 - num_forward) / max(1, num_valid),
        "gap_count": len(gap_n),
        "longest_gap_s": float(gap_n.max(initial=0)) / _NS_PER_S,
        "sampling_rate_hz": measured_hz,
        "declared_rate_hz": declared_hz,
        "sampling_rate_mismatch": abs(measured_hz / declared_hz - 1.0) if measured_hz and declared_hz else None,
    }


# --------------------------------------------------------------------------------------------------------------- values
def _value_metrics(recording: Recording, gap_factor: float, folder: Path | None) -> dict[str, Any]:
    """Per-channel metrics, on rows in order of time; a step over a gap is no step."""
    values_ct = by_column([recording.values_tc], folder)
    gap_g = _gaps(recording.time_ns, gap_factor)
    channels = {
        name: channel_metrics(values_t, gap_g) for name, values_t in zip(recording.channels, values_ct, strict=True)
    }
    constant = sum(metrics["constant"] for metrics in channels.values())
    return {"constant_channel_ratio": constant / max(1, len(channels)), "channels": channels}
