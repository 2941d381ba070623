"""What the control charts of vibration gain from known operating points, on simulated rigs.

    python -m benchmarks.operating_points [--seeds 11 12 13]

Each rig has 100 healthy and 60 faulty recordings of 4 s, each at its own speed (1200 to 2400 rpm) and load (30 to
100 %). Charts are fitted to 80 healthy recordings; the threshold is the 95 % quantile of the last 20 of these.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from core.cli import run_command
from core.data.recording import Recording
from core.data.segments import window_starts
from core.data.windows import Series, WindowSet
from core.errors import EXIT_OK
from inference.charts.vibration import fit_vibration
from inference.metrics import Detection, detection_metrics
from pipelines.sample_data import rig

QUANTITIES = ("rpm", "load")
_SECONDS, _WINDOW, _STRIDE, _SPAN, _QUANTILE = 4.0, 2048, 512, 8, 0.95
_LOWEST, _HIGHEST = (1200.0, 0.3), (2400.0, 1.0)
_SIZES = {"outer_race": 0.35, "inner_race": 0.35, "ball": 0.35, "cage": 0.4, "imbalance": 0.5, "looseness": 0.45}


@dataclass(frozen=True)
class Plan:
    """Numbers of recordings: fitted healthy ones, of which the last are for calibration, and those of the test."""

    fitted: int = 80
    calibration: int = 20
    healthy: int = 20
    faulty: int = 60


def measure(seed: int, plan: Plan) -> dict[str, Detection]:
    """Metrics of windows, by the quantities that are known."""
    rng = np.random.default_rng(seed)
    faults = [None] * (plan.fitted + plan.healthy) + [
        list(_SIZES)[number % len(_SIZES)] for number in range(plan.faulty)
    ]
    recordings = [_recording(rng, number, fault) for number, fault in enumerate(faults)]
    known = [QUANTITIES[:count] for count in range(len(QUANTITIES) + 1)]
    return {", ".join(names) or "none": _detection(recordings, len(names), plan) for names in known}


def _recording(rng: np.random.Generator, number: int, fault: str | None) -> Recording:
    rpm, load = rng.uniform(_LOWEST, _HIGHEST)
    run = rig.Run(_SECONDS, ((0.0, rpm, load),), fault, _SIZES.get(fault, 0.0), fault_start_s=-1.0)
    values_tc, _ = rig.simulate(rng, run)
    time_ns = np.arange(len(values_tc)) * round(1e9 / rig.SAMPLING_RATE_HZ)
    return Recording(
        f"{number}.npy", Path(f"{number}.npy"), values_tc, time_ns, rig.AXES, rig.SAMPLING_RATE_HZ, "sampling_rate",
        healthy=fault is None, operating_point=(rpm, load),
    )  # fmt: skip


def _detection(recordings: Sequence[Recording], known: int, plan: Plan) -> Detection:
    train = plan.fitted - plan.calibration
    parts = {"train": recordings[:train], "calibration": recordings[train : plan.fitted]}
    charts, calibration_sc = fit_vibration({name: _windows(part, known) for name, part in parts.items()}, span=_SPAN)
    threshold = float(np.quantile(calibration_sc.mean(axis=1), _QUANTILE))
    test = _windows(recordings[plan.fitted :], known)
    healthy_r = np.array([recording.healthy for recording in test.series.recordings])
    return detection_metrics(charts.errors(test).mean(axis=1), ~healthy_r[test.recording_of()], threshold)


def _windows(recordings: Sequence[Recording], known: int) -> WindowSet:
    """All windows of recordings of which the first `known` quantities of the operating point are known."""
    told = [replace(recording, operating_point=recording.operating_point[:known]) for recording in recordings]
    series = Series.of(told, np.concatenate([recording.values_tc for recording in told]))
    rows_k2 = np.stack([series.offsets_r[:-1], series.offsets_r[1:]], axis=1)
    return WindowSet(series, window_starts(rows_k2, _WINDOW, _STRIDE), _WINDOW)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.operating_points", description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[11, 12, 13], metavar="N", help="default: 11 12 13")
    parser.add_argument("--quick", action="store_true", help="a quarter of the recordings")

    def command(arguments: argparse.Namespace) -> int:
        logging.getLogger("inference").setLevel(logging.ERROR)
        plan = Plan(fitted=20, calibration=8, healthy=5, faulty=12) if arguments.quick else Plan()
        lines = [
            "| seed | known | AUROC (chance .5) | F1 | false alarms (5 % asked) | misses |",
            "|---|---|---|---|---|---|",
        ]
        for seed in arguments.seeds:
            for known, each in measure(seed, plan).items():
                rates = f"{each.false_alarm_rate:.1%} | {each.miss_rate:.1%}"
                lines.append(f"| {seed} | {known} | {each.auroc:.3f} | {each.f1:.3f} | {rates} |")
        sys.stdout.write("\n".join(lines) + "\n")
        return EXIT_OK

    return run_command(command, parser, argv)


if __name__ == "__main__":
    sys.exit(main())
