"""`fleet.json`: the machines of a fleet, those that need attention first. `landfall fleet report` writes it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from core.config.schema import Stream
from core.documents import SCHEMA_VERSION, Document, Number, Text, Time

FILE = "fleet.json"
# The most urgent first; `stale`: no new data, or scores of older data or of an older model.
MachineState = Literal["open events", "drift", "stale", "failed", "no model", "no scores", "no event"]


class FailedJob(Document):
    command: Text = Field(description="The command that failed: quality, train, score or calibrate.")
    reason: Text = Field(description="The reason.")
    at: Time = Field(description="When it failed.")


class FleetMachine(Document):
    """One machine: its latest scores, and its latest jobs."""

    id: Text = Field(description="Name of the machine.")
    stream: Stream = Field(description="Kind of data.")
    tags: list[Text] = Field(default_factory=list, description="Its tags.")
    state: MachineState = Field(description="The most urgent state of the machine.")
    attention: list[Text] = Field(default_factory=list, description="What needs attention, the most urgent first.")
    open_events: int = Field(0, description="Events that are not acknowledged.")
    severity: Number = Field(None, description="Highest score of an open event, divided by the threshold.")
    data_at: Time | None = Field(
        None,
        description="Newest time stamp of the scored data, or when the newest file changed if that is earlier or there "
        "are no time stamps; null without data.",
    )
    scored_at: Time | None = Field(None, description="When the machine was scored; null if it never was.")
    failed: list[FailedJob] = Field(default_factory=list, description="Jobs whose last run failed or was stopped.")
    page: Text | None = Field(None, description="The machine's own page; null before its first job completed.")


class FleetState(Document):
    """`fleet.json`."""

    schema_version: Literal[1] = SCHEMA_VERSION
    generated_at: Time = Field(description="When this document was written.")
    machines: list[FleetMachine] = Field(description="All machines, those that need attention first.")
