"""Writes the documents next to the state, and removes those of earlier exports without references."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

from core.config.schema import AnyConfig
from core.documents import Document
from core.workspace import remove_abandoned, write_text
from inference.events.documents import EventDetail
from inference.summary import ScoringPaths
from pipelines.dashboard.detail_documents import Series
from pipelines.dashboard.series import detail_files
from pipelines.dashboard.state_documents import AnomalyEvent, DashboardState
from pipelines.problems import Problems, read_model

# Documents that an export may have written.
_OWN_FILES = ("series/**/*.json", "events/**/*.json", "quality/*.json", "live/*.json")


def write_document(path: Path, document: Document) -> None:
    """Writes a published document; a file with the same content is not written again."""
    text = document.model_dump_json() + "\n"
    if not path.is_file() or path.read_bytes() != text.encode():
        write_text(path, text)


def publish_events(
    root: Path, config: AnyConfig, events: Iterable[AnomalyEvent], data: Path, problems: Problems
) -> None:
    """Copies the documents of the events to the folder of the page, and adds their paths to the events."""
    folder = ScoringPaths.of(config, root=root).event_documents
    for event in events:
        detail = read_model(folder / f"{event.id}.json", EventDetail, problems)
        if detail is not None and _is_of(event, detail):
            event.detail = f"events/{config.stream}/{event.id}.json"
            write_document(data / event.detail, detail)


def _is_of(event: AnomalyEvent, detail: EventDetail) -> bool:
    """Whether both are of the same scoring; event numbers of different scorings do not correspond."""
    begins = event.start_seconds is not None and math.isclose(event.start_seconds, detail.start_s, abs_tol=1e-6)
    return begins and event.recording == detail.recording


def remove_stale(data: Path, state: DashboardState, active: Iterable[str]) -> None:
    """Removes documents that `state` does not refer to, and temporary files of killed exports. Records of runs are
    kept. active: live documents to keep, relative to `data`."""
    for folder in data.glob("**/"):
        remove_abandoned(folder)
    wanted = {*referenced_files(data, state), *active}
    for path in itertools.chain.from_iterable(map(data.glob, _OWN_FILES)):
        if path.relative_to(data).as_posix() not in wanted:
            path.unlink(missing_ok=True)


def referenced_files(data: Path, state: DashboardState) -> Iterator[str]:
    """Every file that the state refers to, relative to it, except runs."""
    yield from filter(None, [state.fleet])
    for stream in state.streams.values():
        events = stream.detections.events if stream.detections else []
        yield from filter(None, (stream.series, stream.quality_file, *(event.detail for event in events)))
        series = read_model(data / stream.series, Series, Problems(data)) if stream.series else None
        yield from detail_files(series) if series else ()
