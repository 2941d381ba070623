"""Models of the documents about devices: the record of a run, and the output of `landfall devices --json`.

Schema version 1; `landfall devices --schema` prints the JSON Schema. A reader ignores unknown fields, so fields may be
added without a new version; a changed meaning needs one.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from core.config.execution import DeviceKind
from core.config.schema import Stream
from core.devices.capabilities import DeviceCapabilities
from core.devices.plan import DevicePlan
from core.devices.record import SCHEMA_VERSION

Status = Literal["PASS", "WARN", "FAIL", "SKIP"]


class Document(BaseModel):
    model_config = ConfigDict(
        extra="ignore", allow_inf_nan=False, protected_namespaces=(), json_schema_serialization_defaults_required=True
    )


class Routing(Document):
    mode: Literal["auto", "manual"] = Field(description="`manual` if device.prefer names a device.")
    prefer: str = Field(description="Value of device.prefer.")
    set_by: str = Field(description="What set device.prefer: a file, an override, a variable or `default`.")
    order: list[DeviceKind] = Field(description="Priority of the platforms.")
    allow_tpu: bool = Field(description="Whether a TPU may be used.")
    prefer_cuda: bool = Field(description="Whether a CUDA GPU may be used.")
    strict: bool = Field(description="Whether a missing device is an error.")


class MemoryUse(Document):
    """Memory of one device, in MiB."""

    total_mb: int = Field(description="Total memory.")
    free_mb: int = Field(description="Free memory.")
    limit_mb: int | None = Field(description="Memory limit of a run.")
    strategy: str = Field(description="Memory strategy.")
    share: float = Field(description="Share of the memory that the strategy allows.")


class TierBatch(Document):
    """The defaults of the hardware tier, before anything is measured."""

    tier: str = Field(description="Row of configs/hardware/tiers.yaml.")
    batch_size: int = Field(description="Windows per optimizer step with `training.batch_size: auto`.")
    model_size: Literal["full", "reduced"] = Field(description="Model size with `model.size: auto`.")
    gradient_checkpointing: bool = Field(description="Whether activations are recomputed in the backward pass.")


class BatchExample(Document):
    """A batch size for one device, derived from that for a CPU."""

    base: int
    batch_size: int
    factor: int
    largest: int | None
    cost_per_hour_usd: float
    reason: str


class FittingProfile(Document):
    name: str = Field(description="Device profile for this machine: `local/devices=NAME`.")
    reason: str = Field(description="Why this profile.")


class RunBatch(Document):
    """The batch of a completed run."""

    stream: Stream = Field(description="Which model.")
    run_id: str = Field(description="The run.")
    device: str = Field(description="The device it computed on.")
    effective: int = Field(description="Windows per optimizer step.")
    micro: int = Field(description="Micro-batch size.")


class StartingBatch(TierBatch):
    examples: list[BatchExample] = Field(
        description="Batch sizes on this device, for a base of one window and for the default."
    )


class RunCost(Document):
    hours: float = Field(description="Length of the run.")
    usd: float = Field(description="Cost of all devices in use.")


class Cost(Document):
    """Estimates, from configs/hardware/costs.yaml."""

    usd_per_hour: float = Field(description="All devices in use together.")
    runs: list[RunCost] = Field(description="Costs of runs of several lengths.")


class Recommendation(Document):
    finding: str = Field(description="The finding.")
    action: str = Field(description="What to do about it.")


class CheckResult(Document):
    check: str = Field(description="What was checked.")
    subject: str = Field(description="A device or a folder.")
    status: Status = Field(description="FAIL will stop a run; WARN slows it or may stop it; SKIP does not apply here.")
    detail: str = Field(description="The result.")
    cure: str | None = Field(None, description="What to do about it; null if the check passed.")


class Host(Document):
    ram_mb: int = Field(description="Memory of the machine in MiB, regardless of the limit of a container.")
    torch_cuda: str | None = Field(description="CUDA version of the torch build.")
    cuda_visible_devices: str | None = Field(description="Value of CUDA_VISIBLE_DEVICES; null if it is not set.")


class DeviceRecord(Document):
    """The hardware that a run found, what it used, and why."""

    schema_version: Literal[1] = SCHEMA_VERSION
    plan: DevicePlan = Field(description="Device, precision and memory of a run.")
    routing: Routing = Field(description="Settings that affect the selection.")
    devices: list[DeviceCapabilities] = Field(description="Every platform found, usable or not.")
    memory: MemoryUse = Field(description="Memory of the device in use.")
    batch: TierBatch = Field(description="Batch and model size to start from.")
    host: Host | None = Field(None, description="Facts for the recommendations; null in records of an older version.")

    @model_validator(mode="after")
    def _plan_is_for_a_device_found(self) -> Self:
        if self.found(self.plan.kind) is None:
            raise ValueError(f"the plan is for {self.plan.kind}, which is not among the devices")
        return self

    @property
    def chosen(self) -> DeviceCapabilities:
        """The platform in use."""
        return self.found(self.plan.kind)

    def found(self, kind: DeviceKind) -> DeviceCapabilities | None:
        """The platform of a kind; None if there is none."""
        return next((found for found in self.devices if found.kind == kind), None)


class DeviceReport(DeviceRecord):
    """The hardware, what a run would use, and why."""

    batch: StartingBatch = Field(description="Batch and model size to start from.")
    profile: FittingProfile | None = Field(None, description="The device profile that fits this machine.")
    run_batches: list[RunBatch] = Field([], description="Batch sizes of the runs of the promoted models.")
    cost: Cost = Field(description="Estimated cost.")
    frameworks: dict[str, str | None] = Field(description="Installed versions; null if a framework is not installed.")
    framework_devices: dict[str, list[str] | str] | None = Field(
        None,
        description="Devices that other frameworks find, or the reason why they find none; null without --verbose.",
    )
    recommendations: list[Recommendation] = Field(description="Recommendations for runs.")
    checks: list[CheckResult] | None = Field(None, description="Results of --doctor; null without --doctor.")
