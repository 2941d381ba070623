"""What hardware was found, what a run would use, and why: `landfall devices [--json] [--verbose] [--doctor]`."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from core.cli import run_command
from core.errors import EXIT_FAILURE, EXIT_OK, LandfallError

if TYPE_CHECKING:
    from core.devices.manager import DeviceManager
    from core.devices.report_document import CheckResult
    from core.devices.tables import Costs, Tiers

# Where a run leaves the report, below `logging.artifacts_dir`.
REPORT_FILE = "devices.json"
RUN_HOURS = (1, 8)
_WIDTH, _LABEL, _NAME = 100, 14, 40  # columns: of the text, of its labels, of a device's name


@dataclass(frozen=True)
class Facts:
    """What the report tells beside the decisions of the manager.

    frameworks: installed versions. environment: variables that may have steered the choice. torch_cuda: version of CUDA
    that torch was built for. ram_mb: memory of the whole machine, whatever a container may use of it.
    framework_devices: what other frameworks see; None where they were not asked.
    """

    frameworks: Mapping[str, str | None]
    environment: Mapping[str, str]
    torch_cuda: str | None
    ram_mb: int
    tiers: Tiers
    costs: Costs
    framework_devices: Mapping[str, list[str] | str] | None = None


def gather_facts(*, verbose: bool = False) -> Facts:
    """Of this machine; `verbose` starts the other frameworks, which takes seconds."""
    import psutil
    import torch

    from core.devices.frameworks import framework_devices, installed_frameworks
    from core.devices.tables import load_costs, load_tiers

    return Facts(
        frameworks=installed_frameworks(),
        environment=os.environ,
        torch_cuda=torch.version.cuda,
        ram_mb=psutil.virtual_memory().total // 2**20,
        tiers=load_tiers(),
        costs=load_costs(),
        framework_devices=framework_devices() if verbose else None,
    )


# -------------------------------------------------------------------------------------------------------------- report
def device_report(
    manager: DeviceManager, facts: Facts | None = None, *, checks: Sequence[CheckResult] | None = None
) -> dict[str, Any]:
    """Everything `landfall devices --json` prints, valid by `report.schema.json`; facts default to this machine's.

    Raises pydantic's ValidationError where a detector gave something else.
    """
    from core.devices.advice import Situation, recommendations
    from core.devices.batching import run_cost
    from core.devices.report_document import DeviceReport

    facts = facts or gather_facts()
    plan, chosen, settings = manager.plan(), manager.capabilities, manager.config.device
    situation = Situation(plan, settings, manager.found, chosen, facts.environment, facts.torch_cuda, facts.ram_mb)
    devices = min(plan.count, manager.device_count)  # processes on a CPU share one machine
    cost = partial(run_cost, plan.kind, count=devices, costs=facts.costs)
    report = DeviceReport(
        plan=plan,
        routing=_routing(manager, facts),
        devices=manager.found,
        memory={
            "total_mb": chosen.memory_total_mb,
            "free_mb": chosen.memory_free_mb,
            "limit_mb": plan.memory_limit_mb,
            "strategy": settings.memory.strategy,
            "share": settings.memory.share,
        },
        batch=_batch(manager, facts),
        cost={"usd_per_hour": cost(1), "runs": [{"hours": hours, "usd": cost(hours)} for hours in RUN_HOURS]},
        frameworks=dict(facts.frameworks),
        framework_devices=facts.framework_devices,
        recommendations=[asdict(advice) for advice in recommendations(situation)],
        checks=checks,
    )
    document = report.model_dump(mode="json")
    DeviceReport.model_validate(document)  # once more: parts that came as dataclasses were taken as they are
    return document


def _routing(manager: DeviceManager, facts: Facts) -> dict[str, Any]:
    settings = manager.config.device
    return {
        "mode": "auto" if settings.prefer == "auto" else "manual",
        "prefer": settings.prefer,
        "set_by": _who_set_prefer(settings.prefer, facts.environment),
        "order": settings.order,
        "allow_tpu": settings.allow_tpu,
        "prefer_cuda": settings.prefer_cuda,
        "strict": settings.strict,
    }


def _who_set_prefer(prefer: str, environment: Mapping[str, str]) -> str:
    variables = ("LANDFALL_DEVICE__PREFER", "COMPUTE_PREFER")
    match = next((name for name in variables if environment.get(name, "").lower() == prefer), None)
    return match or ("default" if prefer == "auto" else "configuration")


def _batch(manager: DeviceManager, facts: Facts) -> dict[str, Any]:
    from core.config.schema import Training
    from core.devices.batching import tier_for

    tier = tier_for(manager.capabilities, facts.tiers)
    default = Training().batch_size
    bases = (1, tier.batch_size if default == "auto" else default)
    return {
        "tier": tier.name,
        "batch_size": tier.batch_size,
        "model_size": tier.model_size,
        "gradient_checkpointing": tier.gradient_checkpointing,
        "examples": [manager.get_batch_config(base) for base in bases],
    }


# ---------------------------------------------------------------------------------------------------------------- text
def as_text(report: Mapping[str, Any], *, verbose: bool = False) -> str:
    """The report for a person, at most 100 columns wide; `verbose` adds metadata of the devices and cost per run."""
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
    yield from _entry(
        "Batch",
        f"tier {batch['tier']}: starts at {batch['batch_size']}, {batch['model_size']} model, "
        f"{recompute} gradient checkpointing",
        *(f"a batch of {row['base']} becomes {row['batch_size']}: {row['reason']}" for row in batch["examples"]),
    )
    runs = "; ".join(f"{run['hours']:g} h: {run['usd']:.2f} USD" for run in cost["runs"])
    per_hour = f"{cost['usd_per_hour']:.2f} USD/h, an estimate (configs/hardware/costs.yaml)"
    yield from _entry("Cost", per_hour, *([runs] if verbose else []))
    versions = (f"{name} {version or '–'}" for name, version in report["frameworks"].items())
    seen = (report["framework_devices"] or {}).items()
    yield from _entry(
        "Frameworks",
        ", ".join(versions),
        *(f"{name}: {told if isinstance(told, str) else ', '.join(told) or 'sees no device'}" for name, told in seen),
    )


def _in_use(report: Mapping[str, Any]) -> str:
    plan = report["plan"]
    present = next(row["count"] for row in report["devices"] if row["kind"] == plan["kind"])
    return plan["name"] if plan["kind"] == "cpu" or present == 1 else f"{plan['count']} of {present} × {plan['name']}"


def _memory_text(memory: Mapping[str, Any]) -> str:
    text = f"{_gib(memory['total_mb'])}, {_gib(memory['free_mb'])} free"
    if memory["limit_mb"] is None:
        return text
    bounded = memory["limit_mb"] < int(memory["share"] * memory["total_mb"])
    strategy = f"{memory['strategy']}, {memory['share']:.0%}{'; no more is free' if bounded else ''}"
    return f"{text}; a run may take {_gib(memory['limit_mb'])} ({strategy})"


def _routing_text(routing: Mapping[str, Any]) -> str:
    by = f"{routing['mode']}: device.prefer = {routing['prefer']} ({routing['set_by']})"
    return by + ("" if routing["allow_tpu"] else ", TPU not allowed")


def _devices(report: Mapping[str, Any], verbose: bool) -> Iterator[str]:
    yield "Devices found"
    rows = report["devices"]
    counts = [f"{row['count'] or '?'} {'cores' if row['kind'] == 'cpu' else '×'}" for row in rows]
    names = [textwrap.shorten(row["name"], _NAME, placeholder="…") for row in rows]
    count_width, name_width = (max(map(len, texts)) for texts in (counts, names))
    for row, count, name in zip(rows, counts, names, strict=True):
        mark = "→" if row["kind"] == report["plan"]["kind"] else " "
        free = f"usable, {row['memory_free_mb'] / 1024:.1f} of {_gib(row['memory_total_mb'])} free"
        state = free if row["usable"] else "NOT USABLE"
        yield f"{mark} {row['kind']:<4} {count:>{count_width}}  {name:<{name_width}}  {state}"
        yield from _wrapped(row["reason"], " " * 7, 9)
        if verbose:
            yield from _wrapped(" · ".join(_metadata(row)), " " * 7, 9)


# What --verbose tells of a device, where it is known.
_METADATA = (
    ("driver_version", "driver {}"),
    ("cuda_version", "CUDA {}"),
    ("hip_version", "HIP {}"),
    ("compute_capability", "capability {}"),
    ("platform", "platform {}"),
    ("physical_cores", "{} physical cores"),
)


def _metadata(row: Mapping[str, Any]) -> Iterator[str]:
    yield from (pattern.format(row[name]) for name, pattern in _METADATA if row[name] is not None)
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


def _gib(megabytes: float) -> str:
    return f"{megabytes / 1024:.1f} GiB"


# ------------------------------------------------------------------------------------------------------------- command
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="landfall devices", description="Shows the hardware, what a run would use, and why."
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument("--verbose", action="store_true", help="add metadata, other frameworks' devices, cost per run")
    parser.add_argument("--doctor", action="store_true", help="try devices, disk and workers; exit 1 where one fails")
    return run_command(_report, parser, argv)


def _report(arguments: argparse.Namespace) -> int:
    from core.workspace import json_text

    manager = _manager()
    checks = None
    if arguments.doctor:
        from core.devices.doctor import examine

        checks = examine(manager)
    report = device_report(manager, gather_facts(verbose=arguments.verbose), checks=checks)
    sys.stdout.write(json_text(report) if arguments.json else as_text(report, verbose=arguments.verbose) + "\n")
    return EXIT_FAILURE if any(check.status == "FAIL" for check in checks or ()) else EXIT_OK


def _manager() -> DeviceManager:
    """Detectors survive every driver, but a torch whose libraries are missing does not even start."""
    try:
        from core.devices.manager import DeviceManager

        return DeviceManager()
    except (ImportError, OSError) as error:
        raise LandfallError(f"PyTorch does not start: {error}", hint="install it anew with make setup") from error


if __name__ == "__main__":
    sys.exit(main())
