"""Writes what the training dashboard shows: its state, the records of all runs, pictures and the chart library.

    python -m pipelines.export_training_dashboard_state

Reads `runs/`, `artifacts/` and `checkpoints/`; whatever is absent is "not started", whatever is damaged is listed as
a problem. Everything the page needs lands in `training_dashboard/`, so that it opens without a network.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import logging
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from core.cli import add_root_argument, root_of, run_command
from core.config.schema import STREAMS, Stream
from core.errors import EXIT_OK
from core.workspace import relative, write_bytes, write_text
from pipelines.dashboard_inputs import (
    Problems,
    explain,
    read_checklist,
    read_checkpoint,
    read_quality,
    read_scores,
)
from pipelines.dashboard_runs import index_of, kept_records, newest_first, read_runs
from pipelines.dashboard_state import (
    DashboardState,
    Detections,
    Document,
    RunRecord,
    RunsSummary,
    RunStream,
    ScoreSummary,
    StreamState,
)
from pipelines.dashboard_verdict import pipeline_nodes, verdict_of

log = logging.getLogger(__name__)

DEFAULT_OUT = "training_dashboard/data/dashboard-state.json"
VENDOR = "training_dashboard/vendor"
PNG = b"\x89PNG\r\n\x1a\n"
TITLES: dict[Stream, tuple[str, str]] = {
    "patchtst": ("PatchTST-SSL", "process sensors (FDC)"),
    "swinmae": ("Swin-MAE", "vibration scalograms"),
}


def export_state(
    root: Path, *, out: Path | None = None, persist_run_history: bool = True, run_id: str | None = None
) -> DashboardState:
    """Gathers the state of the workspace `root`, writes it to `out`, and returns it.

    Run records and pictures are written beside `out`. `run_id` asks to show that run for the streams it trained;
    otherwise every stream shows its newest run. Damaged inputs are listed in `problems`; only a failing write raises.
    """
    out = out or root / DEFAULT_OUT
    now = datetime.now(UTC)
    problems = Problems(root)
    runs = read_runs(root, out.parent / "runs", now, problems)
    if run_id is not None and run_id not in {run.run_id for run in runs}:
        problems.add(root / "runs", f"no folder of run {run_id}; the newest runs are shown instead")
    streams = {stream: describe_stream(root, stream, runs, run_id, out.parent, problems) for stream in STREAMS}
    checklist = read_checklist(root, problems)
    copy_chart_library(root, problems)
    summary = write_history(runs, out.parent / "runs", problems) if persist_run_history else summarise(runs)
    nodes = pipeline_nodes(streams, checklist)
    state = DashboardState(
        generated_at=now,
        verdict=verdict_of(nodes),
        pipeline=nodes,
        streams=streams,
        checklist=checklist,
        runs=summary,
        problems=problems.found,
    )
    write_document(out, state)
    return state


def describe_stream(
    root: Path, stream: Stream, runs: Sequence[RunRecord], run_id: str | None, data: Path, problems: Problems
) -> StreamState:
    """One stream: its run, the weights in use, their scores, and the quality of its data."""
    title, subject = TITLES[stream]
    scores, detections = read_scores(root, stream, problems)
    common = {
        "title": title,
        "subject": subject,
        "checkpoint": read_checkpoint(root, stream, problems),
        "scores": scores,
        "detections": detections,
        "quality": read_quality(root, stream, problems),
    }
    copy_pictures(root, stream, scores, detections, data, problems)
    trained = [run for run in runs if stream in run.streams]
    shown = next((run for run in trained if run.run_id == run_id), trained[0] if trained else None)
    if shown is None:
        return StreamState(state="not started", **common)
    run = shown.streams[stream]
    shared = StreamState.model_fields.keys() & RunStream.model_fields.keys() - common.keys()
    device = run.environment.device if run.environment else None
    facts = {name: getattr(run, name) for name in shared}
    return StreamState(run_id=shown.run_id, progress=progress_of(run), device=device, **facts, **common)


def progress_of(run: RunStream) -> float:
    """Share of the planned work done; a run that completed early is done."""
    if run.state == "completed":
        return 1.0
    done, planned = (run.step, run.steps) if run.steps else (run.epoch, run.epochs)
    return min(1.0, done / planned) if planned else 0.0


def write_history(runs: Sequence[RunRecord], folder: Path, problems: Problems) -> RunsSummary:
    """Writes the record of every run that changed, and the index, which keeps runs whose folders were deleted."""
    present = {run.run_id for run in runs}
    for run in runs:
        write_document(folder / f"{run.run_id}.json", run)
    every = newest_first([*runs, *kept_records(folder, present, problems)])
    write_document(folder / "index.json", index_of(every, present))
    return summarise(every, exported=True)


def summarise(runs: Sequence[RunRecord], *, exported: bool = False) -> RunsSummary:
    counts = Counter(run.state for run in runs)
    return RunsSummary(
        total=len(runs), by_state=dict(counts), latest=runs[0].run_id if runs else None, exported=exported
    )


def write_document(path: Path, document: Document) -> None:
    """Writes a published document; a file that already says the same is left alone."""
    text = document.model_dump_json() + "\n"
    if not path.is_file() or path.read_bytes() != text.encode():
        write_text(path, text)


def copy_pictures(
    root: Path,
    stream: Stream,
    scores: ScoreSummary | None,
    detections: Detections | None,
    data: Path,
    problems: Problems,
) -> None:
    """Copies the pictures of a scoring to where the page can load them, and names them there; events of an earlier
    scoring lose theirs."""
    timeline = copy_picture(root, f"{stream}_timeline.png", data, problems)
    if scores is not None:
        scores.timeline = timeline
    events = [event for event in (detections.events if detections else ()) if event.picture]
    for event in events:
        event.picture = copy_picture(root, event.picture, data, problems)
    for path in data.glob(f"{stream}_event_*.png"):
        if path.name not in {event.picture for event in events}:
            path.unlink()


def copy_picture(root: Path, name: str, data: Path, problems: Problems) -> str | None:
    """Copies a picture of the scores; returns its name, None without a picture."""
    source = root / "artifacts/scores" / name
    try:
        picture = source.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        problems.add(source, explain(error))
        return None
    if not picture.startswith(PNG):
        problems.add(source, "not a PNG picture")
        return None
    write_bytes(data / name, picture)
    return name


def copy_chart_library(root: Path, problems: Problems) -> None:
    """Copies plotly.js out of the installed package, so that the page needs no network; once per version."""
    target = root / VENDOR / "plotly.min.js"
    stamp = root / VENDOR / "plotly.version"
    try:
        version = importlib.metadata.version("plotly")
        if target.is_file() and stamp.is_file() and stamp.read_text() == version:
            return
        # Found without importing plotly, which takes longer than the copy.
        package = Path(importlib.util.find_spec("plotly").origin).parent
        library = (package / "package_data" / "plotly.min.js").read_bytes()
    except (importlib.metadata.PackageNotFoundError, OSError) as error:
        log.debug("chart library: %s", error)
        problems.add(root / VENDOR, "no chart library: python -m pip install plotly, then export again")
        return
    write_bytes(target, library)
    write_text(stamp, version)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m pipelines.export_training_dashboard_state",
        description=__doc__.partition("\n\n")[0],
        epilog="One line of JSON about the export goes to stdout, everything else to stderr.",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help=f"state file to write (default: {DEFAULT_OUT})")
    parser.add_argument(
        "--persist-run-history",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="write a record of every run and the index of runs beside the state; records outlive their run folders",
    )
    parser.add_argument("--run-id", metavar="ID", help="show this run instead of the newest")
    add_root_argument(parser)
    return run_command(_export, parser, argv)


def _export(arguments: argparse.Namespace) -> int:
    root = root_of(arguments)
    out = arguments.out.resolve() if arguments.out else root / DEFAULT_OUT
    state = export_state(root, out=out, persist_run_history=arguments.persist_run_history, run_id=arguments.run_id)
    summary = {
        "written": relative(out, root),
        "verdict": state.verdict.state,
        "streams": {name: stream.state for name, stream in state.streams.items()},
        "runs": state.runs.total,
        "problems": len(state.problems),
    }
    sys.stdout.write(json.dumps(summary) + "\n")
    return EXIT_OK


if __name__ == "__main__":
    raise SystemExit(main())
