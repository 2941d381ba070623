"""The device layer: finds the hardware and decides what a run does with it, with reasons; see docs/devices.md.

Layers, lowest first; a module imports only from layers above it in this list:

1. capabilities, host, process_memory, process, tuning, threads, selftest, nvidia, tables
2. plan, tpu, backend (the calls that differ between platforms)
3. detect, memory, random_state, gauges, profiles
4. retry (out of memory), preserved, probe, batching
5. manager (device, precision, memory of a run), record (the same as JSON), used (the devices of a run)
6. compat: the Python API of docs/python_api.md. Its names are also those of this package; importing the package imports
   no torch, as they are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = {
    "DeviceCapabilities": "capabilities",
    "Detector": "capabilities",
    "SystemDetector": "detect",
    "DevicePlan": "plan",
    "list_profiles": "tables",
    "load_profile": "tables",
    **dict.fromkeys(
        (
            *(
                "DeviceManager",
                "DeviceType",
                "MemoryStrategy",
                "get_device_manager",
                "get_device",
                "get_default_device",
            ),
            *("get_device_info", "print_device_info", "has_gpu", "optimize_for_model_size"),
            *("create_tensor", "move_to_device", "distribute_data"),
        ),
        "compat",
    ),
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
