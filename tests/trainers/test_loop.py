from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from core import checkpoint
from core.config.schema import Training
from core.errors import LandfallError
from core.runlog import EpochRecord, RunLog, loss_png_path, read_metrics
from tests.support import most_nightly
from tests.trainers.trainings import CPU, NUM_WINDOWS, StandIn, StopAfter, fit, make_trainer, metrics_of, status_of
from trainers.loop import Trainer
from trainers.optimizer import build_optimizer
from trainers.state import Position


class Listener:
    """Records the calls of a watcher, and the checkpoint that exists at that time."""

    def __init__(self, trainer: Trainer):
        self.trainer, self.heard = trainer, []

    def steps(self, epochs_done: float, loss: float) -> None:
        self.heard.append(("steps", epochs_done, loss))

    def epoch(self, history) -> None:
        self.heard.append(("epoch", len(history), checkpoint.describe(self.trainer.checkpointer.last_path)["epoch"]))


def test_a_watcher_gets_logged_steps_and_saved_epochs(workspace):
    trainer = make_trainer(workspace, "training.epochs=2", "logging.every_steps=2")
    listener = Listener(trainer)
    trainer.context = replace(trainer.context, watcher=listener)
    with RunLog(workspace, trainer.config, "run-1", steps=trainer.epochs.total_steps) as run:
        trainer.fit(run, StopAfter(10_000))
    losses = [record["loss"] for record in read_metrics(run.metrics_file) if record["kind"] == "step"]
    per_epoch = trainer.epochs.steps
    logged = [entry[1] for entry in listener.heard if entry[0] == "steps"]
    assert logged == sorted(logged)
    assert logged[-1] == 2.0
    assert listener.heard[0] == ("steps", 2 / per_epoch, pytest.approx((losses[0] + losses[1]) / 2))
    assert [entry for entry in listener.heard if entry[0] == "epoch"] == [("epoch", 1, 1), ("epoch", 2, 2)]
    assert loss_png_path(workspace, trainer.config).is_file()


@pytest.mark.parametrize("accumulate", [1, 2])
def test_every_window_is_used_once_per_epoch(workspace, accumulate):
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


def test_the_gradient_is_clipped_to_the_maximum_norm(workspace):
    """The first moment of AdamW is a tenth of its first gradient."""
    free, step = first_gradient(workspace, "training.batch_size=21")
    assert step["grad_norm"] > 0.01
    clipped, logged = first_gradient(workspace, "training.batch_size=21", "gradient_clip_val=0.01")
    assert logged["grad_norm"] == pytest.approx(step["grad_norm"]), "the record contains the norm before clipping"
    assert (clipped.norm() / free.norm()).item() == pytest.approx(0.01 / step["grad_norm"], rel=1e-3)


@pytest.mark.parametrize("small, accumulate", most_nightly([(8, 3), (7, 3), (1, 21)], but=1))
def test_accumulation_equals_the_bigger_batch(workspace, small, accumulate):
    whole, whole_step = first_gradient(workspace, "training.batch_size=21")
    small_gradient, small_step = first_gradient(
        workspace, f"training.batch_size={small}", f"training.accumulate={accumulate}"
    )
    assert whole.abs().min() > 0 or whole[0, 2] == 0
    assert torch.allclose(small_gradient, whole, rtol=1e-5, atol=1e-8)
    assert small_step["loss"] == pytest.approx(whole_step["loss"], rel=1e-5)
    assert small_step["grad_norm"] == pytest.approx(whole_step["grad_norm"], rel=1e-5)


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
    assert checkpoint.load(trainer.checkpointer.best_path)["epoch"] == 2
    assert checkpoint.load(trainer.checkpointer.last_path)["epoch"] == 4
    assert checkpoint.describe(trainer.checkpointer.best_path)["metrics"] == {"best_epoch": 2, "best_val_loss": 1.0}


def test_a_run_that_stopped_early_stays_stopped_when_resumed(workspace):
    overrides = ("training.epochs=9", "training.early_stopping.patience=2")
    fit(make_trainer(workspace, *overrides, model=Worsening()))
    again = make_trainer(workspace, *overrides, model=Worsening())
    again.resume(again.checkpointer.last_path)
    assert len(fit(again).history) == 4
    assert again.model.seen == []


class Diverging(StandIn):
    def forward(self, x_btc, mask_bn):
        output = super().forward(x_btc, mask_bn)
        return output._replace(loss=output.loss * float("nan")) if len(self.seen) > 4 else output


def test_a_loss_that_stays_nan_ends_the_run(workspace):
    trainer = make_trainer(workspace, "training.epochs=9", "training.recoveries=1", model=Diverging())
    with pytest.raises(LandfallError, match=r"^loss nan, gradient norm nan in step 6 .*after 1 rec") as caught:
        fit(trainer)
    assert "training.learning_rate" in caught.value.hint
    assert status_of(workspace)["state"] == "failed"
    assert status_of(workspace)["reason"].startswith("loss nan")
    assert checkpoint.load(trainer.checkpointer.last_path)["epoch"] == 1, "the last good epoch is kept"
