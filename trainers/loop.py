"""The one training loop: both streams, every device."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any, Protocol

import torch
from torch import nn

from core import checkpoint
from core.config.schema import AnyConfig
from core.data.inputs import Inputs
from core.devices import threads
from core.devices.backend import backend
from core.devices.batching import BatchPlan
from core.devices.gauges import Gauges
from core.devices.plan import DevicePlan
from core.errors import LandfallError, StoppedError
from core.loss_curve import LossCurve
from core.pictures import save_png
from core.progress import Progress
from core.reproducibility import generator
from core.runlog import EpochRecord, RunLog, loss_csv_path, loss_png_path, write_loss_csv
from core.stopping import StopRequest
from core.workspace import relative
from trainers.distributed import ALONE, World
from trainers.objective import Objective
from trainers.optimizer import build_optimizer
from trainers.profiling import profiled
from trainers.recovery import WAY_OUT, Recovery, Sentinel, TakenStep, Trouble
from trainers.saving import Saver
from trainers.schedule import learning_rate
from trainers.signals import Meeting

log = logging.getLogger(__name__)


class Watcher(Protocol):
    """Who is told how a run goes, such as a curve in a notebook."""

    def steps(self, epochs_done: float, loss: float) -> None:
        """Whenever steps are logged: how far the run is, and their mean loss."""

    def epoch(self, history: Sequence[EpochRecord]) -> None:
        """Every epoch so far, after the last one's checkpoints are written."""


@dataclass
class Position:
    """Where a run is: whole epochs done, optimizer steps done in the current one, and what they gave.

    skill: of the best epoch, as `Skill.to_json` gives it; None where it was not measured.
    shift: windows that the epoch's steps begin later, since it was begun with another number of windows a step.
    rate: the learning rate of the last step. left_out: windows of the current epoch whose step was undone for good.
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


class Trainer:
    """Fits a masked-reconstruction model.

    model: `model(x, mask)` gives an output with the scalar `loss` over the `count` hidden values, and
        `model.draw_mask(n)` the mask of n windows.
    batch: how many windows make a step, and how many of them are computed at once.
    bundle: what scoring needs beside the weights (configuration, scaler, channels, …); saved in every checkpoint.
    """

    def __init__(
        self,
        model: nn.Module,
        train: Inputs,
        validation: Inputs,
        *,
        config: AnyConfig,
        plan: DevicePlan,
        batch: BatchPlan,
        root: Path,
        bundle: Mapping[str, Any],
        world: World = ALONE,
    ):
        self.model = model.to(plan.device, plan.dtype)
        self.train, self.validation = train, validation
        self.config, self.root, self.bundle, self.world = config, root, bundle, world
        self.backend, self.gauges = backend(plan.kind), Gauges(plan.kind)
        self.batch, self.effective = batch, batch.effective
        self.best_path = root / config.logging.checkpoint_path
        self.last_path = checkpoint.last_path(self.best_path)
        mean_input = bundle.get("mean_input")
        self.objective = Objective(
            self.model, config=config, plan=plan, micro=batch.micro, world=world,
            mean_input=None if mean_input is None else mean_input.to(plan.device, plan.dtype),
            channels=bundle.get("channels", ()),
        )  # fmt: skip
        self.optimizer = build_optimizer(model, config.training, fused=plan.has_fused_optimizer)
        self.recovery, self.sentinel = Recovery(self.objective, train, root=root), Sentinel(plan)
        self.position = Position()
        # Records of the run's log up to the position; None where an older state does not say.
        self.logged: int | None = 0
        self._step_seconds = self._validation_seconds = 0.0
        self.saver = Saver(self)

        settings = config.training
        self.windows_per_epoch = min(settings.windows_per_epoch or len(train), len(train))
        self.steps_per_epoch = math.ceil(self.windows_per_epoch / self.effective)
        self.total_steps = self.steps_per_epoch * settings.epochs
        self.total_windows = self.windows_per_epoch * settings.epochs
        self.warmup_steps = round(settings.warmup_ratio * self.total_steps)

    @property
    def plan(self) -> DevicePlan:
        """What the run computes with; a recovery may raise its precision."""
        return self.objective.plan

    @property
    def loss_scaler(self) -> torch.amp.GradScaler:
        return self.objective.loss_scaler

    @property
    def steps_done(self) -> int:
        """Optimizer steps of the whole run."""
        return self.position.epoch * self.steps_per_epoch + self.position.step

    # ------------------------------------------------------------------------------------------------------- training
    def fit(self, run: RunLog, stop: StopRequest, *, watcher: Watcher | None = None) -> Position:
        """Trains to the last epoch, or until early stopping. Raises StoppedError on request, after a checkpoint."""
        self._watcher = watcher
        self.saver.begin(run)
        epochs_left = self.config.training.epochs - self.position.epoch
        remaining = self.windows_per_epoch * epochs_left - self.windows_until(self.position.step)
        mode = self.config.logging.progress if self.world.is_main else "off"
        bar = Progress(remaining, self.config.stream, unit="windows", mode=mode)
        with bar as progress, self._loss_curve(run) as curve:
            while not self._is_finished():
                record = self._run_epoch(run, stop, progress)
                self._finish_epoch(record, run)
                if self.world.is_main:
                    curve.epoch(self.position.history)
                if watcher is not None:
                    watcher.epoch(self.position.history)
        return self.position

    def _loss_curve(self, run: RunLog) -> LossCurve:
        path, title = loss_png_path(self.root, self.config), f"{self.config.stream}, run {run.run_id}"
        return LossCurve(lambda figure: save_png(figure, path, dpi=120), title=title)

    def _is_finished(self) -> bool:
        """After the last epoch, or at the end of early stopping's patience."""
        early = self.config.training.early_stopping
        if early.patience and self.position.epochs_without_improvement(early.min_delta) >= early.patience:
            log.info("early stopping: no improvement for %d epochs", early.patience)
            return True
        return self.position.epoch >= self.config.training.epochs

    def _run_epoch(self, run: RunLog, stop: StopRequest, progress: Progress) -> EpochRecord:
        epoch, started = self.position.epoch, time.perf_counter() - self.position.seconds
        steps = self._epoch_steps(epoch)
        self._loss_sum = torch.tensor(self.position.loss_sum, device=self.plan.device, dtype=self.plan.dtype)
        pending: list[TakenStep] = []
        meeting = Meeting(stop, self.world, self.plan.device)
        self.model.train()
        with profiled(self._trace_path(run)) as step_profiled:
            while (step := self.position.step) < len(steps):
                agreed = meeting.ask(
                    step_seconds=self._step_seconds,
                    validation_seconds=self._expected_validation_seconds(),
                    steps_left=len(steps) - step,
                    save_is_due=self.saver.is_due,
                )
                if agreed.stop or agreed.save:
                    self._settle(run, steps, pending)
                    self._save_midway(run, time.perf_counter() - started)
                    if agreed.stop:
                        raise self._stopped(stop)
                    if self.position.step != step:  # a step was lost
                        continue
                step_started, note = time.perf_counter(), ""
                threads.adapt()
                self._expect(*steps[step : step + 2])
                pending.append(self._optimize(steps[step], epoch, step))
                self.position.step = step + 1
                is_due = len(pending) == self.config.logging.every_steps or step + 1 == len(steps)
                if is_due or (self.sentinel.asks_at_once and pending[-1].lost):
                    note = self._settle(run, steps, pending)
                # An old outlier, such as a step that compiled, fades.
                self._step_seconds = max(0.9 * self._step_seconds, time.perf_counter() - step_started)
                step_profiled()
                progress.advance(self.windows_until(self.position.step) - self.windows_until(step), note)
        train_seconds = time.perf_counter() - started
        learned = self.windows_per_epoch - self.position.left_out
        if not learned:
            raise LandfallError(f"no step of epoch {epoch + 1} was finite: nothing was learned", hint=WAY_OUT)
        val_loss = self._validation_loss(run, stop)
        if val_loss is None:
            self._save_midway(run, train_seconds)
            raise self._stopped(stop)
        self._validation_seconds = time.perf_counter() - started - train_seconds
        return EpochRecord(
            epoch=epoch + 1,
            train_loss=self._loss_sum.item() / learned,
            val_loss=val_loss,
            lr=self.position.rate,
            seconds=round(time.perf_counter() - started, 3),
            windows_per_second=round(self.windows_per_epoch / train_seconds, 2),
        )

    def _expect(self, step: torch.Tensor, *following: torch.Tensor) -> None:
        """The parts of a step, and the first of the one after it, are got while others are computed."""
        parts = self.objective.parts
        self.train.expect([*parts(step), *(parts(index_b)[0] for index_b in following)])

    def _optimize(self, index_b: torch.Tensor, epoch: int, step: int) -> TakenStep:
        """One optimizer step over the windows; its figures stay on the device, so that no step waits for the host."""
        settings = self.config.training
        rate = self.recovery.rate_factor * learning_rate(
            epoch * self.steps_per_epoch + step,
            total_steps=self.total_steps,
            warmup_steps=self.warmup_steps,
            peak=settings.learning_rate,
            final=settings.min_learning_rate,
        )
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss = self.objective.backward(self.train, index_b, "masks", epoch, step)
        self.loss_scaler.unscale_(self.optimizer)
        norm = self.objective.parallel.clip_gradients(self.config.gradient_clip_val or math.inf)
        lost = self.sentinel.step(self.optimizer, loss, norm)
        self.loss_scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        taken = TakenStep(step, rate, loss, norm, lost, loss_sum=self._loss_sum, undo=self.objective.undo)
        self._loss_sum = self._loss_sum + loss * len(index_b)
        return taken

    def _expected_validation_seconds(self) -> float:
        """As the last one; before the first, a third of what training on as many windows takes."""
        return self._validation_seconds or self._step_seconds * len(self.validation) / self.effective / 3

    def _trace_path(self, run: RunLog) -> Path | None:
        """Where the profile of the first steps goes; later epochs are not profiled."""
        wanted = self.config.profile_runtime and not self._validation_seconds and self.world.is_main
        return run.folder / "trace.json" if wanted else None

    def _epoch_order(self, epoch: int) -> torch.Tensor:
        """Window indices of an epoch: each at most once, a pure function of seed and epoch."""
        order = torch.randperm(len(self.train), generator=generator(self.config.seed, "order", epoch))
        return order[: self.windows_per_epoch]

    def _epoch_steps(self, epoch: int) -> list[torch.Tensor]:
        """The windows of each step."""
        ends = [self.windows_until(step) for step in range(self.steps_per_epoch + 1)]
        order = self._epoch_order(epoch)
        return [order[start:stop] for start, stop in pairwise(ends)]

    def _settle(self, run: RunLog, steps: Sequence[torch.Tensor], pending: list[TakenStep]) -> str:
        """Looks at the pending steps with one transfer from the device and writes their records; gives a note for the
        progress. From here on weights and position are those after the last step that was not lost."""
        figures = [torch.stack([taken.loss, taken.norm, taken.lost]) for taken in pending]
        figures = torch.stack(figures).tolist() if figures else []
        good = [(taken, loss, norm) for taken, (loss, norm, lost) in zip(pending, figures, strict=True) if not lost]
        if good:
            self.position.rate = good[-1][0].rate
            self._log_steps(run, good)
        if len(good) < len(pending):
            loss, norm, _ = figures[len(good)]
            self._go_back(run, pending[len(good)], steps, loss, norm)
        pending.clear()
        return f"epoch {self.position.epoch + 1}/{self.config.training.epochs} loss {good[-1][1]:.4f}" if good else ""

    def _log_steps(self, run: RunLog, taken: Sequence[tuple[TakenStep, float, float]]) -> None:
        before = self.position.epoch * self.steps_per_epoch
        rows = [(before + step.index + 1, loss, step.rate, norm) for step, loss, norm in taken]
        run.steps(self.position.epoch + 1, rows, reading=self.gauges.read() if self.world.is_main else None)
        if self._watcher is not None:
            self._watcher.steps(rows[-1][0] / self.steps_per_epoch, mean(loss for _, loss, _, _ in rows))

    def windows_until(self, step: int) -> int:
        """Of the epoch's windows, those of the first steps."""
        return min(max(0, step * self.effective + self.position.shift), self.windows_per_epoch)

    def _go_back(self, run: RunLog, lost: TakenStep, steps: Sequence[torch.Tensor], loss: float, norm: float) -> None:
        """To before the lost step, which is taken again or left out. Raises LandfallError where no remedy is left."""
        lost.undo()
        self._loss_sum, self.position.step = lost.loss_sum, lost.index
        epoch, index_b = self.position.epoch, steps[lost.index]
        trouble = Trouble(epoch + 1, self.steps_done + 1, loss, self.plan.precision, norm, lost.rate)
        if not self.recovery.from_step(run, trouble, index_b, "masks", epoch, lost.index):
            self.position.step += 1
            self.position.left_out += len(index_b)
        self.sentinel = Sentinel(self.plan)

    def _validation_loss(self, run: RunLog, stop: StopRequest) -> float | None:
        """Finite, or LandfallError says why not; None where it is to stop before the end."""
        while (loss := self.objective.mean_loss(self.validation, stop)) is not None and not math.isfinite(loss):
            trouble = Trouble(self.position.epoch + 1, self.steps_done, loss, self.plan.precision)
            self.recovery.from_validation(run, trouble)
            self.sentinel = Sentinel(self.plan)
        return loss

    def _finish_epoch(self, record: EpochRecord, run: RunLog) -> None:
        run.check_ownership()
        history = [*self.position.history, record]
        skill = self.objective.skill.to_json() if self.objective.skill else None
        best_skill = self.position.skill
        self.position = Position(epoch=record.epoch, rate=record.lr, history=history)
        self.position.skill = skill if self.position.best is record else best_skill
        if self.world.is_main:
            write_loss_csv(loss_csv_path(self.root, self.config), history)
        run.epoch(record, best=self.position.best, skill=skill, best_skill=self.position.skill)
        self.saver.save_state(run)  # a run killed before it does what is left of the epoch again, and tells of it again
        if self.position.best is record:  # last: a resumed run sees that it is missing, and has its weights
            self.saver.save_best()
        log.info(
            "epoch %d/%d: train %.5f, validation %.5f%s, %.1f windows/s",
            record.epoch, self.config.training.epochs, record.train_loss, record.val_loss,
            f", {self.objective.skill}" if self.objective.skill else "", record.windows_per_second,
        )  # fmt: skip

    # --------------------------------------------------------------------------------------------- saving and resuming
    def _save_midway(self, run: RunLog, seconds: float) -> None:
        """After settled steps of an epoch, or all of them; seconds: what the epoch took so far."""
        self.position.loss_sum, self.position.seconds = self._loss_sum.item(), seconds
        self.saver.save_state(run)

    def _stopped(self, stop: StopRequest) -> StoppedError:
        return StoppedError(stop.reason or "", relative(self.last_path, self.root), interrupted=stop.interrupted)

    def resume(self, path: Path) -> None:
        """Goes on from a checkpoint. Raises CheckpointError where it is torn, or its configuration or data differ."""
        state = self.saver.restore(path)
        self.sentinel = Sentinel(self.plan)
        history = [EpochRecord(**record) for record in state["position"].pop("history")]
        self.position = Position(**state["position"], history=history)
        self.logged = state.get("logged")
        if state["effective_batch"] != self.effective:
            self._go_on_after(state["windows_done"])

    def _go_on_after(self, windows: int) -> None:
        """The steps that are left of the epoch take the windows that are left of it."""
        left = math.ceil(max(0, self.windows_per_epoch - windows) / self.effective)
        self.position.step = self.steps_per_epoch - left
        self.position.shift = windows - self.position.step * self.effective
