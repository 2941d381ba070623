"""Writes what lies beside the state, and removes what an earlier export left and nothing refers to any more."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

from core.config.schema import STREAMS, Stream
from core.workspace import remove_abandoned, write_text
from pipelines.dashboard.detail_documents import EventDetail, Series
from pipelines.dashboard.documents import Document
from pipelines.dashboard.inputs import SCORES, Problems, read_model
from pipelines.dashboard.series import files_of
from pipelines.dashboard.state_documents import AnomalyEvent, DashboardState

# What an export of a stream may have left; the pictures are of older versions.
_OWN_FILES = (
    *("series/{}.json", "series/{}/*.json", "events/{}/*.json", "quality/{}.json", "live/{}.json"),
    *("{}_timeline.png", "{}_event_*.png"),
)


def write_document(path: Path, document: Document) -> None:
    """Writes a published document; a file that already says the same is left alone."""
    text = document.model_dump_json() + "\n"
    if not path.is_file() or path.read_bytes() != text.encode():
        write_text(path, text)


def publish_events(
    root: Path, stream: Stream, events: Iterable[AnomalyEvent], data: Path, problems: Problems, *, folder: str = SCORES
) -> None:
    """Copies the documents of a scoring's events to where the page can load them, and names them there."""
    for event in events:
        detail = read_model(root / folder / f"{stream}_events" / f"{event.id}.json", EventDetail, problems)
        if detail is not None and _is_of(event, detail):
            event.detail = f"events/{stream}/{event.id}.json"
            write_document(data / event.detail, detail)


def _is_of(event: AnomalyEvent, detail: EventDetail) -> bool:
    """Whether they are of one scoring: another one's event of this number is another event."""
    begins = event.start_seconds is not None and math.isclose(event.start_seconds, detail.start_s, abs_tol=1e-6)
    return begins and event.recording == detail.recording


def remove_stale(data: Path, state: DashboardState, going_on: Iterable[str]) -> None:
    """Removes what `state` does not refer to, and what killed exports left; runs keep their records, and what is
    `going_on` its live documents."""
    for folder in data.glob("**/"):
        remove_abandoned(folder)
    wanted = {*referred(data, state), *going_on}
    for pattern, stream in itertools.product(_OWN_FILES, (*STREAMS, "pipeline")):
        for path in data.glob(pattern.format(stream)):
            if path.relative_to(data).as_posix() not in wanted:
                path.unlink(missing_ok=True)


def referred(data: Path, state: DashboardState) -> Iterator[str]:
    """Every file that the state leads to, relative to it, runs apart."""
    for stream in state.streams.values():
        events = stream.detections.events if stream.detections else []
        yield from filter(None, (stream.series, stream.quality_file, *(event.detail for event in events)))
        series = read_model(data / stream.series, Series, Problems(data)) if stream.series else None
        yield from files_of(series) if series else ()
