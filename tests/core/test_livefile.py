"""The live document of a run during training."""

import json
import logging
from types import SimpleNamespace

import pytest

from core import livefile, runlog
from core.livefile import LARGEST_SHARE, MAX_STEPS, LiveFile
from core.page import LIVE, PAGE
from core.runlog import DeviceReading, EpochRecord, RunLog, SilentRunLog
from tests.dashboard.documents import validate

STATUS = {"schema_version": 1, "stream": "patchtst", "run_id": "run-1", "state": "running"}


@pytest.fixture
def root(tmp_path):
    page = tmp_path / PAGE / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text("<!doctype html>")
    return tmp_path


@pytest.fixture
def now(monkeypatch) -> list[float]:
    """The time in seconds, which passes only when a test changes it."""
    seconds = [1000.0]
    clock = SimpleNamespace(monotonic=lambda: seconds[0], perf_counter=lambda: seconds[0])
    for module in (livefile, runlog):
        monkeypatch.setattr(module, "time", clock)
    return seconds


def read(root) -> dict:
    return json.loads((root / LIVE / "patchtst.json").read_text())


def step(number: int, loss: float | None) -> tuple[dict, str]:
    record = {"kind": "step", "epoch": 1, "step": number, "loss": loss, "lr": 1e-3, "grad_norm": 1.0}
    return record, json.dumps(record)


def test_the_live_file_covers_the_run_from_start_to_end(root, config):
    with RunLog(root, config, "run-1", steps=6, windows=48) as run:
        assert (read(root)["state"], read(root)["step"]) == ("running", 0)
        run.steps(1, [(1, 0.5, 1e-3, 2.0), (2, float("nan"), 1e-3, 1.0)], reading=DeviceReading(300.0, 0.5))
        run.epoch(EpochRecord(1, 0.3, 0.4, 1e-3, 1.25, 100.0), best=EpochRecord(1, 0.3, 0.4, 1e-3, 1.25, 100.0))
    live = read(root)
    validate(live, "live-run")
    assert (live["state"], live["step"], live["epoch"]) == ("completed", 2, 1)
    assert [point["loss"] for point in live["step_history"]] == [0.5, None]
    assert [point.get("memory_mb") for point in live["step_history"]] == [None, 300.0]
    assert [point["val_loss"] for point in live["history"]] == [0.4]
    assert (live["peak_memory_mb"], live["gpu_utilisation"]) == (300.0, 0.5)


def test_time_left_and_throughput_follow_from_the_steps_of_this_process(root, config, now):
    with RunLog(root, config, "run-1", steps=60, windows=480) as run:
        now[0] += 7.0
        run.rewind(None, step=40, epoch=1)
        now[0] += 0.2
        run.steps(2, [(number, 0.5, 1e-3, 2.0) for number in range(41, 51)])
        status = json.loads((run.folder / "status.json").read_text())
    assert status["eta_seconds"] == 0.2
    assert status["windows_per_second"] == 8 * 10 / 0.2
    assert read(root)["eta_seconds"] is None


def test_a_resumed_run_shows_its_earlier_steps(root, config):
    with RunLog(root, config, "run-1", steps=6) as run:
        run.steps(1, [(number, 1 / number, 1e-3, 2.0) for number in range(1, 6)])
    with RunLog(root, config, "run-1", steps=6) as run:
        run.rewind(3, step=3, epoch=0)
    assert [point["step"] for point in read(root)["step_history"]] == [1, 2, 3]


def test_it_is_written_at_most_once_a_second_and_at_the_end(root, now):
    live = LiveFile(root, "patchtst")
    live.refresh(STATUS)
    for number in range(5):
        now[0] += 0.19
        live.add([step(number, 1.0)])
        live.refresh(STATUS)
    assert read(root)["step_history"] == []
    now[0] += 0.1
    live.refresh(STATUS)
    assert len(read(root)["step_history"]) == 5
    live.add([step(5, 1.0)])
    live.refresh(STATUS | {"state": "completed"}, last=True)
    assert len(read(root)["step_history"]) == 6


def test_writes_are_less_frequent_on_a_slow_disk(root, now, monkeypatch):
    def write_slowly(path, text):
        now[0] += 0.02

    monkeypatch.setattr(livefile, "write_text", write_slowly)
    monkeypatch.setattr(livefile, "SHORTEST_PAUSE_S", 0.0)
    live = LiveFile(root, "patchtst")
    live.refresh(STATUS)
    assert live._next - now[0] == pytest.approx(0.02 / LARGEST_SHARE)


def test_thinned_steps_keep_the_peak(root):
    live = LiveFile(root, "patchtst")
    for number in range(12_345):
        live.add([step(number, 99.0 if number == 777 else 1 / (1 + number))])
    live.refresh(STATUS)
    points = read(root)["step_history"]
    assert MAX_STEPS // 4 < len(points) <= MAX_STEPS
    assert {0, 777, 12_344} <= {point["step"] for point in points}
    assert [point["step"] for point in points] == sorted(point["step"] for point in points)


def test_no_live_file_is_written_without_the_dashboard(tmp_path, config):
    with RunLog(tmp_path, config, "run-1", steps=6):
        pass
    assert not (tmp_path / "training_dashboard").exists()


def test_other_processes_of_a_run_write_nothing(root, config):
    with SilentRunLog(root, config, "run-1", steps=6) as run:
        run.rewind(0, step=0, epoch=0)
        run.steps(1, [(1, 0.5, 1e-3, 2.0)])
    assert not (root / LIVE).exists()


def test_an_unwritable_folder_causes_one_warning_and_training_continues(root, config, caplog):
    (root / LIVE).parent.mkdir(parents=True)
    (root / LIVE).write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING), RunLog(root, config, "run-1", steps=6) as run:
        for number in range(1, 4):
            run.steps(1, [(number, 0.5, 1e-3, 2.0)])
    assert sum("dashboard" in record.message for record in caplog.records) == 1
    assert json.loads((run.folder / "status.json").read_text())["state"] == "completed"
