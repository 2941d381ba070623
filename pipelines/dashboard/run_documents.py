"""`runs/<run-id>.json`: one run in full. `runs/index.json`: a line per run. `live/<stream>.json`: the current run."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from core.config.schema import Stream
from core.devices.plan import DevicePlan
from core.names import RunId
from pipelines.dashboard.documents import SCHEMA_VERSION, Document, Number, Problem, Text, Time
from trainers.batching import BatchPlan

RunState = Literal["running", "completed", "stopped", "failed", "unreadable"]


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


class Best(Document):
    epoch: int = Field(ge=0, description="Epoch of the lowest validation loss.")
    val_loss: float = Field(allow_inf_nan=False, description="Lowest validation loss.")
    skill: Number = Field(
        None, description="1 - validation loss / loss of the mean training input; null where unknown."
    )


class ModelSize(Document):
    size: Text | None = Field(None, description="`custom`, `full` or `reduced`.")
    parameters: int | None = Field(None, description="Weights that training changes.")
    reason: Text | None = Field(None, description="Why this size.")


class Environment(Document):
    """Software and hardware of a run, and what was decided by them: `environment.json`, with all its other facts."""

    model_config = ConfigDict(extra="allow")

    device: DevicePlan | None = Field(None, description="Hardware, precision and memory, each with the reason.")
    tier: Text | None = Field(None, description="Hardware tier, from configs/hardware/tiers.yaml.")
    model: ModelSize | None = Field(None, description="Size of the model and why.")
    batch: BatchPlan | None = Field(None, description="Batch of the run and why.")


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
    recoveries: int = Field(0, ge=0, description="Number of non-finite steps that the run rolled back.")


class ShownRun(Progress):
    """Fields of a run, and of the stream that shows it."""

    duration_seconds: Number = Field(None, description="From the start to the end, or to the last update.")
    collapsed: bool = Field(
        False,
        description="The training loss was constant, or rose far above its minimum; of a stream, also if the check of "
        "its model failed.",
    )
    hardware: Text | None = Field(None, description="Hardware and precision as text.")
    notebook: Text | None = Field(
        None, description="The executed notebook, if possible as a page; null if it was not run in one."
    )


class RunDetection(Document):
    """Figures of the latest scoring with the model of a run; those against labels are null without labels."""

    scored_at: Time | None = Field(None, description="Time of the scoring.")
    events: int | None = Field(None, description="Events found.")
    alarms: int | None = Field(None, description="Scores above the threshold.")
    threshold: Number = Field(None, description="The threshold.")
    faults_total: int | None = Field(None, description="Labelled faults.")
    faults_found: int | None = Field(None, description="Labelled faults found.")
    false_events: int | None = Field(None, description="Events that are matched to no labelled fault.")
    false_events_per_hour: Number = Field(None, description="`false_events` per recorded hour.")
    auroc: Number = Field(None, description="Area under the ROC curve of rows; chance is 0.5.")
    f1: Number = Field(None, description="F1 of the alarms.")
    data: Text | None = Field(
        None, description="Digest of the scored files: only runs with the same one are comparable."
    )


class RunNotes(Document):
    tags: list[Text] = Field(default_factory=list, description="Tags of the run, set by users.")
    note: Text = Field("", description="A note.")


class RunStream(ShownRun):
    """One stream of a run; its state is `unreadable` if the status of the run could not be read."""

    checkpoint: Text | None = Field(None, description="Checkpoint of the best epoch.")
    log_dir: Text | None = Field(None, description="Folder of the run logs; that of another configuration differs.")
    weights: Text | None = Field(None, description="File of its best weights; null if they were removed.")
    history: list[EpochPoint] = Field(default_factory=list, description="One entry per finished epoch.")
    step_history: list[StepPoint] = Field(default_factory=list, description="Steps, thinned; extremes are kept.")
    nan_steps: int = Field(0, ge=0, description="Recorded steps whose loss was not finite.")
    peak_memory_mb: Number = Field(None, description="Peak memory in MiB; null if it was not measured.")
    environment: Environment | None = Field(None, description="Software and hardware of the run.")
    detection: RunDetection | None = Field(None, description="Latest scoring with its model; null if there is none.")
    notes: RunNotes | None = Field(None, description="Null without notes.")
    config: dict[str, Any] | None = Field(None, description="The composed configuration.")


class RunRecord(Document):
    """`runs/<run-id>.json`: everything the dashboard knows about one run."""

    schema_version: Literal[1] = SCHEMA_VERSION
    run_id: RunId = Field(description="Name of the run folders; a pipeline run trains both streams under one.")
    state: RunState = Field(description="State of the run: the most urgent of its streams.")
    reason: Text | None = Field(None, description="Why it stopped or failed.")
    started_at: Time | None = Field(None, description="Start of the first stream.")
    duration_seconds: Number = Field(None, description="From the first start to the last end or update.")
    streams: dict[Stream, RunStream] = Field(description="The streams this run trained.")
    problems: list[Problem] = Field(default_factory=list, description="Inputs that could not be read.")
    signature: Text = Field(
        "", description="Names, sizes and times of the source files; if they are equal, nothing changed."
    )


class RunEntry(RunRecord):
    """A run without its curves, configuration and environment."""

    folder_present: bool = Field(True, description="False if the run folder was deleted.")


class RunsIndex(Document):
    """`runs/index.json`: every run with a record, newest first."""

    schema_version: Literal[1] = SCHEMA_VERSION
    runs: list[RunEntry] = Field(default_factory=list, description="Newest first.")


class LiveRun(Progress):
    """`live/<stream>.json`: the current run, rewritten by its trainer; removed when the run has ended."""

    schema_version: Literal[1] = Field(description="Version of this document.")
    stream: Stream = Field(description="The stream that is trained.")
    run_id: RunId = Field(description="The run.")
    windows_per_second: Number = Field(None, description="Throughput since this process started, including validation.")
    memory_mb: Number = Field(None, description="Memory used on the device in MiB.")
    gpu_utilisation: Number = Field(None, description="Share of the time the GPU computed, 0 to 1, where known.")
    history: list[EpochPoint] = Field(default_factory=list, description="One entry per finished epoch.")
    step_history: list[StepPoint] = Field(default_factory=list, description="At most 2,000 steps; extremes are kept.")
