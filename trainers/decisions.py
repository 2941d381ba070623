"""Decisions that depend on the hardware: model size, batch sizes, gradient checkpointing; and a report of them."""

from __future__ import annotations

import logging
import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from core import checkpoint
from core.config.hardware import Tier, load_tiers, resolve_model_size, size_as_trained
from core.config.schema import AnyConfig, PatchTSTConfig
from core.data.inputs import Inputs
from core.devices.manager import DeviceManager
from core.errors import LandfallError
from core.models.factory import count_parameters
from core.numbers import duration_in_words
from trainers.batching import BatchPlan, effective_batch
from trainers.context import RunContext
from trainers.probing import measure

log = logging.getLogger(__name__)

# A checkpoint that resumes holds the weights and AdamW's two moments of each.
_COPIES_IN_CHECKPOINT = 3


@dataclass(frozen=True)
class SizeDecision:
    """The configuration with the model's final size, the tier of the hardware, and the reason."""

    config: AnyConfig
    tier: Tier
    reason: str


def decide_model_size(context: RunContext, manager: DeviceManager) -> SizeDecision:
    """The size of the model, for the hardware. A resumed run keeps the size of its checkpoint, and so does a run that
    starts from the weights of another one.

    Raises ConfigError for a size that does not fit the rest of the configuration.
    """
    tiers = load_tiers(context.root)
    device, factor = manager.capabilities, context.config.device.tpu_batch_factor
    tier = tiers.tier_for(device.kind, device.nominal_gb, tpu_batch_factor=factor)
    config, loaded = context.config, context.loaded
    if config.model.size == "auto" and (origin := initial_sidecar(context)) is not None:
        resumed = context.saved is not None
        reason = "same as the resumed checkpoint" if resumed else "same as the checkpoint it starts from"
        return SizeDecision(size_as_trained(loaded, origin["config"], tiers), tier, reason)
    config, reason = resolve_model_size(config, tier, tiers, loaded.origins)
    return SizeDecision(config, tier, reason)


def initial_sidecar(context: RunContext) -> Mapping[str, Any] | None:
    """The description of the checkpoint that a run resumes, or starts from; None for new weights."""
    start = context.config.training.start_from
    if context.saved is not None or not start:
        return context.saved
    return checkpoint.describe(context.root / start)


def decide_batch(context: RunContext, tier: Tier, model: nn.Module, train: Inputs, validation: Inputs) -> BatchPlan:
    """Global batch size and micro-batch size; also sets the gradient checkpointing of the model.

    `model` is on the device of the plan and otherwise unchanged. With `training.batch_size: auto` real steps are
    measured, unless a cached result exists. Raises LandfallError if not even one window fits.
    """
    settings, saved, world = context.config.training, context.saved, context.world
    wanted = settings.gradient_checkpointing
    model.gradient_checkpointing = tier.gradient_checkpointing if wanted == "auto" else wanted
    accumulate = 1 if settings.accumulate == "auto" else settings.accumulate
    fixed = None if settings.batch_size == "auto" else settings.batch_size
    if saved is not None and (fixed is not None or settings.effective_batch == "auto"):
        effective, reason = saved["hardware"]["batch"]["effective"], "same as the resumed checkpoint"
    elif fixed is not None:
        effective, reason = fixed * accumulate * world.size, "as requested"
    else:
        effective, reason = effective_batch(settings, tier, num_windows=len(train), world_size=world.size)
    share = math.ceil(effective / world.size)
    if fixed is not None:
        micro = min(fixed, share)
        return BatchPlan(
            starting=fixed,
            effective=effective,
            micro=micro,
            accumulate=math.ceil(share / micro),
            largest=None,
            gradient_checkpointing=model.gradient_checkpointing,
            peak_mb=None,
            seconds_per_step=None,
            reason=f"{reason}; training.batch_size = {fixed}, nothing was measured",
        )
    largest = math.ceil(share / accumulate)

    def measured() -> Any:
        return measure(context, model, train, validation, effective=largest, checkpointing=model.gradient_checkpointing)

    result = measured()
    if result.needs_checkpointing:
        if wanted is False:
            raise LandfallError(
                f"not even one window fits into memory: {result.reason}",
                hint="leave training.gradient_checkpointing=auto, or set model.size=reduced",
            )
        log.warning("not even one window fits into memory: activations are recomputed (gradient checkpointing)")
        model.gradient_checkpointing = True
        result = measured()
    return BatchPlan(
        starting=tier.batch_size,
        effective=effective,
        micro=result.micro,
        accumulate=math.ceil(share / result.micro),
        largest=result.largest,
        gradient_checkpointing=model.gradient_checkpointing,
        peak_mb=result.peak_mb,
        seconds_per_step=result.seconds_per_step,
        reason=f"{reason}; {result.reason}",
    )


def start_report(
    context: RunContext, size: SizeDecision, batch: BatchPlan, model: nn.Module, train: Inputs
) -> list[str]:
    """The lines logged at the start of a run: one for each decision, with its reason."""
    config, plan, parameters = context.config, context.plan, count_parameters(model)
    windows = min(config.training.windows_per_epoch or len(train), len(train))
    keep = config.training.keep
    states_mb = keep * parameters * plan.dtype.itemsize * _COPIES_IN_CHECKPOINT / 2**20
    free_gb = shutil.disk_usage(context.root).free / 1e9
    rows = {
        **{what: f"{value} ({reason})" for what, value, reason in plan.decisions()},
        **({"hardware": ", ".join(plan.platform_facts)} if plan.platform_facts else {}),
        "tier": f"{size.tier.name}: default batch size {size.tier.batch_size}",
        "model": f"{parameters / 1e6:.2f} M parameters, {shape_in_words(config)} ({size.reason})",
        **{what: f"{value} ({reason})" for what, value, reason in batch.decisions()},
        "time": _time(batch, windows, config.training.epochs, plan.count),
        "disk": f"{states_mb:.1f} MiB for {keep} training states, {free_gb:.0f} GB free",
    }
    return [f"{name:<14}{text}" for name, text in rows.items()]


def shape_in_words(config: AnyConfig) -> str:
    """Depth and width of the model."""
    if isinstance(config, PatchTSTConfig):
        return f"{config.model.num_layers} layers, {config.model.d_model} wide"
    return f"{'-'.join(map(str, config.model.depths))} blocks, {config.model.embed_dim} wide"


def _time(batch: BatchPlan, windows: int, epochs: int, count: int) -> str:
    if batch.seconds_per_step is None:
        return "not measured; see the progress bar"
    seconds = windows / batch.micro * batch.seconds_per_step / count
    peak = f", {batch.peak_mb:.0f} MiB peak memory" if batch.peak_mb is not None else ""
    return f"about {seconds:.1f} s per epoch, {duration_in_words(seconds * epochs)} for {epochs}{peak}"
