"""Reads the outputs of runs for the dashboard; a damaged file is reported as a problem, never a crash."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, TypeAdapter

from core.config.data import Quality
from core.config.schema import REPORT_DIRS, SCHEMAS, AnyConfig, Logging, Stream
from core.data.annotations import Annotation, annotation_of, annotations_file, of_data
from core.documents import SCHEMA_VERSION, explain, plain
from core.files import changed_at, has_file
from core.names import RunId
from core.reading import read_json
from core.workspace import relative
from inference.provenance import data_root_of
from inference.summary import ScoreSummary, ScoringPaths, Threshold, read_summary
from pipelines.dashboard.run_documents import Problem
from pipelines.dashboard.state_documents import (
    AnomalyEvent,
    Checkpoint,
    Detections,
)

log = logging.getLogger(__name__)

WORST_EVENTS = 50
# Configurations with the output folders of the contract, for streams whose own configuration is missing or invalid.
CONTRACT: Mapping[Stream, AnyConfig] = {
    stream: schema(
        logging=Logging(log_dir=f"runs/{stream}_ssl", checkpoint_path=f"checkpoints/{stream}_ssl.pt"),
        dqvl=Quality(report_dir=REPORT_DIRS[stream]),
    )
    for stream, schema in SCHEMAS.items()
}

Model = TypeVar("Model")


class Problems:
    """Inputs that could not be read, in the order in which they were found; every entry is logged once."""

    def __init__(self, root: Path):
        self.root = root
        self.found: list[Problem] = []

    def add(self, path: Path, message: str) -> None:
        problem = Problem(path=relative(path, self.root), message=message)
        if problem in self.found:  # a folder that several inputs are in
            return
        log.warning("%s: %s", problem.path, problem.message)
        self.found.append(problem)


def read_model(path: Path, model: type[Model], problems: Problems) -> Model | None:
    """The JSON file as `model`; None if it is missing, damaged or of another schema version. The latter two are added
    to `problems`."""
    try:
        values = plain(read_json(path))
        version = values.get("schema_version", SCHEMA_VERSION) if isinstance(values, dict) else SCHEMA_VERSION
        if version != SCHEMA_VERSION:
            raise ValueError(f"has schema version {version!r}; this version of Landfall reads {SCHEMA_VERSION}")
        return TypeAdapter(model).validate_python(values)
    except FileNotFoundError:
        return None
    # Decoding and validation errors are ValueErrors.
    except (OSError, ValueError) as error:
        problems.add(path, explain(error))
        return None


# --------------------------------------------------------------------------------------- scores, checkpoints, checklist
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
        events=sorted(events, key=lambda event: -event.severity)[:WORST_EVENTS],
        annotations=annotations,
        false_alarms=_false_alarms(scores.threshold),
    )
    return scores, detections


def _false_alarms(threshold: Threshold | None) -> str | None:
    """The statement about the false alarms of a threshold, after the reason why it is not valid for the scored data."""
    return ". ".join(filter(None, (threshold.departure, threshold.statement))) or None if threshold else None


def read_checkpoint(root: Path, config: AnyConfig, problems: Problems) -> Checkpoint | None:
    """The promoted weights, from their sidecar."""
    weights = root / config.logging.checkpoint_path
    sidecar = read_model(weights.with_suffix(".json"), _Sidecar, problems)
    if sidecar is None:
        return None
    since = datetime.fromtimestamp(changed_at(weights.with_suffix(".json")), UTC)
    return Checkpoint(path=relative(weights, root), present=has_file(weights), since=since, **sidecar.model_dump())
