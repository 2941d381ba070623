"""Skill: how much better a model predicts masked values than the mean training input does.

    skill = 1 - loss / loss of the mean training input

Both losses are mean squared errors over the same masked and observed values. 1 is a perfect prediction, 0 is as good as
the mean training input. A model with constant output cannot exceed 0, except by chance.

Shape suffixes: c channel, s the three sums of a channel (squared error of the model, of the mean input, count).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from core.models.masking import at_least_float32


def error_sums(x: Tensor, prediction: Tensor, mean: Tensor, chosen: Tensor, *, channel_axis: int) -> Tensor:
    """Sums per channel over the observed values where `chosen` is True: (C, 3).

    x, prediction: model input and its reconstruction, batch first; NaN in x is missing. mean: the mean training input,
    with the shape of one sample, NaN where the train split has no values. chosen: bool, broadcasts with x.
    The columns are the squared error of the prediction, the squared error of the mean, and the number of values.
    """
    chosen = chosen & ~x.isnan() & ~mean.isnan()
    errors = [at_least_float32((guess - x).masked_fill(~chosen, 0.0)).square() for guess in (prediction, mean)]
    sums = [values.movedim(channel_axis, 0).flatten(1).sum(1) for values in (*errors, chosen.to(errors[0].dtype))]
    return torch.stack(sums, dim=-1)


# Maximum number of channels in a line of text; of more channels, only the best and the worst are named.
_NAMED = 3


@dataclass(frozen=True)
class Skill:
    """Skill over all values, and per channel; None if all values equal the mean training input."""

    total: float | None
    channels: dict[str, float | None]

    @classmethod
    def of(cls, sums_cs: Tensor, channels: Sequence[str]) -> Skill:
        """sums_cs: (C, 3) from `error_sums`; image planes without a channel name are ignored."""
        rows = sums_cs.double().cpu()[: len(channels)]
        return cls(_skill(rows.sum(0)), {name: _skill(row) for name, row in zip(channels, rows, strict=True)})

    def __str__(self) -> str:
        return "no skill: all values equal the mean" if self.total is None else f"skill {self.total:.3f}"

    def in_full(self) -> str:
        """The skill, and that of the best and the worst channels."""
        known = sorted((skill, name) for name, skill in self.channels.items() if skill is not None)
        ends = known if len(known) <= _NAMED else [*known[:1], *known[-1:]]
        return f"{self} over the mean training input" + (
            f" ({', '.join(f'{name} {skill:.3f}' for skill, name in reversed(ends))})" if ends else ""
        )

    def to_json(self) -> dict[str, Any]:
        return {"total": self.total, "channels": self.channels}


def _skill(sums_s: Tensor) -> float | None:
    error, error_of_mean, _ = sums_s.tolist()
    return 1.0 - error / error_of_mean if error_of_mean > 0 else None
