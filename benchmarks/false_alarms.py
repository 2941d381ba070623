"""Whether the stated false alarm rate of thresholds holds, on simulated stationary processes.

    python -m benchmarks.false_alarms [--processes 200] [--seed 0]

White or autocorrelated noise, spans of 1, 10 and 30 rows, one recording or 34, 96 to 10,000 calibration rows each, with
and without other normal rows; model errors, charts or both. Each detector is fitted as in scoring, and the true rate is
that of 200,000 later rows. A stated 95 % interval should contain it in 95 % of the cases.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from core.cli import run_command
from core.config.compose import load_config, local_config_file
from core.data.recording import Recording
from core.data.segments import rows_of
from core.data.windows import Series, WindowSet
from core.errors import EXIT_OK
from core.workspace import CODE_ROOT
from inference.calibrated_threshold import CalibratedThreshold
from inference.detector.fitting import fit_with_scores
from inference.entries import SplitErrors

_CHANNELS, _WINDOW, _LATER_ROWS, _WARM_UP = 4, 64, 200_000, 200
_NS_PER_S = 10**9


@dataclass(frozen=True)
class Process:
    """A stationary process and its calibration. rows: calibration rows of each recording. others: number of other
    normal rows, as a multiple of `rows`."""

    autocorrelation: float
    span: int
    recordings: int
    rows: int
    others: float
    model_weight: float
    rate: float

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Process:
        recordings = int(rng.choice([1, 34]))
        return cls(
            autocorrelation=float(rng.choice([0.0, 0.9])),
            span=int(rng.choice([1, 10, 30])),
            recordings=recordings,
            rows=int(rng.choice([96, 300, 1000, 3000, 10_000] if recordings == 1 else [96, 300])),
            others=float(rng.choice([0.0, 0.5, 3.0])),
            model_weight=float(rng.choice([0.0, 0.15, 1.0])),
            rate=float(rng.choice([0.001, 0.01, 0.02])),
        )

    def calibrated(self, rng: np.random.Generator) -> tuple[CalibratedThreshold, float]:
        """The threshold, and the true share of later scores above it."""
        others, later = int(self.others * self.rows), max(400, _LATER_ROWS // self.recordings)
        series = _series(self._noise(rng, others + self.rows + later))
        square_nc = np.concatenate(self._noise(rng, others + self.rows + later)) ** 2
        bounds = {"train": (0, others), "calibration": (others, others + self.rows)}
        normal = {name: _split(series, *rows) for name, rows in bounds.items() if rows[1] > rows[0]}
        test = _split(series, others + self.rows, others + self.rows + later)
        overrides = [
            f"scoring.smoothing_span={self.span}",
            f"scoring.threshold.false_alarm_rate={self.rate}",
            "scoring.threshold.false_events_per_day=null",
            "scoring.operating_context=off",
        ]
        config = load_config(local_config_file("patchtst"), overrides, root=CODE_ROOT, environment={}).config
        errors = {name: _errors(split, square_nc) for name, split in normal.items()}
        detector, _ = fit_with_scores(config, "no model", normal, errors, model_weight=self.model_weight)
        score_s = detector.score(_errors(test, square_nc), test).score_s
        return detector.threshold, float((score_s > detector.threshold.value).mean())

    def _noise(self, rng: np.random.Generator, rows: int) -> list[np.ndarray]:
        """Values of each recording, (N, C), with variance 1."""
        from scipy.signal import lfilter

        phi = self.autocorrelation
        white_rnc = rng.standard_normal((self.recordings, _WARM_UP + rows, _CHANNELS))
        return list(lfilter([np.sqrt(1 - phi**2)], [1, -phi], white_rnc, axis=1)[:, _WARM_UP:])


def _series(recordings: list[np.ndarray]) -> Series:
    channels = tuple(f"channel_{number}" for number in range(_CHANNELS))
    return Series.of(
        [
            Recording(f"recording_{number}", Path(f"{number}.csv"), values_nc, np.arange(len(values_nc)) * _NS_PER_S,
                      channels, 1.0, "sampling_rate")
            for number, values_nc in enumerate(recordings)
        ],
        np.concatenate(recordings).astype(np.float32),
    )  # fmt: skip


def _split(series: Series, start: int, stop: int) -> WindowSet:
    segments_k2 = series.offsets_r[:-1, np.newaxis] + np.array([start, stop])
    return WindowSet(series, np.zeros(0, dtype=np.int64), _WINDOW, segments_k2)


def _errors(split: WindowSet, square_nc: np.ndarray) -> SplitErrors:
    lengths_k, row_s = split.segments.lengths_k, rows_of(split.segments.rows_k2)
    return SplitErrors(square_nc[row_s].astype(np.float32), row_s, np.repeat(np.arange(len(lengths_k)), lengths_k), 1)


@dataclass(frozen=True)
class Kept:
    """held: share of all processes whose interval contains the true rate. supported: number of processes with enough
    data for the rate. held_where_supported, true_over_requested: for these, the same share, and the mean ratio of true
    and requested rate."""

    processes: int
    held: float
    supported: int
    held_where_supported: float
    true_over_requested: float


def simulate(processes: int, seed: int) -> Kept:
    rng, held, supported, ratio = np.random.default_rng(seed), [], [], []
    for _ in range(processes):
        process = Process.drawn(rng)
        threshold, true_rate = process.calibrated(rng)
        held.append(threshold.expected.low <= true_rate <= threshold.expected.high)
        supported.append(not threshold.shortfall)
        ratio.append(true_rate / process.rate)
    enough = np.array(supported)
    return Kept(
        processes, float(np.mean(held)), int(enough.sum()), float(np.mean(np.array(held)[enough])),
        float(np.mean(np.array(ratio)[enough])),
    )  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.false_alarms", description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, default=200, metavar="N", help="default: 200")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")

    def command(arguments: argparse.Namespace) -> int:
        logging.getLogger("inference").setLevel(logging.ERROR)
        found = simulate(arguments.processes, arguments.seed)
        sys.stdout.write(
            f"{found.processes} processes: the stated interval contained the true rate in {found.held:.1%}; of the "
            f"{found.supported} with enough data for the rate in {found.held_where_supported:.1%}, and there the true "
            f"rate was {found.true_over_requested:.2f} times the requested one\n"
        )
        return EXIT_OK

    return run_command(command, parser, argv)


if __name__ == "__main__":
    sys.exit(main())
