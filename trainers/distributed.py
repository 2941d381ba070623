"""Several processes that train one model: torchrun starts them, DistributedDataParallel joins their gradients."""

from __future__ import annotations

import contextlib
import gc
import inspect
import logging
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from core.config.execution import DeviceKind, Distributed
from core.devices.plan import DevicePlan
from core.errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK, EXIT_RESUMABLE, LandfallError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class World:
    """This process among those that train together, as torchrun numbers them; local: on this machine."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> World:
        """A process that torchrun did not start is alone."""
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        return cls(*(int(environment[name]) for name in names)) if all(n in environment for n in names) else cls()

    @property
    def is_main(self) -> bool:
        """Only this one writes."""
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        return self.size == 1

    def share(self, items: torch.Tensor) -> torch.Tensor:
        """This process's consecutive part of the first axis; sizes differ by one at most."""
        return items if self.is_alone else items.tensor_split(self.size)[self.rank]

    def add(self, values: torch.Tensor) -> torch.Tensor:
        """The sum over all processes, in place."""
        if not self.is_alone:
            distributed.all_reduce(values)
        return values

    def wrap(self, model: nn.Module, plan: DevicePlan) -> nn.Module:
        """The model whose backward pass averages gradients over all processes; alone, the model itself."""
        if self.is_alone:
            return model
        devices = None if plan.kind in ("cpu", "mps") else [plan.device]
        # Buffers are not sent around: `Objective` joins batch statistics itself, exactly.
        known = inspect.signature(DistributedDataParallel).parameters
        silent = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"  # before torch 2.13
        return DistributedDataParallel(model, device_ids=devices, gradient_as_bucket_view=True, **{silent: False})


ALONE = World()

# The library that joins devices of a kind; what is not here goes through main memory.
_COLLECTIVES: dict[DeviceKind, str] = {"cuda": "nccl", "xpu": "xccl"}


@contextlib.contextmanager
def joined(world: World, plan: DevicePlan, settings: Distributed) -> Iterator[None]:
    """The process group while training lasts. What uses it must live in a function called inside."""
    if world.is_alone:
        yield
        return
    backend = _COLLECTIVES.get(plan.kind, "gloo")
    distributed.init_process_group(backend, timeout=timedelta(minutes=settings.timeout_minutes))
    log.info("process %d of %d, joined by %s", world.rank + 1, world.size, backend)
    try:
        yield
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)
        raise
    finally:
        # What still talks to the group must be gone before it: freed after it, it waits for ever now and then.
        gc.collect()
        distributed.destroy_process_group()


@contextlib.contextmanager
def gradients_stay_here(network: nn.Module, quiet: bool) -> Iterator[None]:
    """Backward passes inside do not talk to the other processes: only the last of a step needs to."""
    with network.no_sync() if quiet and isinstance(network, DistributedDataParallel) else contextlib.nullcontext():
        yield


# ------------------------------------------------------------------------------------------------------------- starting
# What a process gets after a signal to finish its step, or validation, and to save.
SHUTDOWN_S = 300


def torchrun_arguments(module: str, arguments: Sequence[str], count: int, settings: Distributed) -> list[str]:
    """What torchrun is called with to run `python -m module arguments` in `count` processes on this machine."""
    meeting = ["--standalone"]
    if settings.nodes > 1:
        if not settings.rendezvous:
            raise LandfallError(
                f"distributed.nodes = {settings.nodes} without a meeting point",
                hint="set distributed.rendezvous to host:port of the first machine",
            )
        wait = round(settings.timeout_minutes * 60)
        meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint={settings.rendezvous}", "--rdzv-id=landfall"]
        meeting += [f"--rdzv-conf=join_timeout={wait}"]
    return [
        *meeting,
        f"--nnodes={settings.nodes}",
        f"--nproc-per-node={count}",
        "--max-restarts=0",  # a planned stop is no failure to be repaired
        f"--shutdown-timeout={SHUTDOWN_S}",
        "-m",
        module,
        *arguments,
    ]


def launch(
    module: str,
    arguments: Sequence[str],
    count: int,
    settings: Distributed,
    *,
    last_checkpoint: Path,
    run: Callable[..., Any] | None = None,
) -> int:
    """Trains in `count` processes and gives the exit code of the first that failed, or 0.

    last_checkpoint: what they save when they are stopped; without a new one a signal counts as a failure.
    """
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    words = torchrun_arguments(module, arguments, count, settings)
    log.info("starting %d processes: torchrun %s", count, " ".join(words))
    before = _changed_at(last_checkpoint)
    try:
        (run or torchrun.run)(torchrun.parse_args(words))
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        log.error("process %d of %d ended with exit code %d", rank + 1, count, failure.exitcode)
        return failure.exitcode if failure.exitcode > 0 else EXIT_FAILURE
    except SignalException as stopped:
        if _changed_at(last_checkpoint) == before:
            log.error("stopped by %s before a checkpoint was written", signal.Signals(stopped.sigval).name)
            return EXIT_FAILURE
        return EXIT_INTERRUPTED if stopped.sigval == signal.SIGINT else EXIT_RESUMABLE
    return EXIT_OK


def _changed_at(path: Path) -> int | None:
    return path.stat().st_mtime_ns if path.exists() else None
