"""The device layer: finds the hardware and decides how a run uses it, with reasons; see docs/devices.md.

Modules import only modules above them in this list, which has the lowest first:

- `capabilities`: what a detector reports of the devices of a platform
- `kernels`: how torch chooses its kernels
- `selftest`: operations with known results, which a device must pass
- `nvidia`: NVIDIA's GPUs as their driver describes them
- `tpu`: TPUs as their libraries describe them
- `backend`: the calls that differ between platforms
- `detect`: finds the devices, a row of a table for each platform
- `plan`: the decisions for a run, and requirements that the hardware does not satisfy
- `memory`: allocator settings, the limit, and recovery from out-of-memory errors
- `manager`: chooses device, precision and memory, with reasons
- `record`: hardware and decisions as a document
- `compat`: the Python API of docs/python_api.md

Cores and memory of this process, which other packages need too, are in `core.host` and `core.process_memory`.

The names of `compat` are also those of this package. They are loaded on first use, so importing it imports no torch.
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
