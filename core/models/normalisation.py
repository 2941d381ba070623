"""Batch normalisation whose result does not depend on the batch size."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Weight of a new group in the running statistics (PyTorch's default), and weight of the previous statistics.
MOMENTUM = 0.1
KEEP = 1.0 - MOMENTUM


class WindowBatchNorm(nn.BatchNorm1d):
    """Batch normalisation of every feature over the tokens of `group` windows: (B, …, D) → (B, …, D).

    In training, each `group` consecutive windows are normalised by their own mean and variance; the last group may be
    smaller. Known as ghost batch normalisation (Hoffer, Hubara, Soudry: Train longer, generalize better, NeurIPS 2017).
    If a batch is split into micro-batches of complete groups, outputs, gradients and running statistics do not change:
    the statistics are updated group by group, in order.
    """

    def __init__(self, width: int, group: int):
        super().__init__(width, momentum=MOMENTUM)
        self.group = group

    def forward(self, z: Tensor) -> Tensor:
        if not self.training or len(z) <= self.group:
            return super().forward(z.flatten(0, -2)).view_as(z)
        # On a CPU, copies are slower than more calls; on an accelerator, calls are slower than copies.
        return self.one_by_one(z) if z.device.type == "cpu" else self.batched(z)

    def one_by_one(self, z: Tensor) -> Tensor:
        """One group after the other."""
        return torch.cat([self(windows) for windows in z.split(self.group)])

    def batched(self, z: Tensor) -> Tensor:
        """All complete groups in one call, then the rest."""
        rest = len(z) % self.group
        complete, last = z.split([len(z) - rest, rest])
        normalised = self._normalise_groups(complete)
        return torch.cat([normalised, self(last)]) if rest else normalised

    def _normalise_groups(self, z: Tensor) -> Tensor:
        """Treats groups as additional features, so that one call of plain batch normalisation computes all of them."""
        num_groups = len(z) // self.group
        z_tgd = z.reshape(num_groups, -1, self.num_features).transpose(0, 1)
        mean_gd, variance_gd = self.running_mean.new_zeros(2, num_groups, self.num_features)
        out = F.batch_norm(
            z_tgd.flatten(1), mean_gd.view(-1), variance_gd.view(-1), self.weight.repeat(num_groups),
            self.bias.repeat(num_groups), training=True, momentum=1.0, eps=self.eps,
        )  # fmt: skip
        self.num_batches_tracked.add_(num_groups)
        self._update(self.running_mean, mean_gd)
        self._update(self.running_var, variance_gd)
        return out.view_as(z_tgd).transpose(0, 1).reshape(z.shape)

    def _update(self, running_d: Tensor, groups_gd: Tensor) -> None:
        """Equals updating the exponential moving average once for each group, in order."""
        num_groups = len(groups_gd)
        age_g = torch.arange(num_groups - 1, -1, -1, dtype=running_d.dtype, device=running_d.device)
        share_g1 = (MOMENTUM * KEEP**age_g).unsqueeze(1)
        running_d.mul_(KEEP**num_groups).add_((share_g1 * groups_gd).sum(0))
