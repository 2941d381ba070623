"""A training run from configuration to checkpoint: load, build, resume, fit, record. Notebooks call `train` too."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from core import checkpoint
from core.config.compose import LoadedConfig, recorded, render
from core.config.recipe import as_trained
from core.config.schema import AnyConfig
from core.data.dataset import TRAINING_SPLITS, StreamData, load_stream_data
from core.data.identity import identity
from core.data.inputs import Inputs, build_transform, mean_input
from core.data.overlap import row_ranges
from core.data.scaling import scaler_path
from core.data.windows import WindowSet
from core.devices import memory
from core.devices.backend import backend
from core.devices.manager import DeviceManager
from core.devices.record import RECORD_FILE, device_record
from core.errors import CheckpointError, UsageError
from core.lock import Lock
from core.models.factory import build_model, count_parameters
from core.models.skill import Skill
from core.reproducibility import make_reproducible
from core.runlog import EpochRecord, RunLog, SilentRunLog, loss_csv_path, loss_png_path, read_status
from core.stopping import StopRequest
from core.switching import finish
from core.workspace import new_run_id, write_json
from trainers import elastic
from trainers.context import RunContext, Watcher
from trainers.decisions import SizeDecision, decide_batch, decide_model_size, initial_sidecar, start_report
from trainers.distributed import World, process_group
from trainers.environment import environment_record
from trainers.loop import Trainer
from trainers.resuming import checkpoint_to_resume, start_from

log = logging.getLogger(__name__)

# Windows of the validation loss for each window length of rows, and the least number of them.
_VALIDATED_PER_WINDOW, _FEWEST_VALIDATED = 8, 64


@dataclass(frozen=True)
class TrainingResult:
    """The results of a finished run and its files.

    skill: of the best epoch (`core.models.skill`). trained_epochs: those of this call; 0 if the requested run was
    already finished, and these are its earlier results. checkpoint: the run's own best weights. promoted: whether they
    are the model of the stream now.
    """

    run_id: str
    stream: str
    history: tuple[EpochRecord, ...]
    trained_epochs: int
    best: EpochRecord
    skill: Mapping[str, Any] | None
    checkpoint: Path
    promoted: bool
    loss_csv: Path
    loss_png: Path
    folder: Path

    def to_json(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "stream": self.stream,
            "epochs": len(self.history),
            "trained_epochs": self.trained_epochs,
            "best_epoch": self.best.epoch,
            "best_val_loss": self.best.val_loss,
            "skill": self.skill,
            "checkpoint": str(self.checkpoint),
            "promoted": self.promoted,
            "loss_csv": str(self.loss_csv),
            "loss_png": str(self.loss_png),
            "run_folder": str(self.folder),
        }


def train(
    loaded: LoadedConfig,
    *,
    root: Path,
    run_id: str | None = None,
    manager: DeviceManager | None = None,
    watcher: Watcher | None = None,
) -> TrainingResult:
    """Trains the stream of the configuration. `run_id` names the run's folder (default: a new one).

    manager: decides about the hardware (default: one that inspects this machine).
    watcher: follows the run; a notebook shows its loss curve with one (`core.notebook.live_loss`).
    Raises LockedError if another run writes the same files, DataError for unusable data, CheckpointError if
    resuming is requested and impossible, UsageError if the run to resume is finished and was not requested by name,
    StoppedError after a signal or near the wall-time limit.
    """
    manager = manager or DeviceManager(loaded.config, origins=loaded.origins)
    world = World.from_environment()
    plan = manager.plan(index=world.local_rank, processes=world.local_size)
    backend(plan.kind).select(plan.index)
    context = RunContext(loaded, root=root, plan=plan, world=world, run_id=run_id, watcher=watcher)
    with process_group(world, plan, loaded.config.distributed):
        elastic.record_connection()
        return _resume_or_restart(context, manager)


def _agree_on_run(world: World, run_id: str | None) -> tuple[str | None, bool]:
    """The run that all processes train, although each machine may propose another name; and whether earlier processes
    of this job trained it and died."""
    proposals = world.gather((elastic.previous_run(), run_id))
    previous = next((run for run, _ in proposals if run is not None), None)
    run_id = previous or proposals[0][1]
    if run_id is not None:
        elastic.record_run(run_id)
    return run_id, previous is not None


def _resume_or_restart(context: RunContext, manager: DeviceManager) -> TrainingResult:
    """Trains as `training.resume` says. Under `unfinished`, training starts from the beginning if the checkpoint does
    not fit."""
    run_id, is_restarted = _agree_on_run(context.world, context.run_id)
    context = replace(context, run_id=run_id)
    config, root = context.config, context.root
    with Lock(run_id, command=f"landfall train {config.stream}") as lock, StopRequest(config.timeout_hours) as stop:
        if context.world.is_main:  # the files that every run of the stream writes; the log locks the run's own folder
            lock.take(root / config.logging.checkpoint_path, key="logging.checkpoint_path")
            lock.take(loss_csv_path(root, config), key="logging.artifacts_dir")
            finish(root)
        try:
            path = checkpoint_to_resume(config, root, run_id, is_restarted=is_restarted)
            saved = checkpoint.describe(path) if path is not None else None
            _check_same_checkpoint(context.world, saved)
            return _train(replace(context, resume_from=path, saved=saved), manager, lock, stop)
        except CheckpointError as error:
            if config.training.resume != "unfinished":
                raise
            log.warning("%s; restarting from the beginning", error.message)
        # Outside the handler: the error's traceback keeps the model and the data of the first attempt.
        return _train(context, manager, lock, stop)


def _check_same_checkpoint(world: World, saved: Mapping[str, Any] | None) -> None:
    """Raises UsageError if the processes of a run do not see the same checkpoint."""
    if len(set(world.gather(saved["sha256"] if saved is not None else None))) > 1:
        raise UsageError(
            "the machines find different checkpoints to resume", hint="use one folder on a shared disk for all machines"
        )


def _train(context: RunContext, manager: DeviceManager, lock: Lock, stop: StopRequest) -> TrainingResult:
    """Prepares process, data and hardware, and trains."""
    config, plan, world, saved = context.config, context.plan, context.world, context.saved
    if world.is_single and manager.num_processes > 1:
        log.warning(
            "training in this process only; `landfall train` starts one for each of %d devices", manager.num_processes
        )
    make_reproducible(config)
    torch.set_num_threads(plan.threads)

    requested, run_id = context.run_id, saved["run_id"] if saved else context.run_id or new_run_id()
    lock.name_run(run_id)
    if (origin := initial_sidecar(context)) is not None:
        started = as_trained(config, origin["config"], is_other_data=saved is None)
        context = replace(context, loaded=replace(context.loaded, config=started))
    data = load_stream_data(context.config, root=context.root, splits=TRAINING_SPLITS, run_id=run_id)
    loaded = replace(context.loaded, config=data.config)
    size = decide_model_size(replace(context, loaded=loaded), manager)
    if world.is_main:
        write_json(
            context.root / config.logging.artifacts_dir / RECORD_FILE, device_record(manager).model_dump(mode="json")
        )
    context = replace(context, run_id=run_id, loaded=replace(loaded, config=size.config))
    if config.device.memory.strategy == "auto":
        parameters = _num_parameters(size.config, num_channels=len(data.channels))
        plan = manager.plan(index=plan.index, processes=world.local_size, num_parameters=parameters)
        context = replace(context, plan=plan)
    with memory.applied(plan):
        return _fit(context, size, data, lock, stop, is_requested=requested == run_id)


def _fit(
    context: RunContext, size: SizeDecision, data: StreamData, lock: Lock, stop: StopRequest, *, is_requested: bool
) -> TrainingResult:
    """Builds, resumes and trains; the configuration contains the model's final size and recipe.

    is_requested: whether the resumed run was requested by name; a finished one then returns its results.
    """
    config, root, world, run_id = context.config, context.root, context.world, context.run_id
    trainer, decisions = _build_trainer(context, size, data)
    if context.resume_from is not None:
        trainer.resume(context.resume_from)
        log.info(
            "resuming %s after %d epochs, %d steps, from %s",
            run_id, trainer.position.epoch, trainer.position.step, context.resume_from.name,
        )  # fmt: skip
        _report_finished(trainer, context, is_requested=is_requested)
    done = len(trainer.position.history)
    log_type, epochs = RunLog if world.is_main else SilentRunLog, trainer.epochs
    with (
        log_type(root, config, run_id, steps=epochs.total_steps, windows=epochs.total_windows, lock=lock) as run,
        stop.deferred(),
    ):
        run.write_config(render(context.loaded))
        run.write_environment(environment_record(root, context.plan, decisions))
        if world.is_main:
            write_json(scaler_path(root, config), {**data.scaler.to_dict(), "run_id": run_id})
        run.rewind(trainer.state.logged, step=trainer.state.steps_done, epoch=trainer.position.epoch)
        position = trainer.fit(run, stop)
        is_promoted = trainer.checkpointer.promote()
    if world.is_main and position.skill:
        log.info("best epoch %d: %s", position.best.epoch, Skill(**position.skill).in_full())
    return TrainingResult(
        run_id=run_id,
        stream=config.stream,
        history=tuple(position.history),
        trained_epochs=len(position.history) - done,
        best=position.best,
        skill=position.skill,
        checkpoint=trainer.checkpointer.best_path,
        promoted=is_promoted,
        loss_csv=loss_csv_path(root, config),
        loss_png=loss_png_path(root, config),
        folder=run.folder,
    )


def _report_finished(trainer: Trainer, context: RunContext, *, is_requested: bool) -> None:
    """Warns if nothing is left to train; not for a run that died before it recorded its end, which is completed now.

    Raises UsageError if the finished run was not requested by name: its results could be mistaken for new ones.
    """
    if not trainer.is_finished():
        return
    status = read_status(context.root / context.config.logging.log_dir / str(context.run_id))
    if status is None or status["state"] != "completed":
        return
    problem = f"run {context.run_id} is finished, after {trainer.position.epoch} of {trainer.epochs.epochs} epochs"
    if not is_requested:
        hint = "--resume unfinished or --resume never trains a new run; a larger training.epochs extends this one"
        raise UsageError(f"nothing to resume: {problem}", hint=hint)
    log.warning("%s: nothing is trained, the results are the earlier ones", problem)


def _num_parameters(config: AnyConfig, *, num_channels: int) -> int:
    """Number of parameters of the configured model; the random generators keep their state."""
    with torch.random.fork_rng(devices=[]):
        return count_parameters(build_model(config, num_channels=num_channels))


def validation_windows(windows: WindowSet, config: AnyConfig) -> WindowSet:
    """The windows of the split `validation` that give the validation loss. If the windows of an epoch are limited,
    these start at least an eighth of a window apart, but are `_FEWEST_VALIDATED` or more: the recipe lets windows of
    short data overlap more, and evaluating all of them takes longer than an epoch. The choice depends on the data only,
    so that runs with other settings can be compared."""
    if not config.training.windows_per_epoch:
        return windows
    per_window = max(config.data.window // config.data.stride, 1)
    return windows.evenly_spaced(max(_FEWEST_VALIDATED, len(windows) * _VALIDATED_PER_WINDOW // per_window))


def _build_trainer(context: RunContext, size: SizeDecision, data: StreamData) -> tuple[Trainer, dict[str, Any]]:
    """The trainer, and the decisions that depend on the hardware, for the run's record."""
    config, plan, root = context.config, context.plan, context.root
    transform = build_transform(config, sampling_rate_hz=data.sampling_rate_hz, windows=data.splits["train"])
    chosen = validation_windows(data.splits["validation"], config)
    if len(chosen) < len(data.splits["validation"]):
        log.info("validation loss: of %d of its windows, which overlap less", len(chosen))
    train, validation = (
        Inputs(windows, transform, plan.device, progress=config.logging.progress)
        for windows in (data.splits["train"], chosen)
    )
    model = build_model(config, num_channels=len(data.channels)).to(plan.device, plan.dtype)
    origin = config.training.start_from if context.saved is None else ""
    started_from = start_from(root / origin, model, config) if origin else None
    batch = decide_batch(context, size.tier, model, train, validation)
    if config.log_device_info and context.world.is_main:
        for line in start_report(context, size, batch, model, train):
            log.info("%s", line)
    if plan.compiled:
        torch.use_deterministic_algorithms(config.deterministic)  # unlike the debug mode, also for the compiler
        model.compile()
    bundle = {
        "run_id": context.run_id,
        "config": recorded(config),
        "scaler": data.scaler.to_dict(),
        "transform": transform.to_dict(),
        "mean_input": mean_input(train).cpu(),
        "channels": list(data.channels),
        "sampling_rate_hz": data.sampling_rate_hz,
        "data": {name: identity(data.splits[name]) for name in TRAINING_SPLITS},
        "training_rows": row_ranges(data.splits["train"]),
    }
    trainer = Trainer(model, train, validation, context=context, batch=batch, bundle=bundle)
    decisions = {
        "tier": size.tier.name,
        "model": {
            "size": config.model.size,
            "parameters": count_parameters(model),
            "reason": size.reason,
            "started_from": started_from,
        },
        "batch": batch.to_json(),
    }
    return trainer, decisions
