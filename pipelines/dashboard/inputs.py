"""Reads the promoted weights, and the latest scoring with its events."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel

from core.checkpoint import sidecar_path
from core.config.schema import AnyConfig
from core.data.annotations import Annotation, annotation_of, annotations_file, of_data
from core.names import RunId
from core.workspace import relative
from inference.provenance import data_root_of
from inference.summary import ScoreSummary, ScoringPaths, Threshold, read_summary
from pipelines.dashboard.state_documents import AnomalyEvent, Checkpoint, Detections
from pipelines.folders import changed_at, has_file
from pipelines.problems import Problems, read_model

LISTED_EVENTS = 50


class _Sidecar(BaseModel):
    run_id: RunId | None = None
    sha256: str | None = None


def read_scores(
    root: Path, config: AnyConfig, problems: Problems
) -> tuple[ScoreSummary, Detections] | tuple[None, None]:
    """The latest scoring of a stream and its events."""
    paths = ScoringPaths.of(config, root=root)
    scores = read_model(paths.summary, ScoreSummary, problems)
    if scores is None:
        return None, None
    events = read_model(paths.events_json, list[AnomalyEvent], problems) or []
    noted = read_model(annotations_file(root, config.stream), list[Annotation], problems) or []
    annotations = of_data(noted, data_root_of(read_summary(config, root=root)))
    for event in events:
        event.annotation = annotation_of(annotations, event.recording, event.start_seconds, event.end_seconds)
    detections = Detections(
        total=scores.events,
        acknowledged=sum(event.annotation is not None and event.annotation.acknowledged for event in events),
        events=sorted(events, key=lambda event: -event.severity)[:LISTED_EVENTS],
        annotations=annotations,
        false_alarms=_false_alarms(scores.threshold),
    )
    return scores, detections


def _false_alarms(threshold: Threshold | None) -> str | None:
    """The statement about the false alarms of a threshold, after the reason why it is not valid for the scored data."""
    return "\n".join(filter(None, (threshold.departure, threshold.statement))) or None if threshold else None


def read_checkpoint(root: Path, config: AnyConfig, problems: Problems) -> Checkpoint | None:
    """The promoted weights, from their sidecar."""
    weights = root / config.logging.checkpoint_path
    file = sidecar_path(weights)
    sidecar = read_model(file, _Sidecar, problems)
    if sidecar is None:
        return None
    since = datetime.fromtimestamp(changed_at(file), UTC)
    return Checkpoint(path=relative(weights, root), present=has_file(weights), since=since, **sidecar.model_dump())
