"""Adds an annotation of an event, and updates the exported documents."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from pydantic import TypeAdapter

from core.config.schema import Stream
from core.reading import read_json, read_json_object
from core.workspace import utc_now, write_text
from pipelines.dashboard.annotations import Annotation, NewAnnotation, file_of
from pipelines.dashboard.documents import SCORES
from pipelines.dashboard.inputs import CONTRACT, Problems, read_model, read_scores
from pipelines.dashboard.lights import light_of
from pipelines.dashboard.publish import write_document
from pipelines.dashboard.state_documents import DashboardState

STATE = "training_dashboard/data/dashboard-state.json"
_ANNOTATIONS = TypeAdapter(list[Annotation])
# The server answers each request in a separate thread.
_WRITING = threading.Lock()


def annotate(root: Path, stream: Stream, new: NewAnnotation) -> Annotation:
    """Adds an annotation, in place of an earlier one of the same span.

    Raises ValueError for a damaged file of annotations, OSError for one that cannot be written.
    """
    with _WRITING:
        file = file_of(root, stream)
        before = _ANNOTATIONS.validate_python(read_json(file)) if file.exists() else []
        added = Annotation(**new.model_dump(), at=utc_now(), data_root=_data_root(root, stream))
        kept = [each for each in before if each.span != added.span]
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, _ANNOTATIONS.dump_json([*kept, added], indent=2).decode() + "\n")
        _show(root, stream)
    return added


def _data_root(root: Path, stream: Stream) -> str | None:
    """`data.root` of the present scores; None if they do not say."""
    try:
        summary = read_json_object(root / SCORES / f"{stream}_summary.json")
        return json.loads(summary["made_of"]["settings"]["data.root"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _show(root: Path, stream: Stream) -> None:
    """Updates events and light of the exported state; the next export does the same."""
    state = read_model(root / STATE, DashboardState, Problems(root))
    scores, found = read_scores(root, CONTRACT[stream], Problems(root))
    shown = state.streams.get(stream) if state else None
    if found is None or shown is None or shown.detections is None:
        return
    annotation = {event.id: event.annotation for event in found.events}
    for event in shown.detections.events:
        event.annotation = annotation.get(event.id)
    shown.detections.acknowledged = found.acknowledged
    shown.light = light_of(shown.checkpoint, scores, found.total - found.acknowledged)
    write_document(root / STATE, state)
