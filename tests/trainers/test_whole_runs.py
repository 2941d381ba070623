"""Runs of a tiny PatchTST on files: outputs, resuming, rejected changes, and signals."""

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import weakref

import pandas as pd
import pytest
import torch

from core import checkpoint
from core.errors import CheckpointError, StoppedError
from core.runlog import read_loss_csv
from tests.support import REPO_ROOT, most_nightly
from tests.trainers.conftest import TINY
from tests.trainers.trainings import StopAfter, fit, losses, make_trainer, metrics_of, run_training, status_of
from trainers import run as training_run
from trainers.distributed import World

LAST = "checkpoints/patchtst_ssl.last.pt"


@pytest.fixture
def stop_after(monkeypatch):
    return lambda steps: monkeypatch.setattr(training_run, "StopRequest", lambda hours: StopAfter(steps))


@pytest.mark.slow
def test_a_run_learns_and_writes_all_outputs(plant):
    result = run_training(plant, "training.epochs=8")
    assert result.history[-1].val_loss < 0.7 * result.history[0].val_loss
    assert result.best.val_loss == min(record.val_loss for record in result.history)

    best, last = checkpoint.load(result.checkpoint), checkpoint.load(plant / LAST)
    assert best["epoch"] == result.best.epoch
    assert last["epoch"] == 8
    assert best["channels"] == ["c0", "c1", "c2"]
    assert "optimizer" in last
    assert "optimizer" not in best
    sidecar = checkpoint.describe(result.checkpoint)
    assert sidecar["config"] == best["config"]
    assert (sidecar["run_id"], sidecar["hardware"]["kind"]) == ("run-1", "cpu")

    assert read_loss_csv(result.loss_csv) == list(result.history)
    assert result.loss_png.read_bytes().startswith(b"\x89PNG")
    scaler = json.loads((plant / "artifacts/scaler_patchtst.json").read_text())
    assert scaler["run_id"] == "run-1"
    assert tuple(scaler["center"]) == best["scaler"]["center"]
    assert {path.name for path in result.folder.iterdir()} >= {"config.yaml", "environment.json", "status.json"}
    assert status_of(plant)["state"] == "completed"
    assert status_of(plant)["best"]["epoch"] == result.best.epoch
    assert len(metrics_of(plant, "epoch")) == 8
    steps = metrics_of(plant, "step")
    assert [record["step"] for record in steps] == list(range(1, status_of(plant)["steps"] + 1))


@pytest.mark.slow
@pytest.mark.parametrize("stop_at", [5, 11])
def test_a_resumed_run_is_bit_identical_to_an_uninterrupted_one(plant, stop_after, stop_at):
    """Dropout uses the global generator, so the test fails if its state is not restored."""
    overrides = ("training.epochs=3", "model.dropout=0.2", "training.resume=auto")
    last = plant / "checkpoints/patchtst_ssl.last.pt"
    straight = run_training(plant, *overrides)
    straight_state, straight_steps = checkpoint.load(last), metrics_of(plant, "step")
    shutil.rmtree(last.parent)

    stop_after(stop_at)
    with pytest.raises(StoppedError) as caught:
        run_training(plant, *overrides)
    assert (plant / caught.value.checkpoint, caught.value.exit_code) == (last, 75)
    assert status_of(plant)["state"] == "stopped"
    stop_after(10_000)
    resumed = run_training(plant, *overrides, run_id="ignored: the run keeps its own name")

    assert resumed.run_id == "run-1"
    assert losses(resumed.history) == losses(straight.history)
    assert losses(read_loss_csv(resumed.loss_csv)) == losses(straight.history)
    assert metrics_of(plant, "step") == straight_steps
    for part in ("model", "random"):
        assert_equal_trees(checkpoint.load(last)[part], straight_state[part])
    assert_equal_trees(checkpoint.load(last)["optimizer"]["state"], straight_state["optimizer"]["state"])
    assert status_of(plant)["state"] == "completed"


def assert_equal_trees(one, other) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_equal_trees(one[key], other[key])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            assert_equal_trees(*pair)
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    else:
        assert one == other


@pytest.mark.slow
def test_runs_are_equal_with_one_seed_and_different_with_two(plant):
    histories = [run_training(plant, "training.epochs=1", f"seed={seed}").history for seed in (1, 1, 2)]
    assert losses(histories[0]) == losses(histories[1])
    assert losses(histories[0]) != losses(histories[2])


@pytest.mark.slow
def test_a_new_run_with_a_used_name_starts_a_new_log(plant):
    for _ in range(2):
        run_training(plant, "training.epochs=1")
    assert len(metrics_of(plant, "epoch")) == 1


@pytest.mark.slow
def test_a_finished_run_resumes_to_the_same_result(plant):
    first = run_training(plant, "training.epochs=2")
    again = run_training(plant, "training.epochs=2", "training.resume=auto")
    assert again.history == first.history
    status = status_of(plant)
    assert (status["state"], status["epoch"], status["step"]) == ("completed", 2, status["steps"])


def test_without_a_state_to_resume_a_new_run_starts(plant):
    assert len(run_training(plant, "training.epochs=1", "training.resume=auto").history) == 1


@pytest.fixture
def stopped(plant, stop_after):
    """A workspace with a run that was stopped in its first epoch."""
    stop_after(3)
    with pytest.raises(StoppedError):
        run_training(plant, "training.epochs=2")
    stop_after(10_000)
    return plant


def test_a_changed_configuration_is_rejected_by_key_and_the_log_is_unchanged(stopped):
    files = [stopped / "artifacts/scaler_patchtst.json", *(stopped / "runs/patchtst_ssl/run-1").iterdir()]
    before = [file.read_bytes() for file in files]
    with pytest.raises(CheckpointError) as caught:
        run_training(stopped, "training.epochs=3", "model.d_ff=64", "seed=1", "training.resume=auto")
    for difference in ("model.d_ff was 32, is 64", "seed was 42, is 1", "training.epochs was 2, is 3"):
        assert difference in str(caught.value)
    assert [file.read_bytes() for file in files] == before


@pytest.mark.slow
def test_settings_that_do_not_affect_learning_may_change(stopped):
    changes = (
        *("logging.every_steps=1", "scoring.batch_size=2", "data.score_stride=4", "training.resume=auto"),
        *("precision=32", "devices=auto", "timeout_hours=5", "training.gradient_checkpointing=true"),
    )
    assert len(run_training(stopped, "training.epochs=2", *changes).history) == 2


def test_other_data_is_rejected(stopped):
    (stopped / "data/fdc/train_1.csv").unlink()
    with pytest.raises(CheckpointError, match=r"data.splits.train: .*data/fdc/train_1.csv") as caught:
        run_training(stopped, "training.epochs=2", "training.resume=auto")
    assert "--allow-changes" in caught.value.hint


def test_other_values_in_the_same_file_are_rejected(stopped):
    file = stopped / "data/fdc/train_1.csv"
    frame = pd.read_csv(file)
    frame.loc[200, "c1"] += 0.5
    frame.to_csv(file, index=False)
    with pytest.raises(CheckpointError, match=r"data.splits.train: changed: data/fdc/train_1.csv"):
        run_training(stopped, "training.epochs=2", "training.resume=auto")


@pytest.mark.slow
def test_changes_can_be_allowed(stopped, caplog):
    (stopped / "data/fdc/train_1.csv").unlink()
    changes = ("training.resume=auto", "training.allow_changes=true", "training.weight_decay=0.01")
    result = run_training(stopped, "training.epochs=4", *changes)
    assert (result.run_id, len(result.history)) == ("run-1", 4)
    for message in (
        "training.epochs was 2, is 4",
        "data/fdc/train_1.csv",
        "resuming, because training.allow_changes = true",
    ):
        assert message in caplog.text
    (group, _) = checkpoint.load(stopped / LAST)["optimizer"]["param_groups"]
    assert group["weight_decay"] == 0.01, "the change has an effect"


def test_another_model_cannot_be_allowed(stopped):
    with pytest.raises(CheckpointError, match=r"another model: size mismatch"):
        run_training(stopped, "training.resume=auto", "training.allow_changes=true", "model.d_ff=64")


UNFINISHED = ("training.epochs=2", "training.resume=unfinished")


@pytest.mark.slow
def test_unfinished_resumes_a_stopped_run_and_starts_a_new_one_after_a_complete_run(stopped):
    assert run_training(stopped, *UNFINISHED, run_id=None).run_id == "run-1"
    assert run_training(stopped, *UNFINISHED, run_id=None).run_id != "run-1"


@pytest.mark.slow
def test_unfinished_resumes_a_run_that_died(stopped):
    """A killed process leaves its last state."""
    status = stopped / "runs/patchtst_ssl/run-1/status.json"
    status.write_text(json.dumps(json.loads(status.read_text()) | {"state": "running"}))
    assert run_training(stopped, *UNFINISHED, run_id=None).run_id == "run-1"


@pytest.mark.slow
def test_unfinished_starts_a_new_run_if_another_one_is_requested(stopped):
    assert run_training(stopped, *UNFINISHED, run_id="run-2").run_id == "run-2"


@pytest.mark.slow
@pytest.mark.parametrize("damage", most_nightly(["torn", "another configuration", "no run"], but=1))
def test_unfinished_starts_a_new_run_if_the_checkpoint_does_not_fit(stopped, damage, caplog):
    last, seed = stopped / "checkpoints/patchtst_ssl.last.pt", 42
    if damage == "another configuration":
        seed = 1
    elif damage == "torn":
        for state in (last, checkpoint.previous_path(last, 1)):
            state.write_bytes(state.read_bytes()[:-1])
    else:
        (stopped / "runs/patchtst_ssl/run-1/status.json").unlink()
    result = run_training(stopped, *UNFINISHED, f"seed={seed}", run_id=None)
    assert result.run_id != "run-1"
    assert len(result.history) == 2
    assert ("restarting from the beginning" in caplog.text) == (damage != "no run")


@pytest.mark.nightly
def test_memory_of_a_failed_resume_is_released_before_training_restarts(stopped, monkeypatch):
    """Two models and two copies of the data may not fit into memory."""
    build, models = training_run.build_model, []

    def built(*arguments, **named):
        gc.collect()
        assert not [model for model in models if model() is not None]
        model = build(*arguments, **named)
        models.append(weakref.ref(model))
        return model

    monkeypatch.setattr(training_run, "build_model", built)
    run_training(stopped, *UNFINISHED, "seed=1", run_id=None)
    assert len(models) == 2


def test_no_process_continues_before_all_have_read_the_state(workspace, monkeypatch):
    """Saving renames older states, which another process may be reading."""
    fit(make_trainer(workspace, "training.epochs=1"))
    again, load, done = make_trainer(workspace, "training.epochs=1"), checkpoint.load_described, []
    monkeypatch.setattr(checkpoint, "load_described", lambda path: done.append("read") or load(path))
    monkeypatch.setattr(World, "gather", lambda world, value: done.append("met") or [value])
    again.resume(again.checkpointer.last_path)
    assert done == ["read", "met"]


@pytest.mark.slow
def test_a_model_without_training_state_is_rejected(plant):
    run_training(plant, "training.epochs=1")
    with pytest.raises(CheckpointError, match=r"patchtst_ssl\.pt.* no training state"):
        run_training(plant, "training.epochs=1", "training.resume=checkpoints/patchtst_ssl.pt")


# ------------------------------------------------------------------------------------------------------------- signals
@pytest.mark.slow
@pytest.mark.parametrize(
    "number, code",
    most_nightly([(signal.SIGTERM, 75), (signal.SIGINT, 130), (signal.SIGUSR1, 75)], but=1),
)
def test_a_signal_saves_a_checkpoint_that_resumes(plant, number, code):
    command = [sys.executable, "-m", "trainers.train_patchtst_ssl", "--repo-root", str(plant), "--run-id", "run-1"]
    overrides = [*TINY, "training.epochs=100000", "logging.every_steps=1"]
    environment = {**os.environ, "PYTHONPATH": str(REPO_ROOT)}
    metrics = plant / "runs/patchtst_ssl/run-1/metrics.jsonl"
    with subprocess.Popen([*command, *overrides], stderr=subprocess.PIPE, text=True, env=environment) as process:
        while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
            time.sleep(0.05)
        process.send_signal(number)
        errors = process.stderr.read()
    assert process.returncode == code, errors
    assert f"stopped: received {number.name}" in errors.splitlines()[-1]
    assert status_of(plant)["state"] == "stopped"
    state = checkpoint.load(plant / "checkpoints/patchtst_ssl.last.pt")
    assert "optimizer" in state
