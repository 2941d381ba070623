"""Estimates the duration of a training from a few measured steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from core.config.compose import LoadedConfig
from core.data.dataset import StreamData
from core.data.inputs import Inputs, build_transform
from core.devices import memory
from core.devices.backend import backend
from core.devices.manager import DeviceManager
from core.models.factory import build_model
from trainers.context import RunContext
from trainers.decisions import decide_model_size
from trainers.probing import steps_of
from trainers.run import validation_windows

# Number of prepared windows; minimum seconds and number of the timed steps.
_WINDOWS, _MEASURED_S, _MIN_STEPS = 64, 1.0, 3


def training_seconds(loaded: LoadedConfig, data: StreamData, *, root: Path) -> tuple[float, str]:
    """Seconds for all epochs on this machine, and the name of the device. data: the training splits; its configuration
    contains the recipe.

    The steps have `training.batch_size` windows, at most 64; with `auto` 32, although a run may use another micro-batch
    size.
    """
    manager = DeviceManager(loaded.config, origins=loaded.origins)
    plan = manager.plan(processes=1)
    torch.set_num_threads(plan.threads)
    backend(plan.kind).select(plan.index)
    context = RunContext(replace(loaded, config=data.config), root=root, plan=plan)
    context = replace(context, loaded=replace(context.loaded, config=decide_model_size(context, manager).config))
    config, settings = context.config, context.config.training
    with memory.applied(plan), torch.random.fork_rng(devices=[]):
        transform = build_transform(config, sampling_rate_hz=data.sampling_rate_hz, windows=data.splits["train"])
        started = time.monotonic()
        train, validation = (
            Inputs(data.splits[name].subset(np.arange(min(_WINDOWS, len(data.splits[name])))), transform, plan.device)
            for name in ("train", "validation")
        )
        prepared = (time.monotonic() - started) / (len(train) + len(validation))
        model = build_model(config, num_channels=len(data.channels)).to(plan.device, plan.dtype)
        size = min(len(train), 32 if settings.batch_size == "auto" else settings.batch_size)
        train_step, validation_step = steps_of(context, model, train, validation)
        per_window, per_validation = (
            _seconds(step, number, plan.kind) / number
            for step, number in ((train_step, size), (validation_step, min(size, len(validation))))
        )
    num_train = len(data.splits["train"])
    num_validation = len(validation_windows(data.splits["validation"], config))
    per_epoch = min(settings.windows_per_epoch or num_train, num_train)
    seconds = settings.epochs * (per_epoch * per_window + num_validation * per_validation)
    return seconds + prepared * (num_train + num_validation), plan.name


def _seconds(step: Callable[[int], None], size: int, kind: str) -> float:
    """Mean seconds of one step, after a warm-up step."""
    device = backend(kind)
    step(size)
    device.synchronize()
    started, count = time.monotonic(), 0
    while count < _MIN_STEPS or time.monotonic() - started < _MEASURED_S:
        step(size)
        device.synchronize()
        count += 1
    return (time.monotonic() - started) / count
