"""The state of each pipeline stage with the verdict over all of them, and the light of each stream.

The outputs of a stage determine its state; the steps of the last run of the pipeline add whether it is running again,
how long it took, or why it failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from core.config.schema import Stream
from core.numbers import counted
from inference.calibrated_threshold import percent
from inference.metrics import NEAR_CHANCE, is_near_chance
from inference.summary import ScoreSummary
from pipelines.checklist import Checklist
from pipelines.dashboard.state_documents import (
    Checkpoint,
    Light,
    MigrationState,
    PipelineNode,
    StreamCondition,
    StreamState,
)
from pipelines.steps.stages import PipelineRun, StageId, StageNow, StageState, StepNow, Verdict, stages_of

Streams = Mapping[Stream, StreamState]
# State of a stage, and its result in words.
Result = tuple[StageState, str]

# The stages in the order of the data, then migration: title, and the view of the page with the details.
STAGES: dict[StageId, tuple[str, str]] = {
    "data": ("Data", "data"),
    "quality": ("Quality", "data"),
    "train": ("Train", "training"),
    "score": ("Score", "anomalies"),
    "validate": ("Validate", "overview"),
    "export": ("Export", "runs"),
    "migration": ("Migration", "migration"),
}
# Stages outside the flow of the data: they do not affect the verdict.
_OUTSIDE_THE_FLOW: frozenset[StageId] = frozenset({"export", "migration"})
_TRAINING: dict[StreamCondition, StageState] = {
    "running": "running",
    "completed": "done",
    "stopped": "attention",
    "failed": "failed",
    "unreadable": "attention",
    "not started": "waiting",
}


def known_since(streams: Streams, checklist: Checklist | None) -> dict[tuple[StageId, Stream | None], datetime]:
    """Time of the last output of each stage, by stream if it has one."""
    found = {
        **{("train", name): stream.updated_at for name, stream in streams.items()},
        **{("score", name): stream.scores.scored_at for name, stream in streams.items() if stream.scores},
        ("validate", None): checklist.generated_at if checklist else None,
    }
    return {key: time for key, time in found.items() if time is not None}


def pipeline_nodes(
    streams: Streams, checklist: Checklist | None, migration: MigrationState | None
) -> list[PipelineNode]:
    """Every stage in the order of the data, then migration; the document that contains them is itself the export."""
    results: dict[StageId, Result] = {
        "data": _data(streams),
        "quality": _quality(streams),
        "train": _train(streams),
        "score": _score(streams),
        "validate": _validate(streams, checklist),
        "export": ("done", "this page's data"),
        "migration": _migration(migration),
    }
    return [
        PipelineNode(id=stage, title=title, view=view, state=results[stage][0], detail=results[stage][1])
        for stage, (title, view) in STAGES.items()
    ]


def verdict_of(nodes: Iterable[PipelineNode]) -> Verdict:
    """The verdict is the most urgent state, with every stage in this state. A dropped file is reported, but does not
    change the verdict: dropping files is the purpose of the quality check.
    """
    stages = [node for node in nodes if node.id not in _OUTSIDE_THE_FLOW]
    states = {node.state for node in stages if not (node.id == "quality" and node.state == "attention")}
    if states == {"waiting"}:
        return Verdict(state="waiting", title="Nothing has run yet", detail="`landfall pipeline` starts the first run")
    titles: dict[StageState, str] = {"failed": "Not ready", "running": "Running", "attention": "Needs attention"}
    for state, title in titles.items():
        if state in states:
            return Verdict(state=state, title=title, detail=_details(stages, state))
    if "waiting" in states:
        return Verdict(state="attention", title="Not finished", detail=_details(stages, "waiting"))
    notes = [node.detail for node in stages if node.id == "validate"]
    notes += [f"Quality: {node.detail}" for node in stages if node.id == "quality" and node.state == "attention"]
    return Verdict(state="done", title="Ready", detail="; ".join(notes))


def _details(nodes: Iterable[PipelineNode], state: StageState) -> str:
    return "; ".join(f"{node.title}: {node.detail}" for node in nodes if node.state == state)


def _data(streams: Streams) -> Result:
    reports = [stream.quality for stream in streams.values() if stream.quality]
    if reports:
        return "done", f"{counted(sum(report.files for report in reports), 'file')} read"
    if any(stream.run_id for stream in streams.values()):
        return "done", "read by the last run, not checked"
    return "waiting", "no file read yet"


def _quality(streams: Streams) -> Result:
    reports = [stream.quality for stream in streams.values() if stream.quality]
    if not reports:
        return "waiting", "no file checked yet"
    kept, dropped, warned = (sum(getattr(r, name) for r in reports) for name in ("kept", "dropped", "warned"))
    counts = {"kept": kept, "dropped": dropped, "with warnings": warned}
    detail = ", ".join(f"{number} {word}" for word, number in counts.items() if number or word == "kept")
    if any(report.kept == 0 for report in reports):
        return "failed", detail
    return "attention" if dropped else "done", detail


def _train(streams: Streams) -> Result:
    conditions = {name: _training(stream) for name, stream in streams.items()}
    states = {state for state, _ in conditions.values()}
    if states == {"waiting"}:
        return "waiting", "nothing trained yet"
    detail = ", ".join(f"{streams[name].title} {text}" for name, (_, text) in conditions.items())
    order: tuple[StageState, ...] = ("running", "failed", "attention")
    # One stream is trained and the other is not: that needs attention, too.
    otherwise: StageState = "done" if states == {"done"} else "attention"
    return next((state for state in order if state in states), otherwise), detail


def _training(stream: StreamState) -> Result:
    if stream.state == "not started" and is_by_charts_alone(stream.checkpoint, stream.scores):
        return "done", "not trained (control charts alone)"
    if stream.collapsed:
        return "attention" if stream.state == "completed" else _TRAINING[stream.state], "collapsed"
    return _TRAINING[stream.state], stream.state


def _score(streams: Streams) -> Result:
    scored = [stream for stream in streams.values() if stream.scores]
    weak = [s.title for s in scored if s.scores.detection and is_near_chance(s.scores.detection.get("auroc"))]
    stale = [s.title for s in scored if is_stale(s.checkpoint, s.scores)]
    if not scored:
        return "waiting", "nothing scored yet"
    if stale:
        return "attention", f"the scores of {' and '.join(stale)} are not from the model in use"
    if weak:
        return "attention", f"scores of {' and '.join(weak)} are near chance: AUROC below {NEAR_CHANCE}"
    if len(scored) < len(streams):
        return "attention", f"only {' and '.join(stream.title for stream in scored)} scored"
    return "done", counted(sum(stream.scores.events for stream in scored), "event")


def _validate(streams: Streams, checklist: Checklist | None) -> Result:
    if checklist is None:
        return "waiting", "not validated yet"
    status = [item.status for item in checklist.items]
    failed, skipped, warned = (status.count(name) for name in ("FAIL", "SKIP", "WARN"))
    total = counted(len(status), "check")
    rest = (f", {counted(warned, 'warning')}" if warned else "") + (f", {skipped} skipped" if skipped else "")
    ended = [time for s in streams.values() for time in (s.finished_at, s.scores and s.scores.scored_at) if time]
    if ended and checklist.generated_at and checklist.generated_at < max(ended):
        return "attention", "a run or a scoring ended after the last validation: run `landfall validate`"
    if not checklist.passed:
        return "failed", f"{failed} of {total} failed{rest}"
    return "done", f"{len(status) - skipped - warned} of {total} passed{rest}"


def _migration(migration: MigrationState | None) -> Result:
    notebooks = migration.notebooks if migration else []
    waiting = sum(bool(notebook.needs_you) for notebook in notebooks)
    if not notebooks:
        return "waiting", "no notebook migrated yet"
    if waiting:
        return "attention", f"manual changes needed in {waiting} of {counted(len(notebooks), 'notebook')}"
    return "done", f"{counted(len(notebooks), 'notebook')} migrated"


# ------------------------------------------------------------------------------------------- last run of the pipeline
def with_pipeline_run(
    nodes: Iterable[PipelineNode], run: PipelineRun, known_since: Mapping[tuple[StageId, Stream | None], datetime]
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


# ---------------------------------------------------------------------------------------------------- light of a stream
def light_of(checkpoint: Checkpoint | None, scores: ScoreSummary | None, open_events: int) -> Light:
    """The most urgent state. open_events: number of events that are not acknowledged."""
    if scores is None:
        if checkpoint is None:
            return Light(state="no model", detail="There is no model for this machine: train one first.")
        detail = "There is a model, but no data was scored with it: run `landfall score`."
        return Light(state="no scores", detail=detail)
    warnings = list(_warnings(scores))
    if checkpoint is not None and is_stale(checkpoint, scores):
        source = "an older model than the one in use" if scores.run_id else "a time before the model in use"
        detail = f"The scores are from {source}: run `landfall score`."
        return Light(state="stale", detail=detail, warnings=warnings)
    searched = counted(scores.recordings, "recording")
    events = f"{counted(open_events, 'open event')} in {searched}."
    if scores.threshold and scores.threshold.departure:
        return Light(state="drift", detail=f"{events} {scores.threshold.departure}.", warnings=warnings)
    if open_events:
        return Light(state="open events", detail=events, warnings=warnings)
    known = "every event is acknowledged" if scores.events else "no score stayed above the threshold"
    return Light(state="no event", detail=f"In {searched} {known}.", warnings=warnings)


def is_stale(checkpoint: Checkpoint | None, scores: ScoreSummary) -> bool:
    """Whether the scores are those of another model than the promoted one. Those of control charts alone are not if
    they are newer than the model: a user asked for them, such as for data that the model does not know."""
    if checkpoint is None or checkpoint.run_id == scores.run_id:
        return False
    is_newer = checkpoint.since and scores.scored_at and scores.scored_at >= checkpoint.since
    return scores.run_id is not None or not is_newer


def is_by_charts_alone(checkpoint: Checkpoint | None, scores: ScoreSummary | None) -> bool:
    """Whether control charts scored and there is no model, which they do not need."""
    return checkpoint is None and scores is not None and scores.run_id is None


def _warnings(scores: ScoreSummary) -> Iterator[str]:
    found, threshold = scores.detection, scores.threshold
    auroc = found.get("auroc") if found else None
    if is_near_chance(auroc):
        yield (
            f"The scores hardly separate the labelled faults from normal operation: AUROC {auroc:.2f}, chance is 0.5."
        )
    achieved = threshold.achieved if threshold else None
    if achieved is not None and achieved.low > threshold.false_alarm_rate:
        yield (
            "The process changed within the calibration data: calibrated on its first half, "
            f"{percent(achieved.rate)} of the second half were false alarms, "
            f"but at most {percent(threshold.false_alarm_rate)} were requested."
        )
