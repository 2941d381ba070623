"""DQVL, the data quality validation layer: is a recording fit to learn from, and if not, exactly why.

Every rule is a row of `RULES`: what it measures, against which limit of the configuration, and the sentence it says.
A hard rule that fires drops the file; a warning keeps it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from core.config.schema import STREAMS, Quality, Stream
from core.data.recording import NOT_A_TIME, Recording
from core.workspace import write_text

log = logging.getLogger(__name__)

SCHEMA_VERSION = 1

_NS_PER_S = 1e9
_MAD_TO_SIGMA = 1.4826
# A channel of so few levels is a state, a set point or a counter: sitting at its extremes is what it does.
_DISCRETE_LEVELS = 16
# Smallest scale of a channel's steps, as a share of its level: float32 noise is a thousand times below it.
_STEP_FLOOR = 1e-4
# From this share of steps that move, a channel that mostly holds its value is judged by the moves it makes.
_HABITUAL_MOVES = 0.01


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
    recording: Recording, *, stream: Stream, gap_factor: float, declared_rate_hz: float | None = None
) -> dict[str, Any]:
    """What the rules hold against their limits, of a recording as it was read: JSON values.

    `declared_rate_hz` is held against the time stamps; without it, `recording.sampling_rate_hz` is. `notes` say what
    the reader left out or read as missing, and which rows mending drops.
    """
    metrics = _time_metrics(recording, gap_factor, declared_rate_hz or recording.sampling_rate_hz, stream)
    mended = cleaned(recording)
    metrics |= _value_metrics(mended, gap_factor)
    metrics["notes"] = list(mended.notes)
    metrics["missing_ratio"] = float(np.isnan(recording.values_tc).mean()) if recording.values_tc.size else 1.0
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
def cleaned(recording: Recording) -> Recording:
    """The recording in order of time, without rows that have no time and without repeated time stamps.

    The first of several rows with one time stamp is kept. Returns `recording` itself where nothing is to be done.
    """
    time_ns = recording.time_ns
    if not len(recording) or (time_ns[0] != NOT_A_TIME and bool(np.all(time_ns[1:] > time_ns[:-1]))):
        return recording
    row_n = np.flatnonzero(time_ns != NOT_A_TIME)
    num_untimed = len(recording) - len(row_n)
    backward = bool(np.any(np.diff(time_ns[row_n]) < 0))
    row_n = row_n[np.argsort(time_ns[row_n], kind="stable")]
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
        values_tc=recording.values_tc[row_n],
        time_ns=time_ns[row_n],
        notes=(*recording.notes, *(note for happened, note in mended if happened)),
    )


def segments(recording: Recording, gap_factor: float) -> np.ndarray:
    """Row ranges [start, stop) free of gaps, int64 (S, 2), of a cleaned recording."""
    rows = len(recording)
    if not rows:
        return np.empty((0, 2), dtype=np.int64)
    edge_g = np.flatnonzero(_gaps(recording.time_ns, gap_factor)) + 1
    return np.stack([np.r_[0, edge_g], np.r_[edge_g, rows]], axis=1).astype(np.int64)


def _gaps(time_ns: np.ndarray, gap_factor: float) -> np.ndarray:
    """bool (T - 1,): the step after row t is longer than `gap_factor` median steps. `time_ns` is sorted."""
    step_ns = np.diff(time_ns)
    return step_ns > gap_factor * np.median(step_ns) if step_ns.size else np.zeros(0, dtype=bool)


def _time_metrics(recording: Recording, gap_factor: float, declared_hz: float | None, stream: Stream) -> dict[str, Any]:
    rows = len(recording)
    valid_ns = recording.time_ns[recording.time_ns != NOT_A_TIME]
    step_ns = np.diff(valid_ns)
    backward = int((step_ns < 0).sum())
    ordered_ns = np.sort(valid_ns) if backward else valid_ns
    forward_ns = np.diff(ordered_ns)
    repeated = int((forward_ns == 0).sum())
    unique_ns = ordered_ns[np.r_[True, forward_ns > 0]] if len(ordered_ns) else ordered_ns
    gap_n = _gaps(unique_ns, gap_factor)
    measured_hz = None
    if recording.time_source == "timestamp":
        from core.data.timestamps import sampling_rate  # brings pandas

        measured_hz = sampling_rate(unique_ns, quantised=stream == "swinmae")
    return {
        "rows": rows,
        "duration_s": float(np.ptp(valid_ns)) / _NS_PER_S if valid_ns.size else 0.0,
        "time_source": recording.time_source,
        "invalid_timestamp_ratio": 1.0 - len(valid_ns) / rows if rows else 1.0,
        "non_monotonic_ratio": backward / max(1, len(step_ns)),
        "duplicate_ratio": repeated / max(1, len(valid_ns)),
        "gap_count": int(gap_n.sum()),
        "longest_gap_s": float(np.diff(unique_ns)[gap_n].max()) / _NS_PER_S if gap_n.any() else 0.0,
        "sampling_rate_hz": measured_hz,
        "declared_rate_hz": declared_hz,
        "sampling_rate_mismatch": abs(measured_hz / declared_hz - 1.0) if measured_hz and declared_hz else None,
    }


# --------------------------------------------------------------------------------------------------------------- values
def _value_metrics(recording: Recording, gap_factor: float) -> dict[str, Any]:
    """Per-channel metrics, on rows in order of time; a step over a gap is no step."""
    values_ct = np.ascontiguousarray(recording.values_tc.T)
    gap_t = _gaps(recording.time_ns, gap_factor)
    channels = {
        name: _channel_metrics(values_t, gap_t) for name, values_t in zip(recording.channels, values_ct, strict=True)
    }
    constant = sum(metrics["constant"] for metrics in channels.values())
    return {"constant_channel_ratio": constant / max(1, len(channels)), "channels": channels}


def _channel_metrics(values_t: np.ndarray, gap_t: np.ndarray) -> dict[str, Any]:
    missing_t = np.isnan(values_t)
    observed_n = values_t[~missing_t]
    metrics: dict[str, Any] = {
        "missing_ratio": float(missing_t.mean()) if len(values_t) else 1.0,
        "constant": False,
        "stuck_ratio": _longest_run(values_t) / max(1, len(values_t)),
        "largest_jump_sigma": None,
        "clipping_ratio": None,
        "flat_ratio": None,
        "minimum": None,
        "maximum": None,
        "rms": None,
    }
    if not observed_n.size:
        return metrics
    low, high = observed_n.min(), observed_n.max()
    metrics |= {"minimum": float(low), "maximum": float(high), "rms": float(observed_n.std(dtype=np.float64))}
    step_n = np.diff(values_t)[~gap_t]
    step_n = step_n[~np.isnan(step_n)]
    if step_n.size:
        metrics["flat_ratio"] = float((step_n == 0).mean())
    if low == high:
        metrics["constant"] = len(observed_n) > 1
        return metrics
    if step_n.size:
        metrics["largest_jump_sigma"] = _largest_jump(step_n, float(np.abs(np.median(observed_n))))
    clipped = float(((observed_n == low) | (observed_n == high)).mean())
    metrics["clipping_ratio"] = None if _is_discrete(observed_n, clipped) else clipped
    return metrics


def _longest_run(values_t: np.ndarray) -> int:
    """Length of the longest run of one repeated value; a missing value repeats nothing."""
    if not len(values_t):
        return 0
    edge_n = np.flatnonzero(values_t[1:] != values_t[:-1])
    run = int(np.diff(np.r_[-1, edge_n, len(values_t) - 1]).max())
    return run if run > 1 else 0


def _largest_jump(step_n: np.ndarray, level: float) -> float:
    """Largest step in robust standard deviations of the channel's own steps.

    The scale is the median absolute deviation. Where that is 0, because most steps are 0, it is the median of the
    moves if moving is a habit of the channel, else the floor: so one jump of a channel that otherwise holds still
    stands out, and the five-hundredth switch of a valve does not.
    """
    floor = max(_STEP_FLOOR * level, math.sqrt(float(np.finfo(np.float32).tiny)))
    size_n = np.abs(step_n - np.median(step_n))
    scale = _MAD_TO_SIGMA * float(np.median(size_n))
    if scale <= floor:
        move_m = size_n[size_n > floor]
        habitual = len(move_m) > _HABITUAL_MOVES * len(size_n)
        scale = _MAD_TO_SIGMA * float(np.median(move_m)) if habitual else floor
    return float(size_n.max() / scale)


def _is_discrete(observed_n: np.ndarray, clipped: float) -> bool:
    """Whether the channel knows only a few levels. A stretch decides where it can, for sorting a channel is slow."""
    if clipped == 0 or len(np.unique(observed_n[:4096])) > _DISCRETE_LEVELS:
        return False
    return len(np.unique(observed_n)) <= _DISCRETE_LEVELS
