"""Gradient checkpointing: the same results with less memory."""

import copy

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from core.config.schema import PatchTSTModel, SwinMAEModel
from core.models import blocks
from core.models.patchtst import PatchTST
from core.models.swinmae import SwinMAE
from tests.support import most_nightly


def patchtst(**changes):
    torch.manual_seed(0)
    small = {"d_model": 32, "d_ff": 64, "norm_windows": 4}
    return PatchTST(PatchTSTModel(**{**small, **changes}), num_channels=2, window=128), torch.randn(6, 128, 2)


def swinmae(**changes):
    torch.manual_seed(0)
    small = {"embed_dim": 16, "num_heads": (1, 2, 4)}
    return SwinMAE(SwinMAEModel(**{**small, **changes}), image_size=64), torch.randn(2, 3, 64, 64)


CASES = {
    "PatchTST, batch norm": (patchtst, {"dropout": 0.2}),
    "PatchTST, layer norm before": (patchtst, {"dropout": 0.2, "norm": "layer", "pre_norm": True}),
    "Swin-MAE": (swinmae, {"dropout": 0.2, "drop_path": 0.5}),
    "Swin-MAE, visible patches": (swinmae, {"dropout": 0.2, "drop_path": 0.5, "drop_masked_tokens": True}),
}


def trained_twice(model, x, autocast=False):
    """Losses of two passes, and the gradients and buffers afterwards."""
    torch.manual_seed(7)
    losses = []
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = model(x, model.draw_mask(len(x))).loss
        loss.backward()
        losses.append(loss.detach())
    return losses, [p.grad for p in model.parameters()], list(model.buffers()), torch.get_rng_state()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("autocast", most_nightly([False, True], but=1))
def test_gradient_checkpointing_is_bit_exact(case, autocast):
    build, changes = CASES[case]
    model, x = build(**changes)
    other = copy.deepcopy(model)
    other.gradient_checkpointing = True
    expected, result = trained_twice(model, x, autocast), trained_twice(other, x, autocast)
    assert torch.equal(result[-1], expected[-1])
    for ours, theirs in zip(result[:-1], expected[:-1], strict=True):
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    if changes.get("norm") is None and build is patchtst:
        assert other.layers[0].norm_attention.num_batches_tracked == 4  # two passes over groups of four and two


def saved_bytes(model, x) -> int:
    """Bytes of all tensors that are saved for the backward pass, except weights and buffers."""
    own = {tensor.untyped_storage().data_ptr() for tensor in [*model.parameters(), *model.buffers()]}
    saved = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = model(x).loss
    assert loss.requires_grad
    return sum(saved.values())


@pytest.mark.parametrize("build", [patchtst, swinmae])
def test_gradient_checkpointing_stores_less_than_half(build):
    model, x = build()
    usual = saved_bytes(model, x)
    model.gradient_checkpointing = True
    assert saved_bytes(model, x) < usual / 2


def test_evaluation_and_frozen_weights_work_with_checkpointing():
    model, x = patchtst()
    model.gradient_checkpointing = True
    before = [buffer.clone() for buffer in model.buffers()]
    model.inpaint(x)
    model.requires_grad_(False).eval()
    assert not model(x).loss.requires_grad
    assert all(torch.equal(a, b) for a, b in zip(model.buffers(), before, strict=True))


class Generator:
    """A device module with a random state."""

    def __init__(self):
        self.state = "first"

    def get_rng_state(self):
        return self.state

    def set_rng_state(self, state):
        self.state = state


def test_the_second_run_on_mps_uses_the_random_state_of_the_first(monkeypatch):
    rng = Generator()
    monkeypatch.setattr(torch, "get_device_module", lambda device: rng)
    first_run, second_run = blocks._contexts(torch.nn.Linear(1, 1), torch.device("mps"))
    with first_run:
        rng.state = "later"
    with second_run:
        assert rng.state == "first"
        rng.state = "moved"
    assert rng.state == "later"
