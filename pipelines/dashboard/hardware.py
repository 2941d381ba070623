"""The automatic decisions of a run, its memory, and the hardware that the latest run found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from core.config.hardware import HARDWARE_DIR
from core.devices.capabilities import DeviceCapabilities
from core.devices.plan import DevicePlan
from core.devices.record import RECORD_FILE, DeviceRecord
from core.errors import LandfallError
from core.numbers import gib
from pipelines.dashboard.run_documents import Environment, RunStream
from pipelines.dashboard.state_documents import Decision, DeviceState, MemoryUse
from pipelines.devices.advice import advice_for
from pipelines.devices.costs import cost_per_hour, load_costs
from pipelines.devices.frameworks import installed_frameworks
from pipelines.folders import changed_at
from pipelines.problems import Problems, read_model


# ----------------------------------------------------------------------------------------------------------- decisions
def decisions_of(environment: Environment | None) -> list[Decision]:
    """Every automatic decision that the run recorded."""
    rows = _decisions(environment) if environment is not None else ()
    return [Decision(what=what, value=value, reason=reason or "") for what, value, reason in rows if value]


def _decisions(environment: Environment) -> Iterator[tuple[str, str | None, str | None]]:
    plan, model = environment.device, environment.model
    if plan is not None:
        yield from plan.decisions()
        yield from (("not as requested", misfit, "requested by the device profile") for misfit in plan.misfits)
    yield "hardware tier", environment.tier, "the largest row of configs/hardware/tiers.yaml for it"
    if model is not None:
        size = f"{model.size or 'unknown'}" + (f", {model.parameters:,} weights" if model.parameters else "")
        yield "model size", size, model.reason
    if environment.batch is not None:
        yield from environment.batch.decisions()


def device_in_words(device: DevicePlan | None) -> str | None:
    """Hardware and precision: `NVIDIA RTX 4000 Ada · bf16-mixed`."""
    return device and f"{device.name} · {'fp32' if device.precision == '32' else device.precision}"


def memory_of(run: RunStream) -> MemoryUse | None:
    """Memory limit, forecast and measurement of a run; None if it recorded none of them."""
    environment = run.environment or Environment()
    forecast = environment.batch.peak_mb if environment.batch else None
    use = MemoryUse(
        limit_mb=environment.device.memory_limit_mb if environment.device else None,
        forecast_mb=None if forecast is None else round(forecast, 1),
        measured_mb=run.peak_memory_mb,
    )
    return use if any(value is not None for value in use.model_dump().values()) else None


# -------------------------------------------------------------------------------------------------------------- report
def read_device(root: Path, artifacts: Iterable[str], problems: Problems) -> DeviceState | None:
    """The device record of the latest run in one of the folders; None if there is none."""
    path = max((root / folder / RECORD_FILE for folder in artifacts), key=changed_at)
    record = read_model(path, DeviceRecord, problems)
    if record is None:
        return None
    table = root / HARDWARE_DIR / "costs.yaml"
    try:
        costs = load_costs(root if table.exists() else None)
        per_hour = cost_per_hour(record, costs)
        cost = [Decision(what="Cost", value=f"{per_hour:.2f} USD/h", reason="an estimate")] if per_hour else []
    except LandfallError as error:
        cost = []
        problems.add(table, error.message)
    return DeviceState(
        kind=record.plan.kind,
        name=record.plan.name,
        precision=record.plan.precision,
        reported_at=datetime.fromtimestamp(path.stat().st_mtime, UTC),
        facts=[*_facts(record), *cost],
    )


def _facts(record: DeviceRecord) -> Iterator[Decision]:
    batch, frameworks = record.batch, installed_frameworks()
    tier = f"default batch size {batch.batch_size}, {batch.model_size} model"
    rows = [
        *((what.capitalize(), value, reason) for what, value, reason in record.plan.decisions()),
        ("Tier", batch.tier, tier),
        ("Frameworks", ", ".join(f"{name} {version or '–'}" for name, version in frameworks.items()), ""),
        *(("Found", _found(device), device.reason) for device in record.devices),
        *(("Not as requested", misfit, "") for misfit in record.plan.misfits),
        *(("Recommendation", f"{advice.finding} → {advice.action}", "") for advice in advice_for(record)),
    ]
    return (Decision(what=what, value=value, reason=reason) for what, value, reason in rows)


def _found(device: DeviceCapabilities) -> str:
    free = f"{gib(device.memory_free_mb)} of {gib(device.memory_total_mb)} free"
    return f"{device.kind}: {device.name}, {free if device.usable else 'not usable'}"
