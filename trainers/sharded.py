"""A model of which every process holds a part: fully sharded data parallel, PyTorch's second (FSDP2)."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from core.devices.plan import DevicePlan
from core.errors import LandfallError
from trainers.distributed import World
from trainers.parallel import Single


class Sharded(Single):
    """Every process has a part of each weight, of its gradient and of the optimizer's moments; the weights of a block
    are put together while it computes (Zhao et al.: PyTorch FSDP, VLDB 2023).

    Raises LandfallError for a plan that this cannot follow.
    """

    talks_forward = True

    def __init__(self, model: nn.Module, plan: DevicePlan, world: World):
        _refuse_what_parts_cannot(plan)
        super().__init__(model)
        # Meant for models whose blocks write into what the block before them gave. Ours do not.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
        mesh = init_device_mesh(plan.device.type, (world.size,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        # Parts again after each forward pass, so that what reads the weights after validation finds parts as well.
        fully_shard(model, mesh=mesh, reshard_after_forward=True)

    @contextlib.contextmanager
    def joining(self, now: bool) -> Iterator[None]:
        self.model.set_requires_gradient_sync(now)
        yield

    def clip_gradients(self, largest: float) -> Tensor:
        return super().clip_gradients(largest).full_tensor()

    def whole(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """On the CPU: the whole may be more than a device holds."""
        return {name: _whole(value) for name, value in state.items()}

    def load_model(self, state: Mapping[str, Any]) -> None:
        own = self.model.state_dict()
        self.model.load_state_dict({name: _part(value, own.get(name)) for name, value in state.items()})

    def load_optimizer(self, optimizer: Optimizer, state: Mapping[str, Any]) -> None:
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        moments = {
            number: {
                name: _part(value, weights[number]) if value.ndim else value  # the count of steps has no axes
                for name, value in kept.items()
            }
            for number, kept in state["state"].items()
        }
        optimizer.load_state_dict({**state, "state": moments})


def _whole(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _whole(inner) for name, inner in value.items()}
    return value.full_tensor().cpu() if isinstance(value, DTensor) else value


def _part(value: Tensor, like: Tensor | None) -> Tensor:
    """This process's part of a whole tensor, cut as `like` is; the tensor itself where that is not cut."""
    if not isinstance(like, DTensor):
        return value
    whole = value.to(like.device, like.dtype)
    return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)


def _refuse_what_parts_cannot(plan: DevicePlan) -> None:
    if plan.needs_loss_scaling:
        raise LandfallError(
            "distributed.strategy = fsdp cannot compute in 16-mixed: a process sees overflows of its own part only",
            hint="set precision=bf16-mixed, precision=32, or distributed.strategy=ddp",
        )
    if plan.compiled:
        raise LandfallError(
            "distributed.strategy = fsdp cannot compile the model: its weights come and go between blocks",
            hint="set device.enable_jit=false, or distributed.strategy=ddp",
        )
