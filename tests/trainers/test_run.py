"""Complete runs with the settings that depend on hardware and profiles."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from core import checkpoint, stopping
from core.devices.backend import backend
from core.errors import CheckpointError, LandfallError, StoppedError
from core.runlog import read_loss_csv
from tests.support import REPO_ROOT
from tests.trainers.conftest import TINY
from tests.trainers.small_runs import environment_of, losses, run_training
from trainers import probing
from trainers import run as training_run

LAST = "checkpoints/patchtst_ssl.last.pt"

MEASURED = tuple(word for word in TINY if not word.startswith("training.batch_size"))


def command(root: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "trainers.train_patchtst_ssl", "--repo-root", str(root), "--run-id", "run-1", *TINY]
    return subprocess.run(
        [*line, *words],
        env={**os.environ, "PYTHONPATH": str(REPO_ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=400,
    )


# --------------------------------------------------------------------------------------------------------------- batch
@pytest.mark.slow
def test_a_measured_batch_size_is_reported_cached_and_used_again(plant, caplog):
    caplog.set_level("INFO")
    run_training(plant, "training.epochs=2", words=MEASURED)
    record = environment_of(plant)
    batch = record["batch"]
    assert batch["starting"] == 256
    assert (batch["effective"], batch["micro"] * batch["accumulate"]) == (8, 8)
    assert batch["peak_mb"] > 0
    assert batch["seconds_per_step"] > 0
    assert record["tier"] == "cpu"
    assert record["model"]["size"] == "reduced"
    assert checkpoint.describe(plant / "checkpoints/patchtst_ssl.pt")["hardware"]["batch"] == batch
    logged = {record.getMessage().split()[0] for record in caplog.records if record.name == "trainers.run"}
    assert logged >= {"device", "precision", "memory", "tier", "model", "batch", "activations", "time", "disk"}
    caplog.clear()
    run_training(plant, "training.epochs=2", words=MEASURED)
    assert "cached from" in caplog.text


@pytest.mark.slow
def test_measuring_does_not_change_the_result(plant):
    measured = run_training(plant, "training.epochs=2", words=MEASURED)
    fixed = run_training(plant, "training.epochs=2", "training.batch_size=8")
    assert losses(measured) == losses(fixed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "change, effective, micro",
    [
        ((), 16, None),
        pytest.param(("training.batch_size=4",), 16, 4, marks=pytest.mark.nightly),
        pytest.param(("training.effective_batch=4",), 4, None, marks=pytest.mark.nightly),
    ],
)
def test_a_resumed_run_keeps_its_global_batch_size_by_default(plant, change, effective, micro):
    """The micro-batch affects how steps are computed, not what is learned."""
    run_training(plant, "training.epochs=2", "training.effective_batch=16", words=MEASURED)
    run_training(plant, "training.epochs=2", "training.resume=auto", *change, words=MEASURED)
    batch = environment_of(plant)["batch"]
    assert batch["effective"] == effective
    # The fastest size depends on the load.
    assert batch["micro"] == micro if micro is not None else batch["micro"] <= effective


@pytest.mark.slow
def test_a_run_resumes_in_another_precision_with_a_warning(plant, caplog):
    """Loss scaling has a state in float16 only."""
    caplog.set_level("INFO")
    run_training(plant, "training.epochs=2")
    run_training(plant, "training.epochs=2", "training.resume=auto")
    assert "resuming bit-exactly" in caplog.text
    again = run_training(plant, "training.epochs=2", "training.resume=auto", "precision=16-mixed")
    assert len(again.history) == 2
    assert "precision was 32, is 16-mixed" in caplog.text


def test_a_checkpoint_without_a_batch_size_is_rejected(plant):
    run_training(plant, "training.epochs=1")
    sidecar = checkpoint.sidecar_path(plant / LAST)
    logged = json.loads(sidecar.read_text())
    del logged["hardware"]["batch"]
    sidecar.write_text(json.dumps(logged))
    with pytest.raises(CheckpointError, match=r"patchtst_ssl\.last\.pt.* batch size"):
        run_training(plant, "training.epochs=1", "training.resume=checkpoints/patchtst_ssl.last.pt")


class Cramped:
    """A model that runs out of memory above a number of windows, from one forward pass on."""

    def __init__(self, model: torch.nn.Module, most: int, spared: int):
        self.forward, self.most, self.spared = model.forward, most, spared

    def __call__(self, x, *rest, **named):
        self.spared -= 1
        output = self.forward(x, *rest, **named)
        if len(x) > self.most and self.spared < 0:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return output


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [("model.norm=layer",), ("model.norm=batch", "model.norm_windows=4")])
def test_a_run_that_runs_out_of_memory_has_the_same_result(plant, monkeypatch, caplog, overrides):
    """In float64, so that rounding errors do not grow over the steps."""
    words = ("training.epochs=3", "training.batch_size=16", "device.enable_x64=true", *overrides)
    undisturbed = losses(run_training(plant, *words))
    build = training_run.build_model

    def cramped(*arguments, **named):
        model = build(*arguments, **named)
        model.forward = Cramped(model, most=4, spared=5)
        return model

    monkeypatch.setattr(training_run, "build_model", cramped)
    disturbed = losses(run_training(plant, *words))
    assert caplog.text.count("out of memory (CUDA out of memory") == 2, "16 became 8 and 8 became 4, only once"
    for one, other in zip(undisturbed, disturbed, strict=True):
        assert other == pytest.approx(one, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("switch", ["true", "false"])
def test_gradient_checkpointing_changes_nothing_but_memory(plant, switch):
    result = run_training(plant, "training.epochs=2", f"training.gradient_checkpointing={switch}", "model.dropout=0.1")
    assert environment_of(plant)["batch"]["gradient_checkpointing"] is (switch == "true")
    reference = run_training(plant, "training.epochs=2", "model.dropout=0.1")
    assert losses(result) == losses(reference)


@pytest.mark.parametrize("limit", [False, True])
def test_a_run_that_is_stopped_while_measuring_has_nothing_to_save(plant, monkeypatch, limit):
    """The measurement is not cached either, because it was not complete."""
    steps, asked, held = probing.steps_of, [], []

    class HeldTimer(threading.Timer):
        """Does not run by itself."""

        def start(self) -> None:
            held.append(self)

        def join(self, timeout: float | None = None) -> None:
            """It was never started."""

    monkeypatch.setattr(stopping.threading, "Timer", HeldTimer)

    def interrupted(*arguments, **named):
        train_step, validation_step = steps(*arguments, **named)

        def step(size: int) -> None:
            train_step(size)
            asked.append(size)
            if limit:
                held[0].function()
            else:
                signal.raise_signal(signal.SIGTERM)

        return step, validation_step

    monkeypatch.setattr(probing, "steps_of", interrupted)
    with pytest.raises(StoppedError, match="nothing to save") as caught:
        run_training(plant, "timeout_hours=100", words=MEASURED)
    assert caught.value.exit_code == 75
    assert asked == [1]
    assert not list(plant.glob("checkpoints/*.pt"))
    assert not (plant / "artifacts/cache").exists()


def test_a_single_window_that_does_not_fit_is_an_error_with_a_hint(plant):
    with pytest.raises(LandfallError, match="one window") as caught:
        run_training(plant, "device.memory.strategy=custom", "device.memory.fraction=0.0001", words=MEASURED)
    assert "model.size=reduced" in caught.value.hint


# --------------------------------------------------------------------------------------------------------------- knobs
def test_a_process_trains_alone_with_a_warning_if_more_were_requested(plant, caplog):
    """A notebook never starts processes; it trains on one device."""
    run_training(plant, "training.epochs=1", "devices=2")
    assert re.search(r"this process only; `landfall train` .* 2 devices", caplog.text)
    assert environment_of(plant)["device"]["count"] == 1


def test_threads_are_capped(plant):
    torch.set_num_threads(2)
    run_training(plant, "training.epochs=1", "max_threads=1")
    assert torch.get_num_threads() == 1
    assert environment_of(plant)["device"]["threads_reason"]


@pytest.mark.slow
@pytest.mark.parametrize("words, deterministic", [
    ((), True), (("deterministic=false", "cudnn_benchmark=true"), False),
    (("local/devices=hpc_a100",), False), (("local/devices=hpc_a100", "deterministic=true"), True),
])  # fmt: skip
def test_kernels_are_deterministic_unless_speed_is_requested(plant, words, deterministic):
    run_training(plant, "training.epochs=1", *words)
    assert torch.are_deterministic_algorithms_enabled() is deterministic
    assert torch.backends.cudnn.benchmark is not deterministic


@pytest.mark.slow
def test_a_profile_of_the_first_steps_is_written(plant):
    result = run_training(plant, "training.epochs=2", "profile_runtime=true")
    trace = json.loads((result.folder / "trace.json").read_text())
    assert any("aten::addmm" in event.get("name", "") for event in trace["traceEvents"])


def test_by_default_nothing_is_profiled(plant, caplog):
    caplog.set_level("INFO")
    result = run_training(plant, "training.epochs=1", "log_device_info=false")
    assert not (result.folder / "trace.json").exists()
    assert not [record for record in caplog.records if record.getMessage().startswith("device  ")]


def test_with_x64_weights_and_results_are_float64(plant):
    result = run_training(plant, "training.epochs=1", "device.enable_x64=true")
    state = checkpoint.load(result.checkpoint)
    assert {value.dtype for value in state["model"].values() if value.is_floating_point()} == {torch.float64}
    assert environment_of(plant)["device"]["x64"] is True


@pytest.mark.nightly
def test_a_compiled_model_has_the_same_result(plant, monkeypatch):
    """The real compiler takes half a minute; this test only verifies that the setting reaches the model."""
    compiled = []
    compile_model = torch.nn.Module.compile
    monkeypatch.setattr(
        torch.nn.Module, "compile", lambda model: compiled.append(model) or compile_model(model, backend="aot_eager")
    )
    result = run_training(plant, "training.epochs=1", "device.enable_jit=true")
    reference = run_training(plant, "training.epochs=1")
    assert len(compiled) == 1
    for one, other in zip(losses(result), losses(reference), strict=True):
        assert one == pytest.approx(other, rel=1e-4)
    assert checkpoint.load(result.checkpoint)["model"].keys() == compiled[0].state_dict().keys()


def test_the_memory_limit_applies_during_training_only(plant, monkeypatch):
    limits = []
    cpu = type(backend("cpu"))
    limited = cpu.limited
    monkeypatch.setattr(cpu, "limited", lambda self, limit_mb: limits.append(limit_mb) or limited(self, limit_mb))
    run_training(plant, "training.epochs=1", "device.memory.strategy=conservative")
    assert limits == [environment_of(plant)["device"]["memory_limit_mb"]]


# ------------------------------------------------------------------------------------------------------------ commands
@pytest.mark.nightly
def test_the_wall_time_limit_saves_and_ends_with_75_before_the_limit(plant):
    for hours in (0.005, 0.02, 0.08):  # 18 s, unless the machine is so busy that training cannot begin in that time
        first = command(plant, "training.epochs=100000", "logging.every_steps=1", f"timeout_hours={hours}")
        if (plant / LAST).exists():
            break
    assert first.returncode == 75, first.stderr
    assert f"the wall-time limit of {hours} h is near" in first.stderr.splitlines()[-1]
    status = json.loads((plant / "runs/patchtst_ssl/run-1/status.json").read_text())
    assert status["state"] == "stopped"
    assert status["step"] > 0
    assert "optimizer" in checkpoint.load(plant / "checkpoints/patchtst_ssl.last.pt")


@pytest.mark.nightly
def test_a_command_restarts_itself_with_the_hash_seed_of_its_profile(plant):
    result = command(plant, "local/devices=cpu", "training.epochs=1", PYTHONHASHSEED="7")
    assert result.returncode == 0, result.stderr
    assert "restarting: PYTHONHASHSEED is 7, the profile requires 42" in result.stderr
    assert result.stderr.count("restarting") == 1
    assert len(read_loss_csv(plant / "artifacts/loss/patchtst_loss_history.csv")) == 1


@pytest.mark.nightly
def test_a_batch_size_on_the_command_line_is_not_changed(plant):
    result = command(plant, "--batch-size", "5", "training.epochs=1")
    assert result.returncode == 0, result.stderr
    batch = environment_of(plant)["batch"]
    assert (batch["micro"], batch["effective"], batch["largest"]) == (5, 5, None)
