"""Batch normalisation over groups of windows, compared with plain batch normalisation of each group."""

import copy

import pytest
import torch
from torch import nn

from core.models.normalisation import WindowBatchNorm

GROUP, CHANNELS, PATCHES, WIDTH = 4, 2, 3, 5


def inputs(num_windows, dtype=torch.float64):
    generator = torch.Generator().manual_seed(num_windows)
    scale = torch.linspace(0.1, 3.0, WIDTH)
    z = torch.randn(num_windows, CHANNELS, PATCHES, WIDTH, generator=generator) * scale + scale.flip(0)
    return z.to(dtype).requires_grad_()


def norms(dtype=torch.float64):
    ours, theirs = WindowBatchNorm(WIDTH, GROUP).to(dtype), nn.BatchNorm1d(WIDTH).to(dtype)
    for norm in (ours, theirs):
        nn.init.uniform_(norm.weight, generator=torch.Generator().manual_seed(1))
        nn.init.uniform_(norm.bias, generator=torch.Generator().manual_seed(2))
    return ours, theirs


@pytest.mark.parametrize("way", ["forward", "one_by_one", "batched"])
@pytest.mark.parametrize("num_windows", [1, 3, 4, 7, 8, 13, 32])
def test_groups_are_normalised_separately(num_windows, way):
    ours, theirs = norms()
    z = inputs(num_windows)
    out = getattr(ours, way if num_windows >= GROUP else "forward")(z)
    expected = torch.cat([theirs(part.flatten(0, -2)).view_as(part) for part in z.split(GROUP)])
    torch.testing.assert_close(out, expected, atol=1e-12, rtol=0)
    for name, buffer in theirs.named_buffers():
        torch.testing.assert_close(ours.get_buffer(name), buffer, atol=1e-12, rtol=0)

    wanted = [z, *ours.parameters()]
    gradients = torch.autograd.grad((out**3).sum(), wanted)
    expected_gradients = torch.autograd.grad((expected**3).sum(), [z, *theirs.parameters()])
    torch.testing.assert_close(gradients, expected_gradients, atol=1e-10, rtol=1e-12)


@pytest.mark.parametrize("micro", [4, 8, 16])
def test_micro_batches_of_complete_groups_change_nothing(micro):
    whole, _ = norms(torch.float32)
    parts = copy.deepcopy(whole)
    z = inputs(16, torch.float32)
    for _ in range(3):
        out = whole(z)
        torch.testing.assert_close(torch.cat([parts(part) for part in z.split(micro)]), out, atol=1e-6, rtol=0)
    torch.testing.assert_close(dict(parts.named_buffers()), dict(whole.named_buffers()), atol=1e-6, rtol=1e-6)


def test_evaluation_uses_running_statistics_for_every_window():
    ours, _ = norms()
    ours(inputs(13))
    ours.eval()
    z = inputs(9)
    expected = (z - ours.running_mean) / (ours.running_var + ours.eps).sqrt() * ours.weight + ours.bias
    torch.testing.assert_close(ours(z), expected)
    assert ours.num_batches_tracked == 4
