"""The JSON Schemas of the dashboard's documents: `landfall export --schema NAME` prints one."""

from __future__ import annotations

from core.workspace import schema_text
from pipelines.dashboard.detail_documents import EventDetail, Quality, Series, SeriesDetail
from pipelines.dashboard.documents import Document
from pipelines.dashboard.fleet_documents import FleetState
from pipelines.dashboard.run_documents import LiveRun, RunRecord, RunsIndex
from pipelines.dashboard.state_documents import DashboardState, LivePipeline

DOCUMENTS: dict[str, type[Document]] = {
    "dashboard-state": DashboardState,
    "run": RunRecord,
    "runs-index": RunsIndex,
    "live-run": LiveRun,
    "live-pipeline": LivePipeline,
    "series": Series,
    "series-detail": SeriesDetail,
    "event": EventDetail,
    "quality": Quality,
    "fleet": FleetState,
}


def schema_of(name: str) -> str:
    """The JSON Schema of a document. The export writes every field; the trainer writes only the fields that it knows of
    the current run.
    """
    model = DOCUMENTS[name]
    return schema_text(model, mode="validation" if model is LiveRun else "serialization")
