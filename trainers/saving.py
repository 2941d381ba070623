"""The two checkpoints of a run: the best model, and the state that training goes on from."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import checkpoint
from core.devices.random_state import random_state, set_random_state
from core.errors import CheckpointError
from trainers.resuming import check_fit, tell_exactness, versions

if TYPE_CHECKING:
    from core.runlog import RunLog
    from trainers.loop import Trainer


class Saver:
    """Saves what a trainer has learned and where it is, and puts that back. All processes of a run must call it."""

    def __init__(self, trainer: Trainer):
        self.trainer = trainer
        self._saved_at = time.monotonic()
        self._restored: Path | None = None

    # ----------------------------------------------------------------------------------------------------------- saving
    @property
    def is_due(self) -> bool:
        """Whether it is time for a state inside an epoch."""
        minutes = self.trainer.config.training.checkpoint_every_minutes
        return minutes > 0 and time.monotonic() - self._saved_at > 60 * minutes

    def begin(self, run: RunLog) -> None:
        """From here on, what lies there is of this run."""
        if self._restored != self.trainer.last_path:
            self.save_state(run)
        self._save_lost_best()

    def save_state(self, run: RunLog) -> None:
        """Raises LandfallError, and saves nothing, where another run has taken over this one's files."""
        run.check_ownership()
        trainer = self.trainer
        state = {
            "optimizer": trainer.objective.parallel.whole(trainer.optimizer.state_dict()),
            "loss_scaler": trainer.loss_scaler.state_dict(),
            "position": asdict(trainer.position),
            "recovery": trainer.recovery.state_dict(),
            "effective_batch": trainer.effective,
            "windows_done": trainer.windows_until(trainer.position.step),
            "logged": run.records,
            "random": random_state(trainer.backend),
        }
        self._save(trainer.last_path, state, keep=trainer.config.training.keep)
        self._saved_at = time.monotonic()

    def save_best(self) -> None:
        """The weights as they are."""
        self._save(self.trainer.best_path, {})

    def _save_lost_best(self) -> None:
        """A run that was killed between saving an epoch's state and the best model, which is that epoch's, has no other
        copy of it than its weights."""
        position, best = self.trainer.position, self.trainer.position.best
        if best is None or best.epoch != position.epoch or position.step:
            return
        expected = {"run_id": self.trainer.bundle["run_id"], "epoch": best.epoch, "val_loss": best.val_loss}
        try:
            is_there = checkpoint.verify(self.trainer.best_path).items() >= expected.items()
        except CheckpointError:
            is_there = False
        if not is_there:
            self.save_best()

    def _save(self, path: Path, extra: Mapping[str, Any], *, keep: int | None = None) -> None:
        trainer = self.trainer
        model = trainer.objective.parallel.whole(trainer.model.state_dict())
        if not trainer.world.is_main:
            return
        history = trainer.position.history
        facts = {
            "stream": trainer.config.stream,
            "run_id": trainer.bundle["run_id"],
            "epoch": trainer.position.epoch,
            "val_loss": history[-1].val_loss if history else None,
        }
        description = {
            **facts,
            "metrics": self._metrics(),
            "config": trainer.bundle["config"],
            "hardware": self._hardware(),
            "parameters": sum(p.numel() for p in trainer.model.parameters()),
        }
        state = {"model": model, **trainer.bundle, **facts, **extra}
        checkpoint.save(path, state, description=description, keep=keep)

    def _metrics(self) -> dict[str, Any]:
        position = self.trainer.position
        if position.best is None:
            return {}
        metrics = {"best_epoch": position.best.epoch, "best_val_loss": position.best.val_loss}
        return metrics | ({"skill": position.skill} if position.skill else {})

    def _hardware(self) -> dict[str, Any]:
        """What the weights were computed with."""
        trainer = self.trainer
        batch, processes = trainer.batch.to_json(), trainer.world.size
        return {**trainer.plan.to_json(), "batch": batch, "processes": processes, "versions": versions()}

    # -------------------------------------------------------------------------------------------------------- restoring
    def restore(self, path: Path) -> dict[str, Any]:
        """Puts weights, optimizer and generators back and gives the whole state: where to go on is for the caller.

        Raises CheckpointError where it is torn, or its configuration or data differ.
        """
        trainer = self.trainer
        state, told = checkpoint.load_described(path)
        bundle, allow_changes = trainer.bundle, trainer.config.training.allow_changes
        check_fit(path, state, config=bundle["config"], data=bundle["data"], allow_changes=allow_changes)
        # Rates, decay and the kernel that updates are this run's; only what was learned is the checkpoint's.
        learned = {**state["optimizer"], "param_groups": trainer.optimizer.state_dict()["param_groups"]}
        try:
            trainer.objective.parallel.load_model(state["model"])
            trainer.objective.parallel.load_optimizer(trainer.optimizer, learned)
        except (RuntimeError, ValueError) as error:
            misfit = str(error).splitlines()[-1].strip()
            hint = "start anew with --resume never"
            raise CheckpointError(path, f"has weights of another model: {misfit}", hint=hint) from error
        trainer.recovery.load_state_dict(state["recovery"])
        if state["loss_scaler"] and trainer.plan.needs_loss_scaling:  # the other precisions have none
            trainer.loss_scaler.load_state_dict(state["loss_scaler"])
        set_random_state(trainer.backend, state["random"])
        self._restored = path
        trainer.world.gather(None)  # nobody saves, which moves older states, before all have read this one
        tell_exactness(told["hardware"], self._hardware())
        return state
