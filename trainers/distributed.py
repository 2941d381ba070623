"""The processes that train one model, as torchrun numbers them: their communication and common decisions."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple, TypeVar

import torch
from torch import distributed

from core.config.execution import DeviceKind, Distributed
from core.devices.plan import DevicePlan
from core.stopping import StopRequest

log = logging.getLogger(__name__)

T = TypeVar("T")

# Time between two votes, where several processes train together.
_VOTE_INTERVAL_S = 5.0


@dataclass(frozen=True)
class World:
    """This process among those that train together, as torchrun numbers them; local: on this machine."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> World:
        """A single process, unless torchrun started it."""
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        return cls(*(int(environment[name]) for name in names)) if all(n in environment for n in names) else cls()

    @property
    def is_main(self) -> bool:
        """Only this process writes files."""
        return self.rank == 0

    @property
    def is_single(self) -> bool:
        return self.size == 1

    def shard(self, items: torch.Tensor) -> torch.Tensor:
        """This process's consecutive slice of the first axis; slices differ in size by one at most."""
        return items if self.is_single else items.tensor_split(self.size)[self.rank]

    def all_reduce_sum(self, values: torch.Tensor) -> torch.Tensor:
        """The sum over all processes, in place."""
        if not self.is_single:
            distributed.all_reduce(values)
        return values

    def all_reduce_min(self, number: int, device: torch.device) -> int:
        """The smallest of the numbers of all processes; `device`: of the tensors of the process group."""
        if self.is_single:
            return number
        answer = torch.tensor(number, device=device)
        distributed.all_reduce(answer, op=distributed.ReduceOp.MIN)
        return int(answer)

    def gather(self, value: T) -> list[T]:
        """The values of all processes, in order of rank; small objects that can be pickled."""
        values = [value] * self.size
        if not self.is_single:
            distributed.all_gather_object(values, value)
        return values


SINGLE_PROCESS = World()

# The library that connects devices of a kind; other kinds go through main memory.
_COLLECTIVES: dict[DeviceKind, str] = {"cuda": "nccl", "xpu": "xccl"}


@contextlib.contextmanager
def process_group(world: World, plan: DevicePlan, settings: Distributed) -> Iterator[None]:
    """The process group, during training. Use it only in functions called inside, so that their objects are freed."""
    if world.is_single:
        yield
        return
    backend = _COLLECTIVES.get(plan.kind, "gloo")
    distributed.init_process_group(backend, timeout=timedelta(minutes=settings.timeout_minutes))
    log.info("process %d of %d, connected by %s", world.rank + 1, world.size, backend)
    try:
        yield
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)
        raise
    finally:
        # Objects that use the group must be freed before it: afterwards, their destructors sometimes wait forever.
        gc.collect()
        distributed.destroy_process_group()


# ----------------------------------------------------------------------------------------------------- stop and save
class Decision(NamedTuple):
    """The actions of all processes before their next step."""

    stop: bool
    save: bool


class StopConsensus:
    """The processes of a run vote before a step whether to stop or to save; all do it, or none.

    Each vote waits for the device, so a few seconds pass between two votes; all processes count the same steps.
    """

    def __init__(self, stop: StopRequest, world: World, device: torch.device):
        self.stop, self.world, self.device = stop, world, device
        self._interval, self._steps_left = 1, 0

    def decide(self, *, step_seconds: float, validation_seconds: float, steps_left: int, save_is_due: bool) -> Decision:
        """step_seconds, validation_seconds: expected; steps_left: before the next validation."""
        if self.world.is_single:
            return Decision(self.stop.is_due(step_seconds + validation_seconds * (steps_left == 1)), save_is_due)
        if self._steps_left > 0:
            self._steps_left -= 1
            return Decision(stop=False, save=False)
        until_next = step_seconds * self._interval + validation_seconds * (steps_left <= self._interval)
        votes = torch.tensor([float(self.stop.is_due(until_next)), step_seconds, save_is_due], device=self.device)
        stopping, seconds, saving = self.world.all_reduce_sum(votes).tolist()
        is_known = seconds > 0  # the duration of a step is unknown before the first
        self._interval = max(1, int(_VOTE_INTERVAL_S * self.world.size / max(seconds, 1e-3))) if is_known else 1
        self._steps_left = self._interval - 1
        if stopping and self.stop.reason is None:
            self.stop.reason = "another process requested a stop"
        return Decision(stopping > 0, saving > 0)
