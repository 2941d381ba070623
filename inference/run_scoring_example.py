"""Scores a stream and finds events: `python -m inference.run_scoring_example --stream patchtst [key=value …]`.

Notebooks and pipelines call `score_stream`. `--help` and `--print-config` never import torch.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.checkpoint import describe, detector_path
from core.cli import add_config_arguments, config_of, print_config, root_of, run_command
from core.config.compose import LoadedConfig, local_config_file
from core.config.schema import STREAMS, AnyConfig, Scoring
from core.devices.process import start_right
from core.errors import EXIT_OK
from core.lock import Lock
from core.numbers import plain
from core.reading import read_json_object
from core.stopping import StopRequest
from core.switching import finish
from core.workspace import atomic_file, relative, utc_now, write_json, write_text
from inference.provenance import detector_sha256, made_of, reasons_to_score

if TYPE_CHECKING:
    import pandas as pd

    from core.data.recording import Recording
    from inference.detector import Detector
    from inference.scoring import ScoringModel
    from inference.thresholds import CalibratedThreshold

log = logging.getLogger(__name__)

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class ScoringPaths:
    """What scoring writes."""

    scores: Path
    events: Path
    events_json: Path
    event_documents: Path
    timeline: Path
    summary: Path

    @property
    def tables(self) -> tuple[Path, ...]:
        """Those that every scoring writes, but the summary."""
        return self.scores, self.events, self.events_json, self.timeline

    @classmethod
    def of(cls, config: AnyConfig, *, root: Path) -> ScoringPaths:
        folder, stream = root / config.logging.artifacts_dir / "scores", config.stream
        return cls(
            scores=folder / f"{stream}_scores.parquet",
            events=folder / f"{stream}_events.csv",
            events_json=folder / f"{stream}_events.json",
            event_documents=folder / f"{stream}_events",
            timeline=folder / f"{stream}_timeline.png",
            summary=folder / f"{stream}_summary.json",
        )


@dataclass(frozen=True)
class ScoringResult:
    """scores: see `inference.score_table`. events: see `inference.events`. summary: what the JSON holds."""

    scores: pd.DataFrame
    events: pd.DataFrame
    threshold: CalibratedThreshold
    summary: dict[str, Any]
    paths: ScoringPaths

    @property
    def timeline_png(self) -> Path:
        return self.paths.timeline


def score_stream(loaded: LoadedConfig, *, root: Path, checkpoint: Path | str | None = None) -> ScoringResult:
    """Scores the test part by the detector of the model, fitted where there is none that serves, and writes table,
    events, picture and summary.

    checkpoint: relative to `root`; default: the configuration's.
    Raises CheckpointError for a checkpoint that is missing, torn or of another configuration, DataError for data that
    cannot be scored or too little of it to set a threshold, and StoppedError after a signal, or near the wall-time
    limit if a new start has more time.
    """
    with StopRequest(loaded.config.timeout_hours, keeps_nothing=True), scoring_lock(loaded, root, checkpoint):
        return _score_stream(loaded, root=root, checkpoint=checkpoint)


@contextmanager
def scoring_lock(loaded: LoadedConfig, root: Path, checkpoint: Path | str | None) -> Iterator[None]:
    """While it is held, no other command replaces the model or writes its detector and scores.

    Raises LockedError where one does.
    """
    config = loaded.config
    with Lock(command=f"landfall score --stream {config.stream}") as lock:
        lock.take_if_writable(root / (checkpoint or config.logging.checkpoint_path), key="--checkpoint")
        lock.take(ScoringPaths.of(config, root=root).summary, key="logging.artifacts_dir")
        finish(root)
        yield


def _score_stream(loaded: LoadedConfig, *, root: Path, checkpoint: Path | str | None) -> ScoringResult:
    from core.devices import memory
    from inference.event_documents import write_event_documents
    from inference.event_views import Scored
    from inference.events import find_events
    from inference.panels import write_panels
    from inference.score_table import sample_of, score_table, write_scores
    from inference.stored_detector import detector_and_data, open_model
    from inference.stream_scores import model_errors
    from inference.thresholds import departure
    from inference.timeline import plot_timeline
    from inference.what_if import what_if

    config, scoring = open_model(loaded, root=root, checkpoint=checkpoint)
    # Before anything is read: a file that changes while scoring runs then makes the scores out of date.
    sources = made_of(loaded.config, root=root, checkpoint=scoring.path, checkpoint_sha256=scoring.sha256)
    with memory.applied(scoring.plan):
        detector, data = detector_and_data(config, scoring, root=root)
        sources["model"]["detector"] = detector_sha256(scoring.path)  # that may have been fitted just now
        windows = data.parts["test"]
        errors = model_errors(config, scoring, windows, "test", keep_expected=True)
        test = detector.score(errors, windows)
    threshold = detector.threshold
    scores = score_table(
        test, windows.series, windows.segments.rows_k2, channels=data.channels, threshold=threshold.value
    )
    events = find_events(scores, config.scoring, channel_error_sc=test.channel_error_sc, channels=data.channels)

    paths = ScoringPaths.of(config, root=root)
    judged = _detection(scores, threshold.value, config.scoring)
    summary = _summary(scores, events, detector, judged, scoring=scoring, paths=paths, root=root)
    scored = sample_of(scores, span=config.scoring.smoothing_span)
    summary["threshold"]["departure"] = departure(threshold, detector.sample, scored)
    summary["what_if"] = what_if(detector.sample, scores, threshold.value, config.scoring)
    summary["missed_faults"] = _missed_faults(scores, config.scoring, windows.series.recordings) if judged else []
    # The old summary goes first and the new one comes last: a summary on disk never speaks of other files.
    with atomic_file(paths.scores) as part:
        write_scores(scores, part)
        paths.summary.unlink(missing_ok=True)
    write_text(paths.events, events.to_csv(index=False, lineterminator="\n"))
    write_text(
        paths.events_json, events.to_json(orient="records", date_format="iso", indent=2, force_ascii=False) + "\n"
    )
    plot_timeline(
        paths.timeline, scores, events, channel_error_sc=test.channel_error_sc, channels=data.channels,
        threshold=threshold.value, title=_title(summary),
    )  # fmt: skip
    scored = Scored(scoring, windows, test, scores, errors.expected_sc, detector.statistics)
    documents = write_event_documents(paths.event_documents, scored, events)
    summary["panels"] = write_panels(paths.summary.parent, scored, events, root=root)
    written = [relative(path, root) for path in (*paths.tables, *documents)]
    summary["files"] = [*written, *(panel["png"] for panel in summary["panels"])]
    summary["made_of"] = sources
    write_json(paths.summary, summary)
    log.info("%s", _title(summary))
    log.info("%s", threshold.statement)
    if summary["threshold"]["departure"]:
        log.warning("%s", summary["threshold"]["departure"])
    return ScoringResult(scores, events, threshold, summary, paths)


def read_summary(config: AnyConfig, *, root: Path) -> dict[str, Any] | None:
    """What the latest scoring wrote, or None where there is none, or none that can be read."""
    try:
        return read_json_object(ScoringPaths.of(config, root=root).summary)
    except (OSError, ValueError):
        return None


def why_not_current(config: AnyConfig, *, root: Path, checkpoint: Path | str | None = None) -> list[str]:
    """Why the scores on disk are not those that scoring would give now, in words; empty where they are current.

    Raises CheckpointError where there is no checkpoint.
    """
    path = root / (checkpoint or config.logging.checkpoint_path)
    summary, sha256 = read_summary(config, root=root), describe(path)["sha256"]
    return reasons_to_score(summary, config, root=root, checkpoint=path, checkpoint_sha256=sha256)


# -------------------------------------------------------------------------------------------------------------- summary
def _summary(
    scores: pd.DataFrame,
    events: pd.DataFrame,
    detector: Detector,
    detection: dict[str, float | None] | None,
    *,
    scoring: ScoringModel,
    paths: ScoringPaths,
    root: Path,
) -> dict[str, Any]:
    num_scored = int(scores["score"].notna().sum())
    return {
        "schema_version": SCHEMA_VERSION,
        "stream": scoring.stream,
        "run_id": scoring.run_id,
        "checkpoint": relative(scoring.path, root),
        "checkpoint_sha256": scoring.sha256,
        "scored_at": utc_now(),
        "device": scoring.plan.to_json(),
        "scores": num_scored,
        "recordings": int(scores["recording"].nunique()),
        "alarms": int(scores["alarm"].sum()),
        "events": len(events),
        "unscored_rows": len(scores) - num_scored,
        "threshold": detector.threshold.to_json(),
        "detector": {
            "file": relative(detector_path(scoring.path), root),
            "made_at": detector.made_at,
            "recordings": len(detector.recordings),
            "change": detector.change,
        },
        "detection": detection,
        "timeline": {"png": relative(paths.timeline, root)},
    }


def _detection(scores: pd.DataFrame, threshold: float, settings: Scoring) -> dict[str, float | None] | None:
    """Figures over the scores that have a label, and over events; None without any label. What is undefined is None:
    JSON has no NaN."""
    from inference.event_figures import event_figures
    from inference.metrics import detection_metrics

    judged = scores[scores["label"].notna() & scores["score"].notna()]
    if judged.empty:
        return None
    figures = detection_metrics(judged["score"].to_numpy(), judged["label"].to_numpy(dtype="int8"), threshold)
    found = {**asdict(figures), **event_figures(scores, settings)}
    return {name: value if math.isfinite(value) else None for name, value in found.items()}


def _missed_faults(scores: pd.DataFrame, settings: Scoring, recordings: Sequence[Recording]) -> list[dict[str, Any]]:
    """The labelled faults that no event was matched to, with their names where the label files give them."""
    from core.data.labels import fault_names
    from inference.event_figures import missed_faults

    missed = missed_faults(scores, settings)
    missed["fault"] = None
    for recording in recordings:
        mine = missed["recording"] == recording.file_id
        if mine.any():
            spans = missed.loc[mine, ["start_seconds", "end_seconds"]].to_numpy().tolist()
            missed.loc[mine, "fault"] = fault_names(recording, spans)
    return json.loads(missed.to_json(orient="records", date_format="iso", date_unit="s"))


def _title(summary: dict[str, Any]) -> str:
    unscored = f", {summary['unscored_rows']} unscored" if summary["unscored_rows"] else ""
    return (
        f"{summary['stream']}: {summary['events']} events ({summary['alarms']} alarms) in {summary['scores']} scores"
        f"{unscored}, threshold {plain(summary['threshold']['value'])}, run {summary['run_id']}"
    )


# --------------------------------------------------------------------------------------------------------- command line
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="landfall score", description="Scores the test part of a stream and finds events."
    )
    parser.add_argument("--stream", choices=STREAMS, required=True, help="what to score")
    parser.add_argument("--checkpoint", metavar="FILE", help="model (default: logging.checkpoint_path)")
    parser.add_argument("--unless-current", action="store_true", help="do nothing where the scores on disk are current")
    add_config_arguments(
        parser, default=local_config_file("<stream>"), example="scoring.threshold.false_alarm_rate=0.001"
    )
    parser.set_defaults(config=None)
    return run_command(_score, parser, argv)


def _score(arguments: argparse.Namespace) -> int:
    arguments.config = arguments.config or local_config_file(arguments.stream)
    loaded = config_of(arguments, stream=arguments.stream)
    if arguments.print_config:
        return print_config(arguments, loaded)
    if arguments.unless_current:
        reasons = why_not_current(loaded.config, root=root_of(arguments), checkpoint=arguments.checkpoint)
        if not reasons:
            log.info("%s: the scores are current", loaded.config.stream)
            return EXIT_OK
        log.info("%s: scores are recomputed: %s", loaded.config.stream, "; ".join(reasons))
    if arguments.owns_process:
        start_right(loaded.config)
    result = score_stream(loaded, root=root_of(arguments), checkpoint=arguments.checkpoint)
    json.dump(result.summary, sys.stdout, indent=2)
    sys.stdout.write("\n")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
