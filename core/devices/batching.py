"""Batch sizes for the hardware: starting values that are then measured, each with its reason.

The rule of an automatic effective batch: the largest power of two that is not above the batch of the hardware tier, not
above the windows of an epoch, and leaves the run `training.min_steps` optimizer steps. Those steps never take it below
eight windows, nor below one for each process.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from core.config.execution import TPU_BATCH_FACTOR
from core.config.hardware import Tier, Tiers
from core.config.schema import Training
from core.devices.capabilities import GPU_KINDS, DeviceCapabilities
from core.devices.memory import memory_limit_mb

GPU_BATCH_FACTOR = 4
# Smallest batch, also for a run too short for `min_steps`: the gradient of fewer windows is mostly noise.
SMALLEST_BATCH = 8


@dataclass(frozen=True)
class BatchPlan:
    """The global batch size of an optimizer step, and the micro-batch size of each process.

    starting: the batch of the tier, or the requested one. effective: windows of a step, over all processes. micro:
    windows computed at once; accumulate: number of micro-batches in a step of this process. largest: the most windows
    that fit; None if it was not measured. peak_mb, seconds_per_step: expected at `micro`.
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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class BatchConfig:
    """A batch for one device, scaled from one for a CPU.

    largest: the most windows that fit in memory; None if the memory of a window is unknown.
    """

    base: int
    batch_size: int
    factor: int
    largest: int | None
    reason: str


def get_batch_config(
    chosen: DeviceCapabilities,
    base_batch_size: int,
    *,
    tpu_batch_factor: int = TPU_BATCH_FACTOR,
    memory_share: float = 0.75,
    mb_per_sample: float | None = None,
) -> BatchConfig:
    """Scales a batch to the device: TPU × `tpu_batch_factor`, up to the next power of two; GPU × 4; CPU × 1.

    mb_per_sample: memory of one window, in MiB; limits the batch to `memory_share` of the device memory, but to at
    least one window. Raises ValueError if a figure is not positive.
    """
    if base_batch_size < 1 or (mb_per_sample is not None and mb_per_sample <= 0):
        raise ValueError(f"base_batch_size = {base_batch_size}, mb_per_sample = {mb_per_sample}: must be positive")
    factor = tpu_batch_factor if chosen.kind == "tpu" else GPU_BATCH_FACTOR if chosen.kind in GPU_KINDS else 1
    batch, largest, reason = base_batch_size * factor, None, f"{base_batch_size} × {factor} on {chosen.kind}"
    if chosen.kind == "tpu":
        batch = _power_of_two_from(batch)
        reason += ", up to the next power of two"
    if mb_per_sample is not None:
        limit_mb = memory_limit_mb(chosen, memory_share)
        largest = max(1, int(limit_mb / mb_per_sample))
        if batch > largest:
            batch = _power_of_two_to(largest) if chosen.kind == "tpu" else largest
            reason += f"; {limit_mb} MiB are enough for {largest} samples of {mb_per_sample:g} MiB"
    return BatchConfig(base_batch_size, batch, factor, largest, reason)


def tier_for(chosen: DeviceCapabilities, tiers: Tiers, *, tpu_batch_factor: int = TPU_BATCH_FACTOR) -> Tier:
    """The row of this kind with the most memory that the device has. On a TPU its batch scales with the factor."""
    rows = [tier for tier in tiers.tiers if tier.kind == chosen.kind and tier.min_memory_gb <= chosen.nominal_gb]
    tier = max(rows, key=lambda tier: tier.min_memory_gb)
    if chosen.kind != "tpu" or tpu_batch_factor == TPU_BATCH_FACTOR:
        return tier
    batch_size = max(1, tier.batch_size * tpu_batch_factor // TPU_BATCH_FACTOR)
    return tier.model_copy(update={"batch_size": batch_size})


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
        batch = _power_of_two_to(bound)
    if batch < world_size:
        return world_size, f"one window for each of {world_size} processes"
    return batch, reason


def _power_of_two_to(number: int) -> int:
    """The largest power of two that is not above a positive number."""
    return 1 << (number.bit_length() - 1)


def _power_of_two_from(number: int) -> int:
    """The smallest power of two that is not below a positive number."""
    return 1 << (number - 1).bit_length()
