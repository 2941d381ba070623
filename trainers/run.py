"""A training run from configuration to checkpoint: load, build, resume, fit, record. Notebooks call `train` too."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from core import checkpoint
from core.config.compose import LoadedConfig, render
from core.config.recipe import as_trained
from core.config.schema import AnyConfig
from core.data.dataset import TRAINING_PARTS, StreamData, load_stream_data
from core.data.identity import identity
from core.data.inputs import Inputs, build_transform, mean_input
from core.devices import memory, threads
from core.devices.backend import backend
from core.devices.manager import DeviceManager
from core.devices.plan import DevicePlan
from core.devices.profiles import seed_and_fix
from core.devices.report import REPORT_FILE, device_report
from core.environment import environment_record
from core.errors import CheckpointError, UsageError
from core.lock import Lock
from core.models.factory import build_model, count_parameters
from core.models.skill import Skill
from core.runlog import EpochRecord, RunLog, SilentRunLog, loss_csv_path, loss_png_path
from core.stopping import StopRequest
from core.workspace import new_run_id, write_json
from trainers import elastic
from trainers.decisions import Sized, decide_batch, decide_model_size, origin_of, start_report
from trainers.distributed import World, joined
from trainers.loop import Trainer, Watcher
from trainers.resuming import checkpoint_to_resume
from trainers.starting import start_from

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingResult:
    """What a finished run gave and where it lies. skill: of the best epoch (`core.models.skill`)."""

    run_id: str
    stream: str
    history: tuple[EpochRecord, ...]
    best: EpochRecord
    skill: Mapping[str, Any] | None
    checkpoint: Path
    loss_csv: Path
    loss_png: Path
    folder: Path

    def to_json(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "stream": self.stream,
            "epochs": len(self.history),
            "best_epoch": self.best.epoch,
            "best_val_loss": self.best.val_loss,
            "skill": self.skill,
            "checkpoint": str(self.checkpoint),
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

    manager: decides about the hardware (default: one that looks at this machine).
    watcher: is told how the run goes; a notebook shows its curve with one (`core.notebook.live_loss`).
    Raises LockedError where another run writes the same files, DataError for unusable data, CheckpointError where
    resuming is asked for and impossible, StoppedError after a signal or near the wall-time limit.
    """
    manager = manager or DeviceManager(loaded.config)
    world = World.from_environment()
    plan = manager.plan(index=world.local_rank, processes=world.local_size)
    backend(plan.kind).select(plan.index)
    with joined(world, plan, loaded.config.distributed):
        run_id, is_restarted = _agree_on_run(world, run_id)
        return _resume_or_begin(
            loaded, root=root, run_id=run_id, is_restarted=is_restarted, manager=manager, plan=plan, world=world,
            watcher=watcher,
        )  # fmt: skip


def _agree_on_run(world: World, run_id: str | None) -> tuple[str | None, bool]:
    """The run all processes train, where each machine made a name of its own; and whether others trained it before
    them, that died."""
    told = world.gather((elastic.begun(), run_id))
    begun = next((run for run, _ in told if run is not None), None)
    run_id = begun or told[0][1]
    if run_id is not None:
        elastic.begin(run_id)
    return run_id, begun is not None


def _resume_or_begin(
    loaded: LoadedConfig,
    *,
    root: Path,
    run_id: str | None,
    is_restarted: bool,
    manager: DeviceManager,
    plan: DevicePlan,
    world: World,
    watcher: Watcher | None,
) -> TrainingResult:
    """As `training.resume` says; anew where it allows that and the checkpoint does not fit."""
    with Lock(run_id) as lock, StopRequest(loaded.config.timeout_hours) as stop:
        if world.is_main:
            _take_outputs(lock, loaded.config, root)
        attempt = partial(
            _train, loaded, root=root, run_id=run_id, manager=manager, plan=plan, world=world, watcher=watcher,
            lock=lock, stop=stop, resume_from=None,
        )  # fmt: skip
        try:
            path = checkpoint_to_resume(loaded.config, root, run_id, is_restarted=is_restarted)
            _refuse_different_views(world, path)
            return attempt(resume_from=path)
        except CheckpointError as error:
            if loaded.config.training.resume != "unfinished":
                raise
            log.warning("%s; starting anew", error.message)
        return attempt()  # out of the handler: the error's traceback keeps the model and the data of the first one


def _refuse_different_views(world: World, path: Path | None) -> None:
    """Raises UsageError where the processes of a run do not see the same checkpoint."""
    if len(set(world.gather(checkpoint.describe(path)["sha256"] if path is not None else None))) > 1:
        raise UsageError(
            "the machines see different checkpoints to go on from", hint="give all of them one folder, on a shared disk"
        )


def _take_outputs(lock: Lock, config: AnyConfig, root: Path) -> None:
    """What every run of the stream writes; the run's own folder its log takes."""
    lock.take(root / config.logging.checkpoint_path, key="logging.checkpoint_path")
    lock.take(loss_csv_path(root, config), key="logging.artifacts_dir")


def _train(
    loaded: LoadedConfig,
    *,
    root: Path,
    run_id: str | None,
    manager: DeviceManager,
    plan: DevicePlan,
    world: World,
    watcher: Watcher | None,
    lock: Lock,
    stop: StopRequest,
    resume_from: Path | None,
) -> TrainingResult:
    """Prepares process and hardware, and trains on them."""
    if world.is_alone and manager.num_processes > 1:
        log.warning(
            "training in this process alone; `landfall train` starts one for each of %d devices", manager.num_processes
        )
    seed_and_fix(loaded.config)
    threads.use(plan.threads, is_fixed=loaded.config.deterministic or plan.count > 1)

    saved = checkpoint.describe(resume_from) if resume_from is not None else None
    run_id = saved["run_id"] if saved else run_id or new_run_id()
    lock.tell(run_id)
    if (origin := origin_of(loaded.config, root, saved)) is not None:
        loaded = replace(loaded, config=as_trained(loaded.config, origin["config"]))
    data = load_stream_data(loaded.config, root=root, parts=TRAINING_PARTS, run_id=run_id)
    sized = decide_model_size(replace(loaded, config=data.config), manager, root=root, saved=saved)
    if world.is_main:
        write_json(root / loaded.config.logging.artifacts_dir / REPORT_FILE, device_report(manager))

    with memory.applied(plan):
        return _fit(replace(loaded, config=sized.config), sized, data, plan=plan, world=world, root=root, run_id=run_id,
                    resume_from=resume_from, saved=saved, watcher=watcher, lock=lock, stop=stop)  # fmt: skip


def _fit(
    loaded: LoadedConfig,
    sized: Sized,
    data: StreamData,
    *,
    plan: DevicePlan,
    world: World,
    root: Path,
    run_id: str,
    resume_from: Path | None,
    saved: Mapping[str, Any] | None,
    watcher: Watcher | None,
    lock: Lock,
    stop: StopRequest,
) -> TrainingResult:
    """Builds, resumes and trains; `loaded` holds the model's final size and recipe."""
    config = loaded.config
    trainer, decisions = _build_trainer(sized, data, plan=plan, root=root, run_id=run_id, world=world, saved=saved)
    if resume_from is not None:
        trainer.resume(resume_from)
        log.info(
            "resuming %s after %d epochs, %d steps, from %s",
            run_id, trainer.position.epoch, trainer.position.step, resume_from.name,
        )  # fmt: skip
    log_type = RunLog if world.is_main else SilentRunLog
    with (
        log_type(root, config, run_id, steps=trainer.total_steps, windows=trainer.total_windows, lock=lock) as run,
        stop.deferred(),
    ):
        run.write_config(render(loaded))
        run.write_environment(environment_record(root, plan, decisions))
        if world.is_main:
            write_json(scaler_path(root, config), {**data.scaler.to_dict(), "run_id": run_id})
        run.rewind(trainer.logged, step=trainer.steps_done, epoch=trainer.position.epoch)
        position = trainer.fit(run, stop, watcher=watcher)
    if world.is_main and position.skill:
        log.info("best epoch %d: %s", position.best.epoch, Skill(**position.skill).in_full())
    return TrainingResult(
        run_id=run_id,
        stream=config.stream,
        history=tuple(position.history),
        best=position.best,
        skill=position.skill,
        checkpoint=trainer.best_path,
        loss_csv=loss_csv_path(root, config),
        loss_png=loss_png_path(root, config),
        folder=run.folder,
    )


def scaler_path(root: Path, config: AnyConfig) -> Path:
    return root / config.logging.artifacts_dir / f"scaler_{config.stream}.json"


def _build_trainer(
    sized: Sized,
    data: StreamData,
    *,
    plan: DevicePlan,
    root: Path,
    run_id: str,
    world: World,
    saved: Mapping[str, Any] | None,
) -> tuple[Trainer, dict[str, Any]]:
    """The trainer, and for the record what the hardware decided."""
    config = sized.config
    transform = build_transform(config, sampling_rate_hz=data.sampling_rate_hz, windows=data.parts["train"])
    progress = config.logging.progress
    train, validation = (Inputs(data.parts[name], transform, plan.device, progress=progress) for name in TRAINING_PARTS)
    model = build_model(config, num_channels=len(data.channels)).to(plan.device, plan.dtype)
    origin = config.training.start_from if saved is None else ""
    started_from = start_from(root / origin, model, config) if origin else None
    batch = decide_batch(model, train, validation, sized=sized, plan=plan, world=world, root=root, saved=saved)
    if config.log_device_info and world.is_main:
        for line in start_report(model, train, sized=sized, plan=plan, batch=batch, root=root):
            log.info("%s", line)
    if plan.compiled:
        torch.use_deterministic_algorithms(config.deterministic)  # this time the compiler is told too
        model.compile()
    bundle = {
        "run_id": run_id,
        "config": config.model_dump(mode="json"),
        "scaler": data.scaler.to_dict(),
        "transform": transform.to_dict(),
        # Under norm_target the reconstruction is given the level of each patch, which the mean input is not.
        "mean_input": None if getattr(config.model, "norm_target", False) else mean_input(train).cpu(),
        "channels": list(data.channels),
        "sampling_rate_hz": data.sampling_rate_hz,
        "data": {name: identity(data.parts[name]) for name in TRAINING_PARTS},
    }
    trainer = Trainer(
        model, train, validation, config=config, plan=plan, batch=batch, root=root, bundle=bundle, world=world
    )
    decisions = {
        "tier": sized.tier.name,
        "model": {
            "size": config.model.size,
            "parameters": count_parameters(model),
            "reason": sized.reason,
            "started_from": started_from,
        },
        "batch": batch.to_json(),
    }
    return trainer, decisions
