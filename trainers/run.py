"""A training run from configuration to checkpoint: load, build, resume, fit, record. Notebooks call `train` too."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from core import checkpoint
from core.config.compose import LoadedConfig, render
from core.config.schema import AnyConfig
from core.data.dataset import TRAINING_PARTS, StreamData, load_stream_data
from core.data.inputs import Inputs, build_transform
from core.devices.manager import DeviceManager, DevicePlan
from core.environment import environment_record
from core.errors import CheckpointError
from core.models.factory import build_model, count_parameters
from core.reproducibility import seed_everything
from core.runlog import EpochRecord, RunLog, loss_csv_path, loss_png_path
from core.workspace import new_run_id, write_json
from trainers.loop import Trainer
from trainers.signals import StopRequest

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingResult:
    """What a finished run gave and where it lies."""

    run_id: str
    stream: str
    history: tuple[EpochRecord, ...]
    best: EpochRecord
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
            "checkpoint": str(self.checkpoint),
            "loss_csv": str(self.loss_csv),
            "loss_png": str(self.loss_png),
            "run_folder": str(self.folder),
        }


def train(loaded: LoadedConfig, *, root: Path, run_id: str | None = None) -> TrainingResult:
    """Trains the stream of the configuration. `run_id` names the run's folder (default: a new one).

    Raises DataError for unusable data, CheckpointError where resuming is asked for and impossible, StoppedError
    after a signal.
    """
    config = loaded.config
    plan = DeviceManager(config.device).plan()
    log.info("device %s (%s); precision %s (%s)", plan.name, plan.device_reason, plan.precision, plan.precision_reason)
    torch.set_num_threads(plan.threads)
    seed_everything(config.seed, deterministic=config.deterministic)

    resume_from = _checkpoint_to_resume(config, root)
    if resume_from is not None:
        run_id = checkpoint.describe(resume_from)["run_id"]
    run_id = run_id or new_run_id()

    data = load_stream_data(config, root=root, parts=TRAINING_PARTS, run_id=run_id)
    trainer = _build_trainer(config, data, plan=plan, root=root, run_id=run_id)
    if resume_from is not None:
        trainer.resume(resume_from)
        log.info("resuming %s after %d epochs and %d steps", run_id, trainer.position.epoch, trainer.position.step)
    with RunLog(root, config, run_id, steps=trainer.total_steps) as run, StopRequest() as stop:
        run.write_config(render(loaded))
        run.write_environment(environment_record(root, plan))
        write_json(scaler_path(root, config), {**data.scaler.to_dict(), "run_id": run_id})
        run.rewind(step=trainer.steps_done, epoch=trainer.position.epoch)
        position = trainer.fit(run, stop)
    return TrainingResult(
        run_id=run_id,
        stream=config.stream,
        history=tuple(position.history),
        best=position.best,
        checkpoint=trainer.best_path,
        loss_csv=loss_csv_path(root, config),
        loss_png=loss_png_path(root, config),
        folder=run.folder,
    )


def scaler_path(root: Path, config: AnyConfig) -> Path:
    return root / config.logging.artifacts_dir / f"scaler_{config.stream}.json"


def _build_trainer(config: AnyConfig, data: StreamData, *, plan: DevicePlan, root: Path, run_id: str) -> Trainer:
    transform = build_transform(config, sampling_rate_hz=data.sampling_rate_hz, windows=data.parts["train"])
    progress = config.logging.progress
    train, validation = (Inputs(data.parts[name], transform, plan.device, progress=progress) for name in TRAINING_PARTS)
    model = build_model(config, num_channels=len(data.channels))
    log.info("%s: %.2f M parameters, %d channels", config.stream, count_parameters(model) / 1e6, len(data.channels))
    bundle = {
        "run_id": run_id,
        "config": config.model_dump(mode="json"),
        "scaler": data.scaler.to_dict(),
        "transform": transform.to_dict(),
        "channels": list(data.channels),
        "sampling_rate_hz": data.sampling_rate_hz,
    }
    return Trainer(model, train, validation, config=config, plan=plan, root=root, bundle=bundle)


def _checkpoint_to_resume(config: AnyConfig, root: Path) -> Path | None:
    """`auto` takes the last checkpoint if there is one; a path must exist and be whole."""
    choice = config.training.resume
    if choice == "never":
        return None
    last = checkpoint.last_path(root / config.logging.checkpoint_path)
    if choice == "auto" and not last.is_file():
        log.info("nothing to resume: %s does not exist; starting anew", last.name)
        return None
    path = last if choice == "auto" else root / choice
    if not path.is_file():
        raise CheckpointError(path, "does not exist", hint="set training.resume to auto or never")
    checkpoint.verify(path)
    return path
