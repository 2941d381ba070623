"""`dashboard-state.json`: the document of the first page."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from core.config.schema import Stream
from core.data.annotations import Annotation
from core.data.quality import QualityFinding
from core.documents import SCHEMA_VERSION, Document, Number, Text, Time
from core.names import RunId
from core.run_status import RunState
from inference.events.documents import FoundEvent
from inference.summary import ScoreSummary
from pipelines.checklist import Checklist
from pipelines.dashboard.run_documents import ShownRun
from pipelines.problems import Problem
from pipelines.steps.stages import StageNow, Verdict

StreamCondition = RunState | Literal["not started"]


class QualityMessage(QualityFinding):
    severity: Literal["drop", "warn"] = Field(description="`drop` removed the file from the data, `warn` did not.")
    file_id: Text = Field(description="The data file.")
    files: int = Field(1, description="Number of files with this rule and channel.")


class QualitySummary(Document):
    files: int = Field(description="Files checked.")
    kept: int = Field(description="Files kept, with or without warnings.")
    dropped: int = Field(description="Files dropped by a hard limit.")
    warned: int = Field(description="Files kept with at least one warning.")
    worst: list[QualityMessage] = Field(default_factory=list, description="Worst finding of each kind.")
    more: int = Field(0, description="Kinds of findings not listed in `worst`.")


class AnomalyEvent(FoundEvent):
    """Times are those of the recording, without a time zone."""

    detail: Text | None = Field(None, description="Document with measured and predicted values; null if there is none.")
    annotation: Annotation | None = Field(None, description="Annotation of a user; null if there is none.")


class Detections(Document):
    total: int = Field(0, description="Events found.")
    acknowledged: int = Field(0, description="Number of acknowledged events.")
    events: list[AnomalyEvent] = Field(default_factory=list, description="The worst events, the worst first.")
    annotations: list[Annotation] = Field(default_factory=list, description="All annotations, the oldest first.")
    false_alarms: Text | None = Field(None, description="Statement about the expected false alarms.")


class Checkpoint(Document):
    path: Text = Field(description="File of the weights in use.")
    present: bool = Field(description="Whether that file exists.")
    run_id: RunId | None = Field(None, description="Run that wrote it.")
    sha256: Text | None = Field(None, description="Digest of the file as the run wrote it.")
    since: Time | None = Field(None, description="Time since when these weights are in use.")


class Decision(Document):
    """An automatic decision, or a fact about the hardware."""

    what: Text = Field(description="What was decided: device, precision, model size, batch, memory, …")
    value: Text = Field(description="Result of the decision.")
    reason: Text = Field("", description="Reason of the decision; empty for a fact.")


class MemoryUse(Document):
    """Memory of one process of the run, in MiB."""

    limit_mb: Number = Field(None, description="Memory limit.")
    forecast_mb: Number = Field(None, description="Predicted peak memory before the first step; null if not measured.")
    measured_mb: Number = Field(None, description="Peak memory; null if not measured.")


LightState = Literal["no event", "open events", "drift", "stale", "no scores", "no model", "not in use"]


class Light(Document):
    """The state of the machine at a glance."""

    state: LightState = Field(description="The most urgent state of the machine.")
    detail: Text = Field(description="The reason, and what to do.")
    warnings: list[Text] = Field(default_factory=list, description="Reasons to distrust the detection itself.")


class StreamState(ShownRun):
    """One stream: the run shown (the newest, unless the export was given another), its weights, scores and data."""

    title: Text = Field(description="Name of the model.")
    subject: Text = Field(description="Kind of data.")
    state: StreamCondition = Field(description="State of the stream's run.")
    light: Light = Field(description="State of the machine according to its scores.")
    run_id: RunId | None = Field(None, description="The run shown.")
    checkpoint: Checkpoint | None = Field(None, description="Weights in use; null where there is no sidecar.")
    scores: ScoreSummary | None = Field(None, description="Latest scoring.")
    detections: Detections | None = Field(None, description="Events of the latest scoring.")
    quality: QualitySummary | None = Field(None, description="Data quality of the stream's files.")
    series: Text | None = Field(None, description="Document with the scores over time; null without scores.")
    quality_file: Text | None = Field(None, description="Document with the quality of each file; null without reports.")
    decisions: list[Decision] = Field(default_factory=list, description="Automatic decisions of the run, with reasons.")
    memory: MemoryUse | None = Field(None, description="Predicted and measured memory; null if both are unknown.")


class PipelineNode(StageNow):
    title: Text = Field(description="Name of the stage.")
    steps: Text | None = Field(None, description="Duration in the pipeline; null if the stage was run by hand.")
    view: Text | None = Field(None, description="View of the page with the details.")


class DeviceState(Document):
    """The hardware that the latest run found and used, from its device record (`core.devices.record`)."""

    kind: Text = Field(description="`cpu`, `cuda`, `mps`, `xpu` or `tpu`.")
    name: Text = Field(description="Name of the hardware.")
    precision: Text | None = Field(None, description="Precision of a run.")
    reported_at: Time | None = Field(None, description="Time of the record.")
    facts: list[Decision] = Field(default_factory=list, description="Decisions and other facts, in this order.")


class MigratedNotebook(Document):
    source: Text = Field(description="The notebook that was read, relative to the workspace.")
    target: Text | None = Field(None, description="The migrated notebook; null if migration failed.")
    at: Time | None = Field(None, description="Time of the migration.")
    findings: dict[Text, int] = Field(default_factory=dict, description="Number of findings of each rule.")
    needs_you: list[Text] = Field(default_factory=list, description="What the user must do, and in which cell.")
    report: Text | None = Field(None, description="Full report, relative to the workspace; null if there is none.")


class RuleCount(Document):
    rule: Text = Field(description="Id of the rule; `docs/migration-rules.md` documents it.")
    title: Text = Field(description="Name of the rule.")
    count: int = Field(description="Findings over all notebooks.")


class MigrationState(Document):
    notebooks: list[MigratedNotebook] = Field(default_factory=list, description="By name of the source.")
    rules: list[RuleCount] = Field(default_factory=list, description="Rules with findings, the most frequent first.")


class RunsSummary(Document):
    total: int = Field(0, description="Number of runs, including those whose folders were deleted.")
    exported: bool = Field(False, description="Whether `runs/index.json` and the run records were written.")


class DashboardState(Document):
    """`dashboard-state.json`: the document of the first page."""

    schema_version: Literal[1] = SCHEMA_VERSION
    generated_at: Time = Field(description="When this document was written.")
    verdict: Verdict = Field(description="State of the workspace.")
    pipeline: list[PipelineNode] = Field(description="Stages in the order of the data, then migration.")
    streams: dict[Stream, StreamState] = Field(description="Both streams.")
    checklist: Checklist | None = Field(None, description="Null if nothing was validated.")
    device: DeviceState | None = Field(None, description="Null if no run has recorded its hardware.")
    migration: MigrationState | None = Field(None, description="Null if no notebook was migrated.")
    runs: RunsSummary = Field(description="Number of runs; `runs/index.json` lists them.")
    fleet: Text | None = Field(None, description="Document with the machines of a fleet; null if there is none.")
    problems: list[Problem] = Field(default_factory=list, description="Inputs that could not be read.")
