"""The state of every global random generator that a run uses, as plain values for a checkpoint.

Masks, order and everything else with its own generator (`core.reproducibility`) need no state: they are functions of
seed and position.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from core.devices.backend import Backend


def random_state(backend: Backend) -> dict[str, Any]:
    """States of torch (CPU, and the device of the backend), NumPy and Python."""
    kind, keys, position, has_gauss, cached = np.random.get_state()
    version, words, gauss = random.getstate()
    return {
        "kind": backend.kind,
        "torch": backend.rng_state(),
        "numpy": [kind, torch.from_numpy(keys.astype(np.int64)), position, has_gauss, cached],
        "python": [version, torch.tensor(words), gauss],
    }


def set_random_state(backend: Backend, state: Mapping[str, Any]) -> None:
    """Restores the result of `random_state`; a device of another kind keeps its own state."""
    states = state["torch"] if state["kind"] == backend.kind else state["torch"][:1]
    backend.set_rng_state(states)
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words.tolist()), gauss))


@contextmanager
def preserved(model: nn.Module, backend: Backend) -> Iterator[None]:
    """Restores the model and the random generators exactly, even after an error.

    It restores weights, buffers, gradients, requires_grad and modes of the model, and the state of the generators of
    torch (CPU and device), NumPy and Python. Inside, the model starts without gradients. The copy of weights and
    buffers is in main memory, so a probe on the CPU includes it in the peak.
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
                module._buffers[name] = buffer  # a module may have replaced it by another tensor
                buffer.copy_(values)
        for module, training in modules:
            module.training = training
        set_random_state(backend, drawn)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", copy=True)
