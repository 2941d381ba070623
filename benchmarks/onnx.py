"""ONNX Runtime compared with PyTorch on one core: size of the model, start time of a monitor, and windows per second.

    python -m benchmarks.onnx [--channels 27] [--rounds 7]

Each start is a separate process that scores 288 rows of process sensors or a minute of vibration, and exits. The speed
of both runtimes is measured alternately in one process; the ratio is the median over rounds.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.watch import Plant, build, store_detector
from core.checkpoint import exported_path
from core.cli import run_command
from core.config.compose import LoadedConfig, load_config, local_config_file
from core.config.schema import Stream
from core.errors import EXIT_OK
from core.host import cpu_model
from core.workspace import CODE_ROOT, json_text
from inference.predictor import OnnxPredictor

_ROWS, _VIBRATION_RATE_HZ, _VIBRATION_SECONDS = 288, 2048, 60
_VIBRATION = [
    "logging.progress=off", "device.prefer=cpu", "max_threads=1", "training.epochs=1", "logging.tensorboard=false",
    f"data.sampling_rate_hz={_VIBRATION_RATE_HZ}", "scoring.model_weight=0.3",
]  # fmt: skip


def starts(root: Path, stream: Stream, settings: Sequence[str], rounds: int) -> dict[str, float]:
    """Median duration in seconds of `landfall watch --once`, by runtime."""
    found: dict[str, list[float]] = {"torch": [], "onnx": []}
    environment = {**os.environ, "PYTHONPATH": str(CODE_ROOT), "OMP_NUM_THREADS": "1"}
    for runtime in [*found] * rounds:
        shutil.rmtree(root / "artifacts/watch", ignore_errors=True)
        words = [stream, "--once", "--runtime", runtime, "--repo-root", str(root), *settings]
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "inference.watch.command", *words], env=environment, check=True,
                       stderr=subprocess.DEVNULL)  # fmt: skip
        found[runtime].append(time.perf_counter() - began)
    return {runtime: statistics.median(seconds) for runtime, seconds in found.items()}


def speed(loaded: LoadedConfig, root: Path, batch: int, rounds: int) -> tuple[float, float]:
    """Windows per second with PyTorch, and the speed of ONNX Runtime relative to it."""
    from inference.detector.stored import open_model
    from inference.detector_graph import TorchPredictor

    config, scoring = open_model(loaded, root=root)
    shape = (batch, config.data.window, len(scoring.channels))
    values_btc = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    by_torch = TorchPredictor(scoring, batch)
    by_onnx = OnnxPredictor(exported_path(scoring.path), num_threads=1, batch_size=batch)
    count = max(1, int(0.5 / _seconds(lambda: by_torch.errors(values_btc), 3)))
    pairs = [
        tuple(_seconds(lambda model=model: model.errors(values_btc), count) for model in (by_torch, by_onnx))
        for _ in range(rounds)
    ]
    return batch / statistics.median(one for one, _ in pairs), statistics.median(one / other for one, other in pairs)


def _seconds(call: Callable[[], object], count: int) -> float:
    call()
    began = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - began) / count


def _vibration_workspace(root: Path) -> LoadedConfig:
    from trainers.run import train

    (root / "data/vib").mkdir(parents=True)
    rng = np.random.default_rng(2)
    time_t = np.arange(_VIBRATION_RATE_HZ * _VIBRATION_SECONDS) / _VIBRATION_RATE_HZ
    for name in ("train_1", "train_2", "test_1"):
        wave_tc = np.sin(2 * np.pi * 60 * time_t)[:, None] + 0.3 * rng.normal(size=(len(time_t), 3))
        np.save(root / f"data/vib/{name}.npy", wave_tc.astype(np.float32))
    loaded = load_config(local_config_file("swinmae"), _VIBRATION, root=root, environment={})
    train(loaded, root=root)
    store_detector(loaded, root)
    return loaded


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks.onnx", description="ONNX Runtime compared with PyTorch on one core."
    )
    parser.add_argument("--channels", type=int, default=27)
    parser.add_argument("--rounds", type=int, default=7)

    def command(arguments: argparse.Namespace) -> int:
        from inference.export_model import export_model

        logging.getLogger().setLevel(logging.WARNING)
        os.environ["OMP_NUM_THREADS"] = "1"
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            settings = build(root, arguments.channels, with_model=True)
            process = load_config(local_config_file("patchtst"), settings, root=root, environment={})
            loaded = {"patchtst": process, "swinmae": _vibration_workspace(root)}
            report: dict[str, object] = {"processor": cpu_model(), "load": os.getloadavg()[0]}
            Plant(root, 1, arguments.channels).append(root / "data/live/machine_000.csv", _ROWS)
            for stream, each in loaded.items():
                exported = export_model(each, root=root)
                size = (root / each.config.logging.checkpoint_path).stat().st_size
                figures = {"checkpoint_mb": size / 2**20, "onnx_mb": exported["bytes"] / 2**20,
                           "largest_difference": exported["largest_difference"]}  # fmt: skip
                for batch in (1, 32):
                    rate, ratio = speed(each, root, batch, arguments.rounds)
                    figures[f"batch of {batch}"] = {"torch_windows_per_s": rate, "onnx_times_as_fast": ratio}
                words = settings if stream == "patchtst" else _VIBRATION
                report[stream] = figures | {"start_s": starts(root, stream, words, arguments.rounds)}
        sys.stdout.write(json_text(report))
        return EXIT_OK

    return run_command(command, parser, argv)


if __name__ == "__main__":
    sys.exit(main())
