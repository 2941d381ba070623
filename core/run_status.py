"""How far a run is: `status.json` of its folder, lines of its `metrics.jsonl`, the live document.
The dashboard shows the same fields."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field, computed_field, field_validator

from core.config.schema import Stream
from core.documents import Document, Number, Text, Time
from core.names import RunId
from core.numbers import finite
from core.owner import has_ended

RunState = Literal["running", "completed", "stopped", "failed", "unreadable"]


class Best(Document):
    epoch: int = Field(ge=0, description="Epoch of the lowest validation loss.")
    val_loss: float = Field(allow_inf_nan=False, description="Lowest validation loss.")
    skill: Number = Field(
        None, description="1 - validation loss / loss of the mean training input; null where unknown."
    )


class Progress(Document):
    """Progress of a run. `status.json`, the live document, the record of a run and the state of a stream extend it."""

    state: RunState = Field(
        description="State of the run; files written by a process that was killed still say `running`."
    )
    reason: Text | None = Field(None, description="Why the run stopped or failed.")
    started_at: Time | None = Field(None, description="Start of training.")
    updated_at: Time | None = Field(None, description="Last update.")
    finished_at: Time | None = Field(None, description="End of training; null while it runs, or if it was killed.")
    epoch: int = Field(0, ge=0, description="Epochs done.")
    epochs: int = Field(0, ge=0, description="Epochs planned.")
    step: int = Field(0, ge=0, description="Steps done.")
    steps: int = Field(0, ge=0, description="Steps planned.")
    best: Best | None = Field(None, description="Best epoch so far.")
    eta_seconds: Number = Field(None, description="Expected time to the end while running; early stopping ends sooner.")
    peak_memory_mb: Number = Field(None, description="Peak memory in MiB; null if it was not measured.")
    recoveries: int = Field(0, ge=0, description="Number of non-finite steps that the run rolled back.")

    @computed_field(description="Share of the planned work done; 1 when completed, also of a run that stopped early.")
    @property
    def progress(self) -> float:
        if self.state == "completed":
            return 1.0
        done, planned = (self.step, self.steps) if self.steps else (self.epoch, self.epochs)
        return min(1.0, done / planned) if planned else 0.0

    @computed_field(description="From the start to the end, or to the last update.")
    @property
    def duration_seconds(self) -> float | None:
        end = self.finished_at or self.updated_at
        return max(0.0, (end - self.started_at).total_seconds()) if self.started_at and end else None

    @field_validator("best", mode="before")
    @classmethod
    def _a_best_without_a_loss_is_none(cls, value: Any) -> Any:
        """A run whose validation loss was never finite has a best epoch without a loss."""
        has_none = isinstance(value, dict) and finite(value.get("val_loss")) is None
        return None if has_none else value


class RunStatus(Progress):
    """`status.json`."""

    schema_version: Literal[1] = Field(description="Version of this document.")
    stream: Stream = Field(description="The stream that is trained.")
    run_id: RunId = Field(description="The run.")
    checkpoint: Text | None = Field(None, description="Checkpoint of the best epoch.")
    windows_per_second: Number = Field(None, description="Throughput since this process started, including validation.")
    memory_mb: Number = Field(None, description="Memory used on the device in MiB.")
    gpu_utilisation: Number = Field(None, description="Share of the time the GPU computed, 0 to 1, where known.")
    pid: int | None = Field(None, description="Number of the process.")
    owner: Text = Field("", description="Token of the process, which identifies it (`core.owner`).")

    def is_killed(self, now: datetime) -> bool:
        """Whether the file says `running` although the process has ended."""
        return self.state == "running" and has_ended(self.owner, self.updated_at, now)


class EpochPoint(Document):
    epoch: int = Field(ge=0, description="Epoch, counted from 1.")
    time: Time | None = Field(None, description="When the epoch ended.")
    train_loss: Number = Field(None, description="Mean training loss; null where it was not finite.")
    val_loss: Number = Field(None, description="Mean validation loss; null without validation data or not finite.")
    skill: Number = Field(
        None, description="1 - validation loss / loss of the mean training input; null where unknown."
    )
    lr: Number = Field(None, description="Learning rate at the end of the epoch.")
    seconds: Number = Field(None, description="Duration of the epoch in seconds.")
    windows_per_second: Number = Field(None, description="Training throughput.")


class StepPoint(Document):
    epoch: int = Field(ge=0, description="Epoch the step belongs to.")
    step: int = Field(ge=0, description="Optimizer step since the start of the run.")
    loss: Number = Field(None, description="Training loss of the step.")
    lr: Number = Field(None, description="Learning rate.")
    grad_norm: Number = Field(None, description="Gradient norm before clipping.")
    memory_mb: Number = Field(None, description="Memory used on the device in MiB; null between two readings.")
    gpu_utilisation: Number = Field(None, description="Share of the time the GPU computed, 0 to 1, where known.")


class LiveRun(RunStatus):
    """`live/<stream>.json`: the current run, rewritten by its trainer; removed when the run has ended."""

    history: list[EpochPoint] = Field(default_factory=list, description="One entry per finished epoch.")
    step_history: list[StepPoint] = Field(default_factory=list, description="At most 2,000 steps; extremes are kept.")
