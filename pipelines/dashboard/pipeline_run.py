"""Progress of the last run of the pipeline: its steps, by stage. The outputs of a stage determine its verdict; the
steps add whether it is running again, how long it took, or why it failed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from core.config.schema import Stream
from core.documents import SCHEMA_VERSION, Time
from core.names import RunId
from core.numbers import duration_in_words
from core.owner import has_ended
from pipelines.dashboard.inputs import Problems, read_model
from pipelines.dashboard.state_documents import (
    TITLES,
    LivePipeline,
    NodeId,
    NodeState,
    PipelineNode,
    PipelineState,
    StageNow,
    Verdict,
)

FOLDER = "artifacts/pipeline"
LIVE = "live/pipeline.json"

StepState = Literal["waiting", "running", "completed", "skipped", "failed", "stopped", "not run"]
# From the state of a step to that of its stage, the most urgent first; the most urgent step determines the stage.
_STAGES: dict[StepState, NodeState] = {
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

    stage: NodeId
    stream: Stream | None = None
    state: StepState
    at: Time | None = None
    reason: str = ""
    note: str = ""
    log: str | None = None
    exit_code: int | None = None
    seconds: float = 0.0


class PipelineRun(BaseModel):
    """`artifacts/pipeline/<run-id>/pipeline.json`; `pipelines.steps` writes it."""

    schema_version: Literal[1] = SCHEMA_VERSION
    run_id: RunId
    owner: str = ""
    state: PipelineState
    started_at: Time | None = None
    updated_at: Time
    steps: dict[str, StepNow] = Field(default_factory=dict)


class _Last(BaseModel):
    run_id: RunId | None = None


def read_pipeline_run(root: Path, now: datetime, problems: Problems) -> PipelineRun | None:
    """The last run of the pipeline; if its process has died, running steps are marked as stopped."""
    last = read_model(root / FOLDER / "last.json", _Last, problems)
    if last is None or last.run_id is None:
        return None
    run = read_model(root / FOLDER / last.run_id / "pipeline.json", PipelineRun, problems)
    if run is not None and run.state == "running" and has_ended(run.owner, run.updated_at, now):
        run.state = "failed"
        for step in run.steps.values():
            if step.state in ("running", "waiting"):
                step.state, step.reason = (
                    ("stopped" if step.state == "running" else "not run"),
                    "the pipeline process has ended",
                )
    return run


def with_pipeline_run(
    nodes: Iterable[PipelineNode], run: PipelineRun, known_since: Mapping[tuple[NodeId, Stream | None], datetime]
) -> list[PipelineNode]:
    """The stages according to their outputs, with the state of the steps of `run`.

    known_since: time of the newest output of a stage, or of a stream in it. Steps of a run that has ended are ignored
    if their stage was run by hand since, or any stage of their stream.
    """

    def is_current(step: StepNow) -> bool:
        known = known_since.get((step.stage, step.stream))
        is_own = known is None or step.at is None or step.at >= known
        others = (time for (_, stream), time in known_since.items() if step.stream in (None, stream))
        return run.state == "running" or (is_own and all(time <= run.updated_at for time in others))

    steps = [step for step in run.steps.values() if is_current(step)]
    partly = {step.stage for step in run.steps.values() if step not in steps}
    # The document with the nodes is itself the export.
    reported = {stage.id: stage for stage in stages_of(steps, partly) if stage.id != "export"}
    return [_with_stage(node, reported.get(node.id)) for node in nodes]


def _with_stage(node: PipelineNode, stage: StageNow | None) -> PipelineNode:
    if stage is None:
        return node
    if stage.state == "done" or node.state == stage.state == "failed":
        return node.model_copy(update={"steps": stage.detail})
    return node.model_copy(update={"state": stage.state, "detail": stage.detail})


def stages_of(steps: Iterable[StepNow], partly: Collection[NodeId] = ()) -> list[StageNow]:
    """The stages of these steps, each in the state of its most urgent step. partly: stages with further steps."""
    stages: dict[NodeId, list[StepNow]] = {}
    for step in steps:
        stages.setdefault(step.stage, []).append(step)
    return [_stage_now(stage, of_stage, names_streams=stage in partly) for stage, of_stage in stages.items()]


def _stage_now(stage: NodeId, steps: list[StepNow], *, names_streams: bool) -> StageNow:
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
