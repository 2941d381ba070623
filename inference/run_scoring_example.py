"""Scores a stream and finds events: `python -m inference.run_scoring_example --stream patchtst [key=value …]`.

Notebooks and pipelines call `score_stream`. `--help` and `--print-config` do not import torch.
"""

from __future__ import annotations

import argparse
import json
import logging
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from core.checkpoint import describe
from core.cli import (
    add_config_arguments,
    add_detector_arguments,
    check_detector_arguments,
    root_of,
    root_words,
    run_command,
    with_config,
)
from core.config.compose import LoadedConfig, load_config, local_config_file
from core.config.overrides import CONFIG_FLAGS
from core.config.schema import STREAMS, AnyConfig, Stream
from core.config.scoring import DetectorKind
from core.data.in_use import streams_off
from core.errors import EXIT_OK, UsageError
from core.lock import Lock
from core.reproducibility import prepare_process
from core.run_facts import record_detection
from core.stopping import StopRequest
from core.switching import finish
from core.workspace import atomic_file, relative, write_json, write_text
from inference.provenance import detector_sha256, made_of, reasons_to_score
from inference.summary import (
    ScoringInputs,
    ScoringPaths,
    Summary,
    charts_alone_in_words,
    read_summary,
    summary_of,
    title_of,
)

if TYPE_CHECKING:
    import pandas as pd

    from inference.calibrated_threshold import CalibratedThreshold

log = logging.getLogger(__name__)

# Overrides that `landfall export` needs to find the same files.
_READ_BY_EXPORT = ("data.root=", "logging.", "dqvl.report_dir=")


@dataclass(frozen=True)
class ScoringResult:
    """scores: see `inference.detector.score_table`. events: see `inference.events.finding`. summary: the JSON file."""

    scores: pd.DataFrame
    events: pd.DataFrame
    threshold: CalibratedThreshold
    summary: Summary
    paths: ScoringPaths

    @property
    def timeline_png(self) -> Path:
        return self.paths.timeline


def score_stream(loaded: LoadedConfig, *, root: Path, detector: DetectorKind = "model") -> ScoringResult:
    """Scores the test split and writes table, events, figures and summary.

    detector: "model" uses the detector of the checkpoint, and fits one if there is none that matches; "charts" fits
    control charts to the reference splits of the configuration, and needs no checkpoint.
    Raises CheckpointError for a checkpoint that is missing, damaged or of another configuration, DataError for data
    that cannot be scored or is too small to set a threshold, and StoppedError after a signal, or near the wall-time
    limit if a restart has more time.
    """
    with StopRequest(loaded.config.timeout_hours, keeps_nothing=True), _locked(loaded.config, root, detector):
        return _score_stream(loaded, root=root, kind=detector)


@contextmanager
def _locked(config: AnyConfig, root: Path, detector: DetectorKind) -> Iterator[None]:
    """While it is held, no other command replaces the model or writes its detector and scores.

    Raises LockedError if one does.
    """
    with Lock(command=f"landfall score --stream {config.stream}") as lock:
        if detector == "model":
            lock.take_if_writable(root / config.logging.checkpoint_path, key="--checkpoint")
        lock.take(ScoringPaths.of(config, root=root).summary, key="logging.artifacts_dir")
        finish(root)
        yield


def _by_model(loaded: LoadedConfig, *, root: Path) -> ScoringInputs:
    from core.devices import memory
    from inference.detector.stored import detector_and_data, open_model
    from inference.entries import SplitErrors
    from inference.model_errors import model_errors

    config, model = open_model(loaded, root=root)
    # Computed before anything is read: if a file changes while scoring runs, the scores are then out of date.
    sources = made_of(loaded.config, root=root, checkpoint=model.path, checkpoint_sha256=model.sha256)
    with memory.applied(model.plan):
        detector, data = detector_and_data(config, model, root=root)
        sources["model"]["detector"] = detector_sha256(model.path)  # it may be new
        if detector.uses_model:
            errors = model_errors(config, model, data.splits["test"], "test", keep_expected=True)
        else:
            log.info("the model has weight 0 and is not run: control charts score alone")
            errors = SplitErrors.without_model(config.stream, data.splits["test"])
    return ScoringInputs(config, detector, data, errors, model.plan, model, sources)


def _by_charts(loaded: LoadedConfig, *, root: Path) -> ScoringInputs:
    from inference.detector.stored import charts_and_data
    from inference.entries import SplitErrors

    sources = made_of(loaded.config, root=root, checkpoint=None, checkpoint_sha256=None)
    detector, data, plan = charts_and_data(loaded.config, root=root)
    errors = SplitErrors.without_model(detector.stream, data.splits["test"])
    return ScoringInputs(data.config, detector, data, errors, plan, None, sources)


def _score_stream(loaded: LoadedConfig, *, root: Path, kind: DetectorKind) -> ScoringResult:
    from inference.detector.score_table import ranked_recordings, score_table, write_scores
    from inference.events.finding import LINES, attribute_of, find_events
    from inference.events.panels import write_panels
    from inference.events.timeline import plot_timeline
    from inference.events.views import ScoredSplit
    from inference.events.writing import write_event_documents

    inputs = _by_charts(loaded, root=root) if kind == "charts" else _by_model(loaded, root=root)
    config, detector, data, errors, _, model, sources = inputs
    windows, threshold = data.splits["test"], detector.threshold
    test, charts_alone = detector.score_with_baseline(errors, windows)
    scores = score_table(test, windows, channels=data.channels, threshold=threshold.value)
    attribute = attribute_of(detector, windows, test.row_s)
    events = find_events(
        scores, config.scoring, channel_error_sc=test.channel_error_sc, channels=data.channels, attribute=attribute
    )

    paths = ScoringPaths.of(config, root=root)
    summary = summary_of(inputs, scores, events, charts_alone, root=root)
    # The old summary is removed first and the new one is written last: a summary never describes other files.
    with atomic_file(paths.scores) as part:
        write_scores(scores, part)
        paths.summary.unlink(missing_ok=True)
    table = events.drop(columns=list(LINES))
    write_text(paths.events, table.drop(columns="channels").to_csv(index=False, lineterminator="\n"))
    write_text(
        paths.events_json, table.to_json(orient="records", date_format="iso", indent=2, force_ascii=False) + "\n"
    )
    ranked = ranked_recordings(scores, events)
    write_text(paths.recordings, ranked.to_csv(index=False, float_format="%.4g", lineterminator="\n"))
    plot_timeline(
        paths.timeline, scores, events, channel_error_sc=test.channel_error_sc, channels=data.channels,
        threshold=threshold.value, title=title_of(summary),
    )  # fmt: skip
    scored = ScoredSplit(
        model, windows, test, scores, errors.expected_sc, detector.charts, getattr(config, "bearing", None)
    )
    documents = write_event_documents(paths.event_documents, scored, events)
    summary["panels"] = write_panels(paths.summary.parent, scored, events, root=root)
    written = [relative(path, root) for path in (*paths.tables, *documents)]
    summary["files"] = [*written, *(panel["png"] for panel in summary["panels"])]
    summary["made_of"] = sources
    write_json(paths.summary, summary)
    if model is not None and model.run_id:
        record_detection(root / config.logging.log_dir / model.run_id, summary)
    _log_result(summary)
    return ScoringResult(scores, events, threshold, summary, paths)


def _log_result(summary: Summary) -> None:
    log.info("%s", title_of(summary))
    if compared := charts_alone_in_words(summary):
        log.info("%s", compared)
    for line in summary["threshold"]["statement"].splitlines():
        log.info("%s", line)
    if summary["threshold"]["departure"]:
        log.warning("%s", summary["threshold"]["departure"])


def why_not_current(config: AnyConfig, *, root: Path, detector: DetectorKind) -> list[str]:
    """The reasons why the scores on disk are out of date; empty if they are current.

    Raises CheckpointError if there is no checkpoint and the detector needs one.
    """
    summary = read_summary(config, root=root)
    if detector == "charts":
        return reasons_to_score(summary, config, root=root, checkpoint=None, checkpoint_sha256=None)
    path = root / config.logging.checkpoint_path
    return reasons_to_score(summary, config, root=root, checkpoint=path, checkpoint_sha256=describe(path)["sha256"])


# --------------------------------------------------------------------------------------------------------- command line
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="landfall score", description="Scores the test split of a stream and finds events."
    )
    parser.add_argument("--stream", choices=STREAMS, help="stream to score (default: every stream in use)")
    add_detector_arguments(parser)
    parser.add_argument("--unless-current", action="store_true", help="do nothing if the scores on disk are current")
    add_config_arguments(parser, example="scoring.threshold.false_alarm_rate=0.001")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON instead of the events")
    return run_command(_score_streams, parser, argv)


def _score_streams(arguments: argparse.Namespace) -> int:
    if arguments.stream is not None or arguments.config is not None:
        return with_config(_score)(arguments)
    if arguments.checkpoint is not None or arguments.print_config:
        raise UsageError("name the stream", hint=f"--stream {' or --stream '.join(STREAMS)}")
    root = root_of(arguments)
    configs = {stream: load_config(local_config_file(stream), arguments.overrides, root=root) for stream in STREAMS}
    off = streams_off(configs, root)
    for stream in STREAMS:
        if stream in off:
            log.info("%s is not in use: %s", stream, off[stream])
        else:
            _score(arguments, configs[stream])
            arguments.owns_process = False  # the process has been set up
    return EXIT_OK


def _score(arguments: argparse.Namespace, loaded: LoadedConfig) -> int:
    root, detector, loaded = root_of(arguments), arguments.detector, loaded.with_checkpoint(arguments.checkpoint)
    check_detector_arguments(arguments)
    if arguments.unless_current:
        reasons = why_not_current(loaded.config, root=root, detector=detector)
        if not reasons:
            log.info("%s: the scores are current", loaded.config.stream)
            return EXIT_OK
        log.info("%s: scores are recomputed: %s", loaded.config.stream, "; ".join(reasons))
    if arguments.owns_process:
        prepare_process(loaded.config)
    result = score_stream(loaded, root=root, detector=detector)
    if arguments.json:
        text = json.dumps(result.summary, indent=2)
    else:
        from inference.score_text import score_text

        events_file, ranking_file = (relative(path, root) for path in (result.paths.events, result.paths.recordings))
        text = score_text(
            result.summary, result.events, config=loaded.config, events_file=events_file, ranking_file=ranking_file,
            next_command=next_command(arguments, loaded.config.stream),
        )  # fmt: skip
    sys.stdout.write(text + "\n")
    return EXIT_OK


def next_command(arguments: argparse.Namespace, stream: Stream) -> str:
    """The commands that show the scores. The export reads the folders and files that the configuration names."""
    root = root_words(arguments)
    named = [CONFIG_FLAGS[stream], arguments.config] if arguments.config else []
    of_files = [word for word in arguments.overrides if word.startswith(_READ_BY_EXPORT)]
    export = shlex.join(["landfall", "export", *named, *root, *of_files])
    return f"{export} && {shlex.join(['landfall', 'dashboard', *root])}"


if __name__ == "__main__":
    sys.exit(main())
