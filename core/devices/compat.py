"""The Python API of the device layer for notebooks, under the names of other device managers; see docs/python_api.md.

    from core.devices import get_device_manager
    manager = get_device_manager()

Landfall itself uses `core.devices.manager`.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

import numpy as np
import torch

from core.config.compose import environment_settings
from core.config.execution import Device, DeviceKind, Execution
from core.devices import manager
from core.devices.backend import to_device
from core.devices.capabilities import GPU_KINDS
from core.devices.manager import PREFERENCES, torch_devices
from core.devices.memory import memory_limit_mb
from core.devices.record import device_record
from core.errors import UsageError

Value = TypeVar("Value")


class DeviceType(StrEnum):
    """Kinds of devices, as `device.prefer` names them; `CUDA` is another name of `GPU`."""

    AUTO = "auto"
    CPU = "cpu"
    GPU = "gpu"
    CUDA = "gpu"
    TPU = "tpu"
    MPS = "mps"
    XPU = "xpu"


class MemoryStrategy(StrEnum):
    """Values of `device.memory.strategy`."""

    CONSERVATIVE = "conservative"
    BALANCED = "balanced"
    AGGRESSIVE = "aggressive"
    CUSTOM = "custom"
    AUTO = "auto"


GPU_BATCH_FACTOR = 4
# The kinds of devices that a name such as `gpu:0` stands for: those of `device.prefer`, and those of torch.
_NAMED: dict[str, tuple[DeviceKind, ...]] = {**PREFERENCES, "cuda": ("cuda",), "xla": ("tpu",)}


@dataclass(frozen=True)
class BatchConfig:
    """A batch for one device, scaled from one for a CPU.

    largest: the most samples that fit in memory; None if the memory of a sample is unknown.
    """

    base: int
    batch_size: int
    factor: int
    largest: int | None
    reason: str


def optimize_for_model_size(num_parameters: int, config: Device | None = None) -> Device:
    """The settings with the memory strategy for a model of this size (`device.memory.strategy: auto` has the limits).

    config: default: the default settings; it is not changed.
    """
    config = config or Device()
    return config.model_copy(update={"memory": config.memory.for_model(num_parameters)})


class DeviceManager(manager.DeviceManager):
    """A device manager that also lists devices, places tensors and scales batches."""

    @property
    def has_gpu(self) -> bool:
        return self.gpu_count > 0

    @property
    def gpu_count(self) -> int:
        return len(self.gpu_devices)

    @property
    def gpu_devices(self) -> list[torch.device]:
        return self._devices_of(GPU_KINDS)

    @property
    def cpu_devices(self) -> list[torch.device]:
        return self._devices_of(("cpu",))

    def _devices_of(self, kinds: Sequence[DeviceKind]) -> list[torch.device]:
        return [device for found in self._usable() if found.kind in kinds for device in torch_devices(found)]

    @property
    def default_device(self) -> torch.device:
        return torch_devices(self.capabilities)[0]

    def create_tensor(
        self, data: Any, *, dtype: torch.dtype | None = None, device_id: int | str | None = None
    ) -> torch.Tensor:
        """A tensor on the device in use; floating numbers take the default type, float64 under `device.enable_x64`."""
        if dtype is None and self.config.device.enable_x64 and torch.as_tensor(data).is_floating_point():
            dtype = torch.float64
        return create_tensor(data, self.get_device(device_id), dtype=dtype)

    def move_to_device(self, value: Any, device_id: int | str | None = None) -> Any:
        """Moves tensors in nested dicts, lists, tuples and dataclasses; tensors already on the device are not
        copied."""
        return move_to_device(value, self.get_device(device_id))

    def get_device(self, device_id: int | str | None = None) -> torch.device:
        """The device in use, one of its kind by number, or any usable one by name, such as `cuda:1`, `gpu` or `tpu:0`.

        Raises UsageError, with what is there, for one that cannot be used.
        """
        if isinstance(device_id, str):
            return self._named(device_id)
        devices = torch_devices(self.capabilities)
        if device_id is not None and not 0 <= device_id < len(devices):
            raise UsageError(f"device {device_id} does not exist: there are {len(devices)} of {self.capabilities.kind}")
        return devices[device_id or 0]

    def _named(self, name: str) -> torch.device:
        kind, _, index = name.lower().partition(":")
        kinds = _NAMED.get(kind, ())
        number = int(index) if index.isdecimal() else 0 if not index else -1
        devices = [device for wanted in kinds for device in self._devices_of([wanted])]
        if 0 <= number < len(devices):
            return devices[number]
        reasons = [found.reason for found in self.found if found.kind in kinds and not found.usable]
        usable = ", ".join(map(str, self.devices))
        why = "; ".join(reasons) or ("there is no such device" if kinds else "it is not the name of a device")
        raise UsageError(f"{name!r} cannot be used: {why}", hint=f"usable devices: {usable}")

    def distribute_data(self, batch: Any, devices: Sequence[torch.device] | None = None) -> list[Any]:
        """The batch in consecutive shares, one per device; sizes differ by one at most."""
        return distribute_data(batch, devices or torch_devices(self.capabilities))

    def get_batch_config(self, base_batch_size: int, *, mb_per_sample: float | None = None) -> BatchConfig:
        """Scales a batch to the device: TPU × `device.tpu_batch_factor`, up to the next power of two; GPU × 4; CPU × 1.

        mb_per_sample: memory of one sample, in MiB; limits the batch to the device memory, but to at least one sample.
        Raises ValueError if a figure is not positive.
        """
        if base_batch_size < 1 or (mb_per_sample is not None and mb_per_sample <= 0):
            raise ValueError(f"base_batch_size = {base_batch_size}, mb_per_sample = {mb_per_sample}: must be positive")
        settings, kind = self.config.device, self.capabilities.kind
        factor = settings.tpu_batch_factor if kind == "tpu" else GPU_BATCH_FACTOR if kind in GPU_KINDS else 1
        batch, largest, reason = base_batch_size * factor, None, f"{base_batch_size} × {factor} on {kind}"
        if kind == "tpu":
            batch = 1 << (batch - 1).bit_length()
            reason += ", up to the next power of two"
        if mb_per_sample is not None:
            limit_mb = memory_limit_mb(self.capabilities, settings.memory.share)
            largest = max(1, int(limit_mb / mb_per_sample))
            if batch > largest:
                batch = 1 << (largest.bit_length() - 1) if kind == "tpu" else largest
                reason += f"; {limit_mb} MiB are enough for {largest} samples of {mb_per_sample:g} MiB"
        return BatchConfig(base_batch_size, batch, factor, largest, reason)

    def optimize_for_model_size(self, num_parameters: int) -> Execution:
        """The configuration with the memory strategy that suits a model of this size. The manager does not change;
        `get_device_manager(configuration)` returns one with these settings."""
        device = optimize_for_model_size(num_parameters, self.config.device)
        return self.config.model_copy(update={"device": device})

    def get_device_info(self) -> Mapping[str, Any]:
        """Plan, routing, devices, memory and batch: the record that a run writes."""
        return device_record(self).model_dump(mode="json")


# ---------------------------------------------------------------------------------------------------- one for a process
_manager: DeviceManager | None = None


def get_device_manager(
    config: Execution | Device | None = None,
    force_reinit: bool = False,
    prefer: DeviceType | str | None = None,
    allow_tpu: bool | None = None,
) -> DeviceManager:
    """The manager of this process, created at the first call; arguments other than None create a new one.

    `prefer` and `allow_tpu` change `config`, by default the settings of the current manager.
    """
    global _manager
    overrides = {key: value for key, value in (("prefer", prefer), ("allow_tpu", allow_tpu)) if value is not None}
    if _manager is None or force_reinit or config is not None or overrides:
        origins: Mapping[str, str] = {}
        if config is None and (_manager is None or force_reinit):
            config, origins = environment_settings()
        elif config is None:
            config, origins = _manager.config, _manager.origins
        execution = Execution(device=config) if isinstance(config, Device) else config
        device = Device.model_validate({**execution.device.model_dump(), **overrides})
        origins = {key: origin for key, origin in origins.items() if key.removeprefix("device.") not in overrides}
        _manager = DeviceManager(execution.model_copy(update={"device": device}), origins=origins)
    return _manager


def get_device(device_id: int | str | None = None) -> torch.device:
    """Like `DeviceManager.get_device`, for the manager of this process."""
    return get_device_manager().get_device(device_id)


def get_default_device() -> torch.device:
    return get_device_manager().default_device


def has_gpu() -> bool:
    return get_device_manager().has_gpu


def get_device_info() -> Mapping[str, Any]:
    return get_device_manager().get_device_info()


def print_device_info() -> None:
    """The device, precision, threads and memory of this process on stdout, with their reasons, for notebooks."""
    for what, value, reason in get_device_manager().plan().decisions():
        sys.stdout.write(f"{what:<12}{value} ({reason})\n")


# -------------------------------------------------------------------------------------------------------------- tensors
def create_tensor(data: Any, device: torch.device | str, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A new tensor of numbers, an array or a tensor, in its own memory and without autograd history.

    Without `dtype`, floating numbers take torch's default type and others keep theirs. Raises the errors of torch for
    data that is not numeric.
    """
    if isinstance(data, torch.Tensor):
        tensor = data.detach().clone()
    else:
        array = np.asarray(data, order="C")  # torch does not support negative strides and foreign byte orders
        tensor = torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))
    if dtype is None:
        dtype = torch.get_default_dtype() if tensor.is_floating_point() else tensor.dtype
    return to_device(tensor.to(dtype), torch.device(device))


def move_to_device(
    value: Value, device: torch.device | str | None = None, *, device_id: int | str | None = None
) -> Value:
    """The value with every tensor in it on the device, through dicts, lists, tuples and dataclasses of any depth.

    device_id: instead of a device, a number or name as `get_device` takes it, which raises UsageError for one that
    cannot be used.
    """
    target = get_device(device_id) if device is None else torch.device(device)

    def moved(part: Any) -> Any:
        return to_device(part, target) if isinstance(part, torch.Tensor) else _rebuilt(part, moved)

    return moved(value)


def distribute_data(batch: Value, devices: Sequence[torch.device | str]) -> list[Value]:
    """The batch in consecutive shares, the first on the first device, and so on; sizes differ by one at most.

    Tensors and arrays are split along their first axis, and so are lists and tuples of the same length without tensors,
    such as the names of the samples. Values without an axis are in every share. There are fewer shares than devices if
    there are fewer samples. Raises UsageError without devices, and for a batch with no or with different sizes.
    """
    if not devices:
        raise UsageError("a batch cannot be distributed over no devices")
    sizes = _first_axes(batch)
    if not sizes and isinstance(batch, list | tuple):
        sizes = {len(batch)}
    if len(sizes) != 1:
        found = f"parts of {', '.join(map(str, sorted(sizes)))} samples" if sizes else "no samples"
        raise UsageError(f"a batch with {found} cannot be split over devices")
    size = sizes.pop()
    shares = [rows for rows in np.array_split(np.arange(size), len(devices)) if len(rows)]
    return [
        move_to_device(_cut(batch, slice(rows[0], rows[-1] + 1), size), device)
        for rows, device in zip(shares, devices, strict=False)
    ]


def _first_axes(value: Any) -> set[int]:
    """Lengths of the first axes of all tensors and arrays in the value."""
    lengths: set[int] = set()

    def look(part: Any) -> Any:
        if not isinstance(part, torch.Tensor | np.ndarray):
            return _rebuilt(part, look)
        lengths.update(part.shape[:1])
        return part

    look(value)
    return lengths


def _cut(value: Any, samples: slice, size: int) -> Any:
    """The samples of a batch of `size`."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return value[samples] if value.ndim else value
    if type(value) in (list, tuple) and len(value) == size and not _first_axes(value):
        return value[samples]
    return _rebuilt(value, lambda part: _cut(part, samples, size))


def _rebuilt(value: Any, function: Callable[[Any], Any]) -> Any:
    """A copy of the container with the function applied to its parts; the value itself if it is no container."""
    if isinstance(value, tuple):
        parts = map(function, value)
        return type(value)._make(parts) if hasattr(value, "_make") else type(value)(parts)
    if isinstance(value, dict | list):
        result = copy.copy(value)
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            result[key] = function(part)
        return result
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        result = copy.copy(value)
        for field in dataclasses.fields(value):  # also if frozen, and without __post_init__
            object.__setattr__(result, field.name, function(getattr(value, field.name)))
        return result
    return value
