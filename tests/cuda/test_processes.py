"""Two processes that train together: on one device through gloo, on two through NCCL."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from core import checkpoint
from tests.support import REPO_ROOT
from tests.trainers.conftest import TINY


def compare(kind: str, library: str, processes: int, out: Path) -> list[str | None]:
    """What each process found; None where joint steps equal those of one process."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command += [f"--log-dir={out / 'torchrun'}"]
    command += ["-m", "tests.cuda.two_processes", kind, library, str(REPO_ROOT), str(out)]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPO_ROOT)}
    done = subprocess.run(command, cwd=REPO_ROOT, env=variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(processes)]


def test_two_processes_on_one_device_through_gloo(kind, tmp_path):
    assert compare(kind, "gloo", 2, tmp_path) == [None, None]


def test_one_process_through_nccl(cuda, tmp_path):
    assert compare(cuda, "nccl", 1, tmp_path) == [None]


def test_two_processes_on_two_devices_through_nccl(cuda, tmp_path):
    if torch.cuda.device_count() < 2:
        pytest.skip("NCCL refuses two processes on one GPU, and there is one")
    assert compare(cuda, "nccl", 2, tmp_path) == [None, None]


def test_a_run_takes_as_many_processes_as_there_are_devices(plant, words, kind):
    """devices=2: with one GPU, one process trains and says so."""
    command = [sys.executable, "-m", "trainers.train_patchtst_ssl", "--repo-root", str(plant), *TINY]
    command += ["training.epochs=2", "devices=2", *(word for word in words if "strict" not in word)]
    variables = {**os.environ, "PYTHONPATH": str(REPO_ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    count = 2 if kind == "cpu" else min(2, torch.cuda.device_count())
    hardware = checkpoint.describe(plant / "checkpoints/patchtst_ssl.pt")["hardware"]
    assert (hardware["kind"], hardware["count"]) == (kind, count)
    assert ("1 process trains" in done.stderr) is (count == 1)
