"""The hardware and the decisions about it, as a document that every run writes to its artifacts.

Schema version 1. A reader ignores unknown fields, so fields may be added without a new version; a changed meaning needs
one.
"""

from __future__ import annotations

import os
from typing import Literal, Self

import psutil
from pydantic import Field, model_validator

from core.config.execution import DeviceKind
from core.config.faults import origin_of
from core.config.hardware import Tiers, load_tiers
from core.devices.capabilities import DeviceCapabilities
from core.devices.manager import DeviceManager
from core.devices.plan import DevicePlan
from core.documents import Document
from core.process_memory import MIB

# File of a run's record, below `logging.artifacts_dir`.
RECORD_FILE = "devices.json"


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


class Host(Document):
    """Facts for the recommendations, in addition to the devices."""

    ram_mb: int = Field(description="Memory of the machine in MiB, regardless of the limit of a container.")
    torch_cuda: str | None = Field(description="CUDA version of the torch build.")
    cuda_visible_devices: str | None = Field(description="Value of CUDA_VISIBLE_DEVICES; null if it is not set.")

    @classmethod
    def of_this_process(cls) -> Self:
        from core.devices.backend import torch_versions

        return cls(
            ram_mb=psutil.virtual_memory().total // MIB,
            torch_cuda=torch_versions()["cuda"],
            cuda_visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        )


class DeviceRecord(Document):
    """The hardware that a run found, what it used, and why."""

    schema_version: Literal[1] = 1
    plan: DevicePlan = Field(description="Device, precision and memory of a run.")
    routing: Routing = Field(description="Settings that affect the selection.")
    devices: list[DeviceCapabilities] = Field(description="Every platform found, usable or not.")
    memory: MemoryUse = Field(description="Memory of the device in use.")
    batch: TierBatch = Field(description="Batch and model size to start from.")
    host: Host = Field(description="Facts for the recommendations.")

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


def device_record(manager: DeviceManager, host: Host | None = None, tiers: Tiers | None = None) -> DeviceRecord:
    """Plan, routing, devices, memory and batch of this machine; `landfall devices --json` adds advice and costs.

    Raises pydantic's ValidationError if a detector returned an invalid value.
    """
    plan, chosen, settings = manager.plan(), manager.capabilities, manager.config.device
    tiers = tiers or load_tiers()
    tier = tiers.tier_for(chosen.kind, chosen.nominal_gb, tpu_batch_factor=settings.tpu_batch_factor)
    default_origin = "default" if settings.prefer == "auto" else "configuration"
    return DeviceRecord(
        plan=plan.to_json(),
        routing=Routing(
            mode="auto" if settings.prefer == "auto" else "manual",
            prefer=settings.prefer,
            set_by=origin_of("device.prefer", manager.origins) or default_origin,
            order=settings.order,
            allow_tpu=settings.may_use_tpu,
            prefer_cuda=settings.prefer_cuda,
            strict=settings.strict,
        ),
        devices=[found.to_json() for found in manager.found],
        memory=MemoryUse(
            total_mb=chosen.memory_total_mb,
            free_mb=chosen.memory_free_mb,
            limit_mb=plan.memory_limit_mb,
            strategy=settings.memory.strategy,
            share=settings.memory.share,
        ),
        batch=TierBatch(
            tier=tier.name,
            batch_size=tier.batch_size,
            model_size=tier.model_size,
            gradient_checkpointing=tier.gradient_checkpointing,
        ),
        host=host or Host.of_this_process(),
    )
