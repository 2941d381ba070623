"""Objectives on synthetic windows, for tests in one process and in several."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from torch import nn

from core.config.compose import LoadedConfig, load_config, local_config_file
from core.config.schema import AnyConfig
from core.data.inputs import Identity, Inputs
from core.data.recording import Recording
from core.data.windows import Series, WindowSet
from core.devices.plan import DevicePlan
from core.models.factory import build_model
from tests.trainers.conftest import TINY
from trainers.context import RunContext
from trainers.distributed import SINGLE_PROCESS, World
from trainers.objective import Objective

CPU = DevicePlan("cpu", "CPU", "32", 1, "a test", "a test")
NUM_WINDOWS, WINDOW, CHANNELS = 32, 32, 3
OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 20.00 MiB"


def inputs_with_gaps(device: torch.device = CPU.device) -> Inputs:
    """Sine waves with a fifth of the values missing, distributed unevenly over the windows."""
    generator = torch.Generator().manual_seed(1)
    rows = NUM_WINDOWS * WINDOW
    values_tc = torch.sin(torch.arange(rows)[:, None] / torch.tensor([3.0, 5.0, 7.0]))
    missing_tc = torch.rand(rows, CHANNELS, generator=generator) < torch.linspace(0, 0.4, rows)[:, None]
    values = values_tc.masked_fill(missing_tc, math.nan).numpy()
    recording = Recording("r", None, values, torch.arange(rows).numpy(), ("a", "b", "c"), None, "index")
    windows = WindowSet(Series.of([recording], values), np.arange(0, rows, WINDOW), WINDOW)
    return Inputs(windows, Identity(), device)


def config_of(root: Path, *overrides: str) -> AnyConfig:
    return load_config(local_config_file("patchtst"), [*TINY, *overrides], root=root, environment={}).config


def context_of(config: AnyConfig, world: World = SINGLE_PROCESS, plan: DevicePlan = CPU) -> RunContext:
    return RunContext(LoadedConfig(config, "a test", {}), Path(), plan, world)


def objective_of(
    model: nn.Module, config: AnyConfig, micro: int, world: World = SINGLE_PROCESS, plan: DevicePlan = CPU
) -> Objective:
    return Objective(model, context_of(config, world, plan), micro=micro)


def model_of(config: AnyConfig) -> nn.Module:
    torch.manual_seed(0)
    return build_model(config, num_channels=CHANNELS)


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, rtol=1e-4, atol=1e-6, msg=lambda text, n=name: f"{n}: {text}")


class Cramped(nn.Module):
    """A model that runs out of memory above a number of windows."""

    def __init__(self, model: nn.Module, most: int):
        super().__init__()
        self.inner, self.most = model, most
        self.draw_mask = model.draw_mask

    def forward(self, x, mask):
        output = self.inner(x, mask)  # it fails after batch statistics were updated and random numbers drawn
        if len(x) > self.most:
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)
        return output
