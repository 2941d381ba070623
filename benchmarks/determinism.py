"""What deterministic kernels cost a training step on this CPU; `python -m benchmarks determinism`.

Compared is the CPU time of one thread, in alternating blocks of one process: other processes on the machine affect it
little.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from benchmarks.busy import BATCH, training_work
from benchmarks.run import RESULTS, Effort, environment
from core.config.schema import Stream

STREAMS: dict[Stream, str] = {"patchtst": "PatchTST", "swinmae": "Swin-MAE"}
# Pairs of blocks in a round, and seconds of CPU time of a block.
PAIRS, BLOCK_S = 5, 0.5


@dataclass(frozen=True)
class Cost:
    """Milliseconds of CPU time per window without determinism, and the time with it as a multiple: median, first and
    third quartile of the pairs."""

    title: str
    ms_per_window: float
    multiple: tuple[float, float, float]
    pairs: int

    def __str__(self) -> str:
        middle, low, high = self.multiple
        return (
            f"{self.title} training: {self.ms_per_window:.2f} ms of CPU time per window; deterministic {middle:.3f} "
            f"times that (quartiles {low:.3f} and {high:.3f} of {self.pairs} pairs)"
        )


def results(effort: Effort) -> Iterator[Cost]:
    for stream, title in STREAMS.items():
        yield measured(title, training_work(stream), pairs=PAIRS * effort.rounds)


def measured(title: str, work: Callable[[], object], *, pairs: int, seconds: float = BLOCK_S) -> Cost:
    """Every second pair is in the other order."""
    before = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    found: dict[str, list[float]] = {"default": [], "error": []}
    try:
        torch.set_num_threads(1)
        for number in range(pairs):
            for mode in found if number % 2 else reversed(found):
                torch.set_deterministic_debug_mode(mode)
                found[mode].append(_cpu_ms_per_window(work, seconds))
    finally:
        torch.set_num_threads(before[0])
        torch.set_deterministic_debug_mode(before[1])
    multiples = [slow / fast for slow, fast in zip(found["error"], found["default"], strict=True)]
    low, middle, high = statistics.quantiles(multiples, n=4)
    return Cost(title, statistics.median(found["default"]), (middle, low, high), pairs)


def _cpu_ms_per_window(work: Callable[[], object], seconds: float) -> float:
    work()
    started, count = time.process_time(), 0
    while (passed := time.process_time() - started) < seconds or not count:
        work()
        count += 1
    return 1e3 * passed / (count * BATCH)


def write(found: Sequence[Cost], folder: Path = RESULTS) -> None:
    document = {"question": "determinism", **environment(), "works": [asdict(each) for each in found]}
    (folder / "determinism.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
