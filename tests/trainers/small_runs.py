"""Small runs of both trainers, and what they record."""

from __future__ import annotations

import json
from pathlib import Path

from core.config.compose import load_config, local_config_file
from tests.trainers.conftest import TINY
from trainers.run import TrainingResult, train


def run_training(root: Path, *overrides: str, words: tuple[str, ...] = TINY) -> TrainingResult:
    loaded = load_config(local_config_file("patchtst"), [*words, *overrides], root=root, environment={})
    return train(loaded, root=root, run_id="run-1")


def environment_of(root: Path) -> dict:
    return json.loads((root / "runs/patchtst_ssl/run-1/environment.json").read_text())


def losses(result: TrainingResult) -> list[tuple[float, float]]:
    return [(record.train_loss, record.val_loss) for record in result.history]
