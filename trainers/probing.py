"""Measures the micro-batch size of a run: real steps for the search in `trainers.micro_batch`."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from core.config.schema import AnyConfig, PatchTSTConfig
from core.data.inputs import Inputs
from core.devices.backend import backend
from core.errors import LandfallError
from trainers.context import RunContext
from trainers.micro_batch import Probe, ProbeCache, ProbeResult, agree
from trainers.optimizer import build_optimizer
from trainers.random_state import preserved

log = logging.getLogger(__name__)

CACHE_FILE = "cache/batch_probe.json"
# On a CPU a probe must be short compared with an epoch of the small models there; GPUs have more sizes to try.
BUDGET_S = {"cpu": 5.0}
OTHER_BUDGET_S = 30.0


def measure(
    context: RunContext, model: nn.Module, train: Inputs, validation: Inputs, *, effective: int, checkpointing: bool
) -> ProbeResult:
    """The micro-batch size of this run: measured, or cached from an earlier run.

    model: the model to train, not yet wrapped for several processes; it is moved to the device and otherwise unchanged.
    effective: windows of an optimizer step in this process; no batch is larger. checkpointing: recompute activations.
    All processes of a run must call it; they agree on the smallest result.

    If not even one window fits, the result has `needs_checkpointing`: call again with `checkpointing`. Raises
    LandfallError if that does not help either.
    """
    largest = min(effective, len(train))
    plan = context.plan
    cache = ProbeCache(context.root / context.config.logging.artifacts_dir / CACHE_FILE)
    facts = _facts(context, train, validation, largest=largest, checkpointing=checkpointing)
    result = cache.get(facts)
    if result is not None:
        log.info("micro-batch %d cached from an earlier run; delete %s to measure again", result.micro, cache.path)
    else:
        result = _probe(context, model, train, validation, largest=largest, checkpointing=checkpointing)
        cache.put(facts, result)
    result = agree(result, plan.device)
    if result.needs_checkpointing and checkpointing:
        raise LandfallError(
            f"one window does not fit into {plan.name}, even with gradient checkpointing: {result.reason}",
            hint="use a smaller model (model.size=reduced), or more of the memory (device.memory.strategy=aggressive)",
        )
    return result


def _probe(
    context: RunContext, model: nn.Module, train: Inputs, validation: Inputs, *, largest: int, checkpointing: bool
) -> ProbeResult:
    plan = context.plan
    device, before = backend(plan.kind), model.gradient_checkpointing
    model.to(plan.device)
    with preserved(model, device):
        model.gradient_checkpointing = checkpointing
        try:
            result = Probe(
                *steps_of(context, model, train, validation),
                meter=device,
                limit_mb=plan.memory_limit_mb,
                largest=largest,
                group=_norm_group_size(context.config),
                budget_s=BUDGET_S.get(plan.kind, OTHER_BUDGET_S),
            ).run()
        finally:
            model.gradient_checkpointing = before
    device.empty_cache()
    return result


def steps_of(
    context: RunContext, model: nn.Module, train: Inputs, validation: Inputs
) -> tuple[Callable[[int], None], Callable[[int], None]]:
    """A train step and a validation step over the first windows of each split.

    The train steps of a size are like micro-batches of one optimizer step: the first creates the gradients, the others
    add to them. But each ends with an optimizer step, because its time and memory count too.
    """
    config, plan = context.config, context.plan
    optimizer = build_optimizer(model, config.training, fused=plan.has_fused_optimizer)
    for group in optimizer.param_groups:
        group["lr"] = 0.0  # all the work of a step, without a change of the weights

    def loss(inputs: Inputs, size: int) -> torch.Tensor:
        x = inputs.batch(torch.arange(size))
        with plan.autocast():
            return model(x, model.draw_mask(size, device=plan.device)).loss

    def train_step(size: int) -> None:
        model.train()
        loss(train, size).backward()
        nn.utils.clip_grad_norm_(model.parameters(), config.gradient_clip_val or math.inf)
        optimizer.step()

    @torch.no_grad()
    def validation_step(size: int) -> None:
        optimizer.zero_grad(set_to_none=True)
        model.eval()
        loss(validation, min(size, len(validation)))

    return train_step, validation_step


def _norm_group_size(config: AnyConfig) -> int:
    """Windows in a group of batch normalisation: micro-batches of complete groups do not change the result."""
    return config.model.norm_windows if isinstance(config, PatchTSTConfig) and config.model.norm == "batch" else 1


def _facts(
    context: RunContext, train: Inputs, validation: Inputs, *, largest: int, checkpointing: bool
) -> dict[str, Any]:
    """Everything the result of a probe depends on: its key in the cache.

    The memory limit is rounded to two digits: limits that share a result differ by less than the probe's headroom.
    The number of windows is included because on a CPU the data uses the same memory.
    """
    config, plan = context.config, context.plan
    return {
        "stream": config.stream,
        "model": config.model.model_dump(mode="json"),
        "input": list(train.batch(torch.arange(1)).shape[1:]),
        "windows": [len(train), len(validation)],
        "device": plan.name,
        "kind": plan.kind,
        "torch": torch.__version__,
        "precision": plan.precision,
        "dtype": str(plan.dtype),
        "compiled": plan.compiled,
        "deterministic": config.deterministic,
        "threads": plan.threads,
        "memory_limit_mb": plan.memory_limit_mb and float(f"{plan.memory_limit_mb:.2g}"),
        "gradient_checkpointing": checkpointing,
        "largest": largest,
    }
