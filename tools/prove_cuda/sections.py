"""The tests and measurements of `python -m tools.prove_cuda`, in order of importance; each section is a process.

    python -m tools.prove_cuda.sections NAME cuda|cpu OUT [PEERS]

A section yields rows. Each is saved immediately, so that the earlier ones remain after a crash or a time limit. With
`cpu` everything is small. This module imports torch only in functions: if the import fails, this is reported, and the
command continues.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from core.config.schema import STREAMS
from core.errors import first_line
from core.packages import version_of
from core.workspace import CODE_ROOT, write_json
from tools.prove_cuda.rows import Row, Where

# The row that says whether there is a device; the others need one.
DETECTION = "detection"
# Lines of pytest's output that are rows.
ROW_MARK = "prove_cuda row: "
PACKAGES = ("torch", "numpy", "transformers", "timm", "papermill", "ssqueezepy", "nvidia-nccl-cu13", "triton")


@dataclass(frozen=True)
class Section:
    """limit_s: seconds after which the section is killed. program: the module that runs it."""

    name: str
    title: str
    limit_s: float
    measure: Callable[[Where], Iterator[Row]]
    program: str = "tools.prove_cuda.sections"


# --------------------------------------------------------------------------------------------------------- environment
def environment(where: Where) -> Iterator[Row]:
    """Driver, versions, the device that is detected with its self-test, and its peak compute and copy rates."""
    from core.devices.detect import SystemDetector
    from core.devices.nvidia import query

    versions = {name: version_of(name) for name in PACKAGES}
    yield Row("versions", "measured", {"python": sys.version.split()[0], **{n: v for n, v in versions.items() if v}})
    gpus = [asdict(gpu) for gpu in query()]
    reason = "" if gpus or where.is_small else "the driver reports none"
    yield Row("GPUs of the driver", "failed" if reason else "measured", {str(n): g for n, g in enumerate(gpus)}, reason)

    import torch

    from benchmarks.placed import ceilings
    from core.devices.selftest import failure_on

    built = {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(), "kernels": torch.cuda.get_arch_list()}
    yield Row("torch", "measured", built)
    found = next((f for f in SystemDetector().detect_capabilities() if f.kind == where.device), None)
    if found is None or not found.usable:
        reason = found.reason if found else f"torch finds no {where.device} device"
        if torch.version.cuda is None:
            reason += (
                "; this torch is built without CUDA: make setup TORCH_INDEX=https://download.pytorch.org/whl/cu130"
            )
        yield Row(DETECTION, "failed", reason=reason)
        return
    yield Row(DETECTION, "passed", found.to_json())
    wrong = failure_on(torch.device(where.device))
    yield Row("self-test", "failed" if wrong else "passed", reason=wrong or "")
    best = ceilings(where.device, *((256, 8) if where.is_small else (8192, 4096)))
    rates = {f"{name} TFLOP/s": rate / 1e12 for name, rate in best.items() if name != "bytes"}
    yield Row("ceilings", "measured", {**rates, "copy GB/s": best["bytes"] / 1e9})


# --------------------------------------------------------------------------------------------------------------- tests
def tests(where: Where, file: str) -> Iterator[Row]:
    """The tests of a file, one row when each ends: tests/cuda/conftest.py writes them as separate lines."""
    command = [sys.executable, "-m", "pytest", "--tb=short", "-p", "no:cacheprovider", f"tests/cuda/{file}"]
    variables = {**os.environ, "PROVE_CUDA_DEVICE": where.device}
    process = subprocess.Popen(command, cwd=CODE_ROOT, env=variables, text=True, stdout=-1, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    number = 0
    for line in process.stdout:
        shown, mark, row = line.partition(ROW_MARK)
        sys.stdout.write(shown + ("\n" if mark else ""))
        if mark:
            number += 1
            yield Row(**json.loads(row))
    if process.wait() not in (0, 1) or not number:
        yield Row(file, "failed", reason=f"pytest ended with status {process.returncode} after {number} tests")


# ------------------------------------------------------------------------------------------------------------ main job
def main_job(where: Where) -> Iterator[Row]:
    """Runs the steps of `make validate` in a separate workspace, which a later call continues."""
    from pipelines.init_workspace import init_workspace
    from tools.matrix import failed_checks, metrics_of_streams

    workspace = _workspace(where)
    words = ["--resume"] if workspace.exists() else []
    if not workspace.exists():
        init_workspace(workspace)
    started = time.monotonic()
    code = _module("pipelines.sample_data", "--out", str(workspace / "samples"))
    facts = {"seconds": time.monotonic() - started}
    yield Row("sample data", "failed" if code else "passed", facts, _status(code))
    words += ["--repo-root", str(workspace), *where.words, *(("trainer=quick",) if where.is_small else ())]
    started = time.monotonic()
    code = _module("pipelines.run_local_training_pipeline", *words)
    failed = failed_checks(workspace)
    reason = _status(code) + (f"; checks failed: {', '.join(failed)}" if failed else "")
    yield Row("pipeline", "failed" if code else "passed", {"seconds": time.monotonic() - started}, reason)
    for stream, found in metrics_of_streams(workspace).items():
        sidecar = workspace / f"checkpoints/{stream}_ssl.json"
        hardware = json.loads(sidecar.read_text(encoding="utf-8"))["hardware"] if sidecar.is_file() else {}
        kind = hardware.get("kind")
        reason = "" if kind == where.device else f"it was trained on {kind}"
        facts = {**found, "device": hardware.get("name"), "arithmetic": hardware.get("precision")}
        yield Row(stream, "failed" if reason else "passed", facts, reason)


def _workspace(where: Where) -> Path:
    return where.out / "workspace"


def _module(name: str, *words: str) -> int:
    """Runs a module with its output in the log of the section."""
    variables = {**os.environ, "PYTHONPATH": str(CODE_ROOT)}
    return subprocess.run([sys.executable, "-m", name, *words], env=variables, stdout=sys.stderr).returncode


def _status(code: int) -> str:
    return f"ended with status {code}" if code else ""


# --------------------------------------------------------------------------------------------------------------- energy
Counter = Callable[[], float | None]


def energy(where: Where, counter: Counter | None = None) -> Iterator[Row]:
    """Energy of the epochs of training a model of full size on the sample data: that of the GPU, without the CPU.

    counter: joules since some fixed time; its result is None if nothing measures them.
    """
    counter = counter or joules
    if counter() is None:
        yield Row("energy", "skipped", reason="no GPU reports the energy it used")
        return
    workspace = _workspace(where)
    if not (workspace / "samples").is_dir():
        yield from (row for row in main_job(where) if row.status == "failed")
    for stream in STREAMS:
        run_id = f"energy-{time.time_ns()}"
        size = ("model.size=reduced", "trainer=quick") if where.is_small else ("model.size=full", "training.epochs=3")
        words = ["--repo-root", str(workspace), "--run-id", run_id, "training.promote=never", *size, *where.words]
        with Sampled(counter) as sampled:
            code = _module(f"trainers.train_{stream}_ssl", *words)
        facts = {} if code else sampled.of_epochs(workspace / f"runs/{stream}_ssl" / run_id / "metrics.jsonl")
        yield Row(stream, "failed" if code else "measured", facts, _status(code))


class Sampled:
    """Reads a counter ten times per second."""

    def __init__(self, counter: Counter):
        self._counter, self._stop = counter, threading.Event()
        self._readings: list[tuple[float, float]] = []
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Sampled:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._stop.wait(0.1):
            if (now := self._counter()) is not None:
                self._readings.append((time.time(), now))

    def between(self, start: float, end: float) -> float:
        """Joules between two times, which are in seconds since 1970."""
        import numpy as np

        times, values = np.array(self._readings).T
        return float(np.interp(end, times, values) - np.interp(start, times, values))

    def of_epochs(self, metrics: Path) -> dict[str, float]:
        """Median joules, mean seconds and mean power of the epochs, without the first one, which includes the
        warm-up."""
        import statistics

        from core.runlog import read_metrics

        epochs = [record for record in read_metrics(metrics) if record["kind"] == "epoch"]
        spans = [(datetime.fromisoformat(e["time"]).timestamp(), e["seconds"]) for e in epochs[1:] or epochs]
        used = [self.between(end - seconds, end) for end, seconds in spans]
        total_s = sum(seconds for _, seconds in spans)
        return {
            "joules per epoch": statistics.median(used), "seconds per epoch": total_s / len(spans),
            "watts": sum(used) / total_s, "epochs": len(epochs),
        }  # fmt: skip


def joules() -> float | None:
    """Energy of the first GPU in joules since its driver was loaded; None if the GPU does not measure it."""
    import pynvml

    try:
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetTotalEnergyConsumption(pynvml.nvmlDeviceGetHandleByIndex(0)) / 1000
    except pynvml.NVMLError:
        return None


# ------------------------------------------------------------------------------------------------------------ the table
def _speed(name: str, *options: str) -> Callable[[Where], Iterator[Row]]:
    def measure(where: Where) -> Iterator[Row]:
        from tools.prove_cuda import speed

        yield from getattr(speed, name)(where, *options)

    return measure


def _tests(name: str, title: str, limit_s: float) -> Section:
    return Section(f"tests-{name}", f"Tests: {title}", limit_s, partial(tests, file=f"test_{name}.py"))


SECTIONS = (
    Section("environment", "Environment and driver", 40, environment),
    _tests("precision", "parity with the CPU, fp16 and the guard", 75),
    _tests("memory", "memory", 75),
    _tests("resume", "determinism, resume after kill -9", 120),
    _tests("processes", "two processes", 75),
    Section("main-job", "Main job on the sample data", 150, main_job),
    Section("speed-patchtst", "Speed: PatchTST", 140, _speed("patchtst")),
    Section("speed-swinmae-base", "Speed: Swin base", 150, _speed("swinmae", "base")),
    Section("speed-swinmae-tiny", "Speed: Swin tiny", 140, _speed("swinmae", "tiny")),
    Section("data-path", "Share of the data path in a step", 50, _speed("data_path")),
    Section("scalograms", "Scalograms", 45, _speed("scalograms")),
    Section("scoring", "Scoring", 45, _speed("scoring")),
    Section("energy", "Energy per epoch", 75, energy),
    Section("speed-swinmae-shallow", "Speed: Swin-MAE as its authors run it", 120, _speed("swinmae", "shallow")),
)


def main(arguments: Sequence[str], sections: Sequence[Section] = SECTIONS) -> int:
    """Runs one section and writes its rows to OUT/sections/NAME.rows.json. Returns 1 if one of them failed."""
    name, device, out, *peers = arguments
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    where, rows = Where(device, Path(out), *map(Path, peers)), []
    section = next(section for section in sections if section.name == name)
    try:
        for row in section.measure(where):
            rows.append(asdict(row))
            write_json(where.out / "sections" / f"{name}.rows.json", {"rows": rows})
    except Exception as error:
        rows.append(asdict(Row(type(error).__name__, "failed", reason=first_line(error))))
        write_json(where.out / "sections" / f"{name}.rows.json", {"rows": rows})
        raise
    return int(any(row["status"] == "failed" for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
