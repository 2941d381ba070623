"""torch.compile makes one graph of each model; gradient checkpointing still updates statistics only once."""

import copy

import pytest
import torch

from core.config.schema import PatchTSTModel, SwinMAEModel
from core.models.patchtst import PatchTST
from core.models.swinmae import SwinMAE


def patchtst():
    torch.manual_seed(0)
    settings = PatchTSTModel(d_model=8, d_ff=8, num_layers=1, norm_windows=4)
    return PatchTST(settings, num_channels=2, window=48), torch.randn(10, 48, 2)


def swinmae(**changes):
    torch.manual_seed(0)
    settings = SwinMAEModel(**{"embed_dim": 8, "depths": (2,), "num_heads": (2,), "decoder_depths": (), **changes})
    return SwinMAE(settings, image_size=32), torch.randn(2, 3, 32, 32)


def swinmae_visible():
    """Two stages, the first of them in more than one chunk of tokens."""
    stages = {"depths": (2, 1), "num_heads": (2, 2), "decoder_depths": (1,)}
    return swinmae(drop_masked_tokens=True, window_size=2, **stages)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "build, checkpointing",
    [
        (patchtst, True),
        pytest.param(swinmae, False, marks=pytest.mark.nightly),
        pytest.param(swinmae_visible, False, marks=pytest.mark.nightly),
        pytest.param(swinmae_visible, True, marks=pytest.mark.nightly),
    ],
)
def test_one_graph_with_the_same_gradients_and_statistics(build, checkpointing):
    model, x = build()
    mask = model.draw_mask(len(x))
    other = copy.deepcopy(model)
    other.gradient_checkpointing = checkpointing
    expected = model(x, mask).loss
    expected.backward()
    loss = torch.compile(other, backend="aot_eager", fullgraph=True)(x, mask).loss
    loss.backward()
    torch.testing.assert_close(loss, expected)
    for ours, theirs in zip(other.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(dict(other.named_buffers()), dict(model.named_buffers()))
