"""Scores new rows and recordings in real time: `python -m inference.watch.command patchtst [key=value …]`."""

from __future__ import annotations

import argparse
import logging
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from core.checkpoint import detector_path
from core.cli import (
    add_config_arguments,
    add_detector_arguments,
    check_detector_arguments,
    root_of,
    run_command,
    with_config,
)
from core.config.compose import LoadedConfig
from core.config.schema import STREAMS
from core.errors import EXIT_OK, OutputError, UsageError
from core.lock import Lock
from core.reproducibility import prepare_process
from core.switching import finish

if TYPE_CHECKING:
    from core.config.schema import AnyConfig
    from core.config.scoring import DetectorKind
    from core.data.scaling import Scaler
    from inference.detector.detector import Detector
    from inference.predictor import Predictor
    from inference.watch.monitor import Monitor

log = logging.getLogger(__name__)

_RUNTIMES = ("torch", "onnx")


def open_monitor(loaded: LoadedConfig, *, root: Path, detector: DetectorKind, runtime: str = "torch") -> Monitor:
    """A monitor with the stored detector of a model, or with control charts fitted to the reference splits of the
    configuration. runtime: `torch` or `onnx`; `onnx` and charts alone do not import torch.

    Raises UsageError for a configuration that looks ahead, OutputError if there is no detector for it, and
    CheckpointError and DataError as scoring does.
    """
    if loaded.config.scoring.look_ahead:
        raise UsageError("a monitor cannot look ahead", hint="scoring.look_ahead=false, and score again to fit for it")
    with_charts = detector == "charts"
    opened, fitted = _with_charts(loaded, root) if with_charts else _with_model(loaded, root, runtime)
    fitted = fitted.with_alarms(opened.config.scoring)
    for line in fitted.threshold.statement.splitlines():
        log.info("%s", line)
    return opened.monitor(fitted, root)


class _Opened(NamedTuple):
    """The parts of a monitor without the detector. scaler, rate_hz: for vibration only."""

    config: AnyConfig
    channels: tuple[str, ...]
    model: Predictor | None = None
    scaler: Scaler | None = None
    rate_hz: float | None = None

    def monitor(self, detector: Detector, root: Path) -> Monitor:
        from inference.watch.monitor import Monitor

        if self.config.stream == "swinmae":
            from inference.watch.followed_recording import RecordingScores

            scores = RecordingScores(detector, self.config, self.model, root, self.scaler, self.rate_hz)
            return Monitor(self.config, detector, self.channels, 1 / self.rate_hz, recordings=scores)
        if detector.sample.seconds_per_score is None:
            hint = "watch with a detector that was fitted to recordings with time stamps"
            raise UsageError("the calibration data has no time stamps: missing rows cannot be detected", hint=hint)
        if detector.own_past:
            log.warning(
                "the detector has separate charts for %d recordings; followed files are other recordings, and are "
                "scored with the charts of all recordings", len(detector.own_past),
            )  # fmt: skip
        return Monitor(self.config, detector, self.channels, detector.sample.seconds_per_score, self.model)


def _with_charts(loaded: LoadedConfig, root: Path) -> tuple[_Opened, Detector]:
    from inference.detector.fitted_charts import fitted_charts

    detector, data = fitted_charts(loaded.config, root=root, splits=("train", "validation", "calibration"))
    return _Opened(data.config, data.channels, scaler=data.scaler, rate_hz=data.sampling_rate_hz), detector


def _with_model(loaded: LoadedConfig, root: Path, runtime: str) -> tuple[_Opened, Detector]:
    from inference.detector.file import load_stored

    with Lock(command="landfall watch") as lock:
        path = root / loaded.config.logging.checkpoint_path
        lock.take_if_writable(path, key="--checkpoint")
        finish(root)
        opened = _on_onnx(loaded, root) if runtime == "onnx" else _on_torch(loaded, root)
        detector, reason = load_stored(detector_path(path))
    reason = reason or detector.mismatch(opened.config, opened.model.sha256)
    if reason:
        hint = f"`landfall score --stream {opened.config.stream}` fits and stores one"
        raise OutputError(f"there is no detector for monitoring: {reason}", hint=hint)
    return opened, detector


def _on_torch(loaded: LoadedConfig, root: Path) -> _Opened:
    from inference.detector.stored import open_model
    from inference.detector_graph import TorchPredictor

    config, scoring = open_model(loaded, root=root)
    model = TorchPredictor(scoring, config.scoring.batch_size)
    return _Opened(config, scoring.channels, model, scoring.scaler, scoring.sampling_rate_hz)


def _on_onnx(loaded: LoadedConfig, root: Path) -> _Opened:
    from inference.predictor import open_exported

    config, model = open_exported(loaded, root=root)
    return _Opened(config, model.channels, model, model.scaler, model.facts["sampling_rate_hz"])


# --------------------------------------------------------------------------------------------------------- command line
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="landfall watch",
        description="Follows the files of data.splits.test.files, and scores each new row of process sensors and each "
        "new recording of vibration.",
    )
    parser.add_argument("stream", choices=STREAMS, help="stream to follow")
    add_detector_arguments(parser)
    parser.add_argument(
        "--runtime", choices=_RUNTIMES, default="torch",
        help="onnx: ONNX Runtime computes the model that `landfall export-model` wrote, without PyTorch",
    )  # fmt: skip
    parser.add_argument("--scores", action="store_true", help="append every score to a file, not only events")
    parser.add_argument("--webhook", metavar="URL", help="post each event to this address, as JSON")
    parser.add_argument("--command", metavar="COMMAND", help="run this for each event, with the JSON as its input")
    parser.add_argument("--once", action="store_true", help="score the available files to their ends, and exit")
    parser.add_argument(
        "--mqtt", type=Path, metavar="FILE",
        help="append rows from the MQTT broker of this file to csv files, and follow these",
    )  # fmt: skip
    parser.add_argument(
        "--poll", type=_positive, default=0.05, metavar="SECONDS", help="pause between reads (default: .05)"
    )
    parser.add_argument(
        "--limit", type=int, default=1000, metavar="ROWS", help="rows of a file that are read at a time (default: 1000)"
    )
    parser.add_argument(
        "--finished-after", type=_positive, default=3600.0, metavar="SECONDS",
        help="a file has ended when it has no new rows for this time (default: 3600)",
    )  # fmt: skip
    parser.add_argument(
        "--complete-after", type=_positive, default=5.0, metavar="SECONDS",
        help="a recording of vibration is complete when it has not changed for this time (default: 5)",
    )  # fmt: skip
    add_config_arguments(parser, example="'data.splits.test.files=[data/live/*.csv]'")
    return run_command(with_config(_watch), parser, argv)


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError("must be more than 0")
    return value


def _watch(arguments: argparse.Namespace, loaded: LoadedConfig) -> int:
    if arguments.stream == "swinmae" and arguments.mqtt is not None:
        raise UsageError("recordings of vibration come as files, not by MQTT", hint="omit --mqtt")
    if arguments.limit < 1:
        raise UsageError("--limit must be 1 or more", hint="--limit 1000")
    check_detector_arguments(arguments)
    if arguments.mqtt is not None and arguments.once:
        raise UsageError("--once cannot be used with --mqtt, which never ends", hint="omit --mqtt, or --once")
    if arguments.owns_process:
        prepare_process(loaded.config)
    _follow(arguments, loaded.with_checkpoint(arguments.checkpoint), root_of(arguments))
    return EXIT_OK


def _follow(arguments: argparse.Namespace, loaded: LoadedConfig, root: Path) -> None:
    from inference.watch.delivery import Delivery
    from inference.watch.mqtt import Recorder, read_broker
    from inference.watch.watching import Watch, WatchPaths

    broker = read_broker(root / arguments.mqtt) if arguments.mqtt is not None else None
    paths = WatchPaths.of(loaded.config, root=root)
    delivery = None
    if arguments.webhook is not None or arguments.command is not None:
        delivery = Delivery(paths.events, paths.delivered, webhook=arguments.webhook, command=arguments.command)
    with Lock(command="landfall watch") as lock:
        lock.take(paths.state, key="logging.artifacts_dir")
        monitor = open_monitor(loaded, root=root, detector=arguments.detector, runtime=arguments.runtime)
        watch = Watch(
            monitor, root=root, keeps_scores=arguments.scores, limit=arguments.limit,
            finished_after_s=arguments.finished_after, complete_after_s=arguments.complete_after,
            patterns=None if broker is None else [str(root / broker.folder / "*.csv")],
        )  # fmt: skip
        if broker is not None:
            Recorder(broker, root=root, channels=monitor.channels).start()
        if delivery is not None:
            delivery.start()
        while not arguments.once:
            if not watch.round():
                time.sleep(arguments.poll)
        while watch.round() or watch.round(is_complete=True):
            pass
        watch.finish()
        if delivery is not None:
            delivery.finish()


if __name__ == "__main__":
    sys.exit(main())
