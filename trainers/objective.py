"""The masked loss over any number of windows: gradients for a step, the mean for validation, in parts that fit."""

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

from core.config.schema import AnyConfig
from core.data.inputs import Inputs
from core.devices.backend import backend, is_out_of_memory
from core.devices.plan import DevicePlan, Precision
from core.devices.retry import until_it_fits
from core.errors import DataError, LandfallError
from core.models.masking import MaskedOutput, evaluating
from core.models.normalisation import KEEP as NORM_KEEP
from core.models.skill import Skill, error_sums
from core.reproducibility import derive_seed, generator
from core.stopping import StopRequest
from trainers.distributed import World
from trainers.parallel import parallel

log = logging.getLogger(__name__)

T = TypeVar("T")

# Windows whose masks are drawn together in validation, so that they do not depend on the size of a part.
MASK_BLOCK = 256
# Steps with parts of a new size that several processes take with care: the second has the optimizer's moments too.
_TRIALS = 2


class Objective:
    """What training minimises: the mean squared error over hidden values.

    model: `model(x, mask)` gives the scalar `loss` over its `count` hidden values; `model.draw_mask(n)` a mask.
    micro: windows computed at once on this device; it halves itself when memory runs out.
    mean_input: the mean training input, and the channels it is of; with it `mean_loss` also gives `skill`.

    The result is the same however the windows are cut into parts and spread over processes: each part counts by the
    number of values it judged, and masks are drawn for all windows at once. All processes compute equally many parts;
    one that has fewer takes part with a window that counts nothing.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        config: AnyConfig,
        plan: DevicePlan,
        micro: int,
        world: World,
        mean_input: torch.Tensor | None = None,
        channels: Sequence[str] = (),
    ):
        self.model = model
        self.mean_input, self.channels = mean_input, channels
        self.skill: Skill | None = None
        self.parallel = parallel(model, plan=plan, world=world, settings=config.distributed)
        self.network = self.parallel.network
        self.config, self.plan, self.micro, self.world = config, plan, micro, world
        self.loss_scaler = torch.amp.GradScaler(plan.kind, enabled=plan.needs_loss_scaling)
        self.backend = backend(plan.kind)
        # Batch normalisation moves these in every forward pass; a step that is tried again starts from the same.
        saved = model.state_dict()
        self._running = [buffer for name, buffer in model.named_buffers() if name in saved]
        self.undo: Callable[[], None] = lambda: None
        self._fitted: list[int] = []  # sizes of parts in steps that showed that they fit

    def compute_in(self, precision: Precision, reason: str) -> None:
        """From here on."""
        self.plan = replace(self.plan, precision=precision, precision_reason=reason)
        self.loss_scaler = torch.amp.GradScaler(self.plan.kind, enabled=self.plan.needs_loss_scaling)
        self._fitted.clear()

    # ------------------------------------------------------------------------------------------------- a training step
    def backward(self, inputs: Inputs, index_b: torch.Tensor, *purpose: str | int) -> torch.Tensor:
        """Leaves the gradients of the mean loss over the windows, times the loss scale, and gives that loss.

        index_b: windows of the step, of all processes. purpose: what their masks are drawn for, such as epoch and step.
        `undo` then takes it back: gradients, running statistics and random numbers, also after later steps.
        Raises LandfallError where not even one window fits into memory.
        """
        mask_b = self.draw_masks(len(index_b), *purpose)
        if not self.world.is_alone:  # each process drops out other values; a resumed run drops the same
            torch.manual_seed(derive_seed(self.config.seed, "process", self.world.rank, *purpose))
        rng, running = self.backend.rng_state(), [buffer.clone() for buffer in self._running]

        def undo() -> None:
            self.model.zero_grad(set_to_none=True)
            self.backend.set_rng_state(rng)
            for buffer, before in zip(self._running, running, strict=True):
                buffer.copy_(before)

        self.undo = undo
        loss = self._until_it_fits(partial(self._accumulate, inputs, index_b, mask_b), undo)
        if self._running and not self.world.is_alone:
            self._join_statistics(running, len(index_b))
        return loss

    def _accumulate(self, inputs: Inputs, index_b: torch.Tensor, mask_b: torch.Tensor, micro: int) -> torch.Tensor:
        if self.world.is_alone and len(index_b) <= micro:
            loss = self._forward(self.network, inputs, index_b, mask_b).loss
            self.loss_scaler.scale(loss).backward()
            return loss.detach()
        learn = partial(self._learn, inputs, index_b, mask_b, micro)
        if self.world.is_alone:
            judged, usual = learn()
        elif self._is_trial(size := min(micro, _largest_share(len(index_b), self.world))):
            judged, usual = self._all_or_none(partial(learn, join=False))
            with self.parallel.joining(True):
                self._attend(inputs, index_b[:1], mask_b[:1])
            self._fitted.append(size)
        else:
            with self._no_second_try(micro):
                judged, usual = learn()
        error, count = self.world.add(judged).unbind()
        count = count.clamp(min=1.0)  # a step without a single observed value has loss 0 and moves nothing
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        torch._foreach_mul_(gradients, usual * self.world.size / count)  # the backward pass averaged over processes
        return error / count

    def _learn(
        self, inputs: Inputs, index_b: torch.Tensor, mask_b: torch.Tensor, micro: int, *, join: bool = True
    ) -> tuple[torch.Tensor, int]:
        """Leaves the gradients of this process's share of a step, divided by the number of values in its windows.

        join: over all processes, in the last backward pass. Gives the sum of squared errors and the count of values of
        the share, (2,), and that number.
        """
        parts = _parts(self.world.share(index_b), self.world.share(mask_b), micro)
        most = math.ceil(_largest_share(len(index_b), self.world) / micro)
        judged = torch.zeros(2, device=self.plan.device, dtype=self.plan.dtype)
        for number in range(most):
            with self.parallel.joining(join and number + 1 == most):
                if number < len(parts):
                    output = self._forward(self.network, inputs, *parts[number])
                    # Dividing by a constant first keeps float16 gradients in range; the step's own count comes last.
                    usual = len(index_b) * output.reconstruction[0].numel()
                    self.loss_scaler.scale(output.loss * (output.count / usual)).backward()
                    judged += torch.stack([output.loss.detach() * output.count, output.count])
                else:
                    output = self._attend(inputs, index_b[:1], mask_b[:1])
                    usual = len(index_b) * output.reconstruction[0].numel()
        return judged, usual

    def _attend(self, inputs: Inputs, index_b: torch.Tensor, mask_b: torch.Tensor) -> MaskedOutput:
        """Takes part in what the processes do together with windows that count nothing: their gradients are zero, and
        running statistics stay."""
        with evaluating(self.model):
            output = self._forward(self.network, inputs, index_b, mask_b)
            self.loss_scaler.scale(output.loss * 0.0).backward()
        return output

    def _is_trial(self, size: int) -> bool:
        """Whether parts of so many windows have yet to show that they fit.

        The processes then talk only after all have computed their shares: one for which memory did not suffice has left
        nobody waiting, and all try again. Later they talk while they compute, which is faster. Under a strategy that
        talks in every forward pass there is no such moment.
        """
        return not self.parallel.talks_forward and sum(fitted >= size for fitted in self._fitted) < _TRIALS

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
    def mean_loss(self, inputs: Inputs, stop: StopRequest | None = None) -> float | None:
        """Mean loss over all windows, each with the same mask at every call. The model is left in evaluation mode.

        None where `stop` is due before the end. Several processes go on to the end: each would have to wait, after
        every block, for what the others were asked.
        With a mean input, `skill` then holds how much better the same values are predicted than by it.
        Raises DataError where there is no value to judge: a loss of 0 would stay the best for ever.
        """
        self.model.eval()
        judged = torch.zeros(2, device=self.plan.device, dtype=self.plan.dtype)
        num_planes = 0 if self.mean_input is None else self.mean_input.shape[self.model.channel_axis - 1]
        sums = torch.zeros(num_planes, 3, device=self.plan.device, dtype=self.plan.dtype)
        blocks = torch.arange(len(inputs)).split(MASK_BLOCK)
        for number in range(self.world.rank, len(blocks), self.world.size):
            if stop is not None and self.world.is_alone and stop.is_due(0.0):
                return None
            of_block, sums_of_block = self._until_it_fits(partial(self._judge, inputs, blocks[number], number))
            judged, sums = judged + of_block, sums + sums_of_block
        self._meet_after(inputs, blocks)
        if self.mean_input is not None:
            self.skill = Skill.of(self.world.add(sums), self.channels)
        error, count = self.world.add(judged).tolist()
        if not count:
            raise DataError(
                f"the {len(inputs)} windows of the validation part hold no observed value to judge the model by",
                hint="see data.parts.validation and the quality reports: its sensors may be missing there",
            )
        return error / count

    def _meet_after(self, inputs: Inputs, blocks: Sequence[torch.Tensor]) -> None:
        """Waits for the other processes, whose blocks may be more or did not fit into their memory."""
        if self.parallel.talks_forward:
            owned = [blocks[rank :: self.world.size] for rank in range(self.world.size)]
            passes = [sum(math.ceil(len(block) / self.micro) for block in own) for own in owned]
            for _ in range(max(passes) - passes[self.world.rank]):
                self._forward(self.network, inputs, blocks[0][:1], self.draw_masks(1, "nothing"))
        smallest = self.world.least(self.micro, self.plan.device)
        if smallest < self.micro:
            log.warning("another process ran out of memory: now %d windows at a time here too", smallest)
            self.micro = smallest

    @torch.no_grad()
    def loss_of_each(self, inputs: Inputs, index_b: torch.Tensor, *purpose: str | int) -> list[float]:
        """The loss of each window alone, under the masks of that purpose; nothing moves."""
        parts = _parts(index_b, self.draw_masks(len(index_b), *purpose), 1)
        with evaluating(self.model):
            return [self._forward(self.model, inputs, *part).loss.item() for part in parts]

    def _judge(self, inputs: Inputs, index_b: torch.Tensor, block: int, micro: int) -> tuple[torch.Tensor, ...]:
        """Sum of squared errors and count of values in a block of windows, (2,); and its error sums, (C, 3) or 0."""
        judged = torch.zeros(2, device=self.plan.device, dtype=self.plan.dtype)
        sums: torch.Tensor | float = torch.zeros((), device=self.plan.device, dtype=self.plan.dtype)
        inputs.expect(index_b.split(micro))
        for part in _parts(index_b, self.draw_masks(len(index_b), "validation masks", block), micro):
            output = self._forward(self.model, inputs, *part)
            judged += torch.stack([output.loss * output.count, output.count])
            if self.mean_input is not None:
                sums = sums + error_sums(
                    inputs.batch(part[0]), output.reconstruction, self.mean_input, self.model.hidden_values(part[1]),
                    channel_axis=self.model.channel_axis,
                )  # fmt: skip
        return judged, sums

    # ----------------------------------------------------------------------------------------------------------- parts
    def draw_masks(self, num_windows: int, *purpose: str | int) -> torch.Tensor:
        """Masks as a pure function of seed and purpose."""
        masks = generator(self.config.seed, *purpose, device=self.plan.device)
        return self.model.draw_mask(num_windows, generator=masks, device=self.plan.device)

    def parts(self, index_b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The windows of a step that this process computes, by what it computes at once."""
        return self.world.share(index_b).split(self.micro)

    def _forward(self, network: nn.Module, inputs: Inputs, index_b: torch.Tensor, mask_b: torch.Tensor) -> MaskedOutput:
        x = inputs.batch(index_b)
        with self.plan.autocast():
            return network(x, mask_b)

    def _until_it_fits(self, work: Callable[[int], T], undo: Callable[[], None] = lambda: None) -> T:
        """What `work(micro)` gives; where memory runs out, from the same state again in parts of half the size."""
        if self.parallel.talks_forward:
            with self._no_second_try(self.micro):
                return work(self.micro)
        result, fitting = until_it_fits(work, self.micro, kind=self.plan.kind, undo=undo)
        group = getattr(self.config.model, "norm_windows", 1)
        if fitting < self.micro and self._running and fitting % group:
            log.warning("batch normalisation now takes its statistics over %d windows, not %d", fitting, group)
        self.micro = fitting
        return result

    def _all_or_none(self, work: Callable[[], T]) -> T:
        """What the work gives. Raises OutOfMemoryError in every process where memory runs out in one."""
        result = problem = None
        try:
            result = work()
        except (RuntimeError, MemoryError, OSError) as error:
            if not is_out_of_memory(error):
                raise
            problem = _first_line(error)  # its traceback would keep what filled the memory
        failed = torch.tensor([problem is not None], device=self.plan.device, dtype=torch.int64)
        if self.world.add(failed).item():
            raise torch.OutOfMemoryError(problem or "in another process")
        return result

    @contextlib.contextmanager
    def _no_second_try(self, micro: int) -> Iterator[None]:
        """Where processes talk while they compute: one that tried again would leave the others waiting."""
        try:
            yield
        except (RuntimeError, MemoryError, OSError) as error:
            if not is_out_of_memory(error):
                raise
            raise LandfallError(
                f"out of memory with {micro} windows at a time in each process: {_first_line(error)}",
                hint=f"go on with training.resume=auto training.batch_size={max(1, micro // 2)}",
            ) from error


def _parts(index_b: torch.Tensor, mask_b: torch.Tensor, micro: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Window indices and masks, `micro` at a time."""
    if not len(index_b):  # split would give one part of nothing
        return []
    return list(zip(index_b.split(micro), mask_b.split(micro), strict=True))


def _largest_share(num_windows: int, world: World) -> int:
    return math.ceil(num_windows / world.size)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
