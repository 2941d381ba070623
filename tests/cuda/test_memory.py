"""Memory of the device: what a step takes, what happens when it runs out, and batches that are copied ahead."""

import contextlib
import ctypes
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from core.config.compose import LoadedConfig
from core.config.schema import Data, Logging, PatchTSTConfig, PatchTSTModel, Quality
from core.data import feed as feed_module
from core.data.feed import Feed
from core.data.inputs import Identity, Inputs
from core.data.recording import Recording
from core.data.windows import Series, WindowSet
from core.devices.backend import backend
from core.models.factory import build_model
from core.runlog import read_loss_csv
from tests.cuda.conftest import plan_of
from tests.trainers.objectives import gradients
from tests.trainers.trainings import run_training
from trainers.context import RunContext
from trainers.objective import Objective
from trainers.probing import measure, steps_of

CHANNELS, WINDOW = 16, 256
CONFIG = PatchTSTConfig(
    logging=Logging(log_dir="runs", checkpoint_path="model.pt"),
    dqvl=Quality(report_dir="quality"),
    data=Data(window=WINDOW),
    model=PatchTSTModel(patch_length=8, d_model=128, num_heads=8, num_layers=3, d_ff=512, dropout=0.0, norm="layer"),
)
# Windows of a step: on a GPU it takes gigabytes, on a CPU some hundred megabytes.
WINDOWS = {"cuda": 256, "cpu": 24}
_MMAP_THRESHOLD = -3  # of malloc.h


def windows(count: int) -> WindowSet:
    values_tc = np.random.default_rng(0).normal(size=(count + WINDOW - 1, CHANNELS)).astype(np.float32)
    names = tuple(f"c{number}" for number in range(CHANNELS))
    recording = Recording("r", Path("r"), values_tc, np.arange(len(values_tc)), names, 1000.0, "index")
    return WindowSet(Series.of([recording], values_tc), np.arange(count), WINDOW)


def model_on(kind: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return build_model(CONFIG, num_channels=CHANNELS).to(kind)


# -------------------------------------------------------------------------------------------------------- out of memory
_BALLAST = """
import sys, torch
block = torch.empty(int(float(sys.argv[1]) * 2**20), dtype=torch.uint8, device="cuda")
print("taken", flush=True)
sys.stdin.read()
"""


def unmap_freed_memory() -> None:
    """From here on, glibc returns each freed tensor to the system. What it keeps for reuse is not refused later."""
    if sys.platform == "linux":
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 2**16)


@contextlib.contextmanager
def pressure(kind: str, keep_mb: float) -> Iterator[None]:
    """Leaves this process `keep_mb` beyond what it holds: on a GPU another process takes the rest, on a CPU the system
    refuses more."""
    device = backend(kind)
    device.empty_cache()
    if kind == "cpu":
        with device.limited(device.reserved_mb() + keep_mb):
            yield
        return
    context_mb = 600.0  # of the other process
    ballast_mb = device.memory_mb()[0] - keep_mb - context_mb
    command = [sys.executable, "-c", _BALLAST, str(ballast_mb)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout.readline() == "taken\n"
            yield
        finally:
            other.kill()


def step_of(kind: str, micro: int) -> tuple[Objective, float, dict[str, torch.Tensor]]:
    """A training step of all windows: its objective, loss and gradients."""
    count, plan = WINDOWS[kind], plan_of(kind)
    inputs = Inputs(windows(count), Identity(), plan.device)
    objective = Objective(model_on(kind), RunContext(LoadedConfig(CONFIG, "", {}), Path(), plan), micro=micro)
    loss = objective.backward(inputs, torch.arange(count), "masks", 0).item()
    return objective, loss, {name: g.cpu() for name, g in gradients(objective.model).items()}


def test_a_step_that_runs_out_of_memory_is_repeated_in_smaller_ones(kind, caplog, record_property):
    """The pressure is real: the allocator asks the system, which has no more."""
    device = backend(kind)
    if kind == "cpu":
        unmap_freed_memory()
    step_of(kind, 1)  # kernels and workspaces exist from here on
    device.reset_peak_memory()
    before_mb = device.peak_memory_mb()
    _, expected_loss, expected = step_of(kind, WINDOWS[kind])
    taken_mb = device.peak_memory_mb() - before_mb
    with pressure(kind, 0.6 * taken_mb):
        objective, loss, found = step_of(kind, WINDOWS[kind])
    record_property("MiB of the step", taken_mb)
    record_property("micro-batch", objective.micro)
    assert objective.micro < WINDOWS[kind]
    assert "out of memory" in caplog.text
    assert loss == pytest.approx(expected_loss, rel=1e-4)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=1e-5)


# ----------------------------------------------------------------------------------------------------------- prediction
@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_predicted_peak_is_the_one_taken(kind, tmp_path, checkpointing, record_property):
    """The probe's figure for its choice, and steps of that size afterwards."""
    device, plan = backend(kind), plan_of(kind, memory_limit_mb=8000)
    context = RunContext(LoadedConfig(CONFIG, "", {}), tmp_path, plan)
    train, validation = (Inputs(windows(count), Identity(), plan.device) for count in (WINDOWS[kind], 8))
    model = model_on(kind)
    found = measure(context, model, train, validation, effective=WINDOWS[kind], checkpointing=checkpointing)
    model.gradient_checkpointing = checkpointing
    train_step, validation_step = steps_of(context, model, train, validation)
    device.reset_peak_memory()
    for _ in range(3):
        train_step(found.micro)
    validation_step(found.micro)
    device.synchronize()
    taken_mb = device.peak_memory_mb()
    errors = [trial.predicted_mb / trial.peak_mb - 1 for trial in found.trials if trial.predicted_mb and trial.size > 8]
    record_property("micro-batch", found.micro)
    record_property("predicted over taken", found.peak_mb / taken_mb)
    record_property("worst prediction of an untried size", max(errors, key=abs, default=0.0))
    assert found.peak_mb == pytest.approx(taken_mb, rel=0.1)
    assert all(abs(error) < 0.1 for error in errors)


# ------------------------------------------------------------------------------------------------------- copied ahead
def steps() -> list[torch.Tensor]:
    return list(torch.randperm(64, generator=torch.Generator().manual_seed(1)).split(8))


def test_batches_from_pinned_memory_are_those_of_the_device(kind, monkeypatch):
    resident = Feed(windows(64), torch.device(kind))
    monkeypatch.setattr(feed_module, "_fits", lambda series, device: False)
    ahead = Feed(windows(64), torch.device(kind))
    ahead.expect(steps())
    for index_b in steps():
        assert torch.equal(ahead.batch(index_b), resident.batch(index_b))
        assert ahead.batch(index_b).device.type == kind


def test_a_copy_from_pinned_memory_does_not_wait_for_the_device(cuda, monkeypatch, record_property):
    monkeypatch.setattr(feed_module, "_fits", lambda series, device: False)
    feed = Feed(windows(64), torch.device(cuda))
    feed.expect(steps())
    first, *others = steps()
    feed.batch(first)
    time.sleep(0.2)  # the next one is gathered and pinned meanwhile: new pinned memory waits for the device
    torch.cuda.synchronize()
    started = time.perf_counter()
    torch.cuda._sleep(2_000_000_000)  # cycles: about a second
    batch = feed.batch(others[0])
    copied_s = time.perf_counter() - started
    torch.cuda.synchronize()
    waited_s = time.perf_counter() - started
    record_property("ms until the batch is queued", 1e3 * copied_s)
    record_property("ms of the work before it", 1e3 * waited_s)
    assert copied_s < 0.2 * waited_s
    assert torch.equal(batch.cpu(), windows(64).batch(others[0]))


def test_a_run_that_copies_ahead_learns_the_same(plant, words, monkeypatch):
    def losses() -> list[tuple[float, float]]:
        run_training(plant, "training.epochs=2", "training.promote=always", *words, run_id=None)
        history = read_loss_csv(plant / "artifacts/loss/patchtst_loss_history.csv")
        return [(record.train_loss, record.val_loss) for record in history]

    expected = losses()
    monkeypatch.setattr(feed_module, "_fits", lambda series, device: False)
    assert losses() == expected
