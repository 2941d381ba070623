"""The device layer: finds the hardware and decides how a run uses it, with reasons; see docs/devices.md.

Layers, lowest first; a module imports only from layers above it in this list:

1. capabilities, process_memory, process, selftest
2. host, nvidia, plan, tpu
3. backend (the calls that differ between platforms)
4. detect, memory (limit, and recovery from out-of-memory errors)
5. manager (device, precision, memory of a run), record (the same as JSON)
6. compat: the Python API of docs/python_api.md. Its names are also those of this package; importing the package imports
   no torch, as they are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_COMPAT = (
    "DeviceManager",
    "DeviceType",
    "MemoryStrategy",
    "get_device_manager",
    "get_device",
    "get_default_device",
    "get_device_info",
    "print_device_info",
    "has_gpu",
    "optimize_for_model_size",
    "create_tensor",
    "move_to_device",
    "distribute_data",
)
_MODULES = {
    "DeviceCapabilities": "core.devices.capabilities",
    "Detector": "core.devices.capabilities",
    "SystemDetector": "core.devices.detect",
    "DevicePlan": "core.devices.plan",
    "list_profiles": "core.config.hardware",
    "load_profile": "core.config.hardware",
    **dict.fromkeys(_COMPAT, "core.devices.compat"),
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
