"""Facts about a training run that every part of it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from core.config.compose import LoadedConfig
from core.config.schema import AnyConfig
from core.devices.plan import DevicePlan
from core.runlog import EpochRecord
from trainers.distributed import SINGLE_PROCESS, World


class Watcher(Protocol):
    """Follows a run, such as a live loss curve in a notebook."""

    def steps(self, epochs_done: float, loss: float) -> None:
        """Called whenever steps are logged: the progress of the run, and the mean loss of these steps."""

    def epoch(self, history: Sequence[EpochRecord]) -> None:
        """Called after each epoch, once its checkpoints are written, with all epochs so far."""


@dataclass(frozen=True)
class RunContext:
    """One training run in one process.

    loaded: the configuration, with the model's final size once it is known. plan: device, precision and memory.
    world: the processes that train together. resume_from: the checkpoint to resume; saved: its sidecar.
    """

    loaded: LoadedConfig
    root: Path
    plan: DevicePlan
    world: World = SINGLE_PROCESS
    run_id: str | None = None
    resume_from: Path | None = None
    saved: Mapping[str, Any] | None = None
    watcher: Watcher | None = None

    @property
    def config(self) -> AnyConfig:
        return self.loaded.config
