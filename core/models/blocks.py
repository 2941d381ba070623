"""A stack of blocks, whose activations are kept for the backward pass or computed again in it."""

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

    recompute: gradient checkpointing (Chen et al., 2016). Only the input of each block is kept, and the backward pass
    runs the block a second time: with the same random numbers, hence to the same gradients, and without moving running
    statistics again.
    """
    for block in blocks:
        z = _checkpointed(block, z) if recompute else block(z)
    return z


def _checkpointed(block: nn.Module, z: Tensor) -> Tensor:
    if torch.compiler.is_compiling():  # takes no contexts: its graph changes buffers once, whatever it computes again
        return checkpoint(block, z, use_reentrant=False)
    return checkpoint(block, z, use_reentrant=False, context_fn=partial(_contexts, block, z.device))


def _contexts(block: nn.Module, device: torch.device) -> tuple[AbstractContextManager[None], ...]:
    """Around the first run of a block, and around the second."""
    # checkpoint() itself repeats the random numbers of every device but Apple's.
    rng = torch.get_device_module(device) if device.type == "mps" else None
    return nullcontext(), _second_run(block, rng, rng.get_rng_state() if rng else None)


@contextmanager
def _second_run(block: nn.Module, rng: ModuleType | None, first_state: Tensor | None) -> Iterator[None]:
    """Draws what the first run drew, and lets the block move copies of its buffers."""
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
