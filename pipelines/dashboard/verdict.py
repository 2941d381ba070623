"""The state of each pipeline stage, and the verdict over all stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from core.config.schema import Stream
from pipelines.dashboard.lights import NEAR_CHANCE, is_near_chance, is_stale
from pipelines.dashboard.state_documents import (
    Checklist,
    MigrationState,
    NodeId,
    NodeState,
    PipelineNode,
    QualitySummary,
    StreamCondition,
    StreamState,
    Verdict,
)

Streams = Mapping[Stream, StreamState]

# The view of the page with the details of a stage.
VIEWS: dict[NodeId, str] = {
    "data": "data",
    "quality": "data",
    "train": "training",
    "score": "anomalies",
    "validate": "overview",
    "export": "runs",
    "migration": "migration",
}
# Stages outside the flow of the data: they do not affect the verdict.
_BESIDE: frozenset[NodeId] = frozenset({"export", "migration"})
_TRAINING: dict[StreamCondition, NodeState] = {
    "running": "running",
    "completed": "done",
    "stopped": "attention",
    "failed": "failed",
    "unreadable": "attention",
    "not started": "waiting",
}


def known_since(streams: Streams, checklist: Checklist | None) -> dict[tuple[NodeId, Stream | None], datetime]:
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
    nodes = [
        _data_node(streams),
        _quality_node(streams),
        _train_node(streams),
        _score_node(streams),
        _validate_node(streams, checklist),
        PipelineNode(id="export", title="Export", state="done", detail="this page's data"),
        _migration_node(migration),
    ]
    return [node.model_copy(update={"view": VIEWS[node.id]}) for node in nodes]


def verdict_of(nodes: Iterable[PipelineNode]) -> Verdict:
    """The most urgent state decides, and every stage with this state is named. A dropped file is reported, but does not
    change the verdict, because dropping it is what the quality check is for.
    """
    stages = [node for node in nodes if node.id not in _BESIDE]
    states = {node.state for node in stages if not (node.id == "quality" and node.state == "attention")}
    if states == {"waiting"}:
        return Verdict(state="waiting", title="Nothing has run yet", detail="make validate starts the first run")
    titles: dict[NodeState, str] = {"failed": "Not ready", "running": "Running", "attention": "Needs attention"}
    for state, title in titles.items():
        if state in states:
            return Verdict(state=state, title=title, detail=_details(stages, state))
    if "waiting" in states:
        return Verdict(state="attention", title="Not finished", detail=_details(stages, "waiting"))
    notes = [node.detail for node in stages if node.id == "validate"]
    notes += [f"Quality: {node.detail}" for node in stages if node.id == "quality" and node.state == "attention"]
    return Verdict(state="done", title="Ready", detail="; ".join(notes))


def _details(nodes: Iterable[PipelineNode], state: NodeState) -> str:
    return "; ".join(f"{node.title}: {node.detail}" for node in nodes if node.state == state)


def _quality(streams: Streams) -> list[QualitySummary]:
    return [stream.quality for stream in streams.values() if stream.quality]


def _data_node(streams: Streams) -> PipelineNode:
    reports = _quality(streams)
    if reports:
        state, detail = "done", f"{_count(sum(report.files for report in reports), 'file')} read"
    elif any(stream.run_id for stream in streams.values()):
        state, detail = "done", "read by the last run, not checked"
    else:
        state, detail = "waiting", "no file read yet"
    return PipelineNode(id="data", title="Data", state=state, detail=detail)


def _quality_node(streams: Streams) -> PipelineNode:
    reports = _quality(streams)
    kept, dropped, warned = (sum(getattr(r, name) for r in reports) for name in ("kept", "dropped", "warned"))
    state: NodeState = "done"
    if not reports:
        return PipelineNode(id="quality", title="Quality", state="waiting", detail="no file checked yet")
    if any(report.kept == 0 for report in reports):
        state = "failed"
    elif dropped:
        state = "attention"
    counts = {"kept": kept, "dropped": dropped, "with warnings": warned}
    detail = ", ".join(f"{number} {word}" for word, number in counts.items() if number or word == "kept")
    return PipelineNode(id="quality", title="Quality", state=state, detail=detail)


def _train_node(streams: Streams) -> PipelineNode:
    states = {"attention" if s.collapsed and s.state == "completed" else _TRAINING[s.state] for s in streams.values()}
    order: tuple[NodeState, ...] = ("running", "failed", "attention")
    state = next((state for state in order if state in states), None)
    if state is None:
        state = "attention" if states == {"done", "waiting"} else next(iter(states))
    conditions = ", ".join(f"{s.title} {'collapsed' if s.collapsed else s.state}" for s in streams.values())
    detail = "nothing trained yet" if state == "waiting" else conditions
    return PipelineNode(id="train", title="Train", state=state, detail=detail)


def _score_node(streams: Streams) -> PipelineNode:
    scored = {name: stream for name, stream in streams.items() if stream.scores}
    weak = [s.title for s in scored.values() if is_near_chance(s.scores.detection and s.scores.detection.auroc)]
    stale = [s.title for s in scored.values() if is_stale(s.checkpoint, s.scores)]
    if not scored:
        state, detail = "waiting", "nothing scored yet"
    elif stale:
        state, detail = "attention", f"{' and '.join(stale)} scored with an older model"
    elif weak:
        state, detail = "attention", f"scores of {' and '.join(weak)} are near chance: AUROC below {NEAR_CHANCE}"
    elif len(scored) < len(streams):
        state, detail = "attention", f"only {' and '.join(s.title for s in scored.values())} scored"
    else:
        state, detail = "done", _count(sum(s.scores.events for s in scored.values()), "event")
    return PipelineNode(id="score", title="Score", state=state, detail=detail)


def _validate_node(streams: Streams, checklist: Checklist | None) -> PipelineNode:
    if checklist is None:
        return PipelineNode(id="validate", title="Validate", state="waiting", detail="not validated yet")
    total = _count(len(checklist.items), "check")
    failed = sum(item.status == "FAIL" for item in checklist.items)
    skipped = sum(item.status == "SKIP" for item in checklist.items)
    warned = sum(item.status == "WARN" for item in checklist.items)
    ended = max((s.finished_at for s in streams.values() if s.finished_at), default=None)
    skips = (f", {_count(warned, 'warning')}" if warned else "") + (f", {skipped} skipped" if skipped else "")
    if not checklist.passed:
        state, detail = "failed", f"{failed} of {total} failed{skips}"
    elif ended and checklist.generated_at and checklist.generated_at < ended:
        state, detail = "attention", "a run ended after the last validation"
    else:
        state, detail = "done", f"{len(checklist.items) - skipped - warned} of {total} passed{skips}"
    return PipelineNode(id="validate", title="Validate", state=state, detail=detail)


def _migration_node(migration: MigrationState | None) -> PipelineNode:
    notebooks = migration.notebooks if migration else []
    waiting = sum(bool(notebook.needs_you) for notebook in notebooks)
    if not notebooks:
        state, detail = "waiting", "no notebook migrated yet"
    elif waiting:
        state, detail = "attention", f"{waiting} of {_count(len(notebooks), 'notebook')} need manual changes"
    else:
        state, detail = "done", f"{_count(len(notebooks), 'notebook')} migrated"
    return PipelineNode(id="migration", title="Migration", state=state, detail=detail)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
