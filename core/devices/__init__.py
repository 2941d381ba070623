"""The device layer: finds the hardware, decides what a run does with it, and says why. docs/devices.md tells more.

    from core.devices import get_device_manager
    manager = get_device_manager()

The names below come from their modules when they are first asked for: importing the package imports no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = {
    "DeviceCapabilities": "capabilities",
    "Detector": "capabilities",
    "SystemDetector": "detect",
    "DevicePlan": "plan",
    "DeviceManager": "manager",
    "get_device_manager": "manager",
    "get_default_device": "manager",
    "get_device_info": "manager",
    "print_device_info": "manager",
    "has_gpu": "manager",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
