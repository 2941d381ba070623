"""The environment that a run records: interpreter, packages, hardware, code version; memory and utilisation of the
device."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.config.execution import DeviceKind
from core.devices.backend import backend, torch_versions
from core.devices.plan import DevicePlan
from core.git import git_state
from core.packages import version_of
from core.runlog import DeviceReading

RECORDED_PACKAGES = (
    "torch", "numpy", "pandas", "pyarrow", "hydra-core", "pydantic", "papermill", "nbformat", "matplotlib",
)  # fmt: skip

SECONDS_BETWEEN_READINGS = 1.0


def environment_record(root: Path, plan: DevicePlan, decisions: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a run's environment. decisions: model and batch sizes chosen for the hardware."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        **torch_versions(),
        "device": plan.to_json(),
        **decisions,
        "git": git_state(root),
        "packages": {name: version_of(name) for name in RECORDED_PACKAGES},
    }


class Gauges:
    """Reads the device that `backend(kind).select` chose."""

    def __init__(self, kind: DeviceKind):
        self._kind = kind
        self._next = 0.0

    def read(self) -> DeviceReading | None:
        """None if the last reading is less than a second old. Reads from drivers and the system, never from the device,
        so queued work does not block it."""
        now = time.monotonic()
        if now < self._next:
            return None
        self._next = now + SECONDS_BETWEEN_READINGS
        device = backend(self._kind)
        return DeviceReading(round(device.reserved_mb(), 1), device.utilisation())
