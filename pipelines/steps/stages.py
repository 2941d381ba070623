"""The stages of the pipeline: names and states, the record of a run, and what the dashboard shows while it runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

from pydantic import BaseModel, Field

from core.config.schema import TITLES, Stream
from core.documents import SCHEMA_VERSION, Document, Text, Time
from core.names import RunId
from core.numbers import duration_in_words

PipelineState = Literal["running", "completed", "failed"]
StageId = Literal["data", "quality", "train", "score", "validate", "export", "migration"]
StageState = Literal["done", "running", "attention", "failed", "waiting"]
Ending = Literal["completed", "skipped", "failed", "stopped", "not run"]
StepState = Literal["waiting", "running"] | Ending
# From the state of a step to that of its stage, the most urgent first; the most urgent step determines the stage.
_STAGES: dict[StepState, StageState] = {
    "running": "running",
    "failed": "failed",
    "stopped": "attention",
    "not run": "attention",
    "waiting": "waiting",
    "completed": "done",
    "skipped": "done",
}


class StepNow(BaseModel):
    """A step of `pipeline.json`.

    note: progress, while it runs. at: time of its last change of state. log: file in the folder of the run.
    """

    stage: StageId
    stream: Stream | None = None
    state: StepState
    at: Time | None = None
    reason: str = ""
    note: str = ""
    log: str | None = None
    exit_code: int | None = None
    seconds: float = 0.0


class PipelineRun(BaseModel):
    """`artifacts/pipeline/<run-id>/pipeline.json`."""

    schema_version: Literal[1] = SCHEMA_VERSION
    run_id: RunId
    owner: str = ""
    state: PipelineState
    started_at: Time | None = None
    updated_at: Time
    steps: dict[str, StepNow] = Field(default_factory=dict)


# ----------------------------------------------------------------------------------------------------- what is shown
class StageNow(Document):
    id: StageId = Field(description="Stage of the pipeline.")
    state: StageState = Field(description="State of the stage.")
    detail: Text = Field(description="Its result as text; for a running pipeline, its steps.")


class Verdict(Document):
    state: StageState = Field(description="State of the workspace.")
    title: Text = Field(description="The state in one or two words.")
    detail: Text = Field(description="The reason.")


class LivePipeline(Document):
    """`live/pipeline.json`: the running pipeline; the next export replaces it."""

    schema_version: Literal[1] = SCHEMA_VERSION
    run_id: Text = Field(description="The run.")
    state: PipelineState = Field(description="Still `running` if the process was killed.")
    updated_at: Time = Field(description="When this was written.")
    verdict: Verdict | None = Field(None, description="Replaces the exported verdict; null if that is still valid.")
    stages: list[StageNow] = Field(default_factory=list, description="Replace the exported stages.")


def stages_of(steps: Iterable[StepNow], partly: Collection[StageId] = ()) -> list[StageNow]:
    """The stages of these steps, each in the state of its most urgent step. partly: stages with further steps."""
    stages: dict[StageId, list[StepNow]] = {}
    for step in steps:
        stages.setdefault(step.stage, []).append(step)
    return [_stage_now(stage, of_stage, names_streams=stage in partly) for stage, of_stage in stages.items()]


def _stage_now(stage: StageId, steps: list[StepNow], *, names_streams: bool) -> StageNow:
    first = next(state for state in _STAGES if any(step.state == state for step in steps))
    detail = "; ".join(map(_in_words, steps)) if first != "waiting" else ""
    if not names_streams and all(step.state == "completed" for step in steps):
        detail = "took " + " and ".join(_lasted(step) for step in steps)
    return StageNow(id=stage, state=_STAGES[first], detail=detail)


def _in_words(step: StepNow) -> str:
    who = TITLES[step.stream][0] + " " if step.stream else ""
    match step.state:
        case "running":
            return f"{who}{step.note or 'started'}"
        case "completed":
            return f"{who}took {_lasted(step)}"
        case "skipped":
            return f"{who}unchanged, skipped"
        case "waiting":
            return f"{who}waiting"
    return f"{who}{step.state}: {step.reason}" if step.reason else f"{who}{step.state}"


def _lasted(step: StepNow) -> str:
    return duration_in_words(max(1.0, step.seconds))


def live_of(run: PipelineRun) -> LivePipeline:
    """Stages that replace the exported ones until the next export."""
    stages = stages_of(run.steps.values())
    is_exported = any(stage.id == "export" and stage.state == "done" for stage in stages)
    # The quality check has read the files.
    if any(stage.id == "quality" and stage.state == "done" for stage in stages):
        stages.insert(0, StageNow(id="data", state="done", detail="read"))
    verdict = None
    if run.state == "running":
        verdict = Verdict(state="running", title="Pipeline running", detail=f"run {run.run_id}")
    elif is_exported:
        stages = []
    elif run.state == "failed":
        failed = [stage.detail for stage in stages if stage.state == "failed"]
        verdict = Verdict(state="failed", title="Not ready", detail="; ".join(failed))
    return LivePipeline(run_id=run.run_id, state=run.state, updated_at=run.updated_at, verdict=verdict, stages=stages)
