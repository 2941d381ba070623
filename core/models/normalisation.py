"""Batch normalisation whose result does not depend on the batch size."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Share of the running statistics that a group replaces, torch's default, and what it leaves as it is.
MOMENTUM = 0.1
KEEP = 1.0 - MOMENTUM


class WindowBatchNorm(nn.BatchNorm1d):
    """Batch normalisation of every feature over the tokens of `group` windows: (B, …, D) → (B, …, D).

    In training each `group` consecutive windows have their own mean and variance; where the batch does not divide, the
    last group is smaller. Known as ghost batch normalisation (Hoffer, Hubara, Soudry: Train longer, generalize better,
    NeurIPS 2017). However a batch is cut into micro-batches of whole groups, outputs and gradients stay the same, and
    running statistics too: they move group by group, in order.
    """

    def __init__(self, width: int, group: int):
        super().__init__(width, momentum=MOMENTUM)
        self.group = group

    def forward(self, z: Tensor) -> Tensor:
        if not self.training or len(z) <= self.group:
            return super().forward(z.flatten(0, -2)).view_as(z)
        # A CPU pays for copies, an accelerator for calls.
        return self.in_turn(z) if z.device.type == "cpu" else self.at_once(z)

    def in_turn(self, z: Tensor) -> Tensor:
        """One group after the other."""
        return torch.cat([self(windows) for windows in z.split(self.group)])

    def at_once(self, z: Tensor) -> Tensor:
        """All whole groups in one call, then the rest."""
        rest = len(z) % self.group
        whole, last = z.split([len(z) - rest, rest])
        normalised = self._normalise_groups(whole)
        return torch.cat([normalised, self(last)]) if rest else normalised

    def _normalise_groups(self, z: Tensor) -> Tensor:
        """Side by side, the groups are features of one plain batch normalisation: its kernel does them all at once."""
        num_groups = len(z) // self.group
        z_tgd = z.reshape(num_groups, -1, self.num_features).transpose(0, 1)
        mean_gd, variance_gd = self.running_mean.new_zeros(2, num_groups, self.num_features)
        out = F.batch_norm(
            z_tgd.flatten(1), mean_gd.view(-1), variance_gd.view(-1), self.weight.repeat(num_groups),
            self.bias.repeat(num_groups), training=True, momentum=1.0, eps=self.eps,
        )  # fmt: skip
        self.num_batches_tracked.add_(num_groups)
        self._move(self.running_mean, mean_gd)
        self._move(self.running_var, variance_gd)
        return out.view_as(z_tgd).transpose(0, 1).reshape(z.shape)

    def _move(self, running_d: Tensor, groups_gd: Tensor) -> None:
        """What one exponential moving average after the other would give."""
        num_groups = len(groups_gd)
        age_g = torch.arange(num_groups - 1, -1, -1, dtype=running_d.dtype, device=running_d.device)
        share_g1 = (MOMENTUM * KEEP**age_g).unsqueeze(1)
        running_d.mul_(KEEP**num_groups).add_((share_g1 * groups_gd).sum(0))
