"""The documents the training dashboard reads, as models, and the JSON Schemas published from them.

Three documents, all of schema version 1 and without NaN or infinity: `dashboard-state.json` (what the page opens
with), `runs/<run-id>.json` (one run in full) and `runs/index.json` (one line per run). A reader ignores fields it
does not know, so fields may be added without a new version; a changed meaning needs one.

    python -m pipelines.dashboard_state --write-schemas
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from core.cli import add_root_argument, root_of, run_command
from core.config.schema import Stream
from core.errors import EXIT_OK
from core.workspace import relative, write_text

SCHEMA_VERSION = 1

RunState = Literal["running", "completed", "stopped", "failed", "unreadable"]
StreamCondition = RunState | Literal["not started"]
NodeState = Literal["done", "running", "attention", "failed", "waiting"]
NodeId = Literal["data", "quality", "train", "score", "validate", "export"]


def _utc(value: datetime) -> datetime:
    """Times without a zone are UTC by contract."""
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _finite(value: Any) -> Any:
    """A diverged loss is NaN in Python and cannot be written as JSON: it becomes null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def encodable(value: str) -> str:
    """Half a surrogate pair, from a damaged file or an odd file name, cannot be written as UTF-8: it becomes `?`."""
    return value.encode("utf-8", "replace").decode("utf-8")


Time = Annotated[datetime, AfterValidator(_utc)]
Text = Annotated[str, AfterValidator(encodable)]
Number = Annotated[float | None, BeforeValidator(_finite)]


class Document(BaseModel):
    """Part of a published document; unknown fields of a newer writer are ignored."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=(), json_schema_serialization_defaults_required=True)


class Problem(Document):
    path: Text = Field(description="File or folder, relative to the workspace.")
    message: Text = Field(description="What is wrong with it.")


# ---------------------------------------------------------------------------------------------------------------- runs
class EpochPoint(Document):
    epoch: int = Field(ge=0, description="Epoch, counted from 1.")
    time: Time | None = Field(None, description="When the epoch ended.")
    train_loss: Number = Field(None, description="Mean training loss; null where it was not finite.")
    val_loss: Number = Field(None, description="Mean validation loss; null without validation data or not finite.")
    lr: Number = Field(None, description="Learning rate at the end of the epoch.")
    seconds: Number = Field(None, description="Duration of the epoch in seconds.")
    windows_per_second: Number = Field(None, description="Training throughput.")


class StepPoint(Document):
    epoch: int = Field(ge=0, description="Epoch the step belongs to.")
    step: int = Field(ge=0, description="Optimizer step since the start of the run.")
    loss: Number = Field(None, description="Training loss of the step.")
    lr: Number = Field(None, description="Learning rate.")
    grad_norm: Number = Field(None, description="Gradient norm before clipping.")


class Best(Document):
    epoch: int = Field(ge=0, description="Epoch of the lowest validation loss.")
    val_loss: float = Field(allow_inf_nan=False, description="Lowest validation loss.")


class DeviceSummary(Document):
    kind: Text | None = Field(None, description="`cpu`, `cuda`, `mps`, `xpu` or `tpu`.")
    name: Text | None = Field(None, description="Name of the hardware.")
    precision: Text | None = Field(None, description="Arithmetic used.")
    reason: Text | None = Field(None, description="Why this device and precision were chosen.")
    count: int | None = Field(None, description="Devices that took part, one process each.")
    threads: int | None = Field(None, description="CPU threads.")
    memory_limit_mb: Number = Field(None, description="Memory the run was allowed to take, in MiB.")
    memory_reason: Text | None = Field(None, description="Why that much.")
    misfits: list[Text] = Field([], description="What the device profile asked for and the machine lacked.")

    @model_validator(mode="before")
    @classmethod
    def _join_reasons(cls, values: Any) -> Any:
        """A device plan gives its reasons one by one, for the device and for the precision."""
        given = [values.get(name) for name in ("device_reason", "precision_reason")] if isinstance(values, dict) else []
        reasons = [text for text in given if isinstance(text, str) and text]
        return {"reason": "; ".join(reasons)} | values if reasons else values


class ModelSummary(Document):
    size: Text | None = Field(None, description="`custom`, `full` or `reduced`.")
    parameters: int | None = Field(None, description="Weights that training changes.")
    reason: Text | None = Field(None, description="Why this size.")


class BatchSummary(Document):
    starting: int | None = Field(None, description="Windows a step the hardware tier starts from.")
    effective: int | None = Field(None, description="Windows per optimizer step.")
    micro: int | None = Field(None, description="Windows computed at once.")
    accumulate: int | None = Field(None, description="Parts whose gradients add up to a step.")
    largest: int | None = Field(None, description="Largest part that fits into memory; null where not measured.")
    gradient_checkpointing: bool | None = Field(None, description="Activations are computed twice to save memory.")
    peak_mb: Number = Field(None, description="Expected peak memory in MiB; null where not measured.")
    seconds_per_step: Number = Field(None, description="Measured time of one part; null where not measured.")
    reason: Text | None = Field(None, description="Why this batch.")


class GitState(Document):
    commit: Text | None = Field(None, description="Commit of the workspace.")
    dirty: bool | None = Field(None, description="Whether files differed from the commit.")


class Environment(Document):
    python: Text | None = Field(None, description="Python version.")
    platform: Text | None = Field(None, description="Operating system.")
    torch: Text | None = Field(None, description="PyTorch version.")
    cuda: Text | None = Field(None, description="CUDA version PyTorch was built for; null without CUDA.")
    device: DeviceSummary | None = Field(None, description="Hardware the run computed on.")
    tier: Text | None = Field(None, description="Hardware tier, from configs/hardware/tiers.yaml.")
    model: ModelSummary | None = Field(None, description="Size of the model and why.")
    batch: BatchSummary | None = Field(None, description="Batch of the run and why.")
    git: GitState | None = Field(None, description="State of the source code.")
    packages: dict[Text, Text | None] = Field(default_factory=dict, description="Installed versions.")


class RunStream(Document):
    """One stream's part of a run."""

    state: RunState = Field(description="`unreadable` where the status of the run could not be read.")
    reason: Text | None = Field(None, description="Why the run stopped or failed.")
    started_at: Time | None = Field(None, description="Start of training.")
    updated_at: Time | None = Field(None, description="Last sign of life.")
    finished_at: Time | None = Field(None, description="End of training; null where it never ended in order.")
    duration_seconds: Number = Field(None, description="From the start to the end, or to the last sign of life.")
    epoch: int = Field(0, ge=0, description="Epochs done.")
    epochs: int = Field(0, ge=0, description="Epochs planned.")
    step: int = Field(0, ge=0, description="Steps done.")
    steps: int = Field(0, ge=0, description="Steps planned.")
    best: Best | None = Field(None, description="Best epoch so far.")
    checkpoint: Text | None = Field(None, description="Checkpoint of the best epoch.")
    history: list[EpochPoint] = Field(default_factory=list, description="One entry per finished epoch.")
    step_history: list[StepPoint] = Field(default_factory=list, description="Steps, thinned; extremes are kept.")
    environment: Environment | None = Field(None, description="Software and hardware of the run.")
    config: dict[str, Any] | None = Field(None, description="The composed configuration.")


class RunRecord(Document):
    """`runs/<run-id>.json`: everything the dashboard knows about one run."""

    schema_version: Literal[1] = SCHEMA_VERSION
    run_id: Text = Field(description="Name of the run folders; a pipeline run trains both streams under one.")
    state: RunState = Field(description="State of the run as a whole: the most urgent of its streams.")
    started_at: Time | None = Field(None, description="Start of the first stream.")
    finished_at: Time | None = Field(None, description="End of the last stream.")
    duration_seconds: Number = Field(None, description="From the first start to the last end or sign of life.")
    streams: dict[Stream, RunStream] = Field(description="The streams this run trained.")
    problems: list[Problem] = Field(default_factory=list, description="What could not be read.")
    signature: Text = Field("", description="Names, sizes and times of the files read; equal means nothing changed.")


class RunEntryStream(Document):
    state: RunState = Field(description="State of the stream in this run.")
    epoch: int = Field(0, description="Epochs done.")
    epochs: int = Field(0, description="Epochs planned.")
    best_val_loss: Number = Field(None, description="Lowest validation loss.")


class RunEntry(Document):
    run_id: Text = Field(description="The run; its record is `runs/<run-id>.json`.")
    state: RunState = Field(description="State of the run as a whole.")
    reason: Text | None = Field(None, description="Why it stopped or failed.")
    started_at: Time | None = Field(None, description="Start of the run.")
    duration_seconds: Number = Field(None, description="Duration in seconds.")
    device: Text | None = Field(None, description="Hardware and precision in words.")
    folder_present: bool = Field(True, description="False where only the record is left.")
    streams: dict[Stream, RunEntryStream] = Field(description="The streams the run trained.")


class RunsIndex(Document):
    """`runs/index.json`: every run with a record, newest first."""

    schema_version: Literal[1] = SCHEMA_VERSION
    runs: list[RunEntry] = Field(default_factory=list, description="Newest first.")


# --------------------------------------------------------------------------------------------------------------- state
class QualityMessage(Document):
    severity: Literal["drop", "warn"] = Field(description="`drop` cost the file, `warn` did not.")
    file_id: Text = Field(description="The data file.")
    rule: Text = Field(description="The rule that fired.")
    channel: Text | None = Field(None, description="The channel, where the rule looks at one.")
    value: Number = Field(None, description="Measured value.")
    limit: Number = Field(None, description="Limit it is held against.")
    message: Text = Field("", description="The finding in words.")
    files: int = Field(1, description="Files with a finding of this kind: same rule, same channel.")


class QualitySummary(Document):
    files: int = Field(description="Files checked.")
    kept: int = Field(description="Files kept, with or without warnings.")
    dropped: int = Field(description="Files dropped by a hard limit.")
    warned: int = Field(description="Files kept with at least one warning.")
    worst: list[QualityMessage] = Field(default_factory=list, description="Gravest finding of each kind.")
    more: int = Field(0, description="Kinds of findings not listed in `worst`.")


class Threshold(Document):
    value: Number = Field(None, description="Score above which a window is an alarm.")
    method: Text | None = Field(None, description="How it was calibrated.")
    false_alarm_rate: Number = Field(None, description="Share of normal scores meant to lie above it.")
    calibration_scores: int | None = Field(None, description="Scores it rests on.")
    statement: Text | None = Field(None, description="What it promises of false alarms, in words.")


class Detection(Document):
    """Figures against label files; they exist only where labels do."""

    auroc: Number = Field(None, description="Area under the ROC curve; chance is 0.5.")
    average_precision: Number = Field(
        None, description="Area under the precision-recall curve; chance is `prevalence`."
    )
    f1: Number = Field(None, description="F1 at the threshold.")
    precision: Number = Field(None, description="Share of alarms that are anomalies.")
    recall: Number = Field(None, description="Share of anomalies found.")
    false_alarm_rate: Number = Field(None, description="Share of normal windows above the threshold.")
    prevalence: Number = Field(None, description="Share of anomalous windows in the data.")
    event_precision: Number = Field(None, description="Share of events that meet a labelled anomaly.")
    event_recall: Number = Field(None, description="Share of labelled anomalies that an event meets.")


class ScoreSummary(Document):
    run_id: Text | None = Field(None, description="Run whose model scored.")
    scored_at: Time | None = Field(None, description="When.")
    scores: int = Field(0, description="Windows scored.")
    recordings: int = Field(0, description="Recordings they came from.")
    alarms: int = Field(0, description="Windows above the threshold.")
    events: int = Field(0, description="Groups of alarms.")
    threshold: Threshold | None = Field(None, description="The alarm threshold.")
    detection: Detection | None = Field(None, description="Null where the data has no labels.")
    timeline: Text | None = Field(None, description="Picture of the scores over time, relative to this document.")


class ChannelShare(Document):
    name: Text = Field(description="The channel.")
    share: float = Field(ge=0.0, description="Its share of the error of all channels.")


class AnomalyEvent(Document):
    """Times are the recording's own clock, which knows no zone."""

    id: int = Field(description="Number of the event in the scoring.")
    recording: Text = Field(description="The recording it lies in.")
    start: Text | None = Field(None, description="First score, as ISO 8601 without a zone; null without time stamps.")
    end: Text | None = Field(None, description="Last score, likewise.")
    start_seconds: Number = Field(None, description="First score, from the recording's start.")
    end_seconds: Number = Field(None, description="Last score, likewise.")
    duration_seconds: Number = Field(None, description="From the first to the last score.")
    severity: float = Field(allow_inf_nan=False, description="Highest score over the threshold.")
    top_channels: list[ChannelShare] = Field(default_factory=list, description="Channels that did it, the first most.")
    sentence: Text = Field("", description="All this in words.")
    picture: Text | None = Field(None, description="What was seen and expected, relative to this document.")


class Detections(Document):
    total: int = Field(0, description="Events found.")
    events: list[AnomalyEvent] = Field(default_factory=list, description="The worst of them, the worst first.")
    false_alarms: Text | None = Field(None, description="What to expect of false alarms, in words.")
    detection: Detection | None = Field(None, description="Figures against labels; null where the data has none.")


class Checkpoint(Document):
    path: Text = Field(description="File of the weights in use.")
    present: bool = Field(description="Whether that file exists.")
    run_id: Text | None = Field(None, description="Run that made it.")
    sha256: Text | None = Field(None, description="Digest of the file as the run wrote it.")


class StreamState(Document):
    title: Text = Field(description="Name of the model.")
    subject: Text = Field(description="The data it watches.")
    state: StreamCondition = Field(description="State of the stream's run.")
    reason: Text | None = Field(None, description="Why it is in that state.")
    run_id: Text | None = Field(None, description="The run shown: the newest, unless the export asked for another.")
    started_at: Time | None = Field(None, description="Start of that run.")
    updated_at: Time | None = Field(None, description="Its last sign of life.")
    finished_at: Time | None = Field(None, description="Its end.")
    duration_seconds: Number = Field(None, description="Its duration in seconds.")
    progress: float = Field(0.0, ge=0.0, le=1.0, description="Share of the planned work done; 1 when completed.")
    epoch: int = Field(0, description="Epochs done.")
    epochs: int = Field(0, description="Epochs planned.")
    step: int = Field(0, description="Steps done.")
    steps: int = Field(0, description="Steps planned.")
    best: Best | None = Field(None, description="Best epoch.")
    device: DeviceSummary | None = Field(None, description="Hardware and precision, with the reason.")
    checkpoint: Checkpoint | None = Field(None, description="Weights in use; null where there is no sidecar.")
    scores: ScoreSummary | None = Field(None, description="Latest scoring.")
    detections: Detections | None = Field(None, description="What the latest scoring found.")
    quality: QualitySummary | None = Field(None, description="Data quality of the stream's files.")


class ChecklistItem(Document):
    id: Text = Field(description="Identity of the check.")
    group: Text = Field(description="V-01, V-02 or V-03.")
    title: Text = Field(description="What is checked.")
    status: Literal["PASS", "FAIL", "SKIP"] = Field(description="Outcome.")
    detail: Text = Field("", description="What was found.")
    hint: Text | None = Field(None, description="The way out.")


class Checklist(Document):
    generated_at: Time | None = Field(None, description="When the checks ran.")
    passed: bool = Field(description="Whether no check failed.")
    groups: dict[Text, Text] = Field(default_factory=dict, description="Titles of the groups.")
    items: list[ChecklistItem] = Field(default_factory=list, description="All checks, in order.")


class PipelineNode(Document):
    id: NodeId = Field(description="Stage of the pipeline.")
    title: Text = Field(description="Name of the stage.")
    state: NodeState = Field(description="How far it is.")
    detail: Text = Field(description="What there is to say about it.")


class Verdict(Document):
    state: NodeState = Field(description="How the whole stands.")
    title: Text = Field(description="In a word or two.")
    detail: Text = Field(description="Why.")


class RunsSummary(Document):
    total: int = Field(0, description="Runs known, with those of which only the record is left.")
    by_state: dict[RunState, int] = Field(default_factory=dict, description="How many are in each state.")
    latest: Text | None = Field(None, description="Newest run.")
    exported: bool = Field(False, description="Whether `runs/index.json` and the run records were written.")


class DashboardState(Document):
    """`dashboard-state.json`: what the page opens with."""

    schema_version: Literal[1] = SCHEMA_VERSION
    generated_at: Time = Field(description="When this document was written.")
    verdict: Verdict = Field(description="How the whole stands.")
    pipeline: list[PipelineNode] = Field(description="Stages, in the order of the data.")
    streams: dict[Stream, StreamState] = Field(description="Both streams.")
    checklist: Checklist | None = Field(None, description="Null where nothing has been validated.")
    runs: RunsSummary = Field(description="Runs in figures; `runs/index.json` lists them.")
    problems: list[Problem] = Field(default_factory=list, description="Inputs that could not be read.")


# ------------------------------------------------------------------------------------------------------------- schemas
SCHEMAS: dict[str, type[Document]] = {
    "dashboard-state.schema.json": DashboardState,
    "run.schema.json": RunRecord,
    "runs-index.schema.json": RunsIndex,
}


def schema_text(model: type[Document]) -> str:
    """The JSON Schema of what `model` writes, as the published file holds it."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps(dialect | model.model_json_schema(mode="serialization"), indent=2, ensure_ascii=False) + "\n"


def write_schemas(folder: Path) -> list[Path]:
    """Writes every published schema into `folder` and returns the files."""
    for name, model in SCHEMAS.items():
        write_text(folder / name, schema_text(model))
    return [folder / name for name in SCHEMAS]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pipelines.dashboard_state", description=__doc__.splitlines()[0])
    parser.add_argument("--write-schemas", action="store_true", required=True, help="write the JSON Schemas")
    add_root_argument(parser)
    return run_command(_write, parser, argv)


def _write(arguments: argparse.Namespace) -> int:
    root = root_of(arguments)
    written = write_schemas(root / "training_dashboard" / "schema")
    sys.stdout.write(json.dumps({"written": [relative(path, root) for path in written]}) + "\n")
    return EXIT_OK


if __name__ == "__main__":
    raise SystemExit(main())
