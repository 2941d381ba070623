"""Time from a row to its score in `landfall watch`, and the rows per second that one core can score.

    python -m benchmarks.watch [--machines 50] [--seconds 30] [--channels 27] [--model] [--core 0]
    python -m benchmarks.watch --days 30 [--channels 27] [--model]

A logger appends a row per second to the file of each machine, at times spread over the second. The monitor is a
separate process on one core. The latency of a row is the time from before it is written until its score can be read
from the file of scores. Then a monitor scores existing rows, one row of each file at a time: the rows per second.

With `--days`, one machine writes a file of 86,400 rows for each day, and the monitor scores them as fast as possible.
The result is the memory of the process and the size of its state after each day.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import psutil

from core.cli import run_command
from core.config.compose import LoadedConfig, load_config, local_config_file
from core.errors import EXIT_OK
from core.page import LIVE, PAGE
from core.workspace import CODE_ROOT

_TRAINING_ROWS, _CAUGHT_UP_ROWS = 6000, 64
_DAY = 86_400
# Rows of each file before the measurement, more than a window of the model; and rows of a patch.
_ROWS_BEFORE, _PATCH = 288, 16
_STREAM, _LIVE = "patchtst", "data.splits.test.files=[data/live/*.csv]"
_SETTINGS = ["logging.progress=off", "device.prefer=cpu", "max_threads=1", _LIVE]
# A small model that is trained briefly: only its size and its weight in the score affect the time.
_MODEL = [
    "model.size=custom", "training.epochs=1", "training.batch_size=8", "logging.tensorboard=false",
    "scoring.model_weight=0.3", "data.window=256", "model.patch_length=16",
    "data.score_stride=16",
]  # fmt: skip


def rows(rng: np.random.Generator, count: int, channels: int) -> np.ndarray:
    """A plant whose channels follow three slow states: (count, channels)."""
    state_n3 = np.cumsum(rng.normal(size=(count, 3)), axis=0)
    state_n3 -= pd.DataFrame(state_n3).ewm(span=200).mean().to_numpy()
    return state_n3 @ rng.normal(size=(3, channels)) + rng.normal(size=(count, channels)) + 50


def build(root: Path, channels: int, *, with_model: bool) -> list[str]:
    """Creates a workspace with reference data and, on request, a model. Returns the overrides."""
    shutil.copytree(CODE_ROOT / "configs", root / "configs")
    for folder in ("data/fdc", "data/live"):
        (root / folder).mkdir(parents=True)
    names = [f"c{number}" for number in range(channels)]
    frame = pd.DataFrame(rows(np.random.default_rng(0), _TRAINING_ROWS, channels), columns=names)
    frame.insert(0, "timestamp", pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(_TRAINING_ROWS), "s"))
    frame.to_csv(root / "data/fdc/train_1.csv", index=False, float_format="%.4f")
    settings = [*_SETTINGS, *(_MODEL if with_model else [])]
    if with_model:
        from trainers.run import train

        loaded = load_config(local_config_file(_STREAM), settings, root=root, environment={})
        train(loaded, root=root)
        store_detector(loaded, root)
    return settings


def store_detector(loaded: LoadedConfig, root: Path) -> None:
    """Fits the detector of a trained model, which a monitor reads."""
    from inference.detector.stored import detector_path, fit_from, load_splits, open_model, save_detector

    config, scoring = open_model(loaded, root=root)
    data = load_splits(config, scoring, ("train", "validation", "calibration"), root=root)
    save_detector(fit_from(config, scoring, data), detector_path(scoring.path))


class Plant:
    """Files of machines that a logger appends to."""

    def __init__(self, root: Path, machines: int, channels: int):
        self.paths = [root / f"data/live/machine_{number:03d}.csv" for number in range(machines)]
        self._values = rows(np.random.default_rng(1), 5000, channels)
        self._header = ",".join(["timestamp", *(f"c{number}" for number in range(channels))]) + "\n"
        self._count = dict.fromkeys(self.paths, 0)
        for path in self.paths:
            path.write_text(self._header, encoding="utf-8")

    def append(self, path: Path, count: int = 1) -> None:
        lines = []
        for row in range(self._count[path], self._count[path] + count):
            stamp = pd.Timestamp("2026-02-01") + pd.Timedelta(row, "s")
            cells = ",".join(f"{value:.4f}" for value in self._values[row % len(self._values)])
            lines.append(f"{stamp.isoformat(sep=' ')},{cells}\n")
        self._count[path] += count
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(lines))


def latencies(root: Path, plant: Plant, arguments: Sequence[str], seconds: int, core: int | None) -> np.ndarray:
    """Latencies in seconds, without rows of the first five seconds. With a model, which scores patches, only of rows
    that complete a patch."""
    command = [sys.executable, "-m", "inference.watch.command", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(CODE_ROOT), "OMP_NUM_THREADS": "1"}
    with (root / "said.log").open("w") as said:
        process = subprocess.Popen(command, env=environment, stderr=said, preexec_fn=lambda: _pin(core))
    scores = root / "artifacts/watch/patchtst_scores.jsonl"
    sent: dict[tuple[str, int], float] = {}
    found = []
    try:
        for number, path in enumerate(plant.paths):
            plant.append(path, _ROWS_BEFORE + number % _PATCH)
        while not scores.is_file() or scores.read_bytes().count(b"\n") < _ROWS_BEFORE * len(plant.paths):
            if process.poll() is not None:
                raise RuntimeError((root / "said.log").read_text())
            time.sleep(0.1)
        begin = time.monotonic()
        with scores.open(encoding="utf-8") as file:
            due = [(begin + second + number / len(plant.paths), path)
                   for second in range(seconds) for number, path in enumerate(plant.paths)]  # fmt: skip
            rest = ""
            while due or (sent and time.monotonic() < begin + seconds + 40):
                now = time.monotonic()
                if due and due[0][0] <= now:
                    path = due.pop(0)[1]
                    sent[f"data/live/{path.name}", plant._count[path]] = time.monotonic()
                    plant.append(path)
                *lines, rest = (rest + file.read()).split("\n")  # the last line may not be complete
                for line in lines:
                    document = json.loads(line)
                    began = sent.pop((document["recording"], document["row"]), None)
                    completes = "model" not in arguments or (document["row"] + 1) % _PATCH == 0
                    if completes and began is not None and began > begin + 5:
                        found.append(time.monotonic() - began)
                time.sleep(0.002)
    finally:
        process.terminate()
        process.wait()
    if sent:
        logging.getLogger(__name__).info("%d rows have no score yet: their patch is not complete", len(sent))
    return np.array(found)


def _pin(core: int | None) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0)) if core is None else core})


def rows_per_second(root: Path, settings: Sequence[str], plant: Plant, detector: str) -> float:
    """Rows that are scored per second of processor time, with one row of each file at a time."""
    from inference.watch.command import open_monitor
    from inference.watch.watching import Watch

    loaded = load_config(local_config_file(_STREAM), settings, root=root, environment={})
    monitor = open_monitor(loaded, root=root, detector=detector)
    for path in plant.paths:
        plant.append(path, _ROWS_BEFORE)
    before = Watch(monitor, root=root, keeps_scores=True)
    while before.round():
        pass
    before.store()
    for path in plant.paths:
        plant.append(path, _CAUGHT_UP_ROWS)
    watch = Watch(monitor, root=root, keeps_scores=True, limit=1)
    began, count = time.process_time(), 0
    while watch.round():
        count += len(plant.paths)
    return count / (time.process_time() - began)


def growth(root: Path, settings: Sequence[str], channels: int, detector: str, days: int) -> dict[str, object]:
    """Memory (MiB), and size of the state and of the live document (bytes), after days of one row per second. A file is
    deleted after the next day, as a user of MQTT would do."""
    from inference.watch.command import open_monitor
    from inference.watch.watching import Watch

    page = root / PAGE / "index.html"  # with a dashboard, the live document is written too
    page.parent.mkdir()
    page.touch()
    loaded = load_config(local_config_file(_STREAM), settings, root=root, environment={})
    watch = Watch(open_monitor(loaded, root=root, detector=detector), root=root, keeps_scores=False)
    values = rows(np.random.default_rng(1), _DAY, channels)
    cells = [",".join(f"{value:.4f}" for value in row) for row in values]
    header = ",".join(["timestamp", *(f"c{number}" for number in range(channels))]) + "\n"
    process, began, found = psutil.Process(), time.process_time(), []
    for day in range(days):
        start = np.datetime64("2026-02-01T00:00:00") + np.timedelta64(day, "D")
        stamps = np.datetime_as_string(start + np.arange(_DAY).astype("timedelta64[s]"))
        path = root / f"data/live/{day:03d}.csv"
        with path.open("w", encoding="utf-8") as file:
            file.write(header)
            file.writelines(f"{stamp},{cell}\n" for stamp, cell in zip(stamps, cells, strict=True))
        watch._looked_at = -np.inf  # look for the file now
        while watch.round():
            pass
        watch.store()
        (root / f"data/live/{day - 1:03d}.csv").unlink(missing_ok=True)
        sizes = [path.stat().st_size for path in (watch.paths.state, root / LIVE / f"watch-{_STREAM}.json")]
        found.append((process.memory_info().rss / 2**20, *sizes))
    events = watch.paths.events.read_bytes().count(b"\n")
    memory_mb, state, live = (list(each) for each in zip(*found, strict=True))
    days_shown = sorted({0, 1, days // 3, 2 * days // 3, days - 1})
    return {
        "rows": days * _DAY, "rows_per_cpu_s": days * _DAY / (time.process_time() - began), "event_lines": events,
        "days": [day + 1 for day in days_shown], "memory_mb": [round(memory_mb[day]) for day in days_shown],
        "state_bytes": [state[day] for day in days_shown], "live_bytes": [live[day] for day in days_shown],
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.watch", description="Latency and rate of landfall watch.")
    parser.add_argument("--machines", type=int, default=50)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--channels", type=int, default=27)
    parser.add_argument("--model", action="store_true", help="use a model of weight .3 (default: charts alone)")
    parser.add_argument("--days", type=int, help="measure growth over this number of days instead")
    parser.add_argument("--core", type=int, help="core of the monitor (default: the last one)")

    def command(arguments: argparse.Namespace) -> int:
        detector = "model" if arguments.model else "charts"
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            settings = build(root, arguments.channels, with_model=arguments.model)
            if arguments.days:
                found = growth(root, settings, arguments.channels, detector, arguments.days)
                sys.stdout.write(json.dumps(found) + "\n")
                return EXIT_OK
            plant = Plant(root, arguments.machines, arguments.channels)
            words = [_STREAM, "--scores", "--detector", detector, "--repo-root", str(root), *settings]
            found = latencies(root, plant, words, arguments.seconds, arguments.core)
            shutil.rmtree(root / "artifacts/watch")
            rate = rows_per_second(root, settings, Plant(root, arguments.machines, arguments.channels), detector)
        p50, p99 = np.percentile(found, [50, 99])
        sys.stdout.write(
            f"{detector}, {arguments.channels} channels, {arguments.machines} machines at 1 Hz, {len(found)} rows: "
            f"row to score p50 {1e3 * p50:.0f} ms, p99 {1e3 * p99:.0f} ms, longest {1e3 * found.max():.0f} ms; "
            f"one row at a time {rate:.0f} rows per second of one core\n"
        )
        return EXIT_OK

    return run_command(command, parser, argv)


if __name__ == "__main__":
    sys.exit(main())
