"""The checkpoints of a run: its best weights, the state from which training resumes, and the promoted model."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core import checkpoint, promotion
from core.errors import CheckpointError
from core.runlog import RunLog
from core.workspace import json_digest
from trainers.context import RunContext
from trainers.resuming import check_fit, report_exactness
from trainers.state import TrainState

log = logging.getLogger(__name__)


class Checkpointer:
    """Writes a state to files and reads it back. All processes of a run must call its methods.

    best_path: the best weights, in the folder of the run. promoted_path: the model of the stream; the first run of a
    stream also writes it while it trains. last_path: the state that can be resumed, next to promoted_path. bundle: what
    scoring needs besides the weights, saved in every checkpoint.
    """

    def __init__(self, context: RunContext, state: TrainState, *, bundle: Mapping[str, Any]):
        self.root, self.config, self.world = context.root, context.config, context.world
        self.state, self.bundle = state, bundle
        self.best_path = promotion.weights_path(self.root, self.config, bundle["run_id"])
        self.promoted_path = self.root / self.config.logging.checkpoint_path
        self.last_path = checkpoint.last_path(self.promoted_path)
        self._saved_at = time.monotonic()
        self._restored: Path | None = None

    # ----------------------------------------------------------------------------------------------------------- saving
    @property
    def is_due(self) -> bool:
        """Whether it is time for a state within an epoch."""
        minutes = self.config.training.checkpoint_every_minutes
        return minutes > 0 and time.monotonic() - self._saved_at > 60 * minutes

    def begin(self, run: RunLog) -> None:
        """Writes the files that the run needs before its first step."""
        if self._restored != self.last_path:
            self.save_state(run)
        self._save_missing_best()

    def save_state(self, run: RunLog) -> None:
        """Saves the training state. Raises LandfallError, without saving, if another run now owns the files."""
        run.check_ownership()
        self.state.logged = run.records
        self._save(self.last_path, self.state.state_dict(), keep=self.config.training.keep)
        self._saved_at = time.monotonic()

    def save_best(self) -> None:
        """Saves the current weights as the best ones."""
        self._save(self.best_path, {"model": self.state.model_state()})
        if self.world.is_main and self._may_replace_promoted():
            checkpoint.copy(self.best_path, self.promoted_path)

    def promote(self) -> bool:
        """Promotes the best weights after training if `training.promote` allows it. Returns whether they are the model
        of the stream now, the same in all processes."""
        answers = self.world.gather(self._promote_here() if self.world.is_main else None)
        return bool(next(answer for answer in answers if answer is not None))

    def _promote_here(self) -> bool:
        run_id, stream, choice = self.bundle["run_id"], self.config.stream, self.config.training.promote
        new, old = checkpoint.verify(self.best_path), promotion.promoted(self.root, self.config)
        verdict = promotion.compare(new, old)
        promotes = choice == "always" or (choice == "better" and verdict.replaces)
        if promotes and not promotion.is_same(old, new):
            promotion.promote(self.root, self.config, run_id)
        if promotes and old is not None and old["run_id"] != run_id:
            log.info(
                "run %s is the model of %s now: %s; `landfall promote %s` switches back",
                run_id, stream, verdict.reason, old["run_id"],
            )  # fmt: skip
        elif not promotes:
            log.warning(
                "run %s is not promoted, %s: run %s stays the model of %s; `landfall promote %s` switches",
                run_id, verdict.reason if choice == "better" else "because training.promote = never",
                old["run_id"] if old else "none", stream, run_id,
            )  # fmt: skip
        promotion.remove_old_weights(self.root, self.config)
        return promotes

    def _may_replace_promoted(self) -> bool:
        """Whether the stream has no model yet, or its model is of this run."""
        if self.config.training.promote == "never":
            return False
        try:
            return checkpoint.describe(self.promoted_path)["run_id"] == self.bundle["run_id"]
        except CheckpointError:
            return True

    def _save_missing_best(self) -> None:
        """Saves the best weights if they are missing: if the run was killed after it saved the state of its best epoch
        and before it saved these weights. A run of an older version has them only in the promoted model."""
        if self.world.is_main and not self.best_path.is_file():
            model = promotion.promoted(self.root, self.config)
            if model is not None and model["run_id"] == self.bundle["run_id"]:
                checkpoint.copy(self.promoted_path, self.best_path)
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
            "data": {name: json_digest(split) for name, split in self.bundle["data"].items()},
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

        Raises CheckpointError if it is damaged, or its configuration or data differ.
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
