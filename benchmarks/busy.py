"""Training, scoring and scalograms while other processes use the same cores; `python -m benchmarks busy`."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import psutil

from benchmarks.implementations import Implementation, Work
from benchmarks.run import Effort

if TYPE_CHECKING:
    import torch
    from torch import nn

    from core.config.schema import Stream

BATCH, CHANNELS = 8, 8
MEASURED_S = 1.5
ROUNDS = 3
# Before a round: maximum use of the cores by other processes on an idle machine, and how long to wait for that.
IDLE_CORES, IDLE_LIMIT_S, LOOK_S = 0.2, 10.0, 0.25
HEADINGS = {
    "one": "one busy process",
    "per_core": "one for each core",
    "pinned": "one for each core, pinned to one core",
    "two_at_once": "two at once",
}
WORKS = ("PatchTST training", "PatchTST scoring", "Swin-MAE training", "Swin-MAE scoring", "scalograms")
# A busy loop that ends when its parent has ended.
_BUSY = """\
import os, sys
parent = int(sys.argv[1])
while os.getppid() == parent:
    for _ in range(100_000):
        pass
"""


@dataclass(frozen=True)
class Shared:
    """Speed of one workload: windows per second alone, and shares of it by condition, each as median, minimum and
    maximum of the rounds. others: maximum number of cores that other processes used before a round, 0 on an idle
    machine."""

    KIND: ClassVar = "works"

    title: str
    alone_per_second: float
    others: float
    shares: Mapping[str, tuple[float, float, float]]

    def __str__(self) -> str:
        found = (
            f"{HEADINGS[name]} {middle:.0%} ({low:.0%} to {high:.0%})"
            for name, (middle, low, high) in self.shares.items()
        )
        note = f"; NOT IDLE: others used {self.others:.1f} cores" if self.others > IDLE_CORES else ""
        return f"{self.title}: alone {self.alone_per_second:,.1f} windows/s; {'; '.join(found)}{note}"


def comparisons(effort: Effort) -> Iterator[Shared]:
    """Each workload without other processes, and with some."""
    for title in WORKS:
        yield measured(title, rounds=min(effort.rounds, ROUNDS))


def measured(title: str, *, rounds: int, seconds: float = MEASURED_S) -> Shared:
    """Each round measures the workload alone and under every condition, for some seconds."""
    from core.host import usable_cores

    alone: list[float] = []
    others = 0.0
    shares: dict[str, list[float]] = {}
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:

        def started(*, pinned: bool = False) -> Implementation:
            settings = {"title": title, "for_s": seconds, "pinned": pinned}
            return stack.enter_context(Implementation("benchmarks.busy:Repeated", tuned=True, **settings))

        def speed(*processes: Implementation) -> float:
            """Total windows per second of processes that run at the same time."""
            list(pool.map(Implementation.seconds, processes))
            return sum(process.facts()["per_second"] for process in processes)

        first, second = started(), started()
        pinned = started(pinned=True) if hasattr(os, "sched_setaffinity") else None
        for _ in range(rounds):
            others = max(others, _wait_for_idle())
            alone.append(speed(first))
            found = {}
            with busy(1):
                found["one"] = speed(first)
            with busy(usable_cores()):
                found["per_core"] = speed(first)
                if pinned is not None:
                    found["pinned"] = speed(pinned)
            found["two_at_once"] = speed(first, second)
            for name, each in found.items():
                shares.setdefault(name, []).append(each / alone[-1])
    spread = {name: (statistics.median(each), min(each), max(each)) for name, each in shares.items()}
    return Shared(title, statistics.median(alone), others, spread)


def _wait_for_idle() -> float:
    """Waits until no other process uses the cores, or for `IDLE_LIMIT_S`; returns how many cores others use then."""
    deadline = time.monotonic() + IDLE_LIMIT_S
    while True:
        others = psutil.cpu_percent(LOOK_S) / 100 * psutil.cpu_count()  # this process sleeps
        if others < IDLE_CORES or time.monotonic() > deadline:
            return others


@contextmanager
def busy(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Starts `count` processes that use a core all the time and need hardly any memory."""
    processes = [subprocess.Popen([sys.executable, "-c", _BUSY, str(os.getpid())]) for _ in range(count)]
    try:
        time.sleep(0.3)
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


# ---------------------------------------------------------------------------------------------------- the measured work
class Repeated:
    """A workload that is repeated for some seconds with the number of threads of a run. pinned: to one core. facts: the
    speed of the last call, in windows per second."""

    def __init__(self, title: str, for_s: float, *, pinned: bool):
        import torch

        from core.config.execution import Execution
        from core.devices.manager import DeviceManager

        if pinned:
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        plan = DeviceManager(Execution.model_validate({"device": {"prefer": "cpu"}})).plan()
        torch.set_num_threads(plan.threads)
        self._for_s, (self._work, self._windows) = for_s, _work(title)
        self.facts: dict[str, float] = {}

    def __call__(self) -> None:
        started, count = time.perf_counter(), 0
        while (passed := time.perf_counter() - started) < self._for_s or not count:
            self._work()
            count += 1
        self.facts = {"per_second": count * self._windows / passed}


def _work(title: str) -> tuple[Work, int]:
    """The workload of a title, in fp32, and its number of windows."""
    import torch

    from benchmarks import scalogram
    from benchmarks.patchtst import training_step

    torch.manual_seed(0)
    if title == "scalograms":
        return scalogram.our_images(), scalogram.WINDOWS
    stream: Stream = "patchtst" if title.startswith("PatchTST") else "swinmae"
    model, batch = _model_and_batch(stream)
    if title.endswith("scoring"):
        return lambda: model.inpaint(batch), BATCH
    return training_step(model, lambda: model(batch).loss, "32", fused=True), BATCH


def _model_and_batch(stream: Stream) -> tuple[nn.Module, torch.Tensor]:
    """The reduced model of a stream, and random windows."""
    import torch

    from core.config.compose import load_config, local_config_file
    from core.devices.manager import DeviceManager
    from core.models.factory import build_model
    from core.workspace import find_root
    from trainers.context import RunContext
    from trainers.decisions import decide_model_size

    root, words = find_root(__file__), ["precision='32'", "model.size=reduced"]
    if stream == "patchtst":
        words += ["data.window=256", "model.patch_length=16", "model.channel_attention=all"]
    loaded = load_config(local_config_file(stream), words, root=root, environment={})
    manager = DeviceManager(loaded.config)
    config = decide_model_size(RunContext(loaded, root, manager.plan()), manager).config
    if config.stream == "patchtst":
        batch = torch.randn(BATCH, config.data.window, CHANNELS)
    else:
        batch = torch.randn(BATCH, 3, config.scalogram.image_size, config.scalogram.image_size)
    return build_model(config, num_channels=batch.shape[-1] if stream == "patchtst" else 3), batch
