"""Which devices this machine has, found by doing real work on each; one detector a row of a table."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import psutil
import torch

DeviceKind = Literal["cpu", "cuda", "mps"]
_MEGABYTE = 2**20


@dataclass(frozen=True)
class DeviceCapabilities:
    """What one kind of device offers.

    memory_total_mb, memory_free_mb: of one device, in MiB. native_dtypes: types its hardware computes in, no emulation.
    usable: a forward and a backward pass succeeded on it. reason: what was found, or why it cannot be used.
    """

    kind: DeviceKind
    name: str
    count: int
    memory_total_mb: int
    memory_free_mb: int
    native_dtypes: tuple[str, ...]
    usable: bool
    reason: str
    compute_capability: str | None = None
    cuda_version: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Detector(Protocol):
    """The seam for hardware this machine cannot have: anything with this method can be given to a DeviceManager."""

    def detect_capabilities(self) -> list[DeviceCapabilities]: ...


class SystemDetector:
    """Asks every row of `DETECTORS`, best device first."""

    def detect_capabilities(self) -> list[DeviceCapabilities]:
        found = [detect() for detect in DETECTORS]
        return [capabilities for capabilities in found if capabilities is not None]


def detect_cuda() -> DeviceCapabilities | None:
    if not torch.cuda.is_available():
        return None
    device = torch.device("cuda", 0)
    properties = torch.cuda.get_device_properties(device)
    failure = _failure_on(device)
    free, total = (0, properties.total_memory) if failure else torch.cuda.mem_get_info(device)
    native_bf16 = not failure and torch.cuda.is_bf16_supported(including_emulation=False)
    return DeviceCapabilities(
        kind="cuda",
        name=properties.name,
        count=torch.cuda.device_count(),
        memory_total_mb=total // _MEGABYTE,
        memory_free_mb=free // _MEGABYTE,
        native_dtypes=("float32", "float16", "bfloat16") if native_bf16 else ("float32", "float16"),
        usable=failure is None,
        reason=failure or f"{properties.name} passed a forward and backward pass",
        compute_capability=f"{properties.major}.{properties.minor}",
        cuda_version=torch.version.cuda,
    )


def detect_mps() -> DeviceCapabilities | None:
    if not torch.backends.mps.is_available():
        return None
    failure = _failure_on(torch.device("mps"))
    memory = psutil.virtual_memory()
    return DeviceCapabilities(
        kind="mps",
        name=f"Apple {platform.processor() or 'silicon'}",
        count=1,
        memory_total_mb=memory.total // _MEGABYTE,
        memory_free_mb=memory.available // _MEGABYTE,
        native_dtypes=("float32", "float16"),
        usable=failure is None,
        reason=failure or "Apple GPU passed a forward and backward pass; memory is shared with the CPU",
    )


def detect_cpu() -> DeviceCapabilities:
    memory = psutil.virtual_memory()
    model, flags = _cpu_model_and_flags()
    has_bf16 = bool({"avx512_bf16", "amx_bf16"} & flags)
    return DeviceCapabilities(
        kind="cpu",
        name=model,
        count=usable_cores(),
        memory_total_mb=memory.total // _MEGABYTE,
        memory_free_mb=memory.available // _MEGABYTE,
        native_dtypes=("float32", "bfloat16") if has_bf16 else ("float32",),
        usable=True,
        reason=f"{usable_cores()} cores may be used",
    )


DETECTORS: tuple[Callable[[], DeviceCapabilities | None], ...] = (detect_cuda, detect_mps, detect_cpu)


def usable_cores() -> int:
    """Cores this process may run on: its affinity where the system knows it, else all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def _failure_on(device: torch.device) -> str | None:
    """Why a small forward and backward pass fails there: a device may call itself available and run no kernel."""
    try:
        weight = torch.ones(8, 8, device=device, requires_grad=True)
        (weight @ weight).sum().backward()
        healthy = bool(torch.isfinite(weight.grad).all())
    except RuntimeError as error:
        first_line = str(error).strip().splitlines()[0]
        return f"{device} is present but failed a small operation: {first_line}"
    return None if healthy else f"{device} is present but computed wrong numbers"


def _cpu_model_and_flags() -> tuple[str, frozenset[str]]:
    """Model name and instruction flags; Linux lists both, elsewhere the flags stay unknown."""
    cpuinfo = Path("/proc/cpuinfo")
    fallback = platform.processor() or platform.machine()
    if not cpuinfo.exists():
        return fallback, frozenset()
    pairs = (line.partition(":") for line in cpuinfo.read_text(encoding="utf-8").splitlines())
    fields = {key.strip(): value.strip() for key, _, value in pairs}
    return fields.get("model name", fallback), frozenset(fields.get("flags", "").split())
