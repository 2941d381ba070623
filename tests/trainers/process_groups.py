"""Trainings of several processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from core.runlog import EpochRecord, read_loss_csv
from tests.support import REPO_ROOT

TOGETHER = ("devices=2", "training.batch_size=4")


def start(root: Path, words: Sequence[str], stream: str = "patchtst", before: Sequence[str] = ()) -> subprocess.Popen:
    """The training command. Without an OMP_NUM_THREADS torchrun would warn."""
    command = [*before, sys.executable, "-m", f"trainers.train_{stream}_ssl", "--repo-root", str(root), *words]
    environment = {**os.environ, "PYTHONPATH": str(REPO_ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(job: subprocess.Popen, expected: int = 0) -> tuple[str, str]:
    try:
        out, err = job.communicate(timeout=400)
    finally:
        for process in [*psutil.Process(job.pid).children(recursive=True), job] if job.returncode is None else []:
            process.kill()
    assert job.returncode == expected, err
    return out, err


def history(root: Path, stream: str = "patchtst") -> list[EpochRecord]:
    return read_loss_csv(root / f"artifacts/loss/{stream}_loss_history.csv")


def assert_same_curve(one: Sequence[EpochRecord], other: Sequence[EpochRecord]) -> None:
    for first, second in zip(one, other, strict=True):
        assert second.train_loss == pytest.approx(first.train_loss, abs=1e-5)
        assert second.val_loss == pytest.approx(first.val_loss, abs=1e-5)
