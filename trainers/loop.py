"""The one training loop: both streams, every device."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any, Protocol

import torch
from torch import nn

from core import checkpoint
from core.config.schema import AnyConfig
from core.data.inputs import Inputs
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
from core.workspace import relative
from trainers.distributed import ALONE, World
from trainers.objective import Objective
from trainers.optimizer import build_optimizer
from trainers.profiling import profiled
from trainers.resuming import check_fit
from trainers.schedule import learning_rate
from trainers.signals import Meeting, StopRequest

log = logging.getLogger(__name__)

# Step, learning rate, and loss and gradient norm still on the device.
PendingStep = tuple[int, float, torch.Tensor, torch.Tensor]


class Watcher(Protocol):
    """Who is told how a run goes, such as a curve in a notebook."""

    def steps(self, epochs_done: float, loss: float) -> None:
        """Whenever steps are logged: how far the run is, and their mean loss."""

    def epoch(self, history: Sequence[EpochRecord]) -> None:
        """Every epoch so far, after the last one's checkpoints are written."""


@dataclass
class Position:
    """Where a run is: whole epochs done, optimizer steps done in the current one, and what they gave."""

    epoch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    seconds: float = 0.0
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
        self.config, self.plan, self.root, self.bundle, self.world = config, plan, root, bundle, world
        self.backend, self.gauges = backend(plan.kind), Gauges(plan.kind)
        self.batch, self.effective = batch, batch.effective
        self.best_path = root / config.logging.checkpoint_path
        self.last_path = checkpoint.last_path(self.best_path)
        self.optimizer = build_optimizer(model, config.training, fused=plan.has_fused_optimizer)
        self.loss_scaler = torch.amp.GradScaler(plan.kind, enabled=plan.needs_loss_scaling)
        self.objective = Objective(
            self.model, config=config, plan=plan, micro=batch.micro, world=world, loss_scaler=self.loss_scaler
        )
        self.position = Position()
        self._step_seconds = self._validation_seconds = 0.0

        settings = config.training
        self.windows_per_epoch = min(settings.windows_per_epoch or len(train), len(train))
        if self.windows_per_epoch % self.effective < world.size:  # a last step with nothing for some process
            self.windows_per_epoch -= self.windows_per_epoch % self.effective
        self.steps_per_epoch = math.ceil(self.windows_per_epoch / self.effective)
        self.total_steps = self.steps_per_epoch * settings.epochs
        self.total_windows = self.windows_per_epoch * settings.epochs
        self.warmup_steps = round(settings.warmup_ratio * self.total_steps)

    @property
    def steps_done(self) -> int:
        """Optimizer steps of the whole run."""
        return self.position.epoch * self.steps_per_epoch + self.position.step

    # ------------------------------------------------------------------------------------------------------- training
    def fit(self, run: RunLog, stop: StopRequest, *, watcher: Watcher | None = None) -> Position:
        """Trains to the last epoch, or until early stopping. Raises StoppedError on request, after a checkpoint."""
        self._watcher = watcher
        epochs_left = self.config.training.epochs - self.position.epoch
        remaining = self.windows_per_epoch * epochs_left - self.position.step * self.effective
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
        steps = self._epoch_order(epoch).split(self.effective)
        loss_sum = torch.tensor(self.position.loss_sum, device=self.plan.device, dtype=self.plan.dtype)
        pending: list[PendingStep] = []
        meeting = Meeting(stop, self.world, self.plan.device)
        self.model.train()
        with profiled(self._trace_path(run)) as step_profiled:
            for step in range(self.position.step, len(steps)):
                if meeting.must_stop(
                    step_seconds=self._step_seconds,
                    validation_seconds=self._expected_validation_seconds(),
                    steps_left=len(steps) - step,
                ):
                    if pending:
                        self._log_steps(run, epoch, pending)
                    self._stop(stop, loss_sum, time.perf_counter() - started)
                step_started = time.perf_counter()
                rate, loss, norm = self._optimize(steps[step], epoch, step)
                loss_sum += loss * len(steps[step])
                pending.append((epoch * self.steps_per_epoch + step + 1, rate, loss, norm))
                if len(pending) == self.config.logging.every_steps or step + 1 == len(steps):
                    last_loss = self._log_steps(run, epoch, pending)
                    pending.clear()
                    note = f"epoch {epoch + 1}/{self.config.training.epochs} loss {last_loss:.4f}"
                # An old outlier, such as a step that compiled, fades.
                self._step_seconds = max(0.9 * self._step_seconds, time.perf_counter() - step_started)
                step_profiled()
                progress.advance(len(steps[step]), note if not pending else "")
                self.position.step = step + 1
        train_seconds = time.perf_counter() - started
        val_loss = self.objective.mean_loss(self.validation)
        self._validation_seconds = time.perf_counter() - started - train_seconds
        return EpochRecord(
            epoch=epoch + 1,
            train_loss=loss_sum.item() / self.windows_per_epoch,
            val_loss=val_loss,
            lr=rate,
            seconds=round(time.perf_counter() - started, 3),
            windows_per_second=round(self.windows_per_epoch / train_seconds, 2),
        )

    def _optimize(self, index_b: torch.Tensor, epoch: int, step: int) -> tuple[float, torch.Tensor, torch.Tensor]:
        """One optimizer step over the windows; gives learning rate, mean loss and gradient norm, the last two on the
        device, so that no step waits for the host."""
        settings = self.config.training
        rate = learning_rate(
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
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.gradient_clip_val or math.inf)
        self.loss_scaler.step(self.optimizer)
        self.loss_scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return rate, loss, norm

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

    def _log_steps(self, run: RunLog, epoch: int, pending: list[PendingStep]) -> float:
        """Writes the pending step records with one transfer from the device; gives the last loss."""
        figures = torch.stack([torch.stack([loss, norm]) for _, _, loss, norm in pending]).tolist()
        rows = [(step, loss, rate, norm) for (step, rate, _, _), (loss, norm) in zip(pending, figures, strict=True)]
        run.steps(epoch + 1, rows, reading=self.gauges.read() if self.world.is_main else None)
        if self._watcher is not None:
            self._watcher.steps(rows[-1][0] / self.steps_per_epoch, mean(loss for _, loss, _, _ in rows))
        return rows[-1][1]

    def _finish_epoch(self, record: EpochRecord, run: RunLog) -> None:
        if not (math.isfinite(record.train_loss) and math.isfinite(record.val_loss)):
            raise LandfallError(
                f"the loss became {record.train_loss} (validation {record.val_loss}) in epoch {record.epoch}",
                hint="lower training.learning_rate, or set precision=32",
            )
        previous = self.position.best
        history = [*self.position.history, record]
        self.position = Position(epoch=record.epoch, history=history)
        if previous is None or record.val_loss < previous.val_loss:
            self._save(self.best_path, {})
        if self.world.is_main:
            write_loss_csv(loss_csv_path(self.root, self.config), history)
        run.epoch(record, best=self.position.best)
        self._save(self.last_path, self._training_state())  # last: a run killed before it does the whole epoch again
        log.info(
            "epoch %d/%d: train %.5f, validation %.5f, %.1f windows/s",
            record.epoch, self.config.training.epochs, record.train_loss, record.val_loss, record.windows_per_second,
        )  # fmt: skip

    # --------------------------------------------------------------------------------------------- saving and resuming
    def _stop(self, stop: StopRequest, loss_sum: torch.Tensor, seconds: float) -> None:
        self.position.loss_sum, self.position.seconds = loss_sum.item(), seconds
        self._save(self.last_path, self._training_state())
        raise StoppedError(stop.reason or "", relative(self.last_path, self.root), interrupted=stop.interrupted)

    def _save(self, path: Path, extra: Mapping[str, Any]) -> None:
        if not self.world.is_main:
            return
        best = self.position.best
        facts = {
            "stream": self.config.stream,
            "run_id": self.bundle["run_id"],
            "epoch": self.position.epoch,
            "val_loss": self.position.history[-1].val_loss if self.position.history else None,
        }
        state = {"model": self.model.state_dict(), **self.bundle, **facts, **extra}
        metrics = {"best_epoch": best.epoch, "best_val_loss": best.val_loss} if best else {}
        description = {
            **facts,
            "metrics": metrics,
            "config": self.bundle["config"],
            "hardware": {**self.plan.to_json(), "batch": self.batch.to_json()},
            "parameters": sum(p.numel() for p in self.model.parameters()),
        }
        checkpoint.save(path, state, description=description)

    def _training_state(self) -> dict[str, Any]:
        return {
            "optimizer": self.optimizer.state_dict(),
            "loss_scaler": self.loss_scaler.state_dict(),
            "position": asdict(self.position),
            "windows": self._num_windows(),
            "effective_batch": self.effective,
            "rng": self.backend.rng_state(),
        }

    def _num_windows(self) -> list[int]:
        return [len(self.train), len(self.validation)]

    def resume(self, path: Path) -> None:
        """Goes on from a checkpoint. Raises CheckpointError where it is torn, or its configuration or data differ."""
        state = checkpoint.load(path)
        check_fit(
            path,
            state,
            config=self.bundle["config"],
            windows=self._num_windows(),
            effective=self.effective,
        )
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if state["loss_scaler"] and self.plan.needs_loss_scaling:  # the other precisions have none
            self.loss_scaler.load_state_dict(state["loss_scaler"])
        self.backend.set_rng_state(state["rng"])
        history = [EpochRecord(**record) for record in state["position"].pop("history")]
        self.position = Position(**state["position"], history=history)
