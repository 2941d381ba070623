"""The optimizer: AdamW without weight decay for vectors."""

from __future__ import annotations

import inspect

import torch
from torch import nn

from core.config.schema import Training


class AdamW(torch.optim.AdamW):
    """PyTorch's, without what its methods say to PyTorch's compiler: to say it they import the compiler, which takes
    two seconds of every start. Only the model is ever compiled here."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))
    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)


def build_optimizer(model: nn.Module, settings: Training, *, fused: bool) -> AdamW:
    """AdamW that decays matrices only; biases, norms and other vectors are exempt (MAE, nanoGPT and most since)."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return AdamW(groups, lr=settings.learning_rate, betas=settings.betas, fused=fused)
