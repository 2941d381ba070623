"""Cost of `landfall fleet` per machine, and its growth with the number of machines.

    python -m benchmarks.fleet [--machines 200] [--workers 2] [--bare 20]

Synthetic machines are scored with control charts. The bare job is the command alone in a process that has imported
everything, on machines whose workspaces exist. Overhead is the difference per machine: workspace, configuration,
fingerprint, records, export of the page, and Dask. Wall time per machine is that of the whole fleet, without start and
end; processor time is measured too, because other load on the machine changes it less.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import yaml

from core.cli import run_command
from core.errors import EXIT_OK
from core.workspace import CODE_ROOT
from pipelines.fleet.jobs import FOLDER
from pipelines.init_workspace import renew_workspace

_TRAINING_ROWS, _TEST_ROWS, _CHANNELS = 2000, 500, 8
_TAG = [
    "device.prefer=cpu", "max_threads=1", "data.window=32", "data.stride=8", "data.score_stride=8",
    "model.size=custom", "model.patch_length=8", "scoring.operating_context='off'",
]  # fmt: skip
_ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def build(root: Path, num_machines: int) -> None:
    """Creates a fleet whose machines differ only in their mean, each with an event, so that all jobs take the same
    time."""
    renew_workspace(root, source=CODE_ROOT, without=("examples", "fleet.*"))
    machines = []
    for number in range(num_machines):
        folder = root / "data" / f"m{number:05d}" / "data/fdc"
        folder.mkdir(parents=True)
        rng = np.random.default_rng(0)
        mixing_sc = rng.normal(size=(3, _CHANNELS))
        for name, rows in (("train_1", _TRAINING_ROWS), ("test_1", _TEST_ROWS)):
            state_ns = pd.DataFrame(rng.normal(size=(rows, 3))).ewm(span=20).mean().to_numpy()
            values_nc = 4 * state_ns @ mixing_sc + rng.normal(size=(rows, _CHANNELS)) + number
            if name == "test_1":
                values_nc[300:340, 0] += 8.0
            frame = pd.DataFrame(values_nc, columns=[f"c{channel}" for channel in range(_CHANNELS)])
            frame.insert(0, "timestamp", pd.date_range("2026-01-01", periods=rows, freq="s"))
            frame.to_csv(folder / f"{name}.csv", index=False)
        name = f"m{number:05d}"
        machine = {"id": name, "stream": "patchtst", "data": f"data/{name}", "tags": ["synthetic"]}
        machines.append(machine | {"detector": "charts"})
    content = {"tags": {"synthetic": {"overrides": _TAG}}, "machines": machines}
    (root / "configs/fleet.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")


def start(root: Path, *words: str) -> subprocess.Popen[bytes]:
    """Starts `landfall fleet`."""
    command = [sys.executable, "-m", "pipelines.fleet.command", *words, "--repo-root", str(root)]
    with (root / "fleet.log").open("ab") as log:
        return subprocess.Popen(command, cwd=CODE_ROOT, env=_ENVIRONMENT, stdout=log, stderr=log)


def finished(process: subprocess.Popen[bytes], root: Path) -> None:
    if process.wait() != 0:
        raise RuntimeError(f"the fleet ended with {process.returncode}: {(root / 'fleet.log').read_text()[-2000:]}")


def workers_of(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    with suppress(psutil.Error):
        children = psutil.Process(process.pid).children()
        return [child for child in children if "spawn_main" in " ".join(child.cmdline())]
    return []


# ----------------------------------------------------------------------------------------------------------------- cost
_BARE = """
import json, sys, time, os, io, contextlib
from inference.run_scoring_example import main
def score(workspace):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert main(["--stream", "patchtst", "--detector", "charts", "--repo-root", workspace]) == 0
first, *others = sys.argv[1:]
score(first)
wall, cpu = time.monotonic(), time.process_time()
for workspace in others:
    score(workspace)
print(json.dumps([(time.monotonic() - wall) / len(others), (time.process_time() - cpu) / len(others)]))
"""


def bare(root: Path, count: int) -> tuple[float, float]:
    """Wall and processor seconds of the command alone, per machine, after a warm-up."""
    workspaces = [str(path) for path in sorted((root / "machines").iterdir())[: count + 1]]
    for workspace in workspaces:  # the fleet had no cached files either
        subprocess.run(["rm", "-rf", f"{workspace}/cache", f"{workspace}/artifacts/scores"], check=True)
    out = subprocess.run(
        [sys.executable, "-c", _BARE, *workspaces], cwd=CODE_ROOT, env=_ENVIRONMENT, check=True, stdout=subprocess.PIPE
    )
    wall_s, cpu_s = json.loads(out.stdout)
    return wall_s, cpu_s


def cost(root: Path, num_machines: int, workers: int, num_bare: int) -> dict[str, Any]:
    build(root, num_machines)
    process = start(root, "score", "--workers", str(workers))
    samples: list[tuple[float, int, float, float, float]] = []
    while process.poll() is None:
        time.sleep(0.5)
        with suppress(psutil.Error):
            scheduler, jobs = psutil.Process(process.pid), workers_of(process)
            cpu_s = [sum(each.cpu_times()[:2]) for each in (scheduler, *jobs)]
            megabytes = [each.memory_info().rss / 2**20 for each in (scheduler, *jobs)]
            done = len(list((root / "machines").glob(f"*/{FOLDER}/score.json"))) if jobs else 0
            samples.append((time.monotonic(), done, sum(cpu_s), megabytes[0], max(megabytes[1:], default=0.0)))
    finished(process, root)
    at, done, cpu_s, scheduler_mb, worker_mb = (np.array(column) for column in zip(*samples, strict=True))
    busy = np.flatnonzero((done >= workers) & (done <= num_machines - workers))  # without start and end
    first, middle, last = busy[0], busy[len(busy) // 2], busy[-1]

    def rate(values: np.ndarray, begin: int, end: int) -> float:
        return float((values[end] - values[begin]) / (done[end] - done[begin]))

    bare_s, bare_cpu_s = bare(root, num_bare)
    wall_s = rate(at, first, last)
    again = time.monotonic()
    finished(start(root, "score", "--workers", str(workers)), root)
    return {
        "machines": num_machines, "workers": workers, "load": os.getloadavg()[0],
        "wall_s_per_machine": wall_s, "wall_s_first_half": rate(at, first, middle),
        "wall_s_second_half": rate(at, middle, last),
        "bare_wall_s": bare_s, "overhead_wall_s": wall_s * workers - bare_s,
        "cpu_s_per_machine": rate(cpu_s, first, last), "bare_cpu_s": bare_cpu_s,
        "overhead_cpu_s": rate(cpu_s, first, last) - bare_cpu_s,
        "cpu_s_first_half": rate(cpu_s, first, middle), "cpu_s_second_half": rate(cpu_s, middle, last),
        "scheduler_mb": [round(float(scheduler_mb[place])) for place in (first, middle, last)],
        "worker_mb": [round(float(worker_mb[place])) for place in (first, middle, last)],
        "again_s": time.monotonic() - again,
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.fleet", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--machines", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--bare", type=int, default=20, metavar="N", help="machines of the bare job")

    def command(arguments: argparse.Namespace) -> int:
        logging.getLogger().setLevel(logging.WARNING)
        with tempfile.TemporaryDirectory() as folder:
            found = cost(Path(folder), arguments.machines, arguments.workers, arguments.bare)
        rounded = {name: round(value, 3) if isinstance(value, float) else value for name, value in found.items()}
        sys.stdout.write(json.dumps(rounded) + "\n")
        return EXIT_OK

    return run_command(command, parser, argv)


if __name__ == "__main__":
    sys.exit(main())
