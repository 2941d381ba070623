"""Runs a sequence of blocks, with or without gradient checkpointing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from types import ModuleType

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def run_blocks(blocks: Iterable[nn.Module], z: Tensor, *, recompute: bool) -> Tensor:
    """Passes z, a tensor or a tuple of tensors that has a `device`, through the blocks in turn.

    recompute: gradient checkpointing (Chen et al., 2016). Only the input of each block is stored, and the backward pass
    runs the block again, with the same random numbers and without updating running statistics a second time. The
    gradients are identical.
    """
    for block in blocks:
        z = _checkpointed(block, z) if recompute else block(z)
    return z


def _checkpointed(block: nn.Module, z: Tensor) -> Tensor:
    if torch.compiler.is_compiling():  # does not support context_fn; the compiled graph updates buffers only once
        return checkpoint(block, z, use_reentrant=False)
    return checkpoint(block, z, use_reentrant=False, context_fn=partial(_contexts, block, z.device))


def _contexts(block: nn.Module, device: torch.device) -> tuple[AbstractContextManager[None], ...]:
    """Context managers for the first and the second run of a block."""
    # checkpoint() restores the random state of every device except MPS.
    rng = torch.get_device_module(device) if device.type == "mps" else None
    return nullcontext(), _second_run(block, rng, rng.get_rng_state() if rng else None)


@contextmanager
def _second_run(block: nn.Module, rng: ModuleType | None, first_state: Tensor | None) -> Iterator[None]:
    """Restores the random state of the first run, and lets the block update copies of its buffers."""
    buffers = [(owner, *named) for owner in block.modules() for named in owner.named_buffers(recurse=False)]
    for owner, name, buffer in buffers:
        setattr(owner, name, buffer.clone())
    if rng:
        state = rng.get_rng_state()
        rng.set_rng_state(first_state)
    try:
        yield
    finally:
        for owner, name, buffer in buffers:
            setattr(owner, name, buffer)
        if rng:
            rng.set_rng_state(state)
