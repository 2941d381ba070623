"""How much memory a run may take, and what makes it so: the environment before a start, a limit while it runs.

Importing this module imports no torch: allocators read the environment when it comes.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass

from core.config.execution import Device, DeviceKind
from core.devices.capabilities import DeviceCapabilities
from core.devices.plan import DevicePlan
from core.errors import ConfigError, ConfigFault

log = logging.getLogger(__name__)


# --------------------------------------------------------------------------------------------------------- environment
@dataclass(frozen=True)
class Variable:
    """One environment variable of an allocator.

    value: from the memory share and the environment so far, what it should be; None leaves it unset.
    rivals: names that say the same; where the user has set one of them, this variable is not set.
    """

    name: str
    value: Callable[[float, Mapping[str, str]], str | None]
    rivals: tuple[str, ...] = ()


_TORCH_NAMES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_MPS_HIGH, _MPS_LOW = "PYTORCH_MPS_HIGH_WATERMARK_RATIO", "PYTORCH_MPS_LOW_WATERMARK_RATIO"
# Our own note of what was set, so that a later plan of this process or of a child may set it again.
_NOTE = "_LANDFALL_PREPARED"


def _variables() -> tuple[Variable, ...]:
    """Watermarks are shares of what Metal recommends to hold. JAX refuses to start with both names of its fraction."""
    return (
        Variable(_torch_name(), _torch_settings, rivals=_TORCH_NAMES),
        Variable(_MPS_HIGH, lambda share, environment: str(share), rivals=(_MPS_LOW,)),
        Variable(_MPS_LOW, _mps_low_watermark),
        Variable("XLA_PYTHON_CLIENT_PREALLOCATE", lambda share, environment: "false"),
        Variable("XLA_PYTHON_CLIENT_MEM_FRACTION", lambda share, environment: str(share), ("XLA_CLIENT_MEM_FRACTION",)),
    )


def _torch_name() -> str:
    """torch 2.9 renamed its variable: it warns about the old name, which is the only one earlier versions read."""
    try:
        major, minor = importlib.metadata.version("torch").split(".")[:2]
    except importlib.metadata.PackageNotFoundError:
        return "PYTORCH_ALLOC_CONF"
    return "PYTORCH_ALLOC_CONF" if (int(major), int(minor)) >= (2, 9) else "PYTORCH_CUDA_ALLOC_CONF"


def _torch_settings(share: float, environment: Mapping[str, str]) -> str | None:
    """Segments that grow, so that what one batch size leaves free serves the next; only Linux drivers offer them."""
    return "expandable_segments:True" if sys.platform == "linux" else None


def _mps_low_watermark(share: float, environment: Mapping[str, str]) -> str | None:
    """Where MPS begins to collect garbage, in torch's own proportion to the limit, 1.4 to 1.7.

    It follows a limit that the user set alone, too: torch does not start with the low watermark above the high one.
    """
    try:
        return f"{float(environment[_MPS_HIGH]) * 1.4 / 1.7:.3f}"
    except (KeyError, ValueError):
        return None


def prepare_environment(config: Device, environment: MutableMapping[str, str] = os.environ) -> dict[str, str]:
    """Sets what allocators read when an accelerator starts, and `device.environment`; gives what it set.

    A variable the user already has wins, then `device.environment`, then the allocators' own. Raises ConfigError for a
    name or value that no environment can hold.
    """
    ours: dict[str, str] = json.loads(environment.get(_NOTE, "{}"))
    users = {name for name, value in environment.items() if value != ours.get(name)}
    done: dict[str, str] = {}
    for name, value in config.environment.items():
        if name not in users:
            done[name] = value
        elif environment[name] != value:
            log.warning("device.environment.%s = %s gives way: the environment has %s", name, value, environment[name])
    for name, value in done.items():
        try:
            environment[name] = value
        except ValueError as error:
            raise ConfigError("device", [ConfigFault(f"device.environment.{name}", str(error))]) from error
    for variable in _variables():
        names = {variable.name, *variable.rivals}
        for name in sorted(names & users):
            log.info("%s = %s of the environment stays as it is", name, environment[name])
        if names.isdisjoint(users | done.keys()):
            value = variable.value(config.memory.share, environment)
            if value is not None:
                done[variable.name] = environment[variable.name] = value
    environment[_NOTE] = json.dumps(ours | done)
    if environment is os.environ:
        _pass_to_torch(done)
    return done


def _pass_to_torch(done: Mapping[str, str]) -> None:
    """Hands the settings over where torch came first: since 2.9 a build with CUDA may read the variable on import."""
    settings = next((done[name] for name in _TORCH_NAMES if name in done), None)
    torch = sys.modules.get("torch")
    apply = getattr(getattr(torch, "_C", None), "_accelerator_setAllocatorSettings", None)
    if settings is not None and apply is not None:
        apply(settings)


# --------------------------------------------------------------------------------------------------------------- limit
def memory_limit_mb(capabilities: DeviceCapabilities, share: float, *, processes: int = 1) -> int:
    """What this process may take of a device, in MiB: its share, but no more than it holds already and what is free.

    processes: how many share the device, as those of a run on one CPU do.
    """
    from core.devices.backend import backend

    device = backend(capabilities.kind)
    held = device.reserved_mb() if device.is_present else 0.0
    available = held + capabilities.memory_free_mb / processes
    return int(min(share * capabilities.memory_total_mb / processes, available))


# Limit of the plan that is applied, in MiB.
_limit_mb: float | None = None
# Caches may fill this share of the memory of a process; the rest is for models and activations.
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
    """Makes the plan's device the current one and its memory limit real: within it, an allocation beyond the limit
    raises an error that `backend.is_out_of_memory` knows. Without a limit in the plan nothing is limited."""
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
