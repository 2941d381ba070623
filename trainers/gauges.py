"""Memory and utilisation of the device during a run, read so rarely that the cost is negligible."""

from __future__ import annotations

import time

from core.config.execution import DeviceKind
from core.devices.backend import backend
from core.runlog import Reading

SECONDS_BETWEEN_READINGS = 1.0


class Gauges:
    """Reads the device that `backend(kind).select` chose."""

    def __init__(self, kind: DeviceKind):
        self._kind = kind
        self._next = 0.0

    def read(self) -> Reading | None:
        """None if the last reading is less than a second old. Reads from drivers and the system, never from the device,
        so queued work does not block it."""
        now = time.monotonic()
        if now < self._next:
            return None
        self._next = now + SECONDS_BETWEEN_READINGS
        device = backend(self._kind)
        return Reading(round(device.reserved_mb(), 1), device.utilisation())
