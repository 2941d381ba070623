import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import weakref
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from core import checkpoint
from core.config.compose import load_config, local_config_file
from core.config.schema import AnyConfig, Training
from core.data.identity import identity
from core.data.inputs import Identity, Inputs
from core.data.recording import Recording
from core.data.windows import Series, WindowSet
from core.devices.batching import BatchPlan
from core.devices.plan import DevicePlan
from core.errors import CheckpointError, LandfallError, StoppedError
from core.runlog import EpochRecord, RunLog, loss_png_path, read_loss_csv, read_metrics
from tests.support import REPO_ROOT
from tests.trainers.conftest import TINY
from trainers import run as training_run
from trainers.distributed import World
from trainers.loop import Position, Trainer
from trainers.optimizer import build_optimizer
from trainers.run import TrainingResult, train

CPU = DevicePlan("cpu", "CPU", "32", 1, "a test", "a test")
NUM_WINDOWS, WINDOW = 21, 4


def config_of(root: Path, *overrides: str) -> AnyConfig:
    return load_config(local_config_file("patchtst"), [*TINY, *overrides], root=root, environment={}).config


def run_training(root: Path, *overrides: str, run_id: str | None = "run-1") -> TrainingResult:
    loaded = load_config(local_config_file("patchtst"), [*TINY, *overrides], root=root, environment={})
    return train(loaded, root=root, run_id=run_id)


def status_of(root: Path, run_id: str = "run-1") -> dict:
    return json.loads((root / "runs/patchtst_ssl" / run_id / "status.json").read_text())


def metrics_of(root: Path, kind: str) -> list[dict]:
    untimed = ("time", "seconds", "windows_per_second", "memory_mb", "gpu_utilisation")
    records = read_metrics(root / "runs/patchtst_ssl/run-1/metrics.jsonl")
    return [{k: v for k, v in record.items() if k not in untimed} for record in records if record["kind"] == kind]


def losses(history) -> list[tuple[int, float, float, float]]:
    return [(record.epoch, record.train_loss, record.val_loss, record.lr) for record in history]


@dataclass
class StopAfter:
    """A stop request that comes after so many steps."""

    steps_left: int
    interrupted: bool = False
    reason: str | None = None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def deferred(self):
        return self

    def is_due(self, next_seconds: float) -> bool:
        self.steps_left -= 1
        self.reason = "asked to stop" if self.steps_left < 0 else None
        return self.reason is not None


@pytest.fixture
def stop_after(monkeypatch):
    return lambda steps: monkeypatch.setattr(training_run, "StopRequest", lambda hours: StopAfter(steps))


# ---------------------------------------------------------------------------------------------------- a stand-in model
class Output(NamedTuple):
    loss: torch.Tensor
    reconstruction: torch.Tensor
    mask: torch.Tensor
    count: torch.Tensor


class StandIn(nn.Module):
    """Predicts every value by one weight; remembers in training which windows it saw, batch by batch."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, 3))
        self.seen: list[list[int]] = []

    def draw_mask(self, batch_size: int, *, generator: torch.Generator, device: torch.device) -> torch.Tensor:
        return torch.ones(batch_size, 1, dtype=torch.bool, device=device)

    def forward(self, x_btc: torch.Tensor, mask_bn: torch.Tensor) -> Output:
        if self.training:
            self.seen.append((x_btc[:, 0, 0] / WINDOW).int().tolist())
        loss = (x_btc / 100 - self.weight).square().mean()
        return Output(loss, self.weight.expand_as(x_btc), mask_bn, torch.tensor(float(x_btc.numel())))


def windows() -> WindowSet:
    rows = NUM_WINDOWS * WINDOW
    values_tc = np.stack([np.arange(rows), np.ones(rows), np.zeros(rows)], axis=1).astype(np.float32)
    recording = Recording("r", Path("r"), values_tc, np.arange(rows), ("a", "b", "c"), None, "index")
    return WindowSet(Series.of([recording], values_tc), torch.arange(0, rows, WINDOW), WINDOW)


def make_trainer(root: Path, *overrides: str, model: nn.Module | None = None) -> Trainer:
    config = config_of(root, *overrides)
    train_inputs, validation = (Inputs(windows(), Identity(), CPU.device) for _ in range(2))
    bundle = {"run_id": "run-1", "config": config.model_dump(mode="json"), "data": {"train": identity(windows())}}
    parts = 1 if config.training.accumulate == "auto" else config.training.accumulate
    batch = batch_of(config.training.batch_size, parts)
    model = model or StandIn()
    return Trainer(model, train_inputs, validation, config=config, plan=CPU, batch=batch, root=root, bundle=bundle)


def batch_of(micro: int, parts: int = 1) -> BatchPlan:
    return BatchPlan(
        starting=micro, effective=micro * parts, micro=micro, accumulate=parts, largest=None,
        gradient_checkpointing=False, peak_mb=None, seconds_per_step=None, reason="a test",
    )  # fmt: skip


def fit(trainer: Trainer) -> Position:
    with RunLog(trainer.root, trainer.config, "run-1", steps=trainer.total_steps) as run:
        return trainer.fit(run, StopAfter(10_000))


class Listener:
    """Notes what a watcher is told, and which checkpoint lies there by then."""

    def __init__(self, trainer: Trainer):
        self.trainer, self.heard = trainer, []

    def steps(self, epochs_done: float, loss: float) -> None:
        self.heard.append(("steps", epochs_done, loss))

    def epoch(self, history) -> None:
        self.heard.append(("epoch", len(history), checkpoint.describe(self.trainer.last_path)["epoch"]))


def test_who_watches_hears_of_steps_as_logged_and_of_epochs_once_checkpoints_are_written(workspace):
    trainer = make_trainer(workspace, "training.epochs=2", "logging.every_steps=2")
    listener = Listener(trainer)
    with RunLog(workspace, trainer.config, "run-1", steps=trainer.total_steps) as run:
        trainer.fit(run, StopAfter(10_000), watcher=listener)
    losses = [record["loss"] for record in read_metrics(run.metrics_file) if record["kind"] == "step"]
    per_epoch = trainer.steps_per_epoch
    told = [entry[1] for entry in listener.heard if entry[0] == "steps"]
    assert told == sorted(told)
    assert told[-1] == 2.0
    assert listener.heard[0] == ("steps", 2 / per_epoch, pytest.approx((losses[0] + losses[1]) / 2))
    assert [entry for entry in listener.heard if entry[0] == "epoch"] == [("epoch", 1, 1), ("epoch", 2, 2)]
    assert loss_png_path(workspace, trainer.config).is_file()


@pytest.mark.parametrize("accumulate", [1, 2])
def test_every_window_is_seen_exactly_once_an_epoch(workspace, accumulate):
    trainer = make_trainer(workspace, "training.epochs=3", f"training.accumulate={accumulate}")
    fit(trainer)
    seen = [index for batch in trainer.model.seen for index in batch]
    epochs = [seen[start : start + NUM_WINDOWS] for start in range(0, len(seen), NUM_WINDOWS)]
    assert len(epochs) == 3
    assert all(Counter(epoch) == Counter(range(NUM_WINDOWS)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


def test_a_shorter_epoch_repeats_no_window(workspace):
    trainer = make_trainer(workspace, "training.epochs=1", "training.windows_per_epoch=10")
    fit(trainer)
    assert [len(batch) for batch in trainer.model.seen] == [8, 2]
    assert len({index for batch in trainer.model.seen for index in batch}) == 10


def test_the_epoch_loss_is_the_mean_over_windows(workspace):
    trainer = make_trainer(workspace, "training.epochs=1", "training.learning_rate=1e-12")
    everything = trainer.train.batch(torch.arange(NUM_WINDOWS))
    (record,) = fit(trainer).history
    mask = trainer.model.draw_mask(NUM_WINDOWS, generator=None, device=CPU.device)
    assert record.train_loss == pytest.approx(trainer.model(everything, mask).loss.item(), rel=1e-5)
    assert record.val_loss == pytest.approx(record.train_loss, rel=1e-5)


def first_gradient(root: Path, *overrides: str) -> tuple[torch.Tensor, dict]:
    trainer = make_trainer(root, "training.epochs=1", "gradient_clip_val=0", *overrides)
    fit(trainer)
    (step,) = metrics_of(root, "step")[-1:]
    return trainer.optimizer.state[trainer.model.weight]["exp_avg"], step


def test_the_gradient_is_clipped_to_its_largest_norm(workspace):
    """AdamW's first moment is a tenth of the first gradient it saw."""
    free, step = first_gradient(workspace, "training.batch_size=21")
    assert step["grad_norm"] > 0.01
    clipped, told = first_gradient(workspace, "training.batch_size=21", "gradient_clip_val=0.01")
    assert told["grad_norm"] == pytest.approx(step["grad_norm"]), "the record tells the norm before"
    assert (clipped.norm() / free.norm()).item() == pytest.approx(0.01 / step["grad_norm"], rel=1e-3)


@pytest.mark.parametrize("small, accumulate", [(7, 3), (8, 3), (1, 21)])
def test_accumulation_equals_the_bigger_batch(workspace, small, accumulate):
    whole, whole_step = first_gradient(workspace, "training.batch_size=21")
    parts, parts_step = first_gradient(workspace, f"training.batch_size={small}", f"training.accumulate={accumulate}")
    assert whole.abs().min() > 0 or whole[0, 2] == 0
    assert torch.allclose(parts, whole, rtol=1e-5, atol=1e-8)
    assert parts_step["loss"] == pytest.approx(whole_step["loss"], rel=1e-5)
    assert parts_step["grad_norm"] == pytest.approx(whole_step["grad_norm"], rel=1e-5)


def test_weight_decay_is_for_matrices_only():
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    model[2].weight.requires_grad_(False)
    decayed, exempt = build_optimizer(model, Training(weight_decay=0.1), fused=False).param_groups
    assert decayed["weight_decay"] == 0.1
    assert [id(p) for p in decayed["params"]] == [id(model[0].weight)]
    assert exempt["weight_decay"] == 0.0
    assert {id(p) for p in exempt["params"]} == {id(p) for p in (model[0].bias, *model[1].parameters(), model[2].bias)}


def records_of(*val_losses: float) -> list[EpochRecord]:
    return [EpochRecord(epoch, 1.0, loss, 0.0, 1.0, 1.0) for epoch, loss in enumerate(val_losses, start=1)]


@pytest.mark.parametrize(
    "val_losses, min_delta, since",
    [((), 0, 0), ((3, 2, 1), 0, 0), ((3, 2, 2), 0, 1), ((3, 1, 2, 1.5), 0, 2), ((3, 2.9, 2.8, 2.7), 0.15, 1)],
)
def test_epochs_without_improvement(val_losses, min_delta, since):
    assert Position(history=records_of(*val_losses)).epochs_without_improvement(min_delta) == since


class Worsening(StandIn):
    """Its validation loss is best after the second epoch."""

    def forward(self, x_btc, mask_bn):
        output = super().forward(x_btc, mask_bn)
        loss = output.loss if self.training else 0 * output.loss + abs(len(self.seen) / 3 - 2) + 1
        return output._replace(loss=loss)


def test_early_stopping_keeps_the_best_epoch(workspace):
    trainer = make_trainer(workspace, "training.epochs=9", "training.early_stopping.patience=2", model=Worsening())
    history = fit(trainer).history
    assert [record.val_loss for record in history] == [2.0, 1.0, 2.0, 3.0]
    assert checkpoint.load(trainer.best_path)["epoch"] == 2
    assert checkpoint.load(trainer.last_path)["epoch"] == 4
    assert checkpoint.describe(trainer.best_path)["metrics"] == {"best_epoch": 2, "best_val_loss": 1.0}


def test_a_run_that_stopped_early_stays_stopped_when_resumed(workspace):
    overrides = ("training.epochs=9", "training.early_stopping.patience=2")
    fit(make_trainer(workspace, *overrides, model=Worsening()))
    again = make_trainer(workspace, *overrides, model=Worsening())
    again.resume(again.last_path)
    assert len(fit(again).history) == 4
    assert again.model.seen == []


class Diverging(StandIn):
    def forward(self, x_btc, mask_bn):
        output = super().forward(x_btc, mask_bn)
        return output._replace(loss=output.loss * float("nan")) if len(self.seen) > 4 else output


def test_a_loss_that_stays_no_number_ends_the_run_clearly(workspace):
    trainer = make_trainer(workspace, "training.epochs=9", "training.recoveries=1", model=Diverging())
    with pytest.raises(LandfallError, match=r"^loss nan, gradient norm nan in step 6 .*after 1 rec") as caught:
        fit(trainer)
    assert "training.learning_rate" in caught.value.hint
    assert status_of(workspace)["state"] == "failed"
    assert status_of(workspace)["reason"].startswith("loss nan")
    assert checkpoint.load(trainer.last_path)["epoch"] == 1, "the last good epoch is kept"


# ---------------------------------------------------------------------------------------------------------- whole runs
def test_a_run_learns_and_leaves_everything_it_should(plant):
    result = run_training(plant, "training.epochs=8")
    assert result.history[-1].val_loss < 0.7 * result.history[0].val_loss
    assert result.best.val_loss == min(record.val_loss for record in result.history)

    best, last = checkpoint.load(result.checkpoint), checkpoint.load(checkpoint.last_path(result.checkpoint))
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


@pytest.mark.parametrize("stop_at", [5, 11])
def test_a_resumed_run_equals_the_straight_one_to_the_last_bit(plant, stop_after, stop_at):
    """Dropout draws from the global generator, so a generator that is not restored would show."""
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
    resumed = run_training(plant, *overrides, run_id="ignored: the run goes on under its own name")

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


def test_two_runs_of_one_seed_are_equal_and_of_two_seeds_are_not(plant):
    histories = [run_training(plant, "training.epochs=1", f"seed={seed}").history for seed in (1, 1, 2)]
    assert losses(histories[0]) == losses(histories[1])
    assert losses(histories[0]) != losses(histories[2])


def test_a_new_run_of_an_old_name_starts_its_record_anew(plant):
    for _ in range(2):
        run_training(plant, "training.epochs=1")
    assert len(metrics_of(plant, "epoch")) == 1


def test_a_finished_run_resumes_to_the_same_result(plant):
    first = run_training(plant, "training.epochs=2")
    again = run_training(plant, "training.epochs=2", "training.resume=auto")
    assert again.history == first.history
    status = status_of(plant)
    assert (status["state"], status["epoch"], status["step"]) == ("completed", 2, status["steps"])


def test_nothing_to_resume_starts_anew(plant):
    assert len(run_training(plant, "training.epochs=1", "training.resume=auto").history) == 1


@pytest.fixture
def stopped(plant, stop_after):
    """A workspace with a run that was stopped in its first epoch."""
    stop_after(3)
    with pytest.raises(StoppedError):
        run_training(plant, "training.epochs=2")
    stop_after(10_000)
    return plant


def test_a_changed_configuration_is_refused_by_key_and_leaves_the_record(stopped):
    files = [stopped / "artifacts/scaler_patchtst.json", *(stopped / "runs/patchtst_ssl/run-1").iterdir()]
    before = [file.read_bytes() for file in files]
    with pytest.raises(CheckpointError) as caught:
        run_training(stopped, "training.epochs=3", "model.d_ff=64", "seed=1", "training.resume=auto")
    for difference in ("model.d_ff was 32, is 64", "seed was 42, is 1", "training.epochs was 2, is 3"):
        assert difference in str(caught.value)
    assert [file.read_bytes() for file in files] == before


def test_what_learning_does_not_depend_on_may_change(stopped):
    changes = (
        *("logging.every_steps=1", "scoring.batch_size=2", "data.score_stride=4", "training.resume=auto"),
        *("precision=32", "devices=auto", "timeout_hours=5", "training.gradient_checkpointing=true"),
    )
    assert len(run_training(stopped, "training.epochs=2", *changes).history) == 2


def test_other_data_is_refused(stopped):
    (stopped / "data/fdc/train_1.csv").unlink()
    with pytest.raises(CheckpointError, match=r"data.parts.train: gone: data/fdc/train_1.csv; ") as caught:
        run_training(stopped, "training.epochs=2", "training.resume=auto")
    assert "--allow-changes" in caught.value.hint


def test_other_values_in_the_same_file_are_refused(stopped):
    file = stopped / "data/fdc/train_1.csv"
    frame = pd.read_csv(file)
    frame.loc[200, "c1"] += 0.5
    frame.to_csv(file, index=False)
    with pytest.raises(CheckpointError, match=r"data.parts.train: changed: data/fdc/train_1.csv"):
        run_training(stopped, "training.epochs=2", "training.resume=auto")


def test_what_changed_may_be_allowed(stopped, caplog):
    (stopped / "data/fdc/train_1.csv").unlink()
    changes = ("training.resume=auto", "training.allow_changes=true", "training.weight_decay=0.01")
    result = run_training(stopped, "training.epochs=4", *changes)
    assert (result.run_id, len(result.history)) == ("run-1", 4)
    for told in (
        "training.epochs was 2, is 4",
        "gone: data/fdc/train_1.csv",
        "going on, as training.allow_changes = true",
    ):
        assert told in caplog.text
    (group, _) = checkpoint.load(checkpoint.last_path(result.checkpoint))["optimizer"]["param_groups"]
    assert group["weight_decay"] == 0.01, "the change is in force"


def test_another_model_cannot_be_allowed(stopped):
    with pytest.raises(CheckpointError, match=r"has weights of another model: size mismatch"):
        run_training(stopped, "training.resume=auto", "training.allow_changes=true", "model.d_ff=64")


UNFINISHED = ("training.epochs=2", "training.resume=unfinished")


def test_unfinished_goes_on_with_a_stopped_run_and_once_it_is_finished_starts_anew(stopped):
    assert run_training(stopped, *UNFINISHED, run_id=None).run_id == "run-1"
    assert run_training(stopped, *UNFINISHED, run_id=None).run_id != "run-1"


def test_unfinished_goes_on_with_a_run_that_died(stopped):
    """A killed process leaves the state it had last."""
    status = stopped / "runs/patchtst_ssl/run-1/status.json"
    status.write_text(json.dumps(json.loads(status.read_text()) | {"state": "running"}))
    assert run_training(stopped, *UNFINISHED, run_id=None).run_id == "run-1"


def test_unfinished_starts_anew_where_another_run_is_asked_for(stopped):
    assert run_training(stopped, *UNFINISHED, run_id="run-2").run_id == "run-2"


@pytest.mark.parametrize("damage", ["another configuration", "torn", "no run"])
def test_unfinished_starts_anew_where_the_checkpoint_does_not_fit(stopped, damage, caplog):
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
    assert ("starting anew" in caplog.text) == (damage != "no run")


def test_what_did_not_fit_is_gone_before_training_starts_anew(stopped, monkeypatch):
    """Two models and twice the data may not fit into memory."""
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


def test_nobody_goes_on_before_all_have_read_the_state(workspace, monkeypatch):
    """Who saves moves the older states, and another process may be about to read one of them."""
    fit(make_trainer(workspace, "training.epochs=1"))
    again, load, done = make_trainer(workspace, "training.epochs=1"), checkpoint.load_described, []
    monkeypatch.setattr(checkpoint, "load_described", lambda path: done.append("read") or load(path))
    monkeypatch.setattr(World, "gather", lambda world, value: done.append("met") or [value])
    again.resume(again.last_path)
    assert done == ["read", "met"]


def test_a_model_without_training_state_is_refused(plant):
    run_training(plant, "training.epochs=1")
    with pytest.raises(CheckpointError, match="holds a model but no training state"):
        run_training(plant, "training.epochs=1", "training.resume=checkpoints/patchtst_ssl.pt")


# ------------------------------------------------------------------------------------------------------------- signals
@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 75), (signal.SIGINT, 130), (signal.SIGUSR1, 75)])
def test_a_signal_leaves_a_checkpoint_that_resumes(plant, number, code):
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


def test_the_optimizer_is_pytorchs_to_the_bit_and_imports_no_compiler():
    code = """
import sys
import torch
from core.config.schema import Training
from trainers.optimizer import build_optimizer

models = [torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 3)) for _ in range(2)]
models[1].load_state_dict(models[0].state_dict())
settings = Training(learning_rate=0.01, weight_decay=0.1)
own = build_optimizer(models[0], settings, fused=False)

def step(model, optimizer):
    model(torch.arange(20.0).view(4, 5)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)

for _ in range(3):
    step(models[0], own)
own.load_state_dict(own.state_dict())
assert not {"torch._dynamo", "torch._inductor"} & sys.modules.keys()
weights, biases = ([p for p in models[1].parameters() if (p.ndim > 1) is many] for many in (True, False))
groups = [{**group, "params": same} for group, same in zip(own.param_groups, (weights, biases))]
plain = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=settings.betas)
for _ in range(3):
    step(models[1], plain)
assert all(torch.equal(one, other) for one, other in zip(models[0].parameters(), models[1].parameters()))
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=REPO_ROOT)
