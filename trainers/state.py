"""The state of a training: everything that a checkpoint saves and restores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from core.config.schema import Training
from core.runlog import EpochRecord
from trainers.batching import BatchPlan
from trainers.objective import Objective
from trainers.random_state import random_state, set_random_state
from trainers.recovery import Recovery
from trainers.resuming import versions


@dataclass
class Position:
    """The position of a run: completed epochs, optimizer steps of the current epoch, and their results.

    skill: of the best epoch, from `Skill.to_json`; None if it was not measured.
    shift: windows by which the epoch's steps begin later, if it began with another global batch size.
    rate: the learning rate of the last step. left_out: windows of the current epoch whose step was not repeated.
    """

    epoch: int = 0
    step: int = 0
    shift: int = 0
    rate: float = 0.0
    loss_sum: float = 0.0
    left_out: int = 0
    seconds: float = 0.0
    skill: dict[str, Any] | None = None
    history: list[EpochRecord] = field(default_factory=list)

    @property
    def best(self) -> EpochRecord | None:
        return min(self.history, key=lambda record: record.val_loss, default=None)

    def epochs_without_improvement(self, min_delta: float) -> int:
        """Epochs since the validation loss last fell by more than `min_delta` below the best before it."""
        reference, since = math.inf, 0
        for record in self.history:
            improved = record.val_loss < reference - min_delta
            reference, since = (record.val_loss, 0) if improved else (reference, since + 1)
        return since


@dataclass(frozen=True)
class EpochPlan:
    """How the windows of an epoch are divided into steps.

    windows: in an epoch. batch_size: windows of a step, over all processes.
    """

    windows: int
    batch_size: int
    epochs: int
    warmup_steps: int

    @classmethod
    def of(cls, settings: Training, *, num_windows: int, batch_size: int) -> EpochPlan:
        windows = min(settings.windows_per_epoch or num_windows, num_windows)
        total_steps = math.ceil(windows / batch_size) * settings.epochs
        return cls(windows, batch_size, settings.epochs, warmup_steps=round(settings.warmup_ratio * total_steps))

    @property
    def steps(self) -> int:
        """Number of steps in an epoch."""
        return math.ceil(self.windows / self.batch_size)

    @property
    def total_steps(self) -> int:
        return self.steps * self.epochs

    @property
    def total_windows(self) -> int:
        return self.windows * self.epochs

    def windows_until(self, step: int, *, shift: int = 0) -> int:
        """Number of windows in the first `step` steps of an epoch."""
        return min(max(0, step * self.batch_size + shift), self.windows)

    def place_after(self, windows: int) -> tuple[int, int]:
        """Step and shift after `windows` windows of an epoch, so that the remaining steps use the remaining windows."""
        step = self.steps - math.ceil(max(0, self.windows - windows) / self.batch_size)
        return step, windows - step * self.batch_size


class TrainState:
    """Weights, optimizer, precision, random numbers and position of a run.

    `state_dict` gives plain values and complete tensors, whatever the strategy; `load_state_dict` restores them. All
    processes of a run must call both.

    batch: global batch size and micro-batch size.
    """

    def __init__(
        self,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        recovery: Recovery,
        *,
        batch: BatchPlan,
        epochs: EpochPlan,
    ):
        self.objective, self.optimizer, self.recovery = objective, optimizer, recovery
        self.batch, self.epochs = batch, epochs
        self.position = Position()
        # Number of records in the run's log up to the position; None if an older checkpoint does not have it.
        self.logged: int | None = 0

    @property
    def steps_done(self) -> int:
        """Number of optimizer steps since the start of the run."""
        return self.position.epoch * self.epochs.steps + self.position.step

    def windows_until(self, step: int) -> int:
        """Number of windows in the first `step` steps of the current epoch."""
        return self.epochs.windows_until(step, shift=self.position.shift)

    def hardware(self) -> dict[str, Any]:
        """Hardware, batch sizes and versions that compute the weights, for the checkpoint's sidecar."""
        objective = self.objective
        return {
            **objective.plan.to_json(),
            "batch": self.batch.to_json(),
            "processes": objective.world.size,
            "versions": versions(),
        }

    def model_state(self) -> Mapping[str, torch.Tensor]:
        return self.objective.strategy.model_state()

    def state_dict(self) -> dict[str, Any]:
        return {
            "model": self.model_state(),
            "optimizer": self.objective.strategy.optimizer_state(self.optimizer),
            "loss_scaler": self.objective.loss_scaler.state_dict(),
            "position": asdict(self.position),
            "recovery": self.recovery.state_dict(),
            "effective_batch": self.epochs.batch_size,
            "windows_done": self.windows_until(self.position.step),
            "logged": self.logged,
            "random": random_state(self.objective.backend),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises ValueError for the weights of another model."""
        strategy = self.objective.strategy
        # Learning rate, weight decay and update kernel are those of this run; only the moments are restored.
        learned = {**state["optimizer"], "param_groups": self.optimizer.state_dict()["param_groups"]}
        try:
            strategy.load_model(state["model"])
            strategy.load_optimizer(self.optimizer, learned)
        except (RuntimeError, ValueError) as error:
            raise ValueError(f"has weights of another model: {str(error).splitlines()[-1].strip()}") from error
        self.recovery.load_state_dict(state["recovery"])
        if state["loss_scaler"] and self.objective.plan.needs_loss_scaling:  # the other precisions have none
            self.objective.loss_scaler.load_state_dict(state["loss_scaler"])
        set_random_state(self.objective.backend, state["random"])
        position = dict(state["position"])
        history = [EpochRecord(**record) for record in position.pop("history")]
        self.position = Position(**position, history=history)
        self.logged = state.get("logged")
        if state["effective_batch"] != self.epochs.batch_size:
            self.position.step, self.position.shift = self.epochs.place_after(state["windows_done"])
