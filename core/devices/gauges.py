"""What a run takes of its device while it runs, read seldom enough to cost nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass

from core.config.execution import DeviceKind

SECONDS_BETWEEN_READINGS = 1.0


@dataclass(frozen=True)
class Reading:
    """Memory in MiB that this process has taken from the device: allocators keep what they took, so that readings now
    and then find the peak. The share of the time the GPU computed, 0 to 1, None where unknown."""

    memory_mb: float
    gpu_utilisation: float | None


class Gauges:
    """Of the device that `backend(kind).select` chose."""

    def __init__(self, kind: DeviceKind):
        self._kind = kind
        self._next = 0.0

    def read(self) -> Reading | None:
        """None where the last reading is not a second old. The host asks drivers and the system, never the device, so
        nothing waits for the work that is queued there."""
        from core.devices.backend import backend

        now = time.monotonic()
        if now < self._next:
            return None
        self._next = now + SECONDS_BETWEEN_READINGS
        device = backend(self._kind)
        return Reading(round(device.reserved_mb(), 1), device.utilisation())
