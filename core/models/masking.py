"""What both masked models share: which units are hidden, what a forward pass returns, the loss, and inpainting.

A unit is what is hidden as a whole: a patch of a time series, a window of image patches. True means hidden.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn


class MaskedOutput(NamedTuple):
    """What a masked model returns.

    loss: scalar, mean squared error over values that are both hidden and observed; 0 where there are none.
    reconstruction: the shape and units of the input; only hidden units were predicted blind.
    mask: bool, True where a unit was hidden.
    count: scalar float32, how many values `loss` averages: the weight of this batch among others.

    Loss and reconstruction are float32, also under autocast, and float64 where the weights are.
    """

    loss: Tensor
    reconstruction: Tensor
    mask: Tensor
    count: Tensor


def num_hidden(num_units: int, ratio: float) -> int:
    """How many of `num_units` a mask hides: the ratio rounded up, as in MAE and PatchTST, leaving at least one seen.

    Raises ValueError for fewer than two units: hiding one must leave one.
    """
    if num_units < 2:
        raise ValueError(f"{num_units} unit(s) cannot be masked: one must be hidden and one must stay visible")
    # The tolerance keeps 0.7 * 10 = 7.000000000000001 at seven.
    return min(max(math.ceil(num_units * ratio - 1e-9), 1), num_units - 1)


def random_mask(
    batch_shape: Sequence[int],
    num_units: int,
    ratio: float,
    *,
    generator: torch.Generator | None = None,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Random masks that all hide the same number of units: bool (*batch_shape, num_units) on `device`.

    Noise is drawn where the generator lives, so that a CPU generator hides the same units whatever the device.
    """
    noise_device = generator.device if generator is not None else device
    noise = torch.rand(*batch_shape, num_units, generator=generator, device=noise_device)
    hidden = noise.topk(num_hidden(num_units, ratio), dim=-1).indices
    mask = torch.zeros_like(noise, dtype=torch.bool).scatter(-1, hidden, True)
    return mask.to(device, non_blocking=True)


def complementary_masks(num_units: int, ratio: float, *, seed: int = 0) -> Tensor:
    """Masks of P passes that together hide every unit exactly once: bool (P, num_units) on the CPU.

    P is the smallest number of passes that hides no more than `ratio` in each, but at least two; a model is
    therefore never asked to predict from less than it saw in training. Sizes differ by one at most.

    Which pass hides a unit is drawn at random from the seed: every way to deal the units is equally likely, as in the
    masks of training, so that no pass is a regular comb that a periodic signal could fall in step with.
    """
    num_hidden(num_units, ratio)  # refuses a single unit
    num_passes = min(max(math.ceil(1.0 / ratio - 1e-9), 2), num_units)
    place_n = torch.randperm(num_units, generator=torch.Generator().manual_seed(seed))
    return place_n % num_passes == torch.arange(num_passes).unsqueeze(1)


def masked_mse(prediction: Tensor, target: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Mean squared error over the elements where `chosen` is True, 0 where there are none, and their float32 count.

    prediction, target and chosen have one shape, and target is finite everywhere.
    """
    squared = at_least_float32(prediction - target).square()
    count = chosen.sum().float()
    return (squared * chosen).sum() / count.clamp(min=1), count


def at_least_float32(values: Tensor) -> Tensor:
    """Values of 16 bit as float32, others as they are: sums and losses need more than 16 bit."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


class MaskedModel(nn.Module):
    """A model that predicts hidden units of its input from the others.

    unit_shape: of the mask of one sample; passes of `inpaint` run over its last axis. ratio: share of units hidden.
    num_hidden: units that a drawn mask hides in each row of the last axis.
    gradient_checkpointing: compute each block again in the backward pass instead of keeping its activations.
    channel_axis: which axis of the input holds the channels of the data.
    """

    channel_axis: int

    def __init__(self, unit_shape: tuple[int, ...], ratio: float):
        super().__init__()
        self.unit_shape, self.mask_ratio = unit_shape, ratio
        self.num_hidden = num_hidden(unit_shape[-1], ratio)
        self.gradient_checkpointing = False
        passes_qn = complementary_masks(unit_shape[-1], ratio)
        self._pass_sizes = passes_qn.sum(-1).tolist()  # known here, so that no pass waits for the device
        self.register_buffer("passes_qn", passes_qn, persistent=False)

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights, in which the model computes."""
        return next(self.parameters()).dtype

    def draw_mask(
        self, batch_size: int, *, generator: torch.Generator | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        """A random mask, bool (batch_size, *unit_shape), by default where the model is."""
        *shape, num_units = (batch_size, *self.unit_shape)
        device = device or self.passes_qn.device
        return random_mask(shape, num_units, self.mask_ratio, generator=generator, device=device)

    def hidden_values(self, mask: Tensor) -> Tensor:
        """Where the values of hidden units are: bool, fit to broadcast with the input."""
        raise NotImplementedError

    @torch.no_grad()
    def inpaint(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Predict every unit while it is hidden: (reconstruction, error), both of the shape of x.

        A few passes hide complementary sets of units. error is the squared difference in the units of x, NaN where x is
        missing. Always in evaluation mode, so each sample's result is its own, whatever shares the batch.
        """
        x = x.to(self.dtype)
        reconstruction = torch.zeros_like(x)
        with evaluating(self):
            for mask_n, size in zip(self.passes_qn, self._pass_sizes, strict=True):
                mask = mask_n.expand(len(x), *self.unit_shape)
                predicted = self(x, mask, num_hidden=size).reconstruction
                reconstruction = torch.where(self.hidden_values(mask), predicted, reconstruction)
        return reconstruction, (reconstruction - x).square()

    @property
    def blocks(self) -> Sequence[nn.Module]:
        """What computes one after the other; together they hold nearly all weights."""
        raise NotImplementedError


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for the duration of a block; every module gets its own mode back afterwards."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
