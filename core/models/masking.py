"""Common code of both masked models: masks, the result of a forward pass, the loss, and inpainting.

A unit is the smallest item that is masked: a patch of a time series, or a square of image patches. True means masked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from core.config.models import Output

# Limits of the logarithm of a predicted variance: standard deviations of 0.02 to 20 in scaled units.
LOG_VARIANCE_RANGE = (-8.0, 6.0)
# Degrees of freedom of Student's t: fixed, because the likelihood has no maximum for few of them, and because a model
# must fit machines with other channels. The value for robust estimates of Lange, Little, Taylor: Robust Statistical
# Modeling Using the t Distribution, Journal of the American Statistical Association 1989.
DEGREES_OF_FREEDOM = 4.0


class MaskedOutput(NamedTuple):
    """The result of a masked model.

    loss: scalar, mean squared error over values that are masked and observed; 0 if there are none.
    reconstruction: shape and units of the input. Only masked units are predictions from other units.
    mask: bool, True if a unit was masked.
    count: scalar float32, number of values that `loss` averages: the weight of this batch.
    log_variance: of the predictions, shape and units of the reconstruction; None if the model does not predict it.

    Loss and reconstruction are float32, also under autocast; float64 if the weights are.
    """

    loss: Tensor
    reconstruction: Tensor
    mask: Tensor
    count: Tensor
    log_variance: Tensor | None = None


def num_masked(num_units: int, ratio: float) -> int:
    """Number of masked units: the ratio rounded up, as in MAE and PatchTST; at least one unit stays visible.

    Raises ValueError for fewer than two units.
    """
    if num_units < 2:
        raise ValueError(f"{num_units} unit(s) cannot be masked: at least one must be masked and one visible")
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
    """Random masks with the same number of masked units in each row: bool (*batch_shape, num_units) on `device`.

    Noise is drawn on the device of the generator, so a CPU generator gives the same masks for every device.
    """
    noise_device = generator.device if generator is not None else device
    noise = torch.rand(*batch_shape, num_units, generator=generator, device=noise_device)
    masked = noise.topk(num_masked(num_units, ratio), dim=-1).indices
    mask = torch.zeros_like(noise, dtype=torch.bool).scatter(-1, masked, True)
    return mask.to(device, non_blocking=True)


def one_of(drawn: Sequence[Tensor], generator: torch.Generator | None) -> Tensor:
    """One of several masks for each sample, drawn at random. drawn: bool (B, …) each."""
    if len(drawn) == 1:
        return drawn[0]
    batch_size, device = len(drawn[0]), drawn[0].device
    noise_device = generator.device if generator is not None else device
    kind_b = torch.randint(len(drawn), (batch_size,), generator=generator, device=noise_device)
    return torch.stack(tuple(drawn))[kind_b.to(device), torch.arange(batch_size, device=device)]


def complementary_masks(num_units: int, ratio: float, *, seed: int = 0) -> Tensor:
    """Masks of P passes that together mask every unit exactly once: bool (P, num_units) on the CPU.

    P is the smallest number of passes that masks at most `ratio` in each, but at least two, so that each pass sees at
    least as much as in training. The numbers of masked units differ by at most one.

    Units are assigned to passes at random, from the seed. A regular pattern could match a periodic signal.
    """
    num_masked(num_units, ratio)  # raises for a single unit
    num_passes = min(max(math.ceil(1.0 / ratio - 1e-9), 2), num_units)
    order_n = torch.randperm(num_units, generator=torch.Generator().manual_seed(seed))
    return order_n % num_passes == torch.arange(num_passes).unsqueeze(1)


def masked_mse(prediction: Tensor, target: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Mean squared error over the elements where `chosen` is True (0 if there are none), and their float32 count.

    prediction, target and chosen have the same shape; target is finite everywhere.
    """
    squared = at_least_float32(prediction - target).square()
    count = chosen.sum().float()
    return (squared * chosen).sum() / count.clamp(min=1), count


def _student_t(squared: Tensor) -> Tensor:
    """Student's t distribution with the given variance, so that both distributions have the same variance head."""
    return (DEGREES_OF_FREEDOM + 1) * torch.log1p(squared / (DEGREES_OF_FREEDOM - 2))


# For each distribution, -2 log(density / largest density) of squared errors that are divided by the variance.
DEVIANCE: dict[Output, Callable[[Tensor], Tensor]] = {"gaussian": lambda squared: squared, "student_t": _student_t}


def likelihood_loss(
    loss: Tensor, prediction: Tensor, log_variance: Tensor, target: Tensor, chosen: Tensor, *, output: Output
) -> Tensor:
    """A scalar with the value of `loss`, the squared error, and the gradient of the negative log-likelihood.

    This makes losses of models with and without a variance comparable. The likelihood of each value is weighted by its
    predicted standard deviation, otherwise noisy values are hardly learned (β-NLL with β = 0.5, Seitzer, Tavakoli,
    Antic, Martius: On the Pitfalls of Heteroscedastic Uncertainty Estimation with Probabilistic Neural Networks, ICLR
    2022). output: the distribution. The other arguments are those of `masked_mse`.
    """
    squared = at_least_float32(prediction - target).square()
    weight = (0.5 * log_variance.detach()).exp()
    likelihood = 0.5 * (log_variance + DEVIANCE[output](squared * (-log_variance).exp())) * weight
    likelihood = (likelihood * chosen).sum() / chosen.sum().clamp(min=1)
    return loss.detach() + (likelihood - likelihood.detach())


def log_variance_of(values: Tensor) -> Tensor:
    """Log variance from the output of a linear layer, limited to `LOG_VARIANCE_RANGE`; at least float32."""
    return at_least_float32(values).clamp(*LOG_VARIANCE_RANGE)


def standardised_error(prediction: Tensor, log_variance: Tensor | None, target: Tensor, *, output: Output) -> Tensor:
    """Squared errors, or their deviance if the model predicts a variance; NaN where the target is missing."""
    squared = (prediction - target).square()
    return squared if log_variance is None else DEVIANCE[output](squared * (-log_variance).exp())


def at_least_float32(values: Tensor) -> Tensor:
    """float16 and bfloat16 values as float32, others unchanged: sums and losses need the precision."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


class MaskedModel(nn.Module):
    """A model that predicts masked units of its input from the visible ones.

    unit_shape: shape of the mask of one sample; passes of `inpaint` run over its last axis. ratio: share of masked
    units. output: what it predicts, see `model.output`. num_masked: number of masked units in each row of the last axis
    of a random mask.
    gradient_checkpointing: compute each block again in the backward pass instead of storing its activations.
    channel_axis: axis of the input that contains the channels of the data.
    """

    channel_axis: int

    def __init__(self, unit_shape: tuple[int, ...], ratio: float, output: Output):
        super().__init__()
        self.unit_shape, self.mask_ratio, self.output = unit_shape, ratio, output
        self.num_masked = num_masked(unit_shape[-1], ratio)
        self.gradient_checkpointing = False
        passes_qn = complementary_masks(unit_shape[-1], ratio)
        self._pass_sizes = passes_qn.sum(-1).tolist()  # Python numbers: no synchronisation with the device in a pass
        self.register_buffer("passes_qn", passes_qn, persistent=False)

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the weights and of the computation."""
        return next(self.parameters()).dtype

    def draw_mask(
        self, batch_size: int, *, generator: torch.Generator | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        """A random mask, bool (batch_size, *unit_shape), by default on the device of the model."""
        *shape, num_units = (batch_size, *self.unit_shape)
        device = device or self.passes_qn.device
        return random_mask(shape, num_units, self.mask_ratio, generator=generator, device=device)

    def masked_values(self, mask: Tensor) -> Tensor:
        """The values of masked units: bool, broadcasts with the input."""
        raise NotImplementedError

    def passes(self) -> Iterator[tuple[Tensor, int | None]]:
        """The passes of `inpaint`, which together mask every unit once: the mask of all samples, (1, *unit_shape), and
        the number of masked units in each row."""
        for mask_n, size in zip(self.passes_qn, self._pass_sizes, strict=True):
            yield mask_n.expand(1, *self.unit_shape), size

    @torch.no_grad()
    def inpaint(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Predicts every unit while it is masked: (reconstruction, error), both with the shape of x.

        A few passes mask complementary sets of units. error is the squared difference in the units of x, or its
        deviance if the model predicts a variance, and NaN where x is missing. Runs in evaluation mode, so the result of
        a sample does not depend on the other samples of the batch.
        """
        x = x.to(self.dtype)
        reconstruction, error = torch.zeros_like(x), torch.full_like(x, torch.nan)
        with evaluating(self):
            for mask, size in self.passes():
                output, values = self(x, mask, num_masked=size), self.masked_values(mask)
                of_pass = standardised_error(output.reconstruction, output.log_variance, x, output=self.output)
                reconstruction = torch.where(values, output.reconstruction, reconstruction)
                error = torch.where(values, of_pass, error)
        return reconstruction, error

    @property
    def blocks(self) -> Sequence[nn.Module]:
        """The blocks in the order of computation; they contain nearly all weights."""
        raise NotImplementedError


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the context; afterwards every module has its previous mode."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
