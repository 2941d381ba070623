import random
from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn

from core.config.schema import PatchTSTModel, SwinMAEModel
from core.devices.backend import backend
from core.models.patchtst import PatchTST
from core.models.swinmae import SwinMAE
from trainers.random_state import preserved

CPU = backend("cpu")
PATCHTST = PatchTSTModel(patch_length=8, d_model=16, num_heads=2, num_layers=1, d_ff=32, dropout=0.2)
MODELS = {
    "patchtst": lambda: (PatchTST(PATCHTST, num_channels=2, window=32), (32, 2)),
    "swinmae": lambda: (SwinMAE(SwinMAEModel(), image_size=32, in_channels=3), (3, 32, 32)),
}


def state_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Every weight, gradient and buffer as raw bytes."""
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    tensors |= {f"{name}.grad": p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {name: tensor.detach().flatten().clone().view(torch.uint8) for name, tensor in tensors.items()}


def draws() -> list[float]:
    return [torch.rand(()).item(), float(np.random.rand()), random.random()]


def disturb(model: nn.Module, shape: tuple[int, ...]) -> None:
    """A few real training steps, and other changes that a step might make."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model.train()
    for _ in range(2):
        model(torch.randn(4, *shape)).loss.backward()
        optimizer.step()
    model.eval()
    next(model.parameters()).requires_grad_(False)
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.is_floating_point():
                module._buffers[name] = buffer + 1
    draws()


@pytest.mark.parametrize("stream", MODELS)
@pytest.mark.parametrize("fails", [False, True])
def test_the_state_is_restored_after_the_block(stream, fails):
    model, shape = MODELS[stream]()
    next(model.parameters()).data.view(-1)[0] = float("nan")
    next(model.children()).eval()  # a mode of its own
    list(model.parameters())[-1].requires_grad_(False)
    model.get_parameter("head.weight").grad = torch.randn_like(model.get_parameter("head.weight"))
    before, modes = state_of(model), [module.training for module in model.modules()]
    trainable = [p.requires_grad for p in model.parameters()]
    torch.manual_seed(3), np.random.seed(3), random.seed(3)
    expected = draws()
    torch.manual_seed(3), np.random.seed(3), random.seed(3)

    def inside() -> None:
        with preserved(model, CPU):
            assert all(parameter.grad is None for parameter in model.parameters())
            disturb(model, shape)
            assert any(not torch.equal(value, before[name]) for name, value in state_of(model).items())
            if fails:
                raise torch.OutOfMemoryError("a test")

    if fails:
        with pytest.raises(torch.OutOfMemoryError):
            inside()
    else:
        inside()
    after = state_of(model)
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert [module.training for module in model.modules()] == modes
    assert [p.requires_grad for p in model.parameters()] == trainable
    assert draws() == expected


def test_training_is_not_affected_by_the_block():
    torch.manual_seed(0)
    model, shape = MODELS["patchtst"]()
    twin = deepcopy(model)
    with preserved(model, CPU):
        disturb(model, shape)
    losses = []
    for each in (model, twin):
        torch.manual_seed(1)
        disturb(each, shape)
        losses.append(each(torch.ones(4, *shape), generator=torch.Generator().manual_seed(2)).loss)
    assert torch.equal(*losses)
