import json
from contextlib import suppress
from pathlib import Path

import pytest

from core.errors import StoppedError
from core.reading import UnreadableError
from core.runlog import (
    EpochRecord,
    RunLog,
    loss_csv_path,
    loss_png_path,
    read_loss_csv,
    read_metrics,
    write_loss_csv,
)

FIRST = EpochRecord(1, 0.1 + 0.2, 1 / 3, 1e-3, 1.25, 100.0)
SECOND = EpochRecord(2, 0.25, 2 / 7, 1e-5, 1.5, 90.5)
SKILL = {"total": 0.25, "channels": {"x": 0.25, "y": None}}
THIRD = EpochRecord(3, 0.2, 0.5, 0.0, 1.0, 95.0)


@pytest.fixture
def run(tmp_path, config) -> RunLog:
    return RunLog(tmp_path, config, "run-1", steps=6)


def status(run: RunLog) -> dict:
    return json.loads((run.folder / "status.json").read_text())


# --------------------------------------------------------------------------------------------------------------- status
def test_a_run_is_recorded_from_start_to_end(run, tmp_path):
    with run:
        assert run.folder == tmp_path / "runs/x/run-1"
        assert (status(run)["state"], status(run)["epoch"], status(run)["steps"]) == ("running", 0, 6)
        run.steps(1, [(1, 0.5, 1e-3, 2.0), (2, 0.4, 1e-3, 1.0)])
        assert status(run)["step"] == 2
        run.epoch(FIRST, best=FIRST)
        assert (status(run)["epoch"], status(run)["best"]) == (1, {"epoch": 1, "val_loss": 1 / 3, "skill": None})
        assert status(run)["finished_at"] is None
    assert (status(run)["state"], status(run)["reason"]) == ("completed", None)
    assert status(run)["started_at"] <= status(run)["finished_at"]


@pytest.mark.parametrize(
    "error, state, reason",
    [
        (RuntimeError("out of memory"), "failed", "out of memory"),
        (MemoryError(), "failed", "MemoryError"),
        (StoppedError("received SIGTERM", "checkpoints/x.last.pt"), "stopped", "stopped: received SIGTERM"),
        (KeyboardInterrupt(), "stopped", "KeyboardInterrupt"),
    ],
)
def test_a_run_that_ends_early_says_why(run, error, state, reason):
    with pytest.raises(type(error)), run:
        raise error
    assert status(run)["state"] == state
    assert status(run)["reason"].startswith(reason)


# -------------------------------------------------------------------------------------------------------------- metrics
def test_metrics_have_one_strict_json_record_per_line(run):
    with run:
        run.steps(1, [(1, float("nan"), 1e-3, float("inf"))])
        run.epoch(FIRST, best=FIRST, skill=SKILL, best_skill=SKILL)
    step, epoch = read_metrics(run.metrics_file)
    assert (step["kind"], step["step"], step["loss"], step["grad_norm"]) == ("step", 1, None, None)
    assert (epoch["kind"], epoch["epoch"], epoch["val_loss"]) == ("epoch", 1, 1 / 3)
    assert (epoch["skill"], epoch["channel_skill"]) == (0.25, {"x": 0.25, "y": None})
    assert "NaN" not in run.metrics_file.read_text()


def test_an_incomplete_last_line_is_skipped_and_reported(run, caplog):
    with run:
        run.steps(1, [(1, 0.5, 1e-3, 2.0), (2, 0.4, 1e-3, 1.0)])
    text = run.metrics_file.read_text()
    run.metrics_file.write_text(text[:-20])
    assert [record["step"] for record in read_metrics(run.metrics_file)] == [1]
    (warning,) = caplog.records
    assert warning.args == (run.metrics_file, 1, 2, 2)


def test_many_damaged_lines_are_one_warning(tmp_path, caplog):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"kind": "step"}\n' + "{\n" * 5)
    assert read_metrics(path) == [{"kind": "step"}]
    (warning,) = caplog.records
    assert warning.args == (path, 5, 6, 2)


def test_a_run_without_metrics_has_none(tmp_path):
    assert read_metrics(tmp_path / "metrics.jsonl") == []


def test_rewind_drops_steps_that_a_resumed_run_repeats(run, config, tmp_path):
    with suppress(RuntimeError), run:
        run.steps(1, [(1, 0.5, 1e-3, 2.0), (2, 0.4, 1e-3, 1.0)])
        run.epoch(FIRST, best=FIRST, skill=SKILL, best_skill=SKILL)
        run.steps(2, [(3, 0.3, 1e-3, 2.0), (4, 0.2, 1e-3, 1.0)])
        run.epoch(SECOND, best=SECOND)
        raise RuntimeError("lost power")
    with run.metrics_file.open("a") as file:
        file.write('{"kind": "st')
    with RunLog(tmp_path, config, "run-1", steps=6) as again:
        again.rewind(4, step=3, epoch=1)
        kept = [(record["kind"], record.get("step", record["epoch"])) for record in read_metrics(again.metrics_file)]
        assert kept == [("step", 1), ("step", 2), ("epoch", 1), ("step", 3)]
        assert (status(again)["step"], status(again)["epoch"]) == (3, 1)
        assert status(again)["best"] == {"epoch": 1, "val_loss": 1 / 3, "skill": 0.25}


def test_the_best_epoch_after_a_rewind_has_a_finite_loss(run):
    lost = EpochRecord(1, 0.5, float("nan"), 1e-3, 1.0, 95.0)
    with run:
        run.epoch(lost, best=lost)
        assert status(run)["best"] is None
        run.epoch(SECOND, best=SECOND)
        run.rewind(None, step=4, epoch=2)
        assert status(run)["best"]["epoch"] == 2


def test_rewind_to_the_start_leaves_nothing(run):
    with run:
        run.steps(1, [(1, 0.5, 1e-3, 2.0)])
        run.rewind(0, step=0, epoch=0)
    assert read_metrics(run.metrics_file) == []
    assert status(run)["best"] is None


def test_tensorboard_holds_the_same_figures(tmp_path, config):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logging = config.logging.model_copy(update={"tensorboard": True})
    with RunLog(tmp_path, config.model_copy(update={"logging": logging}), "run-1", steps=6) as run:
        run.steps(1, [(1, 0.5, 1e-3, 2.0)])
        run.epoch(FIRST, best=FIRST)
    events = EventAccumulator(str(run.folder))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss/step")] == [(1, 0.5)]
    assert events.Scalars("loss/validation")[0].value == pytest.approx(1 / 3)


# ------------------------------------------------------------------------------------------------------- loss artifacts
def test_artifacts_are_named_by_stream(config):
    assert loss_csv_path(Path("r"), config) == Path("r/artifacts/loss/patchtst_loss_history.csv")
    assert loss_png_path(Path("r"), config) == Path("r/artifacts/loss/patchtst_loss_curve.png")


def test_the_loss_history_is_read_back_bit_exactly(tmp_path):
    path = tmp_path / "loss" / "history.csv"
    write_loss_csv(path, [FIRST, SECOND, THIRD])
    assert path.read_text().splitlines()[0] == "epoch,train_loss,val_loss,lr,seconds,windows_per_second"
    assert read_loss_csv(path) == [FIRST, SECOND, THIRD]


def test_a_loss_history_over_16_mib_is_rejected_before_it_is_read(tmp_path):
    path = tmp_path / "history.csv"
    write_loss_csv(path, [FIRST])
    for size, is_read in ((1 << 24, True), ((1 << 24) + 1, False)):
        with path.open("ab") as file:
            file.truncate(size)
        with pytest.raises(ValueError) as raised:
            read_loss_csv(path)
        assert isinstance(raised.value, UnreadableError) != is_read


@pytest.mark.parametrize("text", ["", "epoch,loss\n1,2\n", "HEADER\n1,0.5\n", "HEADER\n1,a,b,c,d,e\n"])
def test_an_invalid_loss_history_is_rejected(tmp_path, text):
    path = tmp_path / "history.csv"
    path.write_text(text.replace("HEADER", "epoch,train_loss,val_loss,lr,seconds,windows_per_second"))
    with pytest.raises(ValueError):
        read_loss_csv(path)
