"""A check that both models share."""

from __future__ import annotations

import torch


def assert_another_gradient_for_the_same_loss(point, distribution, x, mask):
    """Of two models with the same weights, the one that predicts a variance has the loss of the other, and another
    gradient."""
    distribution.load_state_dict(point.state_dict(), strict=False)
    losses = [model(x, mask).loss for model in (point, distribution)]
    torch.testing.assert_close(*losses)
    for loss in losses:
        loss.backward()
    assert not torch.allclose(point.head.weight.grad, distribution.head.weight.grad)
    assert distribution.variance_head.weight.grad.abs().sum() > 0
