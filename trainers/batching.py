"""Batch sizes for the hardware: starting values that are then measured, each with its reason.

The rule for an automatic global batch size: the largest power of two that is at most the batch size of the hardware
tier, at most the windows of an epoch, and leaves the run `training.min_steps` optimizer steps. The last condition never
reduces it below eight windows. It is at least one window for each process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from core.config.hardware import Tier
from core.config.schema import Training

# Smallest batch, also for a run too short for `min_steps`: the gradient of fewer windows is mostly noise.
SMALLEST_BATCH = 8


@dataclass(frozen=True)
class BatchPlan:
    """The global batch size of an optimizer step, and the micro-batch size of each process.

    starting: the batch size of the tier, or the requested one. effective: windows of a step, over all processes. micro:
    windows computed together; accumulate: number of micro-batches in a step of this process. largest: the largest
    micro-batch that fits; None if it was not measured. peak_mb (MiB), seconds_per_step: expected at `micro`.
    """

    starting: int
    effective: int
    micro: int
    accumulate: int
    largest: int | None
    gradient_checkpointing: bool
    peak_mb: float | None
    seconds_per_step: float | None
    reason: str

    def decisions(self) -> Iterator[tuple[str, str, str]]:
        """For users: what was decided, the result, and the reason."""
        times = f" × {self.accumulate}" if self.accumulate > 1 else ""
        yield "batch", f"global batch size {self.effective}, micro-batch {self.micro}{times}", self.reason
        if self.gradient_checkpointing:
            yield "activations", "recomputed in the backward pass", "activation checkpointing on"
        else:
            yield "activations", "kept", "activation checkpointing off"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def effective_batch(settings: Training, tier: Tier, *, num_windows: int, world_size: int = 1) -> tuple[int, str]:
    """Windows of an optimizer step over all processes, and why; a number in `training.effective_batch` is taken as it
    is. num_windows: windows of the train split."""
    if settings.effective_batch != "auto":
        batch, reason = settings.effective_batch, f"training.effective_batch = {settings.effective_batch}"
    else:
        windows = min(settings.windows_per_epoch or num_windows, num_windows)
        few = f"{settings.epochs} epochs of {windows} windows must give {settings.min_steps} steps"
        if (enough := settings.epochs * windows // settings.min_steps) < SMALLEST_BATCH:
            enough, few = SMALLEST_BATCH, f"{few}, but the smallest batch is {SMALLEST_BATCH}"
        bounds = [
            (tier.batch_size, f"default of the tier {tier.name}: {tier.batch_size}"),
            (windows, f"an epoch has {windows} windows"),
            (enough, few),
        ]
        bound, reason = min(bounds)
        batch = 1 << (bound.bit_length() - 1)  # the largest power of two that is not above it
    if batch < world_size:
        return world_size, f"one window for each of {world_size} processes"
    return batch, reason
