"""`runs/<run-id>.json`: one run in full. `runs/index.json`: a line per run."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from core.config.schema import Stream
from core.devices.plan import DevicePlan
from core.documents import SCHEMA_VERSION, Document, Number, Text, Time
from core.names import RunId
from core.run_facts import RunDetection, RunNotes
from core.run_status import EpochPoint, Progress, RunState, StepPoint
from pipelines.problems import Problem
from trainers.batching import BatchPlan


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


class ShownRun(Progress):
    """Fields of a run, and of the stream that shows it."""

    collapsed: bool = Field(
        False,
        description="The training loss was constant, or rose far above its minimum; of a stream, also if the check of "
        "its model failed.",
    )
    hardware: Text | None = Field(None, description="Hardware and precision as text.")
    notebook: Text | None = Field(
        None, description="The executed notebook, if possible as a page; null if it was not run in one."
    )


class RunStream(ShownRun):
    """One stream of a run; its state is `unreadable` if the status of the run could not be read."""

    log_dir: Text | None = Field(None, description="Folder of the run logs; that of another configuration differs.")
    weights: Text | None = Field(None, description="File of its best weights; null if they were removed.")
    history: list[EpochPoint] = Field(default_factory=list, description="One entry per finished epoch.")
    step_history: list[StepPoint] = Field(default_factory=list, description="Steps, thinned; extremes are kept.")
    nan_steps: int = Field(0, ge=0, description="Recorded steps whose loss was not finite.")
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
