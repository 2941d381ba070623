"""Memory of a run: allocator settings before the start, a limit during the run, smaller micro-batches if it runs out.

This module does not import torch, because torch reads the allocator settings on import.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.metadata
import json
import logging
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from core.config.execution import Device, DeviceKind
from core.devices.capabilities import DeviceCapabilities
from core.devices.plan import DevicePlan
from core.errors import ConfigError, ConfigFault, LandfallError, first_line

log = logging.getLogger(__name__)

T = TypeVar("T")


# --------------------------------------------------------------------------------------------------------- environment
# Names of one variable of torch's allocator. torch 2.9 renamed it: it warns about the old name, which is the only one
# that earlier versions read.
_NEW_NAME, _OLD_NAME = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"
_ALLOCATOR = {_NEW_NAME, _OLD_NAME, "PYTORCH_HIP_ALLOC_CONF"}
# Expandable segments: memory freed by one batch size is used by the next; only Linux drivers support them.
_GROWING_SEGMENTS = "expandable_segments:True"
# Record of the variables that were set, so that a later plan of this process or of a child may change them.
_NOTE = "_LANDFALL_PREPARED"


def prepare_environment(config: Device) -> dict[str, str]:
    """Sets `device.environment` and the allocator settings that torch reads when CUDA starts; returns what it set.

    Variables of the user take precedence, then `device.environment`, then allocator settings. Raises ConfigError for a
    name or value that is not valid in an environment.
    """
    ours: dict[str, str] = json.loads(os.environ.get(_NOTE, "{}"))
    users = {name for name, value in os.environ.items() if value != ours.get(name)}
    done: dict[str, str] = {}
    for name, value in config.environment.items():
        if name not in users:
            done[name] = value
        elif os.environ[name] != value:
            log.warning("device.environment.%s = %s is ignored: the environment has %s", name, value, os.environ[name])
    for name in sorted(_ALLOCATOR & users):
        log.info("%s = %s of the environment is kept", name, os.environ[name])
    if sys.platform == "linux" and _ALLOCATOR.isdisjoint(users | done.keys()):
        done[_NEW_NAME if _torch_version() >= (2, 9) else _OLD_NAME] = _GROWING_SEGMENTS
    for name, value in done.items():
        try:
            os.environ[name] = value
        except ValueError as error:
            raise ConfigError("device", [ConfigFault(f"device.environment.{name}", str(error))]) from error
    os.environ[_NOTE] = json.dumps(ours | done)
    _pass_to_torch(done)
    return done


def _torch_version() -> tuple[int, int]:
    major, minor = importlib.metadata.version("torch").split(".")[:2]
    return int(major), int(minor)


def _pass_to_torch(done: Mapping[str, str]) -> None:
    """Passes the settings to torch if it is already imported: since 2.9, a build with CUDA may read the variable on
    import."""
    settings = next((done[name] for name in _ALLOCATOR if name in done), None)
    torch = sys.modules.get("torch")
    apply = getattr(getattr(torch, "_C", None), "_accelerator_setAllocatorSettings", None)
    if settings is not None and apply is not None:
        apply(settings)


# --------------------------------------------------------------------------------------------------------------- limit
def memory_limit_mb(capabilities: DeviceCapabilities, share: float, *, processes: int = 1) -> int:
    """Memory that this process may use on a device, in MiB: its share, but at most the free memory and the memory it
    already uses.

    processes: how many share the device, such as those of a run on one CPU.
    """
    from core.devices.backend import backend

    device = backend(capabilities.kind)
    held = device.reserved_mb() if device.is_present else 0.0
    available = held + capabilities.memory_free_mb / processes
    return int(min(share * capabilities.memory_total_mb / processes, available))


# Limit of the plan that is applied, in MiB.
_limit_mb: float | None = None
# Caches may use this share of the memory of a process; the rest is for models and activations.
CACHE_SHARE = 0.5


def cache_limit_mb(kind: DeviceKind) -> float:
    """MiB of a device that a new cache may use: together with the memory that this process already uses there, at most
    `CACHE_SHARE` of its limit. The limit is that of the applied plan, or the free memory if that is smaller."""
    from core.devices.backend import backend

    device = backend(kind)
    held_mb, (free_mb, _) = device.reserved_mb(), device.memory_mb()
    allowed_mb = held_mb + free_mb if _limit_mb is None else min(held_mb + free_mb, _limit_mb)
    return max(CACHE_SHARE * allowed_mb - held_mb, 0.0)


@contextlib.contextmanager
def applied(plan: DevicePlan) -> Iterator[None]:
    """A context in which the device of the plan is current and its memory limit, if any, applies: an allocation beyond
    the limit raises an error that `is_out_of_memory` recognises."""
    from core.devices.backend import backend

    global _limit_mb
    device = backend(plan.kind)
    device.select(plan.index)
    before, _limit_mb = _limit_mb, plan.memory_limit_mb
    try:
        with contextlib.nullcontext() if plan.memory_limit_mb is None else device.limited(plan.memory_limit_mb):
            yield
    finally:
        _limit_mb = before


# ------------------------------------------------------------------------------------------------------- out of memory
# Parts of a RuntimeError's message, in lower case, on platforms without an exception class for it.
_EXHAUSTED = (
    "out of memory",  # CUDA, ROCm, MPS and XPU, from allocator and driver
    "_alloc_failed",  # cuBLAS, cuDNN, cuFFT, cuSOLVER, hipBLAS
    "out_of_device_memory",  # Level Zero, below XPU
    "out_of_host_memory",
    "resource_exhausted",  # XLA
    "invalid buffer size",  # MPS, one tensor larger than Metal allows
    "can't allocate memory",  # CPU
    "not enough memory",  # CPU, on Windows
    "bad_alloc",  # C++
    "could not create a primitive",  # oneDNN: no memory for its kernel or scratch
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on whatever device: the same work on a smaller batch may succeed.

    oneDNN has one message for that and for unsupported operations: an error at every batch size is the latter.
    """
    import torch

    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and any(text in str(error).lower() for text in _EXHAUSTED)


def until_it_fits(
    work: Callable[[int], T], size: int, *, kind: DeviceKind, undo: Callable[[], None] = lambda: None
) -> tuple[T, int]:
    """The result of `work(size)`, and the size that fitted.

    work: does all the work in micro-batches of at most `size` windows. If memory runs out, `undo` restores the state
    before it and the size is halved. Raises LandfallError if a single window does not fit, and every other error
    unchanged.
    """
    from core.devices.backend import backend

    while True:
        try:
            return work(size), size
        except (RuntimeError, MemoryError, OSError) as error:
            if not is_out_of_memory(error):
                raise
            problem = first_line(error)
        # Outside of the handler, because the error's traceback keeps the memory in use.
        if size == 1:
            raise LandfallError(
                f"out of memory with a micro-batch of one window: {problem}",
                hint="set training.gradient_checkpointing=true or model.size=reduced, or use a device with more memory",
            )
        size = math.ceil(size / 2)
        log.warning("out of memory (%s): the micro-batch is now %d; the same windows are computed again", problem, size)
        undo()
        backend(kind).empty_cache()
