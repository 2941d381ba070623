"""The JSON Schemas of the dashboard's documents, generated from their models.

python -m pipelines.dashboard.schemas --write
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from core.cli import add_root_argument, root_of, run_command
from core.errors import EXIT_OK
from core.workspace import relative, write_text
from pipelines.dashboard.detail_documents import EventDetail, Quality, Series, SeriesDetail
from pipelines.dashboard.documents import Document
from pipelines.dashboard.run_documents import LiveRun, RunRecord, RunsIndex
from pipelines.dashboard.state_documents import DashboardState, LivePipeline

FOLDER = "training_dashboard/schema"
SCHEMAS: dict[str, type[Document]] = {
    "dashboard-state.schema.json": DashboardState,
    "run.schema.json": RunRecord,
    "runs-index.schema.json": RunsIndex,
    "live-run.schema.json": LiveRun,
    "live-pipeline.schema.json": LivePipeline,
    "series.schema.json": Series,
    "series-detail.schema.json": SeriesDetail,
    "event.schema.json": EventDetail,
    "quality.schema.json": Quality,
}


def schema_text(model: type[Document]) -> str:
    """The JSON Schema of a document, as it is published. The export writes every field; the trainer writes only the
    fields that it knows of the current run.
    """
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    mode = "validation" if model is LiveRun else "serialization"
    return json.dumps(dialect | model.model_json_schema(mode=mode), indent=2, ensure_ascii=False) + "\n"


def write_schemas(folder: Path) -> list[Path]:
    """Writes every published schema into `folder` and returns the files."""
    for name, model in SCHEMAS.items():
        write_text(folder / name, schema_text(model))
    return [folder / name for name in SCHEMAS]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pipelines.dashboard.schemas", description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", required=True, help=f"write them to {FOLDER}")
    add_root_argument(parser)
    return run_command(_write, parser, argv)


def _write(arguments: argparse.Namespace) -> int:
    root = root_of(arguments)
    written = write_schemas(root / FOLDER)
    sys.stdout.write(json.dumps({"written": [relative(path, root) for path in written]}) + "\n")
    return EXIT_OK


if __name__ == "__main__":
    raise SystemExit(main())
