"""The masked loss over any number of windows: gradients for a step, the mean for validation, in parts that fit."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch
from torch import nn

from core.config.schema import AnyConfig
from core.data.inputs import Inputs
from core.devices.backend import backend, is_out_of_memory
from core.devices.plan import DevicePlan
from core.devices.retry import until_it_fits
from core.errors import LandfallError
from core.models.masking import MaskedOutput
from core.models.normalisation import KEEP as NORM_KEEP
from core.reproducibility import generator
from trainers.distributed import World, gradients_stay_here

log = logging.getLogger(__name__)

T = TypeVar("T")

# Windows whose masks are drawn together in validation, so that they do not depend on the size of a part.
MASK_BLOCK = 256


class Objective:
    """What training minimises: the mean squared error over hidden values.

    model: `model(x, mask)` gives the scalar `loss` over its `count` hidden values; `model.draw_mask(n)` a mask.
    micro: windows computed at once on this device; it halves itself when memory runs out.

    The result is the same however the windows are cut into parts and spread over processes: each part counts by the
    number of values it judged, and masks are drawn for all windows at once.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        config: AnyConfig,
        plan: DevicePlan,
        micro: int,
        world: World,
        loss_scaler: torch.amp.GradScaler,
    ):
        self.model, self.network = model, world.wrap(model, plan)
        self.config, self.plan, self.micro, self.world = config, plan, micro, world
        self.loss_scaler = loss_scaler
        self.backend = backend(plan.kind)
        # Batch normalisation moves these in every forward pass; a step that is tried again starts from the same.
        saved = model.state_dict()
        self._running = [buffer for name, buffer in model.named_buffers() if name in saved]

    # ------------------------------------------------------------------------------------------------- a training step
    def backward(self, inputs: Inputs, index_b: torch.Tensor, *purpose: str | int) -> torch.Tensor:
        """Leaves the gradients of the mean loss over the windows, times the loss scale, and gives that loss.

        index_b: windows of the step, of all processes. purpose: what their masks are drawn for, such as epoch and step.
        Raises LandfallError where not even one window fits into memory.
        """
        mask_b = self.draw_masks(len(index_b), *purpose)
        rng, running = self.backend.rng_state(), [buffer.clone() for buffer in self._running]

        def undo() -> None:
            self.model.zero_grad(set_to_none=True)
            self.backend.set_rng_state(rng)
            for buffer, before in zip(self._running, running, strict=True):
                buffer.copy_(before)

        loss = self._until_it_fits(partial(self._accumulate, inputs, index_b, mask_b), undo)
        if self._running and not self.world.is_alone:
            self._join_statistics(running, len(index_b))
        return loss

    def _accumulate(self, inputs: Inputs, index_b: torch.Tensor, mask_b: torch.Tensor, micro: int) -> torch.Tensor:
        parts = _parts(self.world.share(index_b), self.world.share(mask_b), micro)
        if len(parts) == 1 and self.world.is_alone:
            loss = self._forward(self.network, inputs, *parts[0]).loss
            self.loss_scaler.scale(loss).backward()
            return loss.detach()
        judged = torch.zeros(
            2, device=self.plan.device, dtype=self.plan.dtype
        )  # sum of squared errors, count of values
        for number, part in enumerate(parts, start=1):
            with gradients_stay_here(self.network, quiet=number < len(parts)):
                output = self._forward(self.network, inputs, *part)
                # Dividing by a constant first keeps float16 gradients in range; the step's own count comes last.
                usual = len(index_b) * output.reconstruction[0].numel()
                self.loss_scaler.scale(output.loss * (output.count / usual)).backward()
            judged += torch.stack([output.loss.detach() * output.count, output.count])
        error, count = self.world.add(judged).unbind()
        count = count.clamp(min=1.0)  # a step without a single observed value has loss 0 and moves nothing
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        torch._foreach_mul_(gradients, usual * self.world.size / count)  # the backward pass averaged over processes
        return error / count

    def _join_statistics(self, before: list[torch.Tensor], num_windows: int) -> None:
        """Running statistics as if one process had seen all groups of the step, one after the other.

        A process with k groups left keep^k · before + s. What comes of s in the end has aged by the groups after it.
        """
        group = self.config.model.norm_windows
        sizes = [len(share) for share in torch.arange(num_windows).tensor_split(self.world.size)]
        groups = [sum(math.ceil(min(self.micro, n - i) / group) for i in range(0, n, self.micro)) for n in sizes]
        after = sum(groups[self.world.rank + 1 :])
        for buffer, old in zip(self._running, before, strict=True):
            if not buffer.is_floating_point():  # a count of groups
                self.world.add(buffer.sub_(old)).add_(old)
                continue
            own = buffer - NORM_KEEP ** groups[self.world.rank] * old
            buffer.copy_(NORM_KEEP ** sum(groups) * old + self.world.add(NORM_KEEP**after * own))

    # ------------------------------------------------------------------------------------------------------ validation
    @torch.no_grad()
    def mean_loss(self, inputs: Inputs) -> float:
        """Mean loss over all windows, each with the same mask at every call. The model is left in evaluation mode."""
        self.model.eval()
        judged = torch.zeros(2, device=self.plan.device, dtype=self.plan.dtype)
        blocks = torch.arange(len(inputs)).split(MASK_BLOCK)
        for number in range(self.world.rank, len(blocks), self.world.size):
            judged += self._until_it_fits(partial(self._judge, inputs, blocks[number], number))
        error, count = self.world.add(judged).tolist()
        return error / max(count, 1.0)

    def _judge(self, inputs: Inputs, index_b: torch.Tensor, block: int, micro: int) -> torch.Tensor:
        """Sum of squared errors and count of values in a block of windows, (2,)."""
        judged = torch.zeros(2, device=self.plan.device, dtype=self.plan.dtype)
        for part in _parts(index_b, self.draw_masks(len(index_b), "validation masks", block), micro):
            output = self._forward(self.model, inputs, *part)
            judged += torch.stack([output.loss * output.count, output.count])
        return judged

    # ----------------------------------------------------------------------------------------------------------- parts
    def draw_masks(self, num_windows: int, *purpose: str | int) -> torch.Tensor:
        """Masks as a pure function of seed and purpose."""
        masks = generator(self.config.seed, *purpose, device=self.plan.device)
        return self.model.draw_mask(num_windows, generator=masks, device=self.plan.device)

    def _forward(self, network: nn.Module, inputs: Inputs, index_b: torch.Tensor, mask_b: torch.Tensor) -> MaskedOutput:
        x = inputs.batch(index_b)
        with self.plan.autocast():
            return network(x, mask_b)

    def _until_it_fits(self, work: Callable[[int], T], undo: Callable[[], None] = lambda: None) -> T:
        """What `work(micro)` gives; where memory runs out, from the same state again in parts of half the size.

        Not where several processes work together: one that tries again would leave the others waiting.
        """
        if not self.world.is_alone:
            try:
                return work(self.micro)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                raise LandfallError(
                    f"out of memory with {self.micro} windows at a time in each process: {_first_line(error)}",
                    hint=f"go on with training.resume=auto training.batch_size={max(1, self.micro // 2)}",
                ) from error
        result, fitting = until_it_fits(work, self.micro, kind=self.plan.kind, undo=undo)
        group = getattr(self.config.model, "norm_windows", 1)
        if fitting < self.micro and self._running and fitting % group:
            log.warning("batch normalisation now takes its statistics over %d windows, not %d", fitting, group)
        self.micro = fitting
        return result


def _parts(index_b: torch.Tensor, mask_b: torch.Tensor, micro: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Window indices and masks, `micro` at a time."""
    return list(zip(index_b.split(micro), mask_b.split(micro), strict=True))


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
