"""The document `landfall devices --json` prints, as a model; `report.schema.json` beside it is made from this.

Schema version 1. A reader ignores fields it does not know, so fields may be added without a new version; a changed
meaning needs one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from core.config.execution import DeviceKind
from core.devices.batching import BatchConfig
from core.devices.capabilities import DeviceCapabilities
from core.devices.plan import DevicePlan
from core.workspace import json_text

SCHEMA_VERSION = 1
SCHEMA_FILE = Path(__file__).with_name("report.schema.json")

Status = Literal["PASS", "WARN", "FAIL", "SKIP"]


class Document(BaseModel):
    model_config = ConfigDict(
        extra="ignore", allow_inf_nan=False, protected_namespaces=(), json_schema_serialization_defaults_required=True
    )


class Routing(Document):
    mode: Literal["auto", "manual"] = Field(description="`manual` where device.prefer names a device.")
    prefer: str = Field(description="device.prefer in force.")
    set_by: str = Field(description="Who set device.prefer: a variable, `configuration` or `default`.")
    order: list[DeviceKind] = Field(description="Priority of the platforms.")
    allow_tpu: bool = Field(description="Whether `auto` may take a TPU.")
    prefer_cuda: bool = Field(description="Whether a CUDA GPU may be used.")
    strict: bool = Field(description="Whether a device that is missing is an error.")


class MemoryUse(Document):
    """Of one device, in MiB."""

    total_mb: int = Field(description="All there is.")
    free_mb: int = Field(description="What nobody holds.")
    limit_mb: int | None = Field(description="What a run may take.")
    strategy: str = Field(description="Memory strategy in force.")
    share: float = Field(description="Share of the memory the strategy takes.")


class StartingBatch(Document):
    """What the hardware tier suggests before anything is measured."""

    tier: str = Field(description="Row of configs/hardware/tiers.yaml.")
    batch_size: int = Field(description="Windows per optimizer step under `training.batch_size: auto`.")
    model_size: Literal["full", "reduced"] = Field(description="Model size under `model.size: auto`.")
    gradient_checkpointing: bool = Field(description="Whether activations are computed again in the backward pass.")
    examples: list[BatchConfig] = Field(description="Batches on this device, for a base of one window and the default.")


class RunCost(Document):
    hours: float = Field(description="Length of the run.")
    usd: float = Field(description="What it costs on all devices in use.")


class Cost(Document):
    """Estimates, from configs/hardware/costs.yaml."""

    usd_per_hour: float = Field(description="All devices in use together.")
    runs: list[RunCost] = Field(description="Runs of some lengths.")


class Recommendation(Document):
    finding: str = Field(description="What was seen.")
    action: str = Field(description="What to do about it.")


class CheckResult(Document):
    check: str = Field(description="What was tried.")
    subject: str = Field(description="On what: a device or a folder.")
    status: Status = Field(description="FAIL will stop a run; WARN slows it or may stop it; SKIP does not apply here.")
    detail: str = Field(description="What was seen.")
    cure: str | None = Field(None, description="What to do about it; null where nothing is wrong.")


class DeviceReport(Document):
    """What hardware was found, what a run would use, and why."""

    schema_version: Literal[1] = SCHEMA_VERSION
    plan: DevicePlan = Field(description="Device, precision and memory of a run.")
    routing: Routing = Field(description="What steered the choice.")
    devices: list[DeviceCapabilities] = Field(description="Every platform found, usable or not.")
    memory: MemoryUse = Field(description="Of the device in use.")
    batch: StartingBatch = Field(description="Batch and model size to start from.")
    cost: Cost = Field(description="Estimated cost.")
    frameworks: dict[str, str | None] = Field(description="Installed versions; null where a framework is absent.")
    framework_devices: dict[str, list[str] | str] | None = Field(
        None, description="What other frameworks see, or why not; null unless asked for with --verbose."
    )
    recommendations: list[Recommendation] = Field(description="What would make runs better.")
    checks: list[CheckResult] | None = Field(None, description="Results of --doctor; null unless asked for.")


def schema_text() -> str:
    """The JSON Schema of the document, as the published file holds it."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json_text(dialect | DeviceReport.model_json_schema(mode="serialization"))
