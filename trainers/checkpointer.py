"""The two checkpoint files of a run: the best model, and the state from which training resumes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core import checkpoint
from core.errors import CheckpointError
from core.runlog import RunLog
from trainers.resuming import check_fit, report_exactness
from trainers.state import TrainState


class Checkpointer:
    """Writes a state to files and reads it back. All processes of a run must call its methods.

    path: of the best model; the state that resumes is next to it. bundle: what scoring needs besides the weights, in
    every checkpoint.
    """

    def __init__(self, path: Path, state: TrainState, *, bundle: Mapping[str, Any]):
        self.best_path, self.last_path = path, checkpoint.last_path(path)
        self.state, self.bundle = state, bundle
        self.config, self.world = state.objective.config, state.objective.world
        self._saved_at = time.monotonic()
        self._restored: Path | None = None

    # ----------------------------------------------------------------------------------------------------------- saving
    @property
    def is_due(self) -> bool:
        """Whether it is time for a state within an epoch."""
        minutes = self.config.training.checkpoint_every_minutes
        return minutes > 0 and time.monotonic() - self._saved_at > 60 * minutes

    def begin(self, run: RunLog) -> None:
        """Makes the files those of this run."""
        if self._restored != self.last_path:
            self.save_state(run)
        self._save_missing_best()

    def save_state(self, run: RunLog) -> None:
        """Raises LandfallError, and saves nothing, where another run has taken over the files of this one."""
        run.check_ownership()
        self.state.logged = run.records
        self._save(self.last_path, self.state.state_dict(), keep=self.config.training.keep)
        self._saved_at = time.monotonic()

    def save_best(self) -> None:
        """Saves the weights as they are."""
        self._save(self.best_path, {"model": self.state.model_state()})

    def _save_missing_best(self) -> None:
        """A run that was killed between saving the state of its best epoch and the best model still has its weights."""
        position, best = self.state.position, self.state.position.best
        if best is None or best.epoch != position.epoch or position.step:
            return
        expected = {"run_id": self.bundle["run_id"], "epoch": best.epoch, "val_loss": best.val_loss}
        try:
            is_saved = checkpoint.verify(self.best_path).items() >= expected.items()
        except CheckpointError:
            is_saved = False
        if not is_saved:
            self.save_best()

    def _save(self, path: Path, state: Mapping[str, Any], *, keep: int | None = None) -> None:
        if not self.world.is_main:
            return
        history = self.state.position.history
        facts = {
            "stream": self.config.stream,
            "run_id": self.bundle["run_id"],
            "epoch": self.state.position.epoch,
            "val_loss": history[-1].val_loss if history else None,
        }
        description = {
            **facts,
            "metrics": self._metrics(),
            "config": self.bundle["config"],
            "hardware": self.state.hardware(),
            "parameters": sum(p.numel() for p in self.state.objective.model.parameters()),
        }
        checkpoint.save(path, {**self.bundle, **facts, **state}, description=description, keep=keep)

    def _metrics(self) -> dict[str, Any]:
        position = self.state.position
        if position.best is None:
            return {}
        metrics = {"best_epoch": position.best.epoch, "best_val_loss": position.best.val_loss}
        return metrics | ({"skill": position.skill} if position.skill else {})

    # --------------------------------------------------------------------------------------------------------- resuming
    def restore(self, path: Path) -> None:
        """Resumes from the checkpoint at `path`.

        Raises CheckpointError where it is damaged, or its configuration or data differ.
        """
        payload, described = checkpoint.load_described(path)
        bundle, allow_changes = self.bundle, self.config.training.allow_changes
        check_fit(path, payload, config=bundle["config"], data=bundle["data"], allow_changes=allow_changes)
        try:
            self.state.load_state_dict(payload)
        except ValueError as error:
            raise CheckpointError(path, str(error), hint="restart with --resume never") from error
        self._restored = path
        self.world.gather(None)  # no process saves, which renames older states, before all have read this one
        report_exactness(described["hardware"], self.state.hardware())
