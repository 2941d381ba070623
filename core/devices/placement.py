"""Tensors where they are needed: made on a device, moved to one, or split over several."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from core.errors import UsageError

Value = TypeVar("Value")

# Bytes of the largest tensor that is pinned: torch keeps pinned memory for reuse, which pays for batches and not for
# a whole data set that is moved once.
LARGEST_PINNED = 256 * 2**20


def create_tensor(data: Any, device: torch.device | str, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A new tensor of numbers, an array or a tensor, in memory of its own and without its history.

    Without `dtype`, floating numbers take torch's default type and others keep theirs. Raises what torch raises for
    data that are no numbers.
    """
    if isinstance(data, torch.Tensor):
        tensor = data.detach().clone()
    else:
        array = np.asarray(data, order="C")  # torch knows no negative strides and no foreign byte order
        tensor = torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))
    if dtype is None:
        dtype = torch.get_default_dtype() if tensor.is_floating_point() else tensor.dtype
    return _moved(tensor.to(dtype), torch.device(device))


def move_to_device(value: Value, device: torch.device | str) -> Value:
    """The value with every tensor in it on the device, through dicts, lists, tuples and dataclasses of any depth.

    Everything else stays as it is, and so does each container in which nothing moves: it is the same object then.
    """
    target = torch.device(device)

    def moved(part: Any) -> Any:
        return _moved(part, target) if isinstance(part, torch.Tensor) else _rebuilt(part, moved)

    return moved(value)


def distribute_data(batch: Value, devices: Sequence[torch.device | str]) -> list[Value]:
    """The batch in consecutive shares, the first on the first device, and so on; sizes differ by one at most.

    Tensors and arrays are split along their first axis, and so are lists and tuples without tensors that are as long,
    such as the names of the samples. What has no axis is in every share. There are fewer shares than devices where
    there are fewer samples. Raises UsageError without devices, and for a batch with no or with different sizes.
    """
    if not devices:
        raise UsageError("a batch cannot be distributed over no devices")
    sizes = set(_first_axes(batch))
    if not sizes and isinstance(batch, list | tuple):
        sizes = {len(batch)}
    if len(sizes) != 1:
        found = f"parts of {', '.join(map(str, sorted(sizes)))} samples" if sizes else "no samples"
        raise UsageError(f"a batch with {found} cannot be split over devices")
    size = sizes.pop()
    smallest, remainder = divmod(size, len(devices))
    shares, start = [], 0
    for index, device in enumerate(devices[:size]):
        stop = start + smallest + (index < remainder)
        shares.append(move_to_device(_cut(batch, slice(start, stop), size), device))
        start = stop
    return shares


def _moved(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """From the CPU to CUDA through pinned memory: a copy from ordinary memory waits for all work queued on the GPU."""
    if tensor.device.type == "cpu" and device.type == "cuda" and tensor.nbytes <= LARGEST_PINNED:
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def _first_axes(value: Any) -> Iterator[int]:
    """Lengths of the first axes of all tensors and arrays in the value."""
    if isinstance(value, torch.Tensor | np.ndarray):
        if value.ndim:
            yield len(value)
        return
    for part in _parts(value).values():
        yield from _first_axes(part)


def _cut(value: Any, samples: slice, size: int) -> Any:
    """The samples of a batch of `size`."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return value[samples] if value.ndim else value
    if type(value) in (list, tuple) and len(value) == size and not list(_first_axes(value)):
        return value[samples]
    return _rebuilt(value, lambda part: _cut(part, samples, size))


# ---------------------------------------------------------------------------------------------------------- containers
def _parts(value: Any) -> dict[Any, Any]:
    """What a container holds, by key, position or field; nothing for what is no container."""
    if isinstance(value, dict):
        return value
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return {}


def _rebuilt(value: Any, function: Callable[[Any], Any]) -> Any:
    """The container with the function applied to its parts; the container itself where they all stay the same."""
    parts = _parts(value)
    changed = {key: new for key, part in parts.items() if (new := function(part)) is not part}
    if not changed:
        return value
    if isinstance(value, tuple):
        parts = {**parts, **changed}.values()
        return type(value)._make(parts) if hasattr(value, "_make") else type(value)(parts)
    result = copy.copy(value)
    for key, part in changed.items():
        if isinstance(value, dict | list):
            result[key] = part
        else:
            object.__setattr__(result, key, part)  # past `frozen`; no __post_init__, for nothing is made anew
    return result
