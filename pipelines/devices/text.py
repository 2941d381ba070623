"""The device report as text, at most 100 columns wide."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from core.devices.capabilities import platform_facts
from core.numbers import counted, gib

_WIDTH, _LABEL, _NAME = 100, 14, 40  # widths in columns: text, labels, name of a device


def as_text(report: Mapping[str, Any], *, verbose: bool = False) -> str:
    """The report as text, at most 100 columns wide; `verbose` adds metadata of the devices and cost per run."""
    parts = [_summary(report, verbose), _devices(report, verbose), _recommendations(report), _checks(report)]
    return "\n\n".join("\n".join(lines) for part in parts if (lines := list(part)))


def _summary(report: Mapping[str, Any], verbose: bool) -> Iterator[str]:
    plan, batch, cost = (report[name] for name in ("plan", "batch", "cost"))
    yield from _entry("Device", f"{plan['kind']}: {_in_use(report)}", plan["device_reason"])
    yield from _entry("Precision", plan["precision"], plan["precision_reason"])
    per_process = " for each process" if plan["count"] > 1 else ""
    yield from _entry("Threads", f"{plan['threads']}{per_process}", plan["threads_reason"])
    yield from _entry("Routing", _routing_text(report["routing"]), f"order: {', '.join(report['routing']['order'])}")
    yield from _entry("Memory", _memory_text(report["memory"]))
    recompute = "with" if batch["gradient_checkpointing"] else "without"
    if (profile := report["profile"]) is not None:
        yield from _entry("Profile", f"local/devices={profile['name']}", profile["reason"])
    yield from _entry(
        "Batch",
        f"tier {batch['tier']}: at most {batch['batch_size']} windows per step, {batch['model_size']} model, "
        f"{recompute} gradient checkpointing",
        *(_run_batches(report["run_batches"]) or ["a run adapts it to its data and measures the micro-batch"]),
    )
    runs = "; ".join(f"{run['hours']:g} h: {run['usd']:.2f} USD" for run in cost["runs"])
    per_hour = f"{cost['usd_per_hour']:.2f} USD/h, an estimate (configs/hardware/costs.yaml)"
    yield from _entry("Cost", per_hour, *([runs] if verbose else []))
    versions = (f"{name} {version or '–'}" for name, version in report["frameworks"].items())
    seen = (report["framework_devices"] or {}).items()
    yield from _entry(
        "Frameworks",
        ", ".join(versions),
        *(f"{name}: {_devices_seen(found)}" for name, found in seen),
    )


def _run_batches(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"{row['stream']}: {row['effective']} windows per step, micro-batch {row['micro']}, as in run {row['run_id']} "
        f"on {row['device']}"
        for row in rows
    ]


def _devices_seen(found: list[str] | str) -> str:
    return found if isinstance(found, str) else ", ".join(found) or "finds no device"


def _in_use(report: Mapping[str, Any]) -> str:
    plan = report["plan"]
    present = next(row["count"] for row in report["devices"] if row["kind"] == plan["kind"])
    return plan["name"] if plan["kind"] == "cpu" or present == 1 else f"{plan['count']} of {present} × {plan['name']}"


def _memory_text(memory: Mapping[str, Any]) -> str:
    text = f"{gib(memory['total_mb'])}, {gib(memory['free_mb'])} free"
    if memory["limit_mb"] is None:
        return text
    bounded = memory["limit_mb"] < int(memory["share"] * memory["total_mb"])
    strategy = f"{memory['strategy']}, {100 * memory['share']:.0f} %{'; no more is free' if bounded else ''}"
    return f"{text}; a run may take {gib(memory['limit_mb'])} ({strategy})"


def _routing_text(routing: Mapping[str, Any]) -> str:
    by = f"{routing['mode']}: device.prefer = {routing['prefer']} ({routing['set_by']})"
    return by + ("" if routing["allow_tpu"] else ", TPU not allowed")


def _devices(report: Mapping[str, Any], verbose: bool) -> Iterator[str]:
    yield "Devices found"
    rows = report["devices"]
    counts = [counted(row["count"], "core") if row["kind"] == "cpu" else f"{row['count'] or '?'} ×" for row in rows]
    names = [textwrap.shorten(row["name"], _NAME, placeholder="…") for row in rows]
    count_width, name_width = (max(map(len, texts)) for texts in (counts, names))
    for row, count, name in zip(rows, counts, names, strict=True):
        mark = "→" if row["kind"] == report["plan"]["kind"] else " "
        free = f"usable, {gib(row['memory_free_mb'])} of {gib(row['memory_total_mb'])} free"
        state = free if row["usable"] else "NOT USABLE"
        yield f"{mark} {row['kind']:<4} {count:>{count_width}}  {name:<{name_width}}  {state}"
        yield from _wrapped(row["reason"], " " * 7, 9)
        if verbose:
            yield from _wrapped(" · ".join(_metadata(row)), " " * 7, 9)


def _metadata(row: Mapping[str, Any]) -> Iterator[str]:
    """Known metadata of a device, for --verbose."""
    yield from platform_facts(row)
    if row["physical_cores"] is not None:
        yield counted(row["physical_cores"], "physical core")
    if not row["usable"]:
        return
    yield "native " + ", ".join(row["native_dtypes"])
    for name in ("mixed precision", "distributed"):
        yield name if row[f"supports_{name.replace(' ', '_')}"] else f"no {name}"
    if row["unified_memory"]:
        yield "memory shared with the CPU"


def _recommendations(report: Mapping[str, Any]) -> Iterator[str]:
    yield "Recommendations" if report["recommendations"] else "Recommendations: none"
    for advice in report["recommendations"]:
        yield from _wrapped(advice["finding"], "  ! ", 4)
        yield from _wrapped(advice["action"], "    → ", 6)


def _checks(report: Mapping[str, Any]) -> Iterator[str]:
    rows = report["checks"]
    if rows is None:
        return
    yield "Checks"
    check_width, subject_width = (max(len(row[name]) for row in rows) for name in ("check", "subject"))
    for row in rows:
        head = f"  {row['status']}  {row['check']:<{check_width}}  {row['subject']:<{subject_width}}  "
        yield from _wrapped(row["detail"], head, len(head))
        if row["cure"]:
            yield from _wrapped(row["cure"], "        → ", 10)


def _entry(label: str, first: str, *more: str) -> Iterator[str]:
    head = f"{label:<{_LABEL}}"
    for text in (first, *more):
        yield from _wrapped(text, head, _LABEL + 2)
        head = " " * _LABEL


def _wrapped(text: str, head: str, indent: int) -> list[str]:
    """Lines of at most the report's width: the first begins with `head`, the others with `indent` spaces."""
    return textwrap.wrap(text, _WIDTH, initial_indent=head, subsequent_indent=" " * indent, break_on_hyphens=False)
