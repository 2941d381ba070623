"""The optimizer, AdamW without weight decay for vectors, and its learning rate."""

from __future__ import annotations

import math

from torch import nn
from torch.optim import AdamW

from core.config.schema import Training


def build_optimizer(model: nn.Module, settings: Training, *, fused: bool) -> AdamW:
    """AdamW with weight decay for matrices only, not for biases, norms and other vectors (as in MAE and nanoGPT)."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return AdamW(groups, lr=settings.learning_rate, betas=settings.betas, fused=fused)


def learning_rate(step: int, *, total_steps: int, warmup_steps: int, peak: float, final: float) -> float:
    """Linear warm-up to `peak` over `warmup_steps`, then half a cosine down to `final` at the last step (Loshchilov and
    Hutter: SGDR, ICLR 2017, without restarts).

    `step` counts optimizer steps from 0. The rate of the first step is not 0: it is peak / warmup_steps.
    """
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    decay_steps = max(1, total_steps - 1 - warmup_steps)
    progress = min(1.0, (step - warmup_steps) / decay_steps)
    return final + 0.5 * (peak - final) * (1.0 + math.cos(math.pi * progress))
