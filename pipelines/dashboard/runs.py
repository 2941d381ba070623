"""Run folders as records: `runs/<stream>_ssl/<run-id>/` of both streams become one `RunRecord`."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from core.config.schema import STREAMS, AnyConfig, Stream
from core.documents import Time, explain, jsonable
from core.livefile import MAX_STEPS
from core.names import is_run_id
from core.promotion import WEIGHTS_FILE
from core.reading import read_yaml
from core.run_facts import DETECTION, NOTES, RunDetection, RunNotes
from core.run_status import Best, EpochPoint, RunState, RunStatus, StepPoint
from core.runlog import metrics_lines
from core.thinning import kept
from core.workspace import relative
from pipelines.dashboard.hardware import device_in_words
from pipelines.dashboard.publish import write_document
from pipelines.dashboard.run_documents import Environment, RunEntry, RunRecord, RunsIndex, RunStream
from pipelines.dashboard.state_documents import RunsSummary
from pipelines.folders import has_file, paths_in, skipped_by_glob
from pipelines.problems import Problems, read_model
from pipelines.stream_configs import CONTRACT

log = logging.getLogger(__name__)

# Records of an earlier format are created again.
_RECORD_FORMAT = 8
# A loss above this multiple of its minimum has diverged; a loss that changes by less than this share is constant.
_DIVERGED, _CONSTANT = 1.5, 1e-4
_FEWEST_EPOCHS = 3
_FILES = ("status.json", "metrics.jsonl", "config.yaml", "environment.json", DETECTION, NOTES)
# The state of a run is that of its most urgent stream.
_URGENCY: tuple[RunState, ...] = ("running", "failed", "stopped", "unreadable", "completed")
_TIME: TypeAdapter[datetime | None] = TypeAdapter(Time | None)
_OLDEST = datetime.min.replace(tzinfo=UTC)


# ------------------------------------------------------------------------------------------------------------- history
def read_runs(
    root: Path, records: Path, now: datetime, problems: Problems, *, configs: Mapping[Stream, AnyConfig] = CONTRACT
) -> list[RunRecord]:
    """A record of every run folder, newest first; a record in `records` is reused if no file has changed since.

    The other folders of `runs/` contain runs of other configurations, such as the pool's.
    """
    folders: dict[str, dict[Stream, Path]] = {}
    for stream, log_dir in _log_folders(root, configs):
        skipped = dict(skipped_by_glob(log_dir))
        for path, reason in skipped.items():
            problems.add(path, reason)
        for folder in paths_in(log_dir, "*/"):
            if folder in skipped:
                continue
            if is_run_id(folder.name):
                folders.setdefault(folder.name, {}).setdefault(stream, folder)
            else:
                problems.add(folder, "not a run id; the folder is ignored")
    runs = newest_first(read_run(run_id, streams, records, now, problems) for run_id, streams in folders.items())
    for run in runs:
        for name, stream in run.streams.items():
            weights = folders[run.run_id][name] / WEIGHTS_FILE
            notebook = root / configs[name].logging.artifacts_dir / "notebooks" / run.run_id / f"local_{name}_ssl.ipynb"
            stream.weights = relative(weights, root) if has_file(weights) else None
            stream.notebook = next(
                (relative(file, root) for file in (notebook.with_suffix(".html"), notebook) if has_file(file)), None
            )
    return runs


def _log_folders(root: Path, configs: Mapping[Stream, AnyConfig]) -> Iterator[tuple[Stream, Path]]:
    """Streams and the folders of their runs: first those of the configurations."""
    own = {root / config.logging.log_dir: stream for stream, config in configs.items()}
    yield from ((stream, folder) for folder, stream in own.items())
    for folder in paths_in(root / "runs", "*/"):
        stream = next((stream for stream in STREAMS if folder.name.startswith(stream)), None)
        if stream is not None and folder not in own:
            yield stream, folder


def write_history(runs: Sequence[RunRecord], records: Path, problems: Problems) -> RunsSummary:
    """Writes the record of every run that changed, and the index, a line per run, which keeps runs whose folders were
    deleted."""
    present = {run.run_id for run in runs}
    for run in runs:
        write_document(records / f"{run.run_id}.json", run)
    removed = [path for path in sorted(records.glob("*.json")) if path.stem not in {"index", *present}]
    kept = [record for path in removed if (record := read_model(path, RunRecord, problems)) is not None]
    every = newest_first([*runs, *kept])
    entries = [_entry(record, folder_present=record.run_id in present) for record in every]
    write_document(records / "index.json", RunsIndex(runs=entries))
    return RunsSummary(total=len(every), exported=True)


def newest_first(records: Iterable[RunRecord]) -> list[RunRecord]:
    return sorted(records, key=lambda record: (record.started_at or _OLDEST, record.run_id), reverse=True)


def _entry(record: RunRecord, *, folder_present: bool) -> RunEntry:
    details = {"history": [], "step_history": [], "config": None, "environment": None}
    streams = {name: stream.model_copy(update=details) for name, stream in record.streams.items()}
    return RunEntry(**{**dict(record), "streams": streams}, folder_present=folder_present)


# ------------------------------------------------------------------------------------------------------------- one run
def read_run(run_id: str, folders: dict[Stream, Path], records: Path, now: datetime, problems: Problems) -> RunRecord:
    """The record of one run, from its folders or, if they have not changed, from the record of the last export."""
    signature = _signature(folders)
    known = read_model(records / f"{run_id}.json", RunRecord, problems)
    # The duration of a run that is marked as running changes although its files do not.
    if known is not None and known.signature == signature and known.state != "running":
        problems.found.extend(known.problems)
        return known
    own = Problems(problems.root)
    streams = {
        stream: read_stream(folder, now, own).model_copy(update={"log_dir": relative(folder.parent, problems.root)})
        for stream, folder in folders.items()
    }
    problems.found.extend(own.found)
    state = min((stream.state for stream in streams.values()), key=_URGENCY.index)
    starts = [stream.started_at for stream in streams.values() if stream.started_at]
    ends = [time for stream in streams.values() if (time := stream.finished_at or stream.updated_at)]
    return RunRecord(
        run_id=run_id,
        state=state,
        reason=next((stream.reason for stream in streams.values() if stream.state == state and stream.reason), None),
        started_at=min(starts, default=None),
        duration_seconds=max(0.0, (max(ends) - min(starts)).total_seconds()) if starts and ends else None,
        streams=streams,
        problems=own.found,
        signature=signature,
    )


def read_stream(folder: Path, now: datetime, problems: Problems) -> RunStream:
    """One stream of a run; if the status is missing or damaged, its state is `unreadable`, with the reason."""
    epochs, steps, first_time = read_history(folder / "metrics.jsonl", problems)
    environment = read_model(folder / "environment.json", Environment, problems)
    common: dict[str, Any] = {
        "history": epochs,
        "step_history": decimate(steps),
        "nan_steps": sum(step.loss is None for step in steps),
        "collapsed": has_collapsed(epochs),
        "hardware": device_in_words(environment.device) if environment else None,
        "environment": environment,
        "detection": read_model(folder / DETECTION, RunDetection, problems),
        "notes": read_model(folder / NOTES, RunNotes, problems),
        "config": read_config(folder / "config.yaml", problems),
    }
    status_file = folder / "status.json"
    status = read_model(status_file, RunStatus, problems)
    if status is None:
        reason = "status.json is damaged" if status_file.exists() else "status.json is missing"
        if not status_file.exists():
            problems.add(status_file, "missing; the state of the run is unknown")
        stream = RunStream(state="unreadable", reason=reason, epoch=epochs[-1].epoch if epochs else 0, **common)
    else:
        stream = RunStream(**dict(status) | common)
        if status.is_killed(now):
            stream.state, stream.reason = "stopped", "no longer running"
    if stream.state != "running":
        stream.eta_seconds = None
    stream.started_at = stream.started_at or first_time
    stream.best = stream.best or _best_of(epochs)
    return stream


def read_history(path: Path, problems: Problems) -> tuple[list[EpochPoint], list[StepPoint], datetime | None]:
    """Epochs, steps and the first time stamp of a metrics log.

    A resumed run repeats the epoch in which it was stopped: the later record of an epoch or step is used. A truncated
    last line is normal after a kill and only logged; damage elsewhere is a problem.
    """
    epochs: dict[int, EpochPoint] = {}
    steps: dict[tuple[int, int], StepPoint] = {}
    first_time: datetime | None = None
    damaged: list[int] = []
    number = 0
    try:
        for number, record in metrics_lines(path):
            try:
                if record is None:
                    raise ValueError("is not a record")
                if record["kind"] == "epoch":
                    point = EpochPoint.model_validate(record)
                    epochs[point.epoch] = point
                elif record["kind"] == "step":
                    step = StepPoint.model_validate(record)
                    steps[step.epoch, step.step] = step
                first_time = first_time or _TIME.validate_python(record.get("time"))
            except ValueError:
                damaged.append(number)
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        problems.add(path, explain(error))
    if damaged and damaged[-1] == number:
        log.warning("%s: line %d is truncated and skipped", relative(path, problems.root), damaged.pop())
    if damaged:
        problems.add(path, f"{len(damaged)} unreadable lines skipped, the first is line {damaged[0]}")
    return [epochs[key] for key in sorted(epochs)], [steps[key] for key in sorted(steps)], first_time


def read_config(path: Path, problems: Problems) -> dict[str, Any] | None:
    """The composed configuration; None if it is missing or damaged."""
    try:
        config = read_yaml(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        problems.add(path, explain(error))
        return None
    if not isinstance(config, dict):
        problems.add(path, "not a mapping of keys to values")
        return None
    return jsonable(config)


def decimate(points: Sequence[StepPoint]) -> list[StepPoint]:
    """At most `MAX_STEPS` points, including the first, the last, the extremes and the gaps."""
    loss_n = np.array([math.nan if point.loss is None else point.loss for point in points])
    return [points[index] for index in kept(loss_n, MAX_STEPS).tolist()]


def has_collapsed(epochs: Sequence[EpochPoint]) -> bool:
    """Whether the training loss was constant, or ended far above its minimum; False with too few epochs."""
    losses = [point.train_loss for point in epochs if point.train_loss is not None]
    if len(losses) < _FEWEST_EPOCHS:
        return False
    lowest, highest = min(losses), max(losses)
    return highest - lowest <= _CONSTANT * abs(highest) or losses[-1] > _DIVERGED * lowest


def _best_of(epochs: Sequence[EpochPoint]) -> Best | None:
    found = [
        Best(epoch=point.epoch, val_loss=point.val_loss, skill=point.skill)
        for point in epochs
        if point.val_loss is not None
    ]
    return min(found, key=lambda best: best.val_loss, default=None)


def _signature(folders: dict[Stream, Path]) -> str:
    digest = hashlib.sha256(f"format {_RECORD_FORMAT}\n".encode())
    for stream, folder in folders.items():
        for name in _FILES:
            try:
                facts = (folder / name).stat()
            except OSError:  # missing, or reported by its reader
                continue
            digest.update(f"{stream}/{name} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()
