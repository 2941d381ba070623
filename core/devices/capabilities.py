"""Capabilities of hardware, and the interface of its detectors. Imports no torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Protocol

from core.config.execution import DeviceKind

GPU_KINDS: tuple[DeviceKind, ...] = ("cuda", "mps", "xpu")


@dataclass(frozen=True)
class DeviceCapabilities:
    """Capabilities of the devices of one platform, which are assumed to be identical.

    count: devices; for the CPU, cores the process may use. memory_total_mb, memory_free_mb: of one device, in MiB.
    native_dtypes: types its hardware computes in, no emulation. usable: a forward and a backward pass succeeded on it.
    reason: what was found, or why it cannot be used. kind `cuda` is also AMD's ROCm, which sets `hip_version`.
    unified_memory: the device shares the memory of the CPU.
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
    hip_version: str | None = None
    driver_version: str | None = None
    supports_mixed_precision: bool = False
    supports_distributed: bool = False
    unified_memory: bool = False
    physical_cores: int | None = None

    @property
    def nominal_gb(self) -> int:
        """Memory of one device as the manufacturer states it: a `16 GB` T4 reports 15,102 MiB, which is 15.8 · 10⁹
        bytes."""
        return round(self.memory_total_mb * 2**20 / 1e9)

    @property
    def platform_facts(self) -> tuple[str, ...]:
        """The known versions of driver and platform, in words."""
        versions = {
            "driver": self.driver_version,
            "CUDA": self.cuda_version,
            "HIP": self.hip_version,
            "capability": self.compute_capability,
        }
        return tuple(f"{name} {version}" for name, version in versions.items() if version is not None)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Detector(Protocol):
    """The interface of detectors, also for simulated hardware: a DeviceManager accepts any object with this method.

    It returns one entry for each platform found.
    """

    def detect_capabilities(self) -> list[DeviceCapabilities]: ...
