"""The output of `landfall devices --json`: the record of a run (`core.devices.record`), with advice and costs.

`landfall devices --schema` prints the JSON Schema.
"""

from __future__ import annotations

from pydantic import Field

from core.config.schema import Stream
from core.devices.record import DeviceRecord
from core.documents import Document
from pipelines.checklist import Status


class FittingProfile(Document):
    name: str = Field(description="Device profile for this machine: `local/devices=NAME`.")
    reason: str = Field(description="Why this profile fits.")


class RunBatch(Document):
    """The batch of a completed run."""

    stream: Stream = Field(description="The stream.")
    run_id: str = Field(description="The run.")
    device: str = Field(description="The device of the run.")
    effective: int = Field(description="Windows per optimizer step.")
    micro: int = Field(description="Micro-batch size.")


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


class DeviceReport(DeviceRecord):
    """The hardware, what a run would use, and why."""

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
