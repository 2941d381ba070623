"""The devices that a run uses, as listed in its records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from core.config.execution import DeviceKind
from core.devices import nvidia
from core.devices.plan import DevicePlan


@dataclass(frozen=True)
class UsedDevice:
    """One device. memory_mb: in MiB. power_limit_w: as its driver enforces it.

    None: does not apply to the platform, or is not reported by the driver.
    """

    kind: DeviceKind
    index: int
    name: str
    memory_mb: int | None = None
    compute_capability: str | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    hip_version: str | None = None
    power_limit_w: float | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        facts = (
            ("driver {}", self.driver_version), ("CUDA {}", self.cuda_version), ("HIP {}", self.hip_version),
            ("capability {}", self.compute_capability), ("power limit {:g} W", self.power_limit_w),
        )  # fmt: skip
        known = ", ".join(text.format(value) for text, value in facts if value is not None)
        return f"{self.kind}:{self.index} {self.name}" + (f", {known}" if known else "")


def devices_used(plan: DevicePlan, torch: Any = torch) -> list[UsedDevice]:
    """The devices of all processes on this machine, in order. torch: tests pass simulated hardware."""
    if plan.kind != "cuda":
        return [UsedDevice(plan.kind, plan.index, plan.name)]
    own = range(plan.count) if plan.count > 1 else [plan.index]
    known = nvidia.known_gpus() if torch.version.hip is None else {}
    return [_described(index, torch, known) for index in own]


def _described(index: int, torch: Any, known: Mapping[str, nvidia.Gpu]) -> UsedDevice:
    """known: facts of NVIDIA's driver about the GPUs of the machine."""
    gpu = torch.cuda.get_device_properties(index)
    by_driver = known.get(nvidia.plain_uuid(str(getattr(gpu, "uuid", ""))))
    return UsedDevice(
        "cuda",
        index,
        gpu.name,
        memory_mb=gpu.total_memory // 2**20,
        compute_capability=None if torch.version.hip else f"{gpu.major}.{gpu.minor}",
        driver_version=next((each.driver_version for each in known.values()), None),
        cuda_version=torch.version.cuda,
        hip_version=torch.version.hip,
        power_limit_w=by_driver.power_limit_w if by_driver else None,
    )
