"""The one training loop: both streams, every device."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import nn

from core.data.inputs import Inputs
from core.devices.plan import DevicePlan
from core.errors import LandfallError, StoppedError
from core.loss_curve import LossCurve
from core.pictures import save_png
from core.progress import Progress
from core.reproducibility import generator
from core.runlog import EpochRecord, RunLog, loss_csv_path, loss_png_path, write_loss_csv
from core.stopping import StopRequest
from core.workspace import relative
from trainers.batching import BatchPlan
from trainers.checkpointer import Checkpointer
from trainers.context import RunContext
from trainers.distributed import StopConsensus
from trainers.environment import Gauges
from trainers.objective import Objective
from trainers.optimizer import build_optimizer, learning_rate
from trainers.profiling import profiled
from trainers.recovery import HINT, NonFinite, NonFiniteGuard, Recovery, TakenStep
from trainers.state import EpochPlan, Position, TrainState

log = logging.getLogger(__name__)


class Trainer:
    """Fits a masked-reconstruction model.

    model: `model(x, mask)` returns an output with the scalar `loss` over the `count` masked values, and
        `model.draw_mask(n)` the mask of n windows.
    batch: global batch size and micro-batch size.
    bundle: what scoring needs besides the weights (configuration, scaler, channels, …); saved in every checkpoint.
    """

    def __init__(
        self,
        model: nn.Module,
        train: Inputs,
        validation: Inputs,
        *,
        context: RunContext,
        batch: BatchPlan,
        bundle: Mapping[str, Any],
    ):
        plan, config = context.plan, context.config
        self.model = model.to(plan.device, plan.dtype)
        self.train, self.validation, self.context = train, validation, context
        self.config, self.root, self.world = config, context.root, context.world
        mean_input = bundle.get("mean_input")
        self.objective = Objective(
            self.model, context, micro=batch.micro, channels=bundle.get("channels", ()),
            mean_input=None if mean_input is None else mean_input.to(plan.device, plan.dtype),
        )  # fmt: skip
        self.optimizer = build_optimizer(model, config.training, fused=plan.has_fused_optimizer)
        self.recovery = Recovery(context, self.objective, train)
        self.epochs = EpochPlan.of(config.training, num_windows=len(train), batch_size=batch.effective)
        self.state = TrainState(self.objective, self.optimizer, self.recovery, batch=batch, epochs=self.epochs)
        self.checkpointer = Checkpointer(context, self.state, bundle=bundle)
        self.gauges, self.guard = Gauges(plan.kind), NonFiniteGuard(plan)
        self._step_seconds = self._validation_seconds = 0.0

    @property
    def plan(self) -> DevicePlan:
        """The current plan of the run; a recovery may raise its precision."""
        return self.objective.plan

    @property
    def position(self) -> Position:
        return self.state.position

    def resume(self, path: Path) -> None:
        """Restores the state at `path`. Raises CheckpointError if it is damaged, or its configuration or data
        differ."""
        self.checkpointer.restore(path)
        self.guard = NonFiniteGuard(self.plan)

    # ------------------------------------------------------------------------------------------------------- training
    def fit(self, run: RunLog, stop: StopRequest) -> Position:
        """Trains to the last epoch, or until early stopping. Raises StoppedError on request, after a checkpoint."""
        self.checkpointer.begin(run)
        epochs_left = self.epochs.epochs - self.position.epoch
        remaining = self.epochs.windows * epochs_left - self.state.windows_until(self.position.step)
        mode = self.config.logging.progress if self.world.is_main else "off"
        bar = Progress(remaining, self.config.stream, unit="windows", mode=mode)
        with bar as progress, self._loss_curve(run) as curve:
            while not self.is_finished():
                record = self._run_epoch(run, stop, progress)
                self._finish_epoch(record, run)
                if self.world.is_main:
                    curve.epoch(self.position.history)
                if self.context.watcher is not None:
                    self.context.watcher.epoch(self.position.history)
        return self.position

    def _loss_curve(self, run: RunLog) -> LossCurve:
        path, title = loss_png_path(self.root, self.config), f"{self.config.stream}, run {run.run_id}"
        return LossCurve(lambda figure: save_png(figure, path, dpi=120), title=title)

    def is_finished(self) -> bool:
        """Whether the last epoch is complete, or early stopping ends the run."""
        early = self.config.training.early_stopping
        if early.patience and self.position.epochs_without_improvement(early.min_delta) >= early.patience:
            log.info("early stopping: no improvement for %d epochs", early.patience)
            return True
        return self.position.epoch >= self.epochs.epochs

    def _run_epoch(self, run: RunLog, stop: StopRequest, progress: Progress) -> EpochRecord:
        epoch, started = self.position.epoch, time.perf_counter() - self.position.seconds
        steps = self._epoch_steps(epoch)
        self._loss_sum = torch.tensor(self.position.loss_sum, device=self.plan.device, dtype=self.plan.dtype)
        pending: list[TakenStep] = []
        consensus = StopConsensus(stop, self.world, self.plan.device)
        self.model.train()
        with profiled(self._trace_path(run)) as step_profiled:
            while (step := self.position.step) < len(steps):
                decision = consensus.decide(
                    step_seconds=self._step_seconds,
                    validation_seconds=self._expected_validation_seconds(),
                    steps_left=len(steps) - step,
                    save_is_due=self.checkpointer.is_due,
                )
                if decision.stop or decision.save:
                    self._settle(run, steps, pending)
                    self._save_within_epoch(run, time.perf_counter() - started)
                    if decision.stop:
                        raise self._stopped(stop)
                    if self.position.step != step:  # a step was rolled back
                        continue
                step_started, note = time.perf_counter(), ""
                self._expect(*steps[step : step + 2])
                pending.append(self._optimize(steps[step], epoch, step))
                self.position.step = step + 1
                is_due = len(pending) == self.config.logging.every_steps or step + 1 == len(steps)
                if is_due or (self.guard.reads_every_step and pending[-1].skipped):
                    note = self._settle(run, steps, pending)
                # An old outlier, such as a step that compiled, decays.
                self._step_seconds = max(0.9 * self._step_seconds, time.perf_counter() - step_started)
                step_profiled()
                progress.advance(self.state.windows_until(self.position.step) - self.state.windows_until(step), note)
        train_seconds = time.perf_counter() - started
        learned = self.epochs.windows - self.position.left_out
        if not learned:
            raise LandfallError(f"no step of epoch {epoch + 1} was finite: nothing was learned", hint=HINT)
        val_loss = self._validation_loss(run, stop)
        if val_loss is None:
            self._save_within_epoch(run, train_seconds)
            raise self._stopped(stop)
        self._validation_seconds = time.perf_counter() - started - train_seconds
        return EpochRecord(
            epoch=epoch + 1,
            train_loss=self._loss_sum.item() / learned,
            val_loss=val_loss,
            lr=self.position.rate,
            seconds=round(time.perf_counter() - started, 3),
            windows_per_second=round(self.epochs.windows / train_seconds, 2),
        )

    def _expect(self, step: torch.Tensor, *following: torch.Tensor) -> None:
        """Prefetches the micro-batches of a step, and the first of the next one, while others are computed."""
        split = self.objective.micro_batches
        self.train.expect([*split(step), *(split(index_b)[0] for index_b in following)])

    def _optimize(self, index_b: torch.Tensor, epoch: int, step: int) -> TakenStep:
        """One optimizer step over the windows. Its loss and norm stay on the device, so no step waits for the host."""
        settings = self.config.training
        rate = self.recovery.rate_factor * learning_rate(
            epoch * self.epochs.steps + step,
            total_steps=self.epochs.total_steps,
            warmup_steps=self.epochs.warmup_steps,
            peak=settings.learning_rate,
            final=settings.min_learning_rate,
        )
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss = self.objective.backward(self.train, index_b, "masks", epoch, step)
        self.objective.loss_scaler.unscale_(self.optimizer)
        norm = self.objective.strategy.clip_gradients(self.config.gradient_clip_val or math.inf)
        skipped = self.guard.step(self.optimizer, loss, norm)
        self.objective.loss_scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        taken = TakenStep(step, rate, loss, norm, skipped, loss_sum=self._loss_sum, undo=self.objective.undo)
        self._loss_sum = self._loss_sum + loss * len(index_b)
        return taken

    def _expected_validation_seconds(self) -> float:
        """Duration of the last validation; before the first one, a third of the time to train on as many windows."""
        return self._validation_seconds or self._step_seconds * len(self.validation) / self.epochs.batch_size / 3

    def _trace_path(self, run: RunLog) -> Path | None:
        """File for the profile of the first steps of this process; None for later epochs, and without profiling."""
        wanted = self.config.profile_runtime and not self._validation_seconds and self.world.is_main
        return run.folder / "trace.json" if wanted else None

    def _epoch_order(self, epoch: int) -> torch.Tensor:
        """Window indices of an epoch: each at most once, a pure function of seed and epoch."""
        order = torch.randperm(len(self.train), generator=generator(self.config.seed, "order", epoch))
        return order[: self.epochs.windows]

    def _epoch_steps(self, epoch: int) -> list[torch.Tensor]:
        """The windows of each step."""
        ends = [self.state.windows_until(step) for step in range(self.epochs.steps + 1)]
        order = self._epoch_order(epoch)
        return [order[start:stop] for start, stop in pairwise(ends)]

    def _settle(self, run: RunLog, steps: Sequence[torch.Tensor], pending: list[TakenStep]) -> str:
        """Reads the losses and norms of pending steps with one transfer from the device, and writes their records.
        Afterwards weights and position are those after the last finite step. Returns a note for the progress bar."""
        values = [torch.stack([taken.loss, taken.norm, taken.skipped]) for taken in pending]
        values = torch.stack(values).tolist() if values else []
        good = [
            (taken, loss, norm) for taken, (loss, norm, skipped) in zip(pending, values, strict=True) if not skipped
        ]
        if good:
            self.position.rate = good[-1][0].rate
            self._log_steps(run, good)
        if len(good) < len(pending):
            loss, norm, _ = values[len(good)]
            self._roll_back(run, pending[len(good)], steps, loss, norm)
        pending.clear()
        return f"epoch {self.position.epoch + 1}/{self.epochs.epochs} loss {good[-1][1]:.4f}" if good else ""

    def _log_steps(self, run: RunLog, taken: Sequence[tuple[TakenStep, float, float]]) -> None:
        before = self.position.epoch * self.epochs.steps
        rows = [(before + step.index + 1, loss, step.rate, norm) for step, loss, norm in taken]
        run.steps(self.position.epoch + 1, rows, reading=self.gauges.read() if self.world.is_main else None)
        if self.context.watcher is not None:
            self.context.watcher.steps(rows[-1][0] / self.epochs.steps, mean(loss for _, loss, _, _ in rows))

    def _roll_back(
        self, run: RunLog, taken: TakenStep, steps: Sequence[torch.Tensor], loss: float, norm: float
    ) -> None:
        """Rolls back to the state before the skipped step, which is then repeated or left out. Raises LandfallError if
        no remedy is left."""
        taken.undo()
        self._loss_sum, self.position.step = taken.loss_sum, taken.index
        epoch, index_b = self.position.epoch, steps[taken.index]
        non_finite = NonFinite(epoch + 1, self.state.steps_done + 1, loss, self.plan.precision, norm, taken.rate)
        if not self.recovery.from_step(run, non_finite, index_b, "masks", epoch, taken.index):
            self.position.step += 1
            self.position.left_out += len(index_b)
        self.guard = NonFiniteGuard(self.plan)

    def _validation_loss(self, run: RunLog, stop: StopRequest) -> float | None:
        """The validation loss, which is finite; None if `stop` is due before the end. Raises LandfallError if no remedy
        is left for a loss that is NaN or infinite."""
        while (loss := self.objective.mean_loss(self.validation, stop)) is not None and not math.isfinite(loss):
            non_finite = NonFinite(self.position.epoch + 1, self.state.steps_done, loss, self.plan.precision)
            self.recovery.from_validation(run, non_finite)
            self.guard = NonFiniteGuard(self.plan)
        return loss

    def _finish_epoch(self, record: EpochRecord, run: RunLog) -> None:
        run.check_ownership()
        history = [*self.position.history, record]
        skill = self.objective.skill.to_json() if self.objective.skill else None
        best_skill = self.position.skill
        self.state.position = Position(epoch=record.epoch, rate=record.lr, history=history)
        self.position.skill = skill if self.position.best is record else best_skill
        if self.world.is_main:
            write_loss_csv(loss_csv_path(self.root, self.config), history)
        run.epoch(record, best=self.position.best, skill=skill, best_skill=self.position.skill)
        self.checkpointer.save_state(run)  # a run killed before this repeats the epoch since its last state
        if self.position.best is record:  # after the state, from which a resumed run can save missing best weights
            self.checkpointer.save_best()
        log.info(
            "epoch %d/%d: train %.5f, validation %.5f%s, %.1f windows/s",
            record.epoch, self.epochs.epochs, record.train_loss, record.val_loss,
            f", {self.objective.skill}" if self.objective.skill else "", record.windows_per_second,
        )  # fmt: skip

    # --------------------------------------------------------------------------------------------------------- stopping
    def _save_within_epoch(self, run: RunLog, seconds: float) -> None:
        """Saves the state between two steps, or before the validation. seconds: duration of the epoch so far."""
        self.position.loss_sum, self.position.seconds = self._loss_sum.item(), seconds
        self.checkpointer.save_state(run)

    def _stopped(self, stop: StopRequest) -> StoppedError:
        path = relative(self.checkpointer.last_path, self.root)
        return StoppedError(stop.reason or "", path, interrupted=stop.interrupted)
