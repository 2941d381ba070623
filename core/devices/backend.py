"""The calls that differ between platforms, one class each: synchronisation, caches, random state, memory.

Only this module calls torch.cuda, torch.mps, torch.xpu and torch_xla; all other code uses `backend(kind)`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from core import host, process_memory
from core.config.execution import DeviceKind
from core.devices import nvidia
from core.process_memory import MIB, PeakMeter, SampledPeak

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Backend:
    """One platform, here the CPU; the others override what differs. Calls refer to the device that `select` chose for
    this process, and require that it `is_present`. Memory is in MiB."""

    kind: DeviceKind = "cpu"

    @property
    def is_present(self) -> bool:
        """Whether this torch can compute on the platform on this machine."""
        return True

    def select(self, index: int) -> None:
        """Makes this device the current one of the process if there are several."""

    def synchronize(self) -> None:
        """Waits until all work submitted to the device is complete; on a CPU it always is."""

    def empty_cache(self) -> None:
        """Returns free memory that is kept for reuse to the system."""
        process_memory.release()

    def rng_state(self) -> list[torch.Tensor]:
        """States of torch's global generators that a run uses: that of the CPU, then that of the device."""
        return [torch.get_rng_state()]

    def set_rng_state(self, states: Sequence[torch.Tensor]) -> None:
        """Restores the result of `rng_state`; states of a CPU run do not change the generator of the device."""
        torch.set_rng_state(states[0])

    def reserved_mb(self) -> float:
        """Memory that this process has allocated on the device, including free cached blocks."""
        return process_memory.resident_mb()

    @functools.cached_property
    def peak(self) -> PeakMeter:
        """The peak meter of a platform whose allocator records no peak: it samples `reserved_mb`."""
        return SampledPeak(self.reserved_mb)

    def reset_peak_memory(self) -> None:
        """Empties the cache and resets the peak to the current memory."""
        self.empty_cache()
        self.peak.reset()

    def peak_memory_mb(self) -> float:
        """Peak of `reserved_mb` since the last reset; it decides whether a step fits."""
        return self.peak.peak_mb()

    def memory_mb(self) -> tuple[float, float]:
        """Free and total memory of the device, over all processes."""
        memory = host.memory_mb()
        return memory.free_mb, memory.total_mb

    def limited(self, limit_mb: float) -> contextlib.AbstractContextManager[None]:
        """A context in which an allocation beyond the limit raises an out-of-memory error."""
        return process_memory.limited(limit_mb)

    def utilisation(self) -> float | None:
        """Recent utilisation of the device, 0 to 1; None if unknown."""
        return None


@dataclass(frozen=True)
class CpuBackend(Backend):
    @property
    def peak(self) -> PeakMeter:
        return process_memory.peak_meter()


@dataclass(frozen=True)
class AcceleratorBackend(Backend):
    """Common functions of torch.cuda, torch.mps and torch.xpu."""

    api: Any = None

    @property
    def is_present(self) -> bool:
        return self.api.device_count() > 0

    def synchronize(self) -> None:
        self.api.synchronize()

    def empty_cache(self) -> None:
        self.api.empty_cache()

    def rng_state(self) -> list[torch.Tensor]:
        return [torch.get_rng_state(), self.api.get_rng_state()]

    def set_rng_state(self, states: Sequence[torch.Tensor]) -> None:
        torch.set_rng_state(states[0])
        for state in states[1:]:
            self.api.set_rng_state(state)


@dataclass(frozen=True)
class CachingBackend(AcceleratorBackend):
    """torch.cuda, which is also ROCm's, and torch.xpu: the same functions under two names."""

    def select(self, index: int) -> None:
        self.api.set_device(index)

    def reserved_mb(self) -> float:
        return self.api.memory_reserved() / MIB

    def reset_peak_memory(self) -> None:
        self.api.empty_cache()
        self.api.reset_peak_memory_stats()

    def peak_memory_mb(self) -> float:
        return self.api.max_memory_reserved() / MIB

    def memory_mb(self) -> tuple[float, float]:
        free, total = memory_bytes(self.api)
        return free / MIB, total / MIB

    @contextlib.contextmanager
    def limited(self, limit_mb: float) -> Iterator[None]:
        if not hasattr(self.api, "set_per_process_memory_fraction"):  # torch.xpu of older versions
            log.warning("no memory limit: torch %s cannot set one on %s", torch.__version__, self.kind)
            yield
            return
        current = getattr(self.api, "get_per_process_memory_fraction", None)  # torch.cuda of newer versions
        before = current() if current else 1.0
        self.api.set_per_process_memory_fraction(min(1.0, limit_mb / self.memory_mb()[1]))
        try:
            yield
        finally:
            self.api.set_per_process_memory_fraction(before)

    def utilisation(self) -> float | None:
        uuid = getattr(self.api.get_device_properties(self.api.current_device()), "uuid", None)
        return nvidia.utilisation(str(uuid)) if uuid is not None else None


def memory_bytes(api: Any, device: torch.device | None = None) -> tuple[int, int]:
    """Free and total memory of a device of torch.cuda or torch.xpu, by default the current one.

    Some Intel drivers report no free memory: then it is the total without the memory of this process.
    """
    try:
        return api.mem_get_info(device)
    except (AttributeError, RuntimeError):
        total = api.get_device_properties(device).total_memory
        return total - api.memory_reserved(device), total


@dataclass(frozen=True)
class MpsBackend(AcceleratorBackend):
    """Apple's GPU: its memory is the machine's, and its allocator reports no peak."""

    def reserved_mb(self) -> float:
        return self.api.driver_allocated_memory() / MIB

    @contextlib.contextmanager
    def limited(self, limit_mb: float) -> Iterator[None]:
        # Fractions refer to the memory that Metal recommends, about three quarters of the machine; beyond that macOS
        # pages.
        self.api.set_per_process_memory_fraction(min(1.0, limit_mb * MIB / self.api.recommended_max_memory()))
        try:
            yield
        finally:
            started_with = os.environ.get("PYTORCH_MPS_HIGH_WATERMARK_RATIO", "1.7")  # torch's default
            self.api.set_per_process_memory_fraction(float(started_with))


@dataclass(frozen=True)
class XlaBackend(Backend):
    """A TPU through torch_xla, which is imported by the first call. XLA plans memory itself: no cache and no limit."""

    kind: DeviceKind = "tpu"
    module: str = "torch_xla.core.xla_model"

    @functools.cached_property
    def api(self) -> Any:
        return importlib.import_module(self.module)

    @property
    def is_present(self) -> bool:
        return importlib.util.find_spec(self.module.partition(".")[0]) is not None

    def synchronize(self) -> None:
        self.api.mark_step()
        self.api.wait_device_ops()

    def empty_cache(self) -> None:
        """XLA has no cache."""

    def rng_state(self) -> list[torch.Tensor]:
        return [torch.get_rng_state(), torch.tensor(self.api.get_rng_state(), dtype=torch.uint64)]

    def set_rng_state(self, states: Sequence[torch.Tensor]) -> None:
        torch.set_rng_state(states[0])
        for state in states[1:]:
            self.api.set_rng_state(state.item())

    def reserved_mb(self) -> float:
        return self.api.get_memory_info()["bytes_used"] / MIB

    def memory_mb(self) -> tuple[float, float]:
        memory = self.api.get_memory_info()
        return (memory["bytes_limit"] - memory["bytes_used"]) / MIB, memory["bytes_limit"] / MIB

    def limited(self, limit_mb: float) -> contextlib.AbstractContextManager[None]:
        log.info("no memory limit: XLA plans a TPU's memory itself")
        return contextlib.nullcontext()


BACKENDS: dict[DeviceKind, Backend] = {
    row.kind: row
    for row in (
        XlaBackend(),
        CachingBackend("cuda", torch.cuda),
        MpsBackend("mps", torch.mps),
        CachingBackend("xpu", torch.xpu),
        CpuBackend(),
    )
}


def backend(kind: DeviceKind) -> Backend:
    return BACKENDS[kind]


def torch_versions() -> dict[str, str | None]:
    """The version of torch, and of the platforms it was built for; None for others."""
    return {"torch": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip}


# ------------------------------------------------------------------------------------------------------------- transfer
# Bytes of the largest tensor that is pinned: torch keeps pinned memory for reuse, which pays for batches and not for
# a complete data set that is moved once.
LARGEST_PINNED = 256 * 2**20


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copies from the CPU to CUDA through pinned memory: a copy from ordinary memory waits for all work queued on the
    GPU."""
    if tensor.device.type == "cpu" and device.type == "cuda" and tensor.nbytes <= LARGEST_PINNED:
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
