"""Memory of a run: the environment before the start, and a limit during the run.

This module does not import torch, because torch reads the allocator settings on import.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping

from core.config.execution import Device, DeviceKind
from core.devices.capabilities import DeviceCapabilities
from core.devices.plan import DevicePlan
from core.errors import ConfigError, ConfigFault

log = logging.getLogger(__name__)


# --------------------------------------------------------------------------------------------------------- environment
# Names of one variable of torch's allocator. torch 2.9 renamed it: it warns about the old name, which is the only one
# that earlier versions read.
_NEW_NAME, _OLD_NAME = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"
_ALLOCATOR = {_NEW_NAME, _OLD_NAME, "PYTORCH_HIP_ALLOC_CONF"}
# Expandable segments: memory freed by one batch size is used by the next; only Linux drivers support them.
_GROWING_SEGMENTS = "expandable_segments:True"
# Record of the variables that were set, so that a later plan of this process or of a child may change them.
_NOTE = "_LANDFALL_PREPARED"


def prepare_environment(config: Device, environment: MutableMapping[str, str] = os.environ) -> dict[str, str]:
    """Sets `device.environment` and the allocator settings that torch reads when CUDA starts; returns what it set.

    Variables of the user take precedence, then `device.environment`, then allocator settings. Raises ConfigError for a
    name or value that no environment can hold.
    """
    ours: dict[str, str] = json.loads(environment.get(_NOTE, "{}"))
    users = {name for name, value in environment.items() if value != ours.get(name)}
    done: dict[str, str] = {}
    for name, value in config.environment.items():
        if name not in users:
            done[name] = value
        elif environment[name] != value:
            log.warning("device.environment.%s = %s is ignored: the environment has %s", name, value, environment[name])
    for name in sorted(_ALLOCATOR & users):
        log.info("%s = %s of the environment is kept", name, environment[name])
    if sys.platform == "linux" and _ALLOCATOR.isdisjoint(users | done.keys()):
        done[_NEW_NAME if _torch_version() >= (2, 9) else _OLD_NAME] = _GROWING_SEGMENTS
    for name, value in done.items():
        try:
            environment[name] = value
        except ValueError as error:
            raise ConfigError("device", [ConfigFault(f"device.environment.{name}", str(error))]) from error
    environment[_NOTE] = json.dumps(ours | done)
    if environment is os.environ:
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
    """Memory that this process may use on a device, in MiB: its share, but at most the free memory and what it already
    holds.

    processes: how many share the device, as those of a run on one CPU do.
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
    """MiB that a new cache may take of a device: together with what this process holds there, at most a share of what
    it may hold, by what is free and by the limit of the applied plan."""
    from core.devices.backend import backend

    device = backend(kind)
    held_mb, (free_mb, _) = device.reserved_mb(), device.memory_mb()
    allowed_mb = held_mb + free_mb if _limit_mb is None else min(held_mb + free_mb, _limit_mb)
    return max(CACHE_SHARE * allowed_mb - held_mb, 0.0)


@contextlib.contextmanager
def applied(plan: DevicePlan) -> Iterator[None]:
    """A context in which the device of the plan is current and its memory limit, if any, applies: an allocation beyond
    the limit raises an error that `backend.is_out_of_memory` recognises."""
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
