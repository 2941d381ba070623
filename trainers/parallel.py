"""How the processes of a run hold one model: each all of it (DDP), or each a part of every weight (FSDP)."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from core.config.execution import Distributed
from core.devices.plan import DevicePlan
from trainers.distributed import World


class Single:
    """One process, which has the model to itself.

    model: what holds the weights. network: what forward passes of training go through.
    talks_forward: forward passes need the other processes, so that all of them must make equally many.
    """

    talks_forward = False

    def __init__(self, model: nn.Module):
        self.model = self.network = model

    def joining(self, now: bool) -> AbstractContextManager[None]:
        """Backward passes inside join their gradients, and those left before, over all processes; or leave them."""
        return contextlib.nullcontext()

    def clip_gradients(self, largest: float) -> Tensor:
        """Scales the gradients down to a norm of `largest`; gives the norm they had, a scalar on the device."""
        return nn.utils.clip_grad_norm_(self.model.parameters(), largest)

    def whole(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """A state dict with whole, plain tensors. All processes must call it."""
        return state

    def load_model(self, state: Mapping[str, Any]) -> None:
        self.model.load_state_dict(state)

    def load_optimizer(self, optimizer: Optimizer, state: Mapping[str, Any]) -> None:
        optimizer.load_state_dict(state)


class Replicated(Single):
    """Every process has the whole model; the last backward pass of a step averages gradients over all of them."""

    def __init__(self, model: nn.Module, plan: DevicePlan):
        super().__init__(model)
        devices = None if plan.kind in ("cpu", "mps") else [plan.device]
        # Buffers are not sent around: `Objective` joins batch statistics itself, exactly.
        known = inspect.signature(DistributedDataParallel).parameters
        silent = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"  # before torch 2.13
        self.network = DistributedDataParallel(
            model, device_ids=devices, gradient_as_bucket_view=True, **{silent: False}
        )

    def joining(self, now: bool) -> AbstractContextManager[None]:
        return contextlib.nullcontext() if now else self.network.no_sync()


def parallel(model: nn.Module, *, plan: DevicePlan, world: World, settings: Distributed) -> Single:
    """The model as the processes of this run hold it. Under `fsdp` its weights are replaced: make the optimizer after.

    Raises LandfallError where the strategy cannot do what the plan asks for.
    """
    if world.is_alone:
        return Single(model)
    if settings.strategy == "ddp":
        return Replicated(model, plan)
    from trainers.sharded import Sharded  # half a second of imports

    return Sharded(model, plan, world)
