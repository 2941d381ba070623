"""Short trainings: a trainer with a simple model, and runs of a tiny real one."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from core.config.compose import LoadedConfig, load_config, local_config_file
from core.config.schema import AnyConfig
from core.data.identity import identity
from core.data.inputs import Identity, Inputs
from core.data.recording import Recording
from core.data.windows import Series, WindowSet
from core.devices.plan import DevicePlan
from core.runlog import RunLog, read_metrics
from tests.trainers.conftest import TINY
from trainers.batching import BatchPlan
from trainers.context import RunContext
from trainers.loop import Trainer
from trainers.run import TrainingResult, train
from trainers.state import Position

CPU = DevicePlan("cpu", "CPU", "32", 1, "a test", "a test")
NUM_WINDOWS, WINDOW = 21, 4


def config_of(root: Path, *overrides: str) -> AnyConfig:
    return load_config(local_config_file("patchtst"), [*TINY, *overrides], root=root, environment={}).config


def run_training(root: Path, *overrides: str, run_id: str | None = "run-1") -> TrainingResult:
    loaded = load_config(local_config_file("patchtst"), [*TINY, *overrides], root=root, environment={})
    return train(loaded, root=root, run_id=run_id)


def status_of(root: Path, run_id: str = "run-1") -> dict:
    return json.loads((root / "runs/patchtst_ssl" / run_id / "status.json").read_text())


def metrics_of(root: Path, kind: str) -> list[dict]:
    untimed = ("time", "seconds", "windows_per_second", "memory_mb", "gpu_utilisation")
    records = read_metrics(root / "runs/patchtst_ssl/run-1/metrics.jsonl")
    return [{k: v for k, v in record.items() if k not in untimed} for record in records if record["kind"] == kind]


def losses(history) -> list[tuple[int, float, float, float]]:
    return [(record.epoch, record.train_loss, record.val_loss, record.lr) for record in history]


@dataclass
class StopAfter:
    """A stop request after a number of steps."""

    steps_left: int
    interrupted: bool = False
    reason: str | None = None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def deferred(self):
        return self

    def is_due(self, next_seconds: float) -> bool:
        self.steps_left -= 1
        self.reason = "asked to stop" if self.steps_left < 0 else None
        return self.reason is not None


# ---------------------------------------------------------------------------------------------------- a stand-in model
class Output(NamedTuple):
    loss: torch.Tensor
    reconstruction: torch.Tensor
    mask: torch.Tensor
    count: torch.Tensor


class StandIn(nn.Module):
    """Predicts every value with one weight; records the windows of each training batch."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, 3))
        self.seen: list[list[int]] = []

    def draw_mask(self, batch_size: int, *, generator: torch.Generator, device: torch.device) -> torch.Tensor:
        return torch.ones(batch_size, 1, dtype=torch.bool, device=device)

    def forward(self, x_btc: torch.Tensor, mask_bn: torch.Tensor) -> Output:
        if self.training:
            self.seen.append((x_btc[:, 0, 0] / WINDOW).int().tolist())
        loss = (x_btc / 100 - self.weight).square().mean()
        return Output(loss, self.weight.expand_as(x_btc), mask_bn, torch.tensor(float(x_btc.numel())))


def windows() -> WindowSet:
    rows = NUM_WINDOWS * WINDOW
    values_tc = np.stack([np.arange(rows), np.ones(rows), np.zeros(rows)], axis=1).astype(np.float32)
    recording = Recording("r", Path("r"), values_tc, np.arange(rows), ("a", "b", "c"), None, "index")
    return WindowSet(Series.of([recording], values_tc), np.arange(0, rows, WINDOW), WINDOW)


def make_trainer(root: Path, *overrides: str, model: nn.Module | None = None) -> Trainer:
    config = config_of(root, *overrides)
    train_inputs, validation = (Inputs(windows(), Identity(), CPU.device) for _ in range(2))
    bundle = {"run_id": "run-1", "config": config.model_dump(mode="json"), "data": {"train": identity(windows())}}
    accumulate = 1 if config.training.accumulate == "auto" else config.training.accumulate
    batch = batch_of(config.training.batch_size, accumulate)
    model = model or StandIn()
    context = RunContext(LoadedConfig(config, "a test", {}), root, CPU)
    return Trainer(model, train_inputs, validation, context=context, batch=batch, bundle=bundle)


def batch_of(micro: int, accumulate: int = 1) -> BatchPlan:
    return BatchPlan(
        starting=micro, effective=micro * accumulate, micro=micro, accumulate=accumulate, largest=None,
        gradient_checkpointing=False, peak_mb=None, seconds_per_step=None, reason="a test",
    )  # fmt: skip


def fit(trainer: Trainer) -> Position:
    with RunLog(trainer.root, trainer.config, "run-1", steps=trainer.epochs.total_steps) as run:
        return trainer.fit(run, StopAfter(10_000))
