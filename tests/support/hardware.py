"""Hardware that this machine does not have."""

from __future__ import annotations

from core.devices.capabilities import DeviceCapabilities


class StandIn:
    """A detector that finds what it is given."""

    def __init__(self, *found: DeviceCapabilities):
        self.found = list(found)

    def detect_capabilities(self) -> list[DeviceCapabilities]:
        return self.found
