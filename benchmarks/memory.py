"""Peak memory of reading, training and scoring, for files of one, four and sixteen times a size.

    python -m benchmarks.memory --megabytes 250 --folder DIR

Each step is a separate process. Its peak is measured by the system and includes pages of mapped files. `read` fills the
store, `load` reads the training data from it, `train` and `score` are the commands. Prints one JSON object per line to
stdout.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from core.workspace import CODE_ROOT

CHANNELS = 8
_ROWS = 1 << 16
_BYTES_PER_ROW = 20 + 8 * CHANNELS

_READ = """
import sys
from pathlib import Path
from core.config.compose import load_config
from core.data.dataset import TRAINING_SPLITS, load_stream_data
root = Path(sys.argv[1])
loaded = load_config("configs/patchtst_ssl_local.yaml", sys.argv[2:], root=root)
load_stream_data(loaded.config, root=root, splits=TRAINING_SPLITS)
"""
# A small model and few windows: only the data is large.
OVERRIDES = (
    "data.window=256", "data.stride=4096", "data.score_stride=32", "data.store_gb=100", "model.patch_length=32",
    "model.d_model=16", "model.num_heads=2", "model.num_layers=1", "model.d_ff=32",
    "training.epochs=1", "training.batch_size=32", "scoring.batch_size=64", "logging.tensorboard=false",
    "logging.progress=off", "device.prefer=cpu", "max_threads=1",
)  # fmt: skip
SPLIT = {"train": (0.0, 0.7), "validation": (0.7, 0.8), "calibration": (0.8, 0.9), "test": (0.9, 1.0)}


def write_csv(path: Path, num_bytes: int) -> None:
    """Writes about `num_bytes` of a plant with eight sensors, one row per second."""
    path.parent.mkdir(parents=True, exist_ok=True)
    num_rows = num_bytes // _BYTES_PER_ROW
    names = ["timestamp", *(f"s{number}" for number in range(CHANNELS))]
    with path.open("wb") as file:
        for first in range(0, num_rows, _ROWS):
            row_n = np.arange(first, min(first + _ROWS, num_rows))
            rng = np.random.default_rng(first)
            waves = (np.sin(row_n / (7.0 * (1 + c))) + rng.normal(scale=0.1, size=len(row_n)) for c in range(CHANNELS))
            columns = [np.datetime64("2026-01-01", "s") + row_n, *(np.round(wave, 4) for wave in waves)]
            options = pa.csv.WriteOptions(include_header=first == 0)
            pa.csv.write_csv(pa.table(columns, names=names), file, options)


def workspace(folder: Path, num_bytes: int) -> list[str]:
    """Creates a workspace with one file; returns the overrides that read it."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(CODE_ROOT / "configs", folder / "configs")
    write_csv(folder / "data" / "plant.csv", num_bytes)
    splits = (
        f"data.splits.{name}={{files:[data/plant.csv],start:{start},stop:{stop}}}"
        for name, (start, stop) in SPLIT.items()
    )
    return [*OVERRIDES, *splits]


def peak_of(command: Sequence[str], folder: Path) -> tuple[float, float]:
    """Peak memory in megabytes, and duration in seconds. Raises CalledProcessError."""
    started = time.perf_counter()
    process = subprocess.Popen(command, cwd=CODE_ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return usage.ru_maxrss / 1024, time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=float, default=250, help="size of the smallest file (default: %(default)s)")
    parser.add_argument("--times", type=int, nargs="+", default=[1, 4, 16], help="multiples of that size")
    parser.add_argument("--steps", nargs="+", default=["read", "load", "train", "score"])
    parser.add_argument("--folder", type=Path, required=True, help="folder for the files; emptied afterwards")
    arguments = parser.parse_args()
    for times in arguments.times:
        folder = arguments.folder / f"times-{times}"
        overrides = workspace(folder, int(times * arguments.megabytes * 1e6))
        local = ["--repo-root", str(folder), "--config", str(folder / "configs/patchtst_ssl_local.yaml"), *overrides]
        commands = {
            "read": [sys.executable, "-c", _READ, str(folder), *overrides],
            "load": [sys.executable, "-c", _READ, str(folder), *overrides],
            "train": [sys.executable, "-m", "trainers.train_patchtst_ssl", *local],
            "score": [sys.executable, "-m", "inference.run_scoring_example", "--stream", "patchtst", *local],
        }
        for step in arguments.steps:
            megabytes, seconds = peak_of(commands[step], folder)
            size = (folder / "data" / "plant.csv").stat().st_size / 1e6
            record = {"step": step, "times": times, "file_mb": round(size), "peak_mb": round(megabytes)}
            sys.stdout.write(json.dumps({**record, "seconds": round(seconds, 1)}) + "\n")
            sys.stdout.flush()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
