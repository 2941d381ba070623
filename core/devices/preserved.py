"""Runs work on a model without lasting effects on it or on the random generators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from core.devices.backend import Backend
from core.devices.random_state import random_state, set_random_state


@contextmanager
def preserved(model: nn.Module, backend: Backend) -> Iterator[None]:
    """Restores the model and the random generators exactly, even after an error.

    Weights, buffers, gradients, requires_grad and modes of the model, and the state of the generators of torch (CPU and
    device), numpy and Python. Inside, the model starts without gradients. The copy of weights and buffers is in the
    memory of the CPU, where it counts towards the peak of a probe on the CPU.
    """
    modules = [(module, module.training) for module in model.modules()]
    buffers = [
        (module, name, buffer, _copy(buffer))
        for module, _ in modules
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    parameters = [(p, _copy(p), p.grad, p.requires_grad) for p in model.parameters()]
    drawn = random_state(backend)
    for parameter, *_ in parameters:
        parameter.grad = None
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, weights, gradient, requires_grad in parameters:
                parameter.copy_(weights)
                parameter.requires_grad_(requires_grad)
                parameter.grad = gradient
            for module, name, buffer, values in buffers:
                module._buffers[name] = buffer  # a module may have put another tensor in its place
                buffer.copy_(values)
        for module, training in modules:
            module.training = training
        set_random_state(backend, drawn)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", copy=True)
