"""Writes the documents of the training dashboard: its state, the records of all runs, and details that are loaded on
demand.

    python -m pipelines.export_training_dashboard_state

Reads `runs/`, `artifacts/` and `checkpoints/`. Missing inputs are shown as "not started", damaged ones are listed as
problems. `--single-file FILE` also writes the page and its data to one file, which needs no server.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from core.cli import add_root_argument, print_json, root_of, run_command
from core.config.compose import LoadedConfig, load_config
from core.config.schema import STREAMS, TITLES, AnyConfig, Stream
from core.documents import Document
from core.errors import EXIT_OK, UsageError
from core.lock import Lock
from core.page import STATE
from core.run_status import LiveRun
from core.switching import finish
from core.workspace import relative, schema_text
from inference.events.documents import EventDetail
from pipelines.checklist import REPORT, Checklist
from pipelines.dashboard.detail_documents import Quality, Series, SeriesDetail
from pipelines.dashboard.fleet_documents import FILE as FLEET
from pipelines.dashboard.fleet_documents import FleetState
from pipelines.dashboard.hardware import decisions_of, memory_of, read_device
from pipelines.dashboard.inputs import read_checkpoint, read_scores
from pipelines.dashboard.migrations import read_migration
from pipelines.dashboard.publish import publish_events, remove_stale, write_document
from pipelines.dashboard.quality import publish_quality, quality_summary, read_reports
from pipelines.dashboard.run_documents import RunRecord, RunsIndex, ShownRun
from pipelines.dashboard.runs import read_runs, write_history
from pipelines.dashboard.series import export_series
from pipelines.dashboard.single_file import write_single_file
from pipelines.dashboard.state_documents import DashboardState, Light, RunsSummary, StreamState
from pipelines.dashboard.verdict import known_since, light_of, pipeline_nodes, verdict_of, with_pipeline_run
from pipelines.imported_models import streams_off_here
from pipelines.init_workspace import renew_page
from pipelines.problems import Problems, read_model
from pipelines.steps.records import read_last_run
from pipelines.steps.stages import LivePipeline
from pipelines.stream_configs import CONTRACT, LOCAL_FILES, add_stream_config_arguments, config_files

log = logging.getLogger(__name__)

# Time to wait for another export, which takes seconds.
_WAIT_S = 60.0
# The published documents by name: `--schema NAME` prints the JSON Schema of one.
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


def export_state(
    root: Path,
    *,
    out: Path | None = None,
    persist_run_history: bool = True,
    run_id: str | None = None,
    configs: Mapping[Stream, AnyConfig] = CONTRACT,
    off: Mapping[Stream, str] = MappingProxyType({}),
) -> DashboardState:
    """Gathers the state of the workspace `root`, writes it to `out`, and returns it.

    The other documents are written next to `out`; outdated ones of an earlier export are removed. `run_id` selects the
    run that is shown for the streams it trained; default: the newest run of each stream. `configs`: the configurations
    of the runs, for their output folders. `off`: the streams that are not in use, each with the reason; they do not
    affect the verdict. Damaged inputs are listed in `problems`; only a failed write raises.
    """
    out = out or root / STATE
    now = datetime.now(UTC)
    problems = Problems(root)
    runs = read_runs(root, out.parent / "runs", now, problems, configs=configs)
    if run_id is not None and run_id not in {run.run_id for run in runs}:
        problems.add(root / "runs", f"no folder of run {run_id}; the newest runs are shown instead")
    streams = {stream: describe_stream(root, configs[stream], runs, run_id, out.parent, problems) for stream in STREAMS}
    for name, reason in off.items():
        streams[name].light = Light(state="not in use", detail=f"This stream is not in use; {reason}.")
    # Its own verdict is used even if it contradicts the items.
    checklist, migration = read_model(root / REPORT, Checklist, problems), read_migration(root, problems)
    for name, stream in streams.items():
        stream.collapsed |= failed_as_collapsed(checklist, name, stream)
    summary = RunsSummary(total=len(runs))
    if persist_run_history:
        summary = write_history(runs, out.parent / "runs", problems)
    in_use = {name: stream for name, stream in streams.items() if name not in off}
    nodes, pipeline = pipeline_nodes(in_use, checklist, migration), read_last_run(root, now, problems)
    if pipeline is not None:
        nodes = with_pipeline_run(nodes, pipeline, known_since(in_use, checklist))
    state = DashboardState(
        generated_at=now,
        verdict=verdict_of(nodes),
        pipeline=nodes,
        streams=streams,
        checklist=checklist,
        device=read_device(root, [config.logging.artifacts_dir for config in configs.values()], problems),
        migration=migration,
        runs=summary,
        fleet=FLEET if (out.parent / FLEET).is_file() else None,
        problems=problems.found,
    )
    write_document(out, state)
    active = [f"live/{stream}.json" for stream in streams_in_training(runs)]
    active += [f"live/watch-{stream}.json" for stream in STREAMS]
    if pipeline is not None and pipeline.state == "running":
        active.append("live/pipeline.json")
    remove_stale(out.parent, state, active)
    return state


def describe_stream(
    root: Path,
    config: AnyConfig,
    runs: Sequence[RunRecord],
    run_id: str | None,
    data: Path,
    problems: Problems,
) -> StreamState:
    """One stream: its run, the promoted weights, their scores, and the quality of its data."""
    stream = config.stream
    title, subject = TITLES[stream]
    scores, detections = read_scores(root, config, problems)
    if detections is not None:
        publish_events(root, config, detections.events, data, problems)
    open_events = detections.total - detections.acknowledged if detections is not None else 0
    quality = read_reports(root, config, problems)
    checkpoint = read_checkpoint(root, config, problems)
    common = {
        "title": title,
        "subject": subject,
        "light": light_of(checkpoint, scores, open_events),
        "checkpoint": checkpoint,
        "scores": scores,
        "detections": detections,
        "quality": quality_summary(quality),
        "quality_file": publish_quality(stream, quality, data),
        "series": (export_series(root, config, detections.events, data, problems) if detections else None),
    }
    trained = [run for run in runs if stream in run.streams]
    own = root / config.logging.log_dir
    of_configuration = [run for run in trained if root / (run.streams[stream].log_dir or own) == own]
    newest = of_configuration[0] if of_configuration else None
    shown = next((run for run in trained if run.run_id == run_id), newest)
    if shown is None:
        return StreamState(state="not started", **common)
    run = shown.streams[stream]
    return StreamState(
        run_id=shown.run_id,
        decisions=decisions_of(run.environment),
        memory=memory_of(run),
        **{name: getattr(run, name) for name in ShownRun.model_fields},
        **common,
    )


def failed_as_collapsed(checklist: Checklist | None, name: Stream, stream: StreamState) -> bool:
    """Whether the check of the model failed, and no run of the stream has ended since."""
    if checklist is None:
        return False
    checked, ended = checklist.generated_at, stream.finished_at
    is_current = checked is None or ended is None or checked >= ended
    collapsed = f"V-03.collapse.{name}"
    return is_current and any(item.id == collapsed and item.status == "FAIL" for item in checklist.items)


def streams_in_training(runs: Sequence[RunRecord]) -> set[Stream]:
    return {name for run in runs for name, stream in run.streams.items() if stream.state == "running"}


def schema_of(name: str) -> str:
    """The JSON Schema of a document. The export writes every field, the trainer only those that it knows of the run."""
    model = DOCUMENTS[name]
    return schema_text(model, mode="validation" if model is LiveRun else "serialization")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="landfall export",
        description=__doc__.partition("\n\n")[0],
        epilog="One line of JSON about the export is printed to stdout, everything else to stderr.",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help=f"state file to write (default: {STATE})")
    parser.add_argument(
        "--persist-run-history",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="write the records and the index of all runs; they are kept when run folders are deleted",
    )
    parser.add_argument("--run-id", metavar="ID", help="show this run instead of the newest")
    add_stream_config_arguments(parser)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="overrides of both streams, as for the run")
    parser.add_argument(
        "--single-file", type=Path, metavar="FILE", help="also write the page with its data as one file"
    )
    parser.add_argument("--schema", choices=DOCUMENTS, help="print the JSON Schema of a document instead")
    add_root_argument(parser)
    return run_command(_export, parser, argv)


def loaded_configs(root: Path, files: Mapping[Stream, str], overrides: Sequence[str]) -> dict[Stream, LoadedConfig]:
    """The configurations of the streams. If a local configuration is missing or invalid, it is left out, the latter
    with a warning: the default folders are then used, so that an export is always possible. Raises UsageError for an
    invalid file of another name.
    """
    configs = {}
    for stream, file in files.items():
        is_local = file == LOCAL_FILES[stream]
        if is_local and not (root / file).is_file():
            continue
        try:
            configs[stream] = load_config(file, overrides, root=root)
        except UsageError as error:
            if not is_local:
                raise
            log.warning("%s: %s; the standard folders are read", file, error.message)
    return configs


def _export(arguments: argparse.Namespace) -> int:
    if arguments.schema:
        sys.stdout.write(schema_of(arguments.schema))
        return EXIT_OK
    root = root_of(arguments)
    out = arguments.out.resolve() if arguments.out else root / STATE
    configs = loaded_configs(root, config_files(arguments), arguments.overrides)
    off = streams_off_here(configs, root) if len(configs) == len(STREAMS) else {}
    with Lock(command="landfall export") as lock:
        lock.take(out, key="--out", wait_s=_WAIT_S)
        finish(root)
        renew_page(root)
        state = export_state(
            root, out=out, persist_run_history=arguments.persist_run_history, run_id=arguments.run_id,
            configs={**CONTRACT, **{stream: loaded.config for stream, loaded in configs.items()}},
            off=off,
        )  # fmt: skip
    states = {name: "not in use" if name in off else stream.state for name, stream in state.streams.items()}
    summary = {
        "written": relative(out, root),
        "verdict": state.verdict.state,
        "streams": states,
        "runs": state.runs.total,
        "problems": len(state.problems),
    }
    if arguments.single_file:
        path = arguments.single_file.resolve()
        summary["single_file"] = relative(write_single_file(root, path, data=out.parent), root)
    print_json(summary)
    return EXIT_OK


if __name__ == "__main__":
    raise SystemExit(main())
