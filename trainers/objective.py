"""The masked loss over any number of windows: gradients for a step, the mean for validation, by micro-batches."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch
from torch import nn

from core.config.execution import Precision
from core.data.inputs import Inputs
from core.devices.backend import backend
from core.devices.memory import is_out_of_memory, until_it_fits
from core.errors import DataError, LandfallError, first_line
from core.models.masking import MaskedOutput, evaluating
from core.models.normalisation import KEEP as NORM_KEEP
from core.models.skill import Skill, error_sums
from core.reproducibility import derive_seed, generator
from core.stopping import StopRequest
from trainers.context import RunContext
from trainers.distributed import World
from trainers.strategies import strategy_for

log = logging.getLogger(__name__)

T = TypeVar("T")

# Windows whose masks are drawn together in validation, so that masks do not depend on the micro-batch.
MASK_BLOCK = 256
# Trial steps of several processes with a new micro-batch size: from the second on, the optimizer has its moments.
_TRIALS = 2


class Objective:
    """The training objective: the mean squared error over masked values.

    model: `model(x, mask)` returns the scalar `loss` over its `count` masked values; `model.draw_mask(n)` a mask.
    micro: the micro-batch size on this device; it is halved when memory runs out.
    mean_input: the mean training input, with the names of its channels; with it `mean_loss` also sets `skill`.

    The result does not depend on micro-batches and processes: each micro-batch is weighted by its number of masked
    values, and masks are drawn for all windows together. All processes compute equally many micro-batches; one that has
    fewer takes part with a window of weight zero.
    """

    def __init__(
        self,
        model: nn.Module,
        context: RunContext,
        *,
        micro: int,
        mean_input: torch.Tensor | None = None,
        channels: Sequence[str] = (),
    ):
        self.model = model
        self.mean_input, self.channels = mean_input, channels
        self.skill: Skill | None = None
        self.config, self.plan, self.world, self.micro = context.config, context.plan, context.world, micro
        self.strategy = strategy_for(model, context)
        self.network = self.strategy.network
        self.loss_scaler = torch.amp.GradScaler(self.plan.kind, enabled=self.plan.needs_loss_scaling)
        self.backend = backend(self.plan.kind)
        # Batch normalisation updates these in every forward pass; a repeated step must start from the same values.
        saved = model.state_dict()
        self._running = [buffer for name, buffer in model.named_buffers() if name in saved]
        self.undo: Callable[[], None] = lambda: None
        self._fitted: list[int] = []  # micro-batches of trial steps that fitted

    def compute_in(self, precision: Precision, reason: str) -> None:
        """Changes the precision of all later steps."""
        self.plan = replace(self.plan, precision=precision, precision_reason=reason)
        self.loss_scaler = torch.amp.GradScaler(self.plan.kind, enabled=self.plan.needs_loss_scaling)
        self._fitted.clear()

    # ------------------------------------------------------------------------------------------------- a training step
    def backward(self, inputs: Inputs, index_b: torch.Tensor, *purpose: str | int) -> torch.Tensor:
        """Accumulates the gradients of the mean loss over the windows, times the loss scale; returns that loss.

        index_b: windows of the step, of all processes. purpose: seeds their masks, such as epoch and step.
        `undo` then rolls it back: gradients, running statistics and random numbers, also after later steps.
        Raises LandfallError if not even one window fits into memory.
        """
        mask_b = self.draw_masks(len(index_b), *purpose)
        if not self.world.is_single:  # dropout differs between processes, and is the same in a resumed run
            torch.manual_seed(derive_seed(self.config.seed, "process", self.world.rank, *purpose))
        rng, running = self.backend.rng_state(), [buffer.clone() for buffer in self._running]

        def undo() -> None:
            self.model.zero_grad(set_to_none=True)
            self.backend.set_rng_state(rng)
            for buffer, before in zip(self._running, running, strict=True):
                buffer.copy_(before)

        self.undo = undo
        loss = self._with_fitting_micro(partial(self._accumulate, inputs, index_b, mask_b), undo)
        if self._running and not self.world.is_single:
            self._join_running_statistics(running, len(index_b))
        return loss

    def _accumulate(self, inputs: Inputs, index_b: torch.Tensor, mask_b: torch.Tensor, micro: int) -> torch.Tensor:
        if self.world.is_single and len(index_b) <= micro:
            loss = self._forward(self.network, inputs, index_b, mask_b).loss
            self.loss_scaler.scale(loss).backward()
            return loss.detach()
        accumulate = partial(self._accumulate_shard, inputs, index_b, mask_b, micro)
        if self.world.is_single:
            measured, scale = accumulate()
        elif self._is_trial(size := min(micro, _largest_shard(len(index_b), self.world))):
            measured, scale = self._all_or_none(partial(accumulate, synchronise=False))
            with self.strategy.synchronised(True):
                self._join_in(inputs, index_b[:1], mask_b[:1])
            self._fitted.append(size)
        else:
            with self._without_retry(micro):
                measured, scale = accumulate()
        error, count = self.world.all_reduce_sum(measured).unbind()
        count = count.clamp(min=1.0)  # a step without a single observed value has loss 0 and changes nothing
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        torch._foreach_mul_(gradients, scale * self.world.size / count)  # the backward pass averaged over processes
        return error / count

    def _accumulate_shard(
        self, inputs: Inputs, index_b: torch.Tensor, mask_b: torch.Tensor, micro: int, *, synchronise: bool = True
    ) -> tuple[torch.Tensor, int]:
        """Accumulates the gradients of this process's shard of a step, divided by the number of values in the step.

        synchronise: reduce them over all processes in the last backward pass. Returns the sum of squared errors and the
        count of masked values of the shard, (2,), and that number.
        """
        micro_batches = _micro_batches(self.world.shard(index_b), self.world.shard(mask_b), micro)
        most = math.ceil(_largest_shard(len(index_b), self.world) / micro)
        measured = torch.zeros(2, device=self.plan.device, dtype=self.plan.dtype)
        for number in range(most):
            with self.strategy.synchronised(synchronise and number + 1 == most):
                if number < len(micro_batches):
                    output = self._forward(self.network, inputs, *micro_batches[number])
                    # Dividing by a constant first keeps float16 gradients in range; the step's own count comes last.
                    scale = len(index_b) * output.reconstruction[0].numel()
                    self.loss_scaler.scale(output.loss * (output.count / scale)).backward()
                    measured += torch.stack([output.loss.detach() * output.count, output.count])
                else:
                    output = self._join_in(inputs, index_b[:1], mask_b[:1])
                    scale = len(index_b) * output.reconstruction[0].numel()
        return measured, scale

    def _join_in(self, inputs: Inputs, index_b: torch.Tensor, mask_b: torch.Tensor) -> MaskedOutput:
        """Takes part in a collective operation with windows of weight zero: their gradients are zero, and running
        statistics do not change."""
        with evaluating(self.model):
            output = self._forward(self.network, inputs, index_b, mask_b)
            self.loss_scaler.scale(output.loss * 0.0).backward()
        return output

    def _is_trial(self, size: int) -> bool:
        """Whether it is still unknown that micro-batches of this size fit into memory.

        In a trial the processes communicate only after all have computed their shards: if memory runs out in one of
        them, no other waits for it, and all try again. Later they communicate while they compute, which is faster. A
        strategy that communicates in every forward pass allows no trial.
        """
        return not self.strategy.communicates_in_forward and sum(fitted >= size for fitted in self._fitted) < _TRIALS

    def _join_running_statistics(self, before: list[torch.Tensor], num_windows: int) -> None:
        """Sets the running statistics to those of a single process that computes all groups of the step in order.

        A process with k groups leaves keep^k · before + s; in the result s decays by the groups after it.
        """
        group = self.config.model.norm_windows
        sizes = [len(shard) for shard in torch.arange(num_windows).tensor_split(self.world.size)]
        groups = [sum(math.ceil(min(self.micro, n - i) / group) for i in range(0, n, self.micro)) for n in sizes]
        after = sum(groups[self.world.rank + 1 :])
        for buffer, old in zip(self._running, before, strict=True):
            if not buffer.is_floating_point():  # a count of groups
                self.world.all_reduce_sum(buffer.sub_(old)).add_(old)
                continue
            own = buffer - NORM_KEEP ** groups[self.world.rank] * old
            buffer.copy_(NORM_KEEP ** sum(groups) * old + self.world.all_reduce_sum(NORM_KEEP**after * own))

    # ------------------------------------------------------------------------------------------------------ validation
    @torch.no_grad()
    def mean_loss(self, inputs: Inputs, stop: StopRequest | None = None) -> float | None:
        """Mean loss over all windows, each with the same mask at every call. The model is left in evaluation mode.

        None if `stop` is due before the end. Several processes always continue to the end, because they would have to
        agree on a stop after every block. With a mean input, `skill` then compares the model with it on the same
        values. Raises DataError if there is no masked value: a loss of 0 would stay the best forever.
        """
        self.model.eval()
        measured = torch.zeros(2, device=self.plan.device, dtype=self.plan.dtype)
        num_channels = 0 if self.mean_input is None else self.mean_input.shape[self.model.channel_axis - 1]
        sums = torch.zeros(num_channels, 3, device=self.plan.device, dtype=self.plan.dtype)
        blocks = torch.arange(len(inputs)).split(MASK_BLOCK)
        for number in range(self.world.rank, len(blocks), self.world.size):
            if stop is not None and self.world.is_single and stop.is_due(0.0):
                return None
            of_block, sums_of_block = self._with_fitting_micro(partial(self._measure, inputs, blocks[number], number))
            measured, sums = measured + of_block, sums + sums_of_block
        self._wait_for_others(inputs, blocks)
        if self.mean_input is not None:
            self.skill = Skill.of(self.world.all_reduce_sum(sums), self.channels)
        error, count = self.world.all_reduce_sum(measured).tolist()
        if not count:
            raise DataError(
                f"the {len(inputs)} windows of the validation split have no observed value to compute a loss from",
                hint="see data.splits.validation and the quality reports: its sensors may be missing there",
            )
        return error / count

    def _wait_for_others(self, inputs: Inputs, blocks: Sequence[torch.Tensor]) -> None:
        """Joins the passes of processes with more blocks, and takes over the smallest micro-batch of all."""
        if self.strategy.communicates_in_forward:
            owned = [blocks[rank :: self.world.size] for rank in range(self.world.size)]
            passes = [sum(math.ceil(len(block) / self.micro) for block in own) for own in owned]
            for _ in range(max(passes) - passes[self.world.rank]):
                self._forward(self.network, inputs, blocks[0][:1], self.draw_masks(1, "nothing"))
        smallest = self.world.all_reduce_min(self.micro, self.plan.device)
        if smallest < self.micro:
            log.warning("another process ran out of memory: the micro-batch is now %d here too", smallest)
            self.micro = smallest

    @torch.no_grad()
    def loss_of_each(self, inputs: Inputs, index_b: torch.Tensor, *purpose: str | int) -> list[float]:
        """The loss per window, under the masks of that purpose; changes no state."""
        micro_batches = _micro_batches(index_b, self.draw_masks(len(index_b), *purpose), 1)
        with evaluating(self.model):
            return [self._forward(self.model, inputs, *one).loss.item() for one in micro_batches]

    def _measure(self, inputs: Inputs, index_b: torch.Tensor, block: int, micro: int) -> tuple[torch.Tensor, ...]:
        """Sum of squared errors and count of values in a block of windows, (2,); and its error sums, (C, 3) or 0."""
        measured = torch.zeros(2, device=self.plan.device, dtype=self.plan.dtype)
        sums: torch.Tensor | float = torch.zeros((), device=self.plan.device, dtype=self.plan.dtype)
        inputs.expect(index_b.split(micro))
        mask_b = self.draw_masks(len(index_b), "validation masks", block)
        for micro_index_b, micro_mask_b in _micro_batches(index_b, mask_b, micro):
            output = self._forward(self.model, inputs, micro_index_b, micro_mask_b)
            measured += torch.stack([output.loss * output.count, output.count])
            if self.mean_input is not None:
                sums = sums + error_sums(
                    inputs.batch(micro_index_b), output.reconstruction, self.mean_input,
                    self.model.masked_values(micro_mask_b), channel_axis=self.model.channel_axis,
                )  # fmt: skip
        return measured, sums

    # --------------------------------------------------------------------------------------------------- micro-batches
    def draw_masks(self, num_windows: int, *purpose: str | int) -> torch.Tensor:
        """Masks as a pure function of seed and purpose."""
        masks = generator(self.config.seed, *purpose, device=self.plan.device)
        return self.model.draw_mask(num_windows, generator=masks, device=self.plan.device)

    def micro_batches(self, index_b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """This process's shard of the windows of a step, in micro-batches."""
        return self.world.shard(index_b).split(self.micro)

    def _forward(self, network: nn.Module, inputs: Inputs, index_b: torch.Tensor, mask_b: torch.Tensor) -> MaskedOutput:
        x = inputs.batch(index_b)
        with self.plan.autocast():
            return network(x, mask_b)

    def _with_fitting_micro(self, work: Callable[[int], T], undo: Callable[[], None] = lambda: None) -> T:
        """The result of `work(micro)`. If memory runs out, `undo` restores the state, and half the size is tried."""
        if self.strategy.communicates_in_forward:
            with self._without_retry(self.micro):
                return work(self.micro)
        result, fitting = until_it_fits(work, self.micro, kind=self.plan.kind, undo=undo)
        group = getattr(self.config.model, "norm_windows", 1)
        if fitting < self.micro and self._running and fitting % group:
            log.warning("batch normalisation now uses the statistics of %d windows, not %d", fitting, group)
        self.micro = fitting
        return result

    def _all_or_none(self, work: Callable[[], T]) -> T:
        """The result of the work. Raises OutOfMemoryError in all processes if memory runs out in one."""
        result = problem = None
        try:
            result = work()
        except (RuntimeError, MemoryError, OSError) as error:
            if not is_out_of_memory(error):
                raise
            problem = first_line(error)  # its traceback would keep the memory in use
        failed = torch.tensor([problem is not None], device=self.plan.device, dtype=torch.int64)
        if self.world.all_reduce_sum(failed).item():
            raise torch.OutOfMemoryError(problem or "in another process")
        return result

    @contextlib.contextmanager
    def _without_retry(self, micro: int) -> Iterator[None]:
        """Converts an out-of-memory error to LandfallError, for processes that communicate while they compute: if one
        tried again, the others would wait for it."""
        try:
            yield
        except (RuntimeError, MemoryError, OSError) as error:
            if not is_out_of_memory(error):
                raise
            raise LandfallError(
                f"out of memory with a micro-batch of {micro} in each process: {first_line(error)}",
                hint=f"continue with --resume auto training.batch_size={max(1, micro // 2)}",
            ) from error


def _micro_batches(index_b: torch.Tensor, mask_b: torch.Tensor, micro: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Window indices and masks, `micro` at a time."""
    if not len(index_b):  # split would return one empty micro-batch
        return []
    return list(zip(index_b.split(micro), mask_b.split(micro), strict=True))


def _largest_shard(num_windows: int, world: World) -> int:
    return math.ceil(num_windows / world.size)
