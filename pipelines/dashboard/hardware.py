"""What a run decided by itself, the memory it took, and the hardware the latest run found."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from pydantic import Field

from core.devices.report import REPORT_FILE
from pipelines.dashboard.documents import Fact
from pipelines.dashboard.inputs import Input, Problems, read_model
from pipelines.dashboard.run_documents import BatchSummary, DeviceSummary, Environment, RunStream
from pipelines.dashboard.state_documents import Decision, DeviceState, MemoryUse


# ----------------------------------------------------------------------------------------------------------- decisions
def decisions_of(environment: Environment | None) -> list[Decision]:
    """Every automatic choice of a run, as far as it recorded them."""
    if environment is None:
        return []
    rows = [*_device_decisions(environment.device), *_model_decisions(environment)]
    return [Decision(what=what, value=value, reason=reason or "") for what, value, reason in rows if value]


def _device_decisions(device: DeviceSummary | None) -> Iterator[tuple[str, str | None, str | None]]:
    if device is None:
        return
    times = f" × {device.count}" if (device.count or 1) > 1 else ""
    yield "device", f"{device.name or device.kind or 'unknown'}{times}", device.device_reason or device.reason
    yield "precision", device.precision and in_words(device.precision), device.precision_reason
    yield "memory", device.memory_limit_mb and f"up to {device.memory_limit_mb:,.0f} MiB", device.memory_reason
    yield "CPU threads", device.threads and str(device.threads), None
    yield from (("not as asked", misfit, "the device profile asked for it") for misfit in device.misfits)


def _model_decisions(environment: Environment) -> Iterator[tuple[str, str | None, str | None]]:
    model, batch = environment.model, environment.batch
    yield "hardware tier", environment.tier, "the largest row of configs/hardware/tiers.yaml for it"
    if model is not None:
        size = f"{model.size or 'unknown'}" + (f", {model.parameters:,} weights" if model.parameters else "")
        yield "model size", size, model.reason
    if batch is not None:
        yield "batch", batch.effective and f"{batch.effective} windows a step{_at_once(batch)}", batch.reason
        recomputed = "on: activations are computed twice" if batch.gradient_checkpointing else "off"
        yield "gradient checkpointing", recomputed if batch.gradient_checkpointing is not None else None, None


def _at_once(batch: BatchSummary) -> str:
    if not batch.micro:
        return ""
    return f", {batch.micro} at once" + (f" × {batch.accumulate}" if (batch.accumulate or 1) > 1 else "")


def in_words(precision: str) -> str:
    return f"{precision} bit" if precision.isdigit() else precision


def memory_of(run: RunStream) -> MemoryUse | None:
    """Limit, forecast and measurement of a run; None where it recorded none of them."""
    environment = run.environment or Environment()
    forecast = environment.batch.peak_mb if environment.batch else None
    use = MemoryUse(
        limit_mb=environment.device.memory_limit_mb if environment.device else None,
        forecast_mb=None if forecast is None else round(forecast, 1),
        measured_mb=run.peak_memory_mb,
    )
    return use if any(value is not None for value in use.model_dump().values()) else None


# -------------------------------------------------------------------------------------------------------------- report
class _Advice(Input):
    finding: str
    action: str


class _Plan(Input):
    kind: str
    name: str
    precision: str
    threads: int
    device_reason: str
    precision_reason: str
    memory_reason: str
    misfits: list[str] = Field(default_factory=list)


class _Found(Input):
    kind: str
    name: str
    count: int
    memory_total_mb: float
    memory_free_mb: float
    usable: bool
    reason: str


class _Memory(Input):
    total_mb: float
    free_mb: float
    limit_mb: float | None


class _Batch(Input):
    tier: str
    batch_size: int
    model_size: str


class _Cost(Input):
    usd_per_hour: float


class _Report(Input):
    """`landfall devices --json`, as far as the page shows it."""

    plan: _Plan
    devices: list[_Found]
    memory: _Memory
    batch: _Batch
    cost: _Cost
    frameworks: dict[str, str | None] = Field(default_factory=dict)
    recommendations: list[_Advice] = Field(default_factory=list)


def read_device(root: Path, problems: Problems) -> DeviceState | None:
    """The report that the latest run left; None where no run did."""
    path = root / "artifacts" / REPORT_FILE
    report = read_model(path, _Report, problems)
    if report is None:
        return None
    return DeviceState(
        kind=report.plan.kind,
        name=report.plan.name,
        precision=report.plan.precision,
        reported_at=datetime.fromtimestamp(path.stat().st_mtime, UTC),
        facts=[Fact(what=what, value=value) for what, value in _facts(report)],
    )


def _facts(report: _Report) -> Iterator[tuple[str, str]]:
    plan, memory, batch = report.plan, report.memory, report.batch
    limit = f"; a run may take {_gib(memory.limit_mb)} ({plan.memory_reason})" if memory.limit_mb is not None else ""
    yield "Device", f"{plan.name} ({plan.kind}): {plan.device_reason}"
    yield "Precision", f"{in_words(plan.precision)}: {plan.precision_reason}"
    yield "Memory", f"{_gib(memory.total_mb)}, {_gib(memory.free_mb)} free{limit}"
    yield "CPU threads", str(plan.threads)
    yield "Tier", f"{batch.tier}: starts from {batch.batch_size} windows a step and the {batch.model_size} model"
    yield "Cost", f"{report.cost.usd_per_hour:.2f} USD/h, an estimate"
    yield "Frameworks", ", ".join(f"{name} {version or '–'}" for name, version in report.frameworks.items())
    for device in report.devices:
        free = f"{_gib(device.memory_free_mb)} of {_gib(device.memory_total_mb)} free"
        yield "Found", f"{device.kind}: {device.name}, {free if device.usable else 'not usable'}; {device.reason}"
    yield from (("Not as asked", misfit) for misfit in plan.misfits)
    yield from (("Recommendation", f"{advice.finding} → {advice.action}") for advice in report.recommendations)


def _gib(megabytes: float) -> str:
    return f"{megabytes / 1024:.1f} GiB"
