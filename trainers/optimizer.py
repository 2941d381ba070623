"""The optimizer: AdamW without weight decay for vectors."""

from __future__ import annotations

from torch import nn
from torch.optim import AdamW

from core.config.schema import Training


def build_optimizer(model: nn.Module, settings: Training, *, fused: bool) -> AdamW:
    """AdamW that decays matrices only; biases, norms and other vectors are exempt (MAE, nanoGPT and most since)."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return AdamW(groups, lr=settings.learning_rate, betas=settings.betas, fused=fused)
