"""Adds and removes annotations, and updates the exported documents."""

from __future__ import annotations

import threading
from pathlib import Path

from core.config.schema import Stream
from core.data.annotations import (
    Annotation,
    NewAnnotation,
    annotation_of,
    annotations_file,
    annotations_text,
    of_data,
    read_annotations,
)
from core.page import STATE
from core.workspace import utc_now, write_text
from inference.provenance import data_root_of
from inference.summary import read_summary
from pipelines.dashboard.inputs import read_scores
from pipelines.dashboard.publish import write_document
from pipelines.dashboard.state_documents import DashboardState
from pipelines.dashboard.verdict import light_of
from pipelines.problems import Problems, read_model
from pipelines.stream_configs import CONTRACT

# The server answers each request in a separate thread.
_WRITING = threading.Lock()


def annotate(root: Path, stream: Stream, new: NewAnnotation) -> Annotation:
    """Adds an annotation and removes an earlier one of the same span. An annotation without content removes the
    annotation that applies to its span. Returns the new annotation.

    Raises ValueError for a damaged file of annotations, OSError for one that cannot be written.
    """
    with _WRITING:
        file = annotations_file(root, stream)
        before = read_annotations(file)
        data_root = data_root_of(read_summary(CONTRACT[stream], root=root))
        added = Annotation(**new.model_dump(), at=utc_now(), data_root=data_root)
        mine = of_data(before, data_root)
        replaced = [each for each in mine if each.span == added.span]
        if added.is_empty:
            replaced.append(annotation_of(mine, *added.span))
        kept = [each for each in before if each not in replaced]
        now = kept if added.is_empty else [*kept, added]
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, annotations_text(now))
        _show(root, stream)
    return added


def _show(root: Path, stream: Stream) -> None:
    """Updates annotations and light of the exported state; the next export does the same."""
    state = read_model(root / STATE, DashboardState, Problems(root))
    scores, found = read_scores(root, CONTRACT[stream], Problems(root))
    shown = state.streams.get(stream) if state else None
    if found is None or shown is None or shown.detections is None:
        return
    annotation = {event.id: event.annotation for event in found.events}
    for event in shown.detections.events:
        event.annotation = annotation.get(event.id)
    shown.detections.acknowledged, shown.detections.annotations = found.acknowledged, found.annotations
    shown.light = light_of(shown.checkpoint, scores, found.total - found.acknowledged)
    write_document(root / STATE, state)
