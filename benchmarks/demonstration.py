"""Number of faults in the sample data that are found, over seeds of the data.

    python -m benchmarks.demonstration [--seeds 7 201 202] [--stream patchtst] [--train]

Scores are those of the control charts alone, or with --train those of a model that is trained for each seed. Training,
thresholds and events use the local configurations.
Constants were chosen on the seeds 101 to 110; results are reported for 7, the seed of the sample data, and 201 to 209.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.detection.detectors import load, trained
from core.cli import run_command
from core.config.compose import load_config, local_config_file
from core.config.schema import STREAMS, Stream
from core.data.dataset import StreamData, load_stream_data
from core.errors import EXIT_OK
from core.numbers import duration_in_words, plain
from core.workspace import CODE_ROOT
from inference.detector.detector import Detector
from inference.detector.fitting import fit
from inference.detector.score_table import score_table
from inference.detector.stored import charts_and_data
from inference.entries import SplitErrors
from inference.events.metrics import event_metrics
from inference.groups import reference_of
from inference.metrics import auroc
from inference.model_errors import model_errors, reference_errors
from pipelines.sample_data.command import make_sample_data

SEEDS = (7, *range(201, 210))


def demonstration(stream: Stream, seed: int, *, is_trained: bool = False) -> dict[str, Any]:
    """Detection figures on the sample data of a seed, of the charts alone or of a model trained on that data."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_sample_data(root, seed=seed)
        if is_trained:
            detector, data, errors = _with_model(stream, root)
        else:
            detector, data, errors = _charts_alone(stream, root)
        config, windows, threshold = data.config, data.splits["test"], detector.threshold.value
        scores = detector.score(errors, windows)
        table = score_table(scores, windows, channels=data.channels, threshold=threshold)
    evaluated = table[table["label"].notna() & table["score"].notna()]
    healthy = evaluated[evaluated.groupby("recording", observed=True)["label"].transform("max") == 0]
    return {
        **event_metrics(table, config.scoring),
        "model_weight": detector.model_weight,
        "auroc": auroc(evaluated["score"].to_numpy(), evaluated["label"].to_numpy(dtype="int8")),
        "healthy_recordings": int(healthy["recording"].nunique()),
        "healthy_with_alarms": int(healthy.loc[healthy["alarm"], "recording"].nunique()),
    }


def _charts_alone(stream: Stream, root: Path) -> tuple[Detector, StreamData, SplitErrors]:
    """The detector, the data, and the errors of the split `test`."""
    overrides = [f"data.root={root}", "logging.progress=off"]
    config = load_config(local_config_file(stream), overrides, root=CODE_ROOT, environment={}).config
    detector, data, _ = charts_and_data(config, root=root)
    return detector, data, SplitErrors.without_model(stream, data.splits["test"])


def _with_model(stream: Stream, root: Path) -> tuple[Detector, StreamData, SplitErrors]:
    """As `_charts_alone`, after a training in the workspace `root`."""
    loaded = load(stream, [f"data.root={root}"], root=CODE_ROOT, work=root, name="demonstration")
    model = trained(loaded, root=CODE_ROOT)
    config, scoring = model.config, model.scoring
    data = load_stream_data(config, root=CODE_ROOT, scaler=scoring.scaler)
    reference, errors_of = reference_of(data.splits), partial(model_errors, config, scoring, label="test")
    detector = fit(config, scoring.sha256, reference, reference_errors(config, scoring, reference), errors_of)
    return detector, data, errors_of(data.splits["test"])


def results(streams: Sequence[Stream], seeds: Sequence[int], *, is_trained: bool) -> Iterator[str]:
    """Yields one line per stream and seed."""
    for stream in streams:
        for seed in seeds:
            found = demonstration(stream, seed, is_trained=is_trained)
            yield (
                f"{stream}, data seed {seed}, model weight {found['model_weight']:g}: "
                f"{found['faults_found']} of {found['faults_total']} faults found "
                f"(by chance {found['event_recall_by_chance'] * found['faults_total']:.1f}), "
                f"{found['false_events']} false events in {duration_in_words(3600 * found['recorded_hours'])} "
                f"({plain(found['false_events_per_hour'], 2)} per hour), AUROC {found['auroc']:.3f}, "
                f"{found['healthy_with_alarms']} of {found['healthy_recordings']} healthy recordings with an alarm"
            )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.demonstration", description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="seeds of the sample data")
    parser.add_argument("--stream", choices=STREAMS, action="append", help="default: both")
    parser.add_argument("--train", action="store_true", help="train a model for each seed; default: charts alone")

    def command(arguments: argparse.Namespace) -> int:
        for line in results(arguments.stream or STREAMS, arguments.seeds, is_trained=arguments.train):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        return EXIT_OK

    return run_command(command, parser, argv)


if __name__ == "__main__":
    sys.exit(main())
