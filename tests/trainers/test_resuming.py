"""Where training resumes: within an epoch, with another batch size, after an interrupted validation, and from the
state before a damaged one."""

import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from core import checkpoint
from core.errors import CheckpointError, LandfallError, StoppedError
from core.lock import Lock
from core.runlog import RunLog, loss_csv_path, read_loss_csv, read_metrics
from tests.support import most_nightly
from tests.trainers.trainings import NUM_WINDOWS, StandIn, StopAfter, batch_of, fit, losses, make_trainer, run_training
from trainers.checkpointer import Checkpointer
from trainers.loop import Trainer
from trainers.objective import Objective
from trainers.resuming import report_exactness

LAST = "checkpoints/patchtst_ssl.last.pt"


def stop(trainer: Trainer, after: int) -> None:
    """after: number of checks whether to stop; there is one before each step and each block of validation."""
    with open_log(trainer) as run, pytest.raises(StoppedError):
        trainer.fit(run, StopAfter(after))


def open_log(trainer: Trainer) -> RunLog:
    return RunLog(trainer.root, trainer.config, "run-1", steps=trainer.epochs.total_steps)


def seen_in(*models: StandIn) -> Counter[int]:
    return Counter(index for model in models for batch in model.seen for index in batch)


# ------------------------------------------------------------------------------------------------------------ positions
@pytest.mark.parametrize(
    "before, steps, after", most_nightly([(4, 3, 1), (8, 2, 3), (5, 4, 8), (4, 3, 16), (5, 4, 1)], but=2)
)
def test_with_another_batch_size_each_window_is_still_used_once(workspace, before, steps, after):
    first = make_trainer(workspace, "training.epochs=2", f"training.batch_size={before}")
    stop(first, steps)
    second = make_trainer(workspace, "training.epochs=2", f"training.batch_size={after}")
    second.resume(second.checkpointer.last_path)
    assert second.state.steps_done <= second.epochs.steps
    history = fit(second).history
    assert seen_in(first.model, second.model) == Counter(dict.fromkeys(range(NUM_WINDOWS), 2))
    assert len(history) == 2
    shares = [len(batch) for batch in second.model.seen]
    left = NUM_WINDOWS - before * steps
    assert sum(shares) == left + NUM_WINDOWS
    assert shares[: left // after] == [after] * (left // after), "complete steps of the new size from the start"


@pytest.mark.parametrize("after", [2, pytest.param(16, marks=pytest.mark.nightly)])
def test_with_another_batch_size_the_log_drops_repeated_steps_only(workspace, after):
    """The steps of an epoch then have other numbers, larger or smaller than those of the log."""
    first = make_trainer(workspace, "training.epochs=2", "training.batch_size=4")
    stop(first, first.epochs.steps + 3)
    with open_log(first) as run:
        done = read_metrics(run.metrics_file)
        run.steps(2, [(first.state.steps_done + 1, 0.5, 1e-3, 1.0), (first.state.steps_done + 2, 0.5, 1e-3, 1.0)])
    assert [record["step"] for record in done if record["kind"] == "step"] == list(range(1, first.state.steps_done + 1))
    for _ in range(2):  # the second time from a state without a count of log records
        second = make_trainer(workspace, "training.epochs=2", f"training.batch_size={after}")
        second.resume(second.checkpointer.last_path)
        with open_log(second) as run:
            run.rewind(second.state.logged, step=second.state.steps_done, epoch=second.position.epoch)
            assert read_metrics(run.metrics_file) == done
            with pytest.raises(StoppedError):
                second.fit(run, StopAfter(0))


def test_the_batch_size_may_change_twice_within_an_epoch(workspace):
    models = []
    for batch, steps in ((8, 1), (3, 2), (2, None)):
        trainer = make_trainer(workspace, "training.epochs=1", f"training.batch_size={batch}")
        models.append(trainer.model)
        if len(models) > 1:
            trainer.resume(trainer.checkpointer.last_path)
        if steps is None:
            fit(trainer)
        else:
            stop(trainer, steps)
    assert seen_in(*models) == Counter(range(NUM_WINDOWS))


def test_a_run_has_a_state_before_its_first_step(workspace):
    trainer = make_trainer(workspace)
    stop(trainer, 0)
    again = make_trainer(workspace)
    again.resume(again.checkpointer.last_path)
    assert (again.state.steps_done, trainer.model.seen) == (0, [])


@pytest.mark.slow
def test_a_request_during_validation_is_not_lost_and_no_step_is_repeated(workspace):
    """The epoch has three steps of eight windows, so the fourth check is within validation."""
    expected = losses(fit(make_trainer(workspace, "training.epochs=2")).history)
    first = make_trainer(workspace, "training.epochs=2")
    stop(first, 3)
    assert checkpoint.describe(first.checkpointer.last_path)["epoch"] == 0
    second = make_trainer(workspace, "training.epochs=2")
    second.resume(second.checkpointer.last_path)
    assert losses(fit(second).history) == expected
    assert seen_in(first.model) == Counter(range(NUM_WINDOWS))
    assert seen_in(second.model) == Counter(range(NUM_WINDOWS)), "only the second epoch"


def test_several_processes_complete_their_validation(workspace, monkeypatch):
    trainer = make_trainer(workspace)
    asked = StopAfter(0)
    assert trainer.objective.mean_loss(trainer.validation, asked) is None
    monkeypatch.setattr(trainer.objective, "world", replace(trainer.world, size=2))
    monkeypatch.setattr(type(trainer.world), "all_reduce_sum", lambda self, values: values)
    monkeypatch.setattr(Objective, "_wait_for_others", lambda *arguments: None)
    assert trainer.objective.mean_loss(trainer.validation, asked) is not None


# --------------------------------------------------------------------------------------------------------------- saving
def states_saved(trainer: Trainer, monkeypatch) -> list[tuple[int, int]]:
    """Position of each training state that a run saves: epoch and step."""
    saved, save = [], Checkpointer.save_state

    def noted(self: Checkpointer, run: RunLog) -> None:
        saved.append((trainer.position.epoch, trainer.position.step))
        save(self, run)

    monkeypatch.setattr(Checkpointer, "save_state", noted)
    fit(trainer)
    return saved


def test_states_are_saved_by_time_within_an_epoch(workspace, monkeypatch):
    trainer = make_trainer(workspace, "training.epochs=2", "training.checkpoint_every_minutes=1e-9")
    assert states_saved(trainer, monkeypatch) == [
        (0, 0),
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 0),
        (1, 0),
        (1, 1),
        (1, 2),
        (2, 0),
    ]


@pytest.mark.parametrize("minutes", ["0", "10"])
def test_without_time_states_are_saved_at_the_start_and_after_each_epoch(workspace, monkeypatch, minutes):
    trainer = make_trainer(workspace, "training.epochs=2", f"training.checkpoint_every_minutes={minutes}")
    assert states_saved(trainer, monkeypatch) == [(0, 0), (1, 0), (2, 0)]


def test_a_state_contains_all_that_a_run_needs(workspace):
    trainer = make_trainer(workspace, "training.epochs=1")
    fit(trainer)
    state, described = checkpoint.load_described(trainer.checkpointer.last_path)
    assert {
        "model",
        "optimizer",
        "loss_scaler",
        "position",
        "random",
        "config",
        "data",
        "effective_batch",
    } <= state.keys()
    assert {"torch", "numpy", "python"} <= state["random"].keys()
    assert described["hardware"]["versions"].keys() == {"landfall", "python", "torch", "numpy"}
    assert None not in described["hardware"]["versions"].values()


def test_random_states_of_numpy_and_python_are_restored(workspace):
    import random

    import numpy as np

    def draws() -> list[float]:
        return [
            random.random(),
            random.gauss(0, 1),
            float(np.random.rand()),
            float(np.random.normal()),
            torch.rand(()).item(),
        ]

    random.gauss(0, 1), np.random.normal()  # both generators cache a second number
    trainer = make_trainer(workspace)
    stop(trainer, 1)
    expected = draws()
    draws()
    trainer.resume(trainer.checkpointer.last_path)
    assert draws() == expected


def test_a_best_model_that_was_not_saved_is_saved_on_resume(workspace, monkeypatch):
    trainer = make_trainer(workspace, "training.epochs=2")
    save = Checkpointer.save_best

    def dies_before_best(self: Checkpointer) -> None:
        if trainer.position.epoch == 2:
            raise KeyboardInterrupt
        save(self)

    with monkeypatch.context() as patched:
        patched.setattr(Checkpointer, "save_best", dies_before_best)
        with pytest.raises(KeyboardInterrupt):
            fit(trainer)
    assert checkpoint.describe(trainer.checkpointer.best_path)["epoch"] == 1
    again = make_trainer(workspace, "training.epochs=2")
    again.resume(again.checkpointer.last_path)
    fit(again)
    best = checkpoint.load(again.checkpointer.best_path)
    assert best["epoch"] == again.position.best.epoch == 2
    assert torch.equal(best["model"]["weight"], trainer.model.weight)


# ------------------------------------------------------------------------------------------------------------- choosing
@pytest.fixture
def trained(plant):
    """A workspace with a run of three epochs, and its result."""
    return plant, run_training(plant, "training.epochs=3")


AGAIN = ("training.epochs=3", "training.resume=auto")


@pytest.mark.parametrize("damage", most_nightly(["flipped", "missing", "torn", "no sidecar"], but=1))
def test_a_damaged_state_is_replaced_by_the_previous_one_with_a_warning(trained, caplog, damage):
    root, first = trained
    last = root / LAST
    data = bytearray(last.read_bytes())
    data[len(data) // 2] ^= 1
    {
        "flipped": lambda: last.write_bytes(data),
        "torn": lambda: last.write_bytes(data[:1000]),
        "missing": last.unlink,
        "no sidecar": checkpoint.sidecar_path(last).unlink,
    }[damage]()
    caplog.set_level("INFO")
    again = run_training(root, *AGAIN)
    (described,) = [record for record in caplog.records if "using the state before it" in record.message]
    assert described.levelname == "WARNING"
    assert "patchtst_ssl.last.pt: " in described.message
    assert "resuming run-1 after 2 epochs, 0 steps, from patchtst_ssl.last.1.pt" in caplog.text
    assert losses(again.history) == losses(first.history)
    assert losses(read_loss_csv(again.loss_csv)) == losses(first.history)
    assert checkpoint.verify(last)["epoch"] == 3, "there is a valid one again"


@pytest.mark.slow
def test_where_all_states_are_damaged_the_newest_is_named(trained):
    root, _ = trained
    for name in (LAST, "checkpoints/patchtst_ssl.last.1.pt"):
        (root / name).write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match=r"patchtst_ssl\.last\.pt: is damaged"):
        run_training(root, *AGAIN)


@pytest.mark.slow
def test_a_requested_file_is_not_replaced_by_another(trained):
    root, _ = trained
    (root / LAST).write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match=r"patchtst_ssl\.last\.pt: is damaged"):
        run_training(root, "training.epochs=3", f"training.resume={LAST}")


@pytest.mark.slow
def test_the_requested_number_of_states_is_kept(plant):
    run_training(plant, "training.epochs=4", "training.keep=3")
    kept = sorted(path.name for path in (plant / "checkpoints").glob("*.last*.pt"))
    assert kept == ["patchtst_ssl.last.1.pt", "patchtst_ssl.last.2.pt", "patchtst_ssl.last.pt"]
    epochs = [checkpoint.verify(plant / "checkpoints" / name)["epoch"] for name in kept]
    assert epochs == [3, 2, 4]


@pytest.mark.slow
def test_unfinished_with_the_name_of_a_completed_run_does_not_train_again(trained, caplog):
    """A job that is restarted after its training was complete does not train again."""
    root, first = trained
    caplog.set_level("INFO")
    again = run_training(root, "training.epochs=3", "training.resume=unfinished", run_id="run-1")
    assert again.history == first.history
    assert "resuming run-1 after 3 epochs" in caplog.text


@pytest.mark.slow
def test_the_state_of_an_older_version_is_rejected(trained):
    root, _ = trained
    state, described = checkpoint.load_described(root / LAST)
    del state["data"]
    checkpoint.save(root / LAST, state, description=described)
    with pytest.raises(CheckpointError, match="training data"):
        run_training(root, *AGAIN)


# ------------------------------------------------------------------------------------------------------------ exactness
@pytest.mark.slow
def test_changes_that_affect_the_last_digits_are_reported(trained, caplog):
    root, _ = trained
    hardware = checkpoint.describe(root / LAST)["hardware"]
    caplog.set_level("INFO")
    report_exactness(hardware, json.loads(json.dumps(hardware)))
    assert "resuming bit-exactly" in caplog.text
    other = {**hardware, "name": "Tesla T4", "processes": 2, "batch": {**hardware["batch"], "micro": 1}}
    report_exactness(hardware, other)
    for difference in ("is Tesla T4", "processes was 1, is 2", "micro-batch was 8, is 1"):
        assert difference in caplog.text
    assert batch_of(8).to_json().keys() == hardware["batch"].keys()


# -------------------------------------------------------------------------------------------------------- another owner
@dataclass
class TakenOver(StopAfter):
    """Another run takes over the files after some steps; this one is asked to stop then, or not."""

    stops: bool = True
    folder: Path = Path()

    def is_due(self, next_seconds: float) -> bool:
        if super().is_due(next_seconds):
            for path in self.folder.glob(".*.lock*"):
                path.unlink()
        return self.reason is not None and self.stops


@pytest.mark.parametrize("stops", [True, False], ids=["asked to stop", "at the end of the epoch"])
def test_a_run_whose_files_were_taken_over_writes_nothing_more(workspace, stops):
    trainer = make_trainer(workspace, "training.epochs=1")
    after = 0 if stops else trainer.epochs.steps
    with (
        Lock("run-1") as lock,
        RunLog(trainer.root, trainer.config, "run-1", steps=trainer.epochs.total_steps, lock=lock) as run,
    ):
        lock.take(trainer.checkpointer.last_path, key="logging.checkpoint_path")
        trainer.checkpointer.begin(run)
        before = trainer.checkpointer.last_path.read_bytes()
        with pytest.raises(LandfallError, match="was lost"):
            trainer.fit(run, TakenOver(after, stops=stops, folder=trainer.checkpointer.last_path.parent))
    assert trainer.checkpointer.last_path.read_bytes() == before
    assert not loss_csv_path(workspace, trainer.config).exists()
