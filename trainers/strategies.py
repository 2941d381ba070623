"""Strategies for the model of a run: on a single device, a replica per process (DDP), or a shard per process (FSDP)."""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from core.devices.plan import DevicePlan
from core.errors import LandfallError
from trainers.context import RunContext
from trainers.distributed import World

State = Mapping[str, Any]


class SingleDevice:
    """One process that holds the complete model.

    model: the module that owns the weights. network: the module for the forward passes of training.
    communicates_in_forward: forward passes need the other processes, so all of them must run equally many.

    State dicts are complete and the same under every strategy, so that a run can resume under any of them: plain
    tensors, and the optimizer's state by the index of the parameter, as in PyTorch. All processes must call the state
    methods; only the main process is sure to get the content.
    """

    communicates_in_forward = False

    def __init__(self, model: nn.Module):
        self.model = self.network = model

    def synchronised(self, now: bool) -> AbstractContextManager[None]:
        """Whether backward passes inside reduce the accumulated gradients over all processes, or only accumulate."""
        return contextlib.nullcontext()

    def clip_gradients(self, max_norm: float) -> Tensor:
        """Scales the gradients down to a norm of `max_norm`; returns the norm before, a scalar on the device."""
        return nn.utils.clip_grad_norm_(self.model.parameters(), max_norm)

    def model_state(self) -> State:
        return self.model.state_dict()

    def optimizer_state(self, optimizer: Optimizer) -> State:
        return optimizer.state_dict()

    def load_model(self, state: State) -> None:
        """Raises RuntimeError for weights of another model."""
        self.model.load_state_dict(state)

    def load_optimizer(self, optimizer: Optimizer, state: State) -> None:
        """Raises ValueError for the state of another model's optimizer."""
        optimizer.load_state_dict(state)


class DDP(SingleDevice):
    """Every process holds a replica; the last backward pass of a step averages gradients over all of them."""

    def __init__(self, model: nn.Module, plan: DevicePlan):
        super().__init__(model)
        devices = None if plan.kind in ("cpu", "mps") else [plan.device]
        # Buffers are not broadcast: `Objective` combines the batch statistics exactly.
        known = inspect.signature(DistributedDataParallel).parameters
        broadcast = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"  # torch < 2.13
        self.network = DistributedDataParallel(
            model, device_ids=devices, gradient_as_bucket_view=True, **{broadcast: False}
        )

    def synchronised(self, now: bool) -> AbstractContextManager[None]:
        return contextlib.nullcontext() if now else self.network.no_sync()


class FSDP(SingleDevice):
    """Every process holds a shard of each weight, of its gradient and of the optimizer's moments; the weights of a
    block are gathered while it computes (Zhao et al.: PyTorch FSDP, VLDB 2023; here PyTorch's second version).

    Raises LandfallError for a plan that it does not support.
    """

    communicates_in_forward = True

    def __init__(self, model: nn.Module, plan: DevicePlan, world: World):
        _refuse_unsupported(plan)
        # Imported here: the imports take half a second, and runs on one device do not need them.
        from torch.distributed.checkpoint import state_dict
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        super().__init__(model)
        self._api = state_dict
        # The warning is for models whose blocks modify the output of the block before them. Ours do not.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
        mesh = init_device_mesh(plan.device.type, (world.size,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        # Resharded after each forward pass, so that code that reads the weights after validation also finds shards.
        fully_shard(model, mesh=mesh, reshard_after_forward=True)

    @contextlib.contextmanager
    def synchronised(self, now: bool) -> Iterator[None]:
        self.model.set_requires_gradient_sync(now)
        yield

    def clip_gradients(self, max_norm: float) -> Tensor:
        return super().clip_gradients(max_norm).full_tensor()

    def model_state(self) -> State:
        return self._api.get_model_state_dict(self.model, options=self._gathered)

    def optimizer_state(self, optimizer: Optimizer) -> State:
        if not optimizer.state:  # PyTorch would run a step to create one, and count it
            return optimizer.state_dict()
        state = self._api.get_optimizer_state_dict(self.model, optimizer, options=self._gathered)
        return _renamed(state, {name: number for number, name in enumerate(self._names(optimizer))})

    def load_model(self, state: State) -> None:
        shapes = {name: value.shape for name, value in self.model.state_dict().items()}
        differing = sorted(name for name in shapes.keys() | state.keys() if _shape(state, name) != shapes.get(name))
        if differing:  # PyTorch would load only the matching ones
            raise RuntimeError(f"missing, unexpected or of another shape: {', '.join(differing)}")
        self._api.set_model_state_dict(self.model, dict(state), options=self._complete)

    def load_optimizer(self, optimizer: Optimizer, state: State) -> None:
        if not state["state"]:
            optimizer.load_state_dict(state)
            return
        named = _renamed(state, dict(enumerate(self._names(optimizer))))
        self._api.set_optimizer_state_dict(self.model, optimizer, named, options=self._complete)

    @property
    def _gathered(self) -> Any:
        """Complete tensors on the CPU of the main process: together they may be more than a device holds."""
        return self._api.StateDictOptions(full_state_dict=True, cpu_offload=True)

    @property
    def _complete(self) -> Any:
        """Every process has read the complete state and takes its shards."""
        return self._api.StateDictOptions(full_state_dict=True)

    def _names(self, optimizer: Optimizer) -> list[str]:
        """Names of the optimizer's parameters, in its order."""
        name_of = {parameter: name for name, parameter in self.model.named_parameters()}
        return [name_of[parameter] for group in optimizer.param_groups for parameter in group["params"]]


def strategy_for(model: nn.Module, context: RunContext) -> SingleDevice:
    """The strategy of the run, applied to the model. FSDP replaces the weights: build the optimizer afterwards.

    Raises LandfallError if the strategy does not support the plan.
    """
    if context.world.is_single:
        return SingleDevice(model)
    if context.config.distributed.strategy == "ddp":
        return DDP(model, context.plan)
    return FSDP(model, context.plan, context.world)


def _renamed(state: State, new: Mapping[Any, Any]) -> dict[str, Any]:
    """An optimizer's state under other names of its parameters."""
    groups = [{**group, "params": [new[name] for name in group["params"]]} for group in state.get("param_groups", [])]
    return {"state": {new[name]: kept for name, kept in state.get("state", {}).items()}, "param_groups": groups}


def _shape(state: State, name: str) -> Any:
    return state[name].shape if name in state else None


def _refuse_unsupported(plan: DevicePlan) -> None:
    if plan.needs_loss_scaling:
        raise LandfallError(
            "distributed.strategy = fsdp cannot compute in 16-mixed: a process cannot detect overflows in other shards",
            hint="set precision=bf16-mixed, precision=32, or distributed.strategy=ddp",
        )
    if plan.compiled:
        raise LandfallError(
            "distributed.strategy = fsdp cannot compile the model: its weights are gathered for each block",
            hint="set device.enable_jit=false, or distributed.strategy=ddp",
        )
