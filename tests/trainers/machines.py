"""A machine on which the time of a step follows a rule, for the choice of the micro-batch size."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from trainers.micro_batch import Probe, ProbeResult


def level(plateau: int, power: float = 1.0) -> Callable[[int], float]:
    """Seconds of a step: the same up to the plateau; beyond it they grow with the batch, at power 1 in proportion."""
    return lambda size: 0.01 * max(1.0, size / plateau) ** power


USUAL = level(64)


@dataclass
class Machine:
    """Simulated memory and speed: a peak of `fixed + per_window · n` MB, and `seconds(n)` per step. Records the
    steps."""

    fixed: float = 100.0
    per_window: float = 2.0
    capacity: float = math.inf
    seconds: Callable[[int], float] = USUAL
    gradients: float = 0.0  # memory of small steps: their activations hide behind it
    now: float = 0.0
    peak: float = 0.0
    ran: list[int] = field(default_factory=list)

    def peak_of(self, size: int) -> float:
        return self.fixed + max(self.gradients, self.per_window * size)

    def train_step(self, size: int) -> None:
        self.ran.append(size)
        self.peak = max(self.peak, self.peak_of(size))
        if self.peak > self.capacity:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB")
        self.now += self.seconds(size)

    def validation_step(self, size: int) -> None:
        assert self.ran[-1] == size
        self.now += self.seconds(size) / 3

    def synchronize(self) -> None: ...

    def reset_peak_memory(self) -> None:
        self.peak = self.fixed

    def peak_memory_mb(self) -> float:
        return self.peak

    def probe(self, *, limit_mb: float | None = None, largest: int = 1024, **options) -> ProbeResult:
        steps, options = (self.train_step, self.validation_step), {"budget_s": 1e6, **options}
        return Probe(*steps, self, limit_mb, largest, clock=lambda: self.now, **options).run()
