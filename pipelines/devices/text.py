"""The device report as text, at most 100 columns wide."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from core.devices.capabilities import DeviceCapabilities
from core.devices.record import MemoryUse, Routing
from core.numbers import counted, gib, in_percent
from pipelines.devices.document import DeviceReport, RunBatch

_WIDTH, _LABEL, _NAME = 100, 14, 40  # widths in columns: text, labels, name of a device


def as_text(report: DeviceReport, *, verbose: bool = False) -> str:
    """The report as text, at most 100 columns wide; `verbose` adds metadata of the devices and cost per run."""
    parts = [_summary(report, verbose), _devices(report, verbose), _recommendations(report), _checks(report)]
    return "\n\n".join("\n".join(lines) for part in parts if (lines := list(part)))


def _summary(report: DeviceReport, verbose: bool) -> Iterator[str]:
    plan, batch, cost = report.plan, report.batch, report.cost
    yield from _entry("Device", f"{plan.kind}: {_in_use(report)}", plan.device_reason)
    yield from _entry("Precision", plan.precision, plan.precision_reason)
    per_process = " for each process" if plan.count > 1 else ""
    yield from _entry("Threads", f"{plan.threads}{per_process}", plan.threads_reason)
    yield from _entry("Routing", _routing_text(report.routing), f"order: {', '.join(report.routing.order)}")
    yield from _entry("Memory", _memory_text(report.memory))
    if report.profile is not None:
        yield from _entry("Profile", f"local/devices={report.profile.name}", report.profile.reason)
    adapted = [_batch_text(each) for each in report.run_batches]
    recompute = "with" if batch.gradient_checkpointing else "without"
    yield from _entry(
        "Batch",
        f"tier {batch.tier}: at most {batch.batch_size} windows per step, {batch.model_size} model, "
        f"{recompute} gradient checkpointing",
        *(adapted or ["a run adapts it to its data and measures the micro-batch"]),
    )
    runs = "; ".join(f"{run.hours:g} h: {run.usd:.2f} USD" for run in cost.runs)
    per_hour = f"{cost.usd_per_hour:.2f} USD/h, an estimate (configs/hardware/costs.yaml)"
    yield from _entry("Cost", per_hour, *([runs] if verbose else []))
    versions = (f"{name} {version or '–'}" for name, version in report.frameworks.items())
    seen = (report.framework_devices or {}).items()
    yield from _entry("Frameworks", ", ".join(versions), *(f"{name}: {_devices_seen(found)}" for name, found in seen))


def _batch_text(batch: RunBatch) -> str:
    size = f"{batch.effective} windows per step, micro-batch {batch.micro}"
    return f"{batch.stream}: {size}, as in run {batch.run_id} on {batch.device}"


def _devices_seen(found: list[str] | str) -> str:
    return found if isinstance(found, str) else ", ".join(found) or "finds no device"


def _in_use(report: DeviceReport) -> str:
    plan, present = report.plan, report.chosen.count
    return plan.name if plan.kind == "cpu" or present == 1 else f"{plan.count} of {present} × {plan.name}"


def _memory_text(memory: MemoryUse) -> str:
    text = f"{gib(memory.total_mb)}, {gib(memory.free_mb)} free"
    if memory.limit_mb is None:
        return text
    bounded = memory.limit_mb < int(memory.share * memory.total_mb)
    strategy = f"{memory.strategy}, {in_percent(memory.share)}{'; no more is free' if bounded else ''}"
    return f"{text}; a run may take {gib(memory.limit_mb)} ({strategy})"


def _routing_text(routing: Routing) -> str:
    by = f"{routing.mode}: device.prefer = {routing.prefer} ({routing.set_by})"
    return by + ("" if routing.allow_tpu else ", TPU not allowed")


def _devices(report: DeviceReport, verbose: bool) -> Iterator[str]:
    yield "Devices found"
    devices = report.devices
    counts = [counted(each.count, "core") if each.kind == "cpu" else f"{each.count or '?'} ×" for each in devices]
    names = [textwrap.shorten(each.name, _NAME, placeholder="…") for each in devices]
    count_width, name_width = (max(map(len, texts)) for texts in (counts, names))
    for each, count, name in zip(devices, counts, names, strict=True):
        mark = "→" if each is report.chosen else " "
        free = f"usable, {gib(each.memory_free_mb)} of {gib(each.memory_total_mb)} free"
        state = free if each.usable else "NOT USABLE"
        yield f"{mark} {each.kind:<4} {count:>{count_width}}  {name:<{name_width}}  {state}"
        yield from _wrapped(each.reason, " " * 7, 9)
        if verbose:
            yield from _wrapped(" · ".join(_metadata(each)), " " * 7, 9)


def _metadata(device: DeviceCapabilities) -> Iterator[str]:
    """Known metadata of a device, for --verbose."""
    yield from device.platform_facts
    if device.physical_cores is not None:
        yield counted(device.physical_cores, "physical core")
    if not device.usable:
        return
    yield "native " + ", ".join(device.native_dtypes)
    yield "mixed precision" if device.supports_mixed_precision else "no mixed precision"
    yield "distributed" if device.supports_distributed else "no distributed"
    if device.unified_memory:
        yield "memory shared with the CPU"


def _recommendations(report: DeviceReport) -> Iterator[str]:
    yield "Recommendations" if report.recommendations else "Recommendations: none"
    for advice in report.recommendations:
        yield from _wrapped(advice.finding, "  ! ", 4)
        yield from _wrapped(advice.action, "    → ", 6)


def _checks(report: DeviceReport) -> Iterator[str]:
    checks = report.checks
    if checks is None:
        return
    yield "Checks"
    check_width = max(len(each.check) for each in checks)
    subject_width = max(len(each.subject) for each in checks)
    for each in checks:
        head = f"  {each.status}  {each.check:<{check_width}}  {each.subject:<{subject_width}}  "
        yield from _wrapped(each.detail, head, len(head))
        if each.cure:
            yield from _wrapped(each.cure, "        → ", 10)


def _entry(label: str, first: str, *more: str) -> Iterator[str]:
    head = f"{label:<{_LABEL}}"
    for text in (first, *more):
        yield from _wrapped(text, head, _LABEL + 2)
        head = " " * _LABEL


def _wrapped(text: str, head: str, indent: int) -> list[str]:
    """Lines of at most the report's width: the first begins with `head`, the others with `indent` spaces."""
    return textwrap.wrap(text, _WIDTH, initial_indent=head, subsequent_indent=" " * indent, break_on_hyphens=False)
