"""`--until-done`: what restarts training, what does not, and how signals are forwarded."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.support import REPO_ROOT, most_nightly
from tests.support.waiting import until, when
from tests.trainers.conftest import TINY
from trainers import supervising
from trainers.supervising import MAX_STARTS_WITHOUT_PROGRESS, Supervisor

# Replaces training: records its arguments, saves or not, and ends as the next line of a list says.
TRAINS = """
import hashlib, json, os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
with (folder / "starts").open("a") as file:
    file.write(json.dumps(sys.argv[2:]) + "\\n")
number = len((folder / "starts").read_text().splitlines())
ending = (folder / "endings").read_text().split()[number - 1]
if "saves" in ending:
    data = str(number).encode()
    (folder / "last.pt").write_bytes(data)
    (folder / "last.json").write_text(json.dumps({"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}))
if "waits" in ending:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(75))
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(76))
    (folder / "waiting").touch()
    time.sleep(120)
if "dies" in ending:
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(int(ending.rpartition("-")[2]))
"""


class Job:
    def __init__(self, folder: Path, *endings: str):
        self.folder = folder
        (folder / "endings").write_text(" ".join(endings))
        command = [sys.executable, "-S", "-c", TRAINS, str(folder), "training.epochs=3"]
        self.supervisor = Supervisor(command, last=folder / "last.pt", pause_s=0.01)

    def run(self) -> int:
        return self.supervisor.run()

    @property
    def starts(self) -> list[list[str]]:
        """The arguments of each start."""
        return [json.loads(line) for line in (self.folder / "starts").read_text().splitlines()]


FIRST, RESUMED = ["training.epochs=3"], ["training.epochs=3", "--resume", "auto"]


def test_training_is_resumed_until_it_is_complete(tmp_path):
    job = Job(tmp_path, "saves-75", "saves-75", "0")
    assert job.run() == 0
    assert job.starts == [FIRST, RESUMED, RESUMED]


def test_a_start_without_a_checkpoint_is_repeated_unchanged(tmp_path):
    """An existing checkpoint may belong to another run."""
    Job(tmp_path, "saves-0").run()
    (tmp_path / "starts").unlink()
    job = Job(tmp_path, "dies", "75", "saves-dies", "0")
    assert job.run() == 0
    assert job.starts == [FIRST, FIRST, FIRST, RESUMED]


def test_the_death_of_one_of_several_processes_counts_as_a_death(tmp_path, caplog):
    job = Job(tmp_path, "saves-137", "0")
    assert job.run() == 0
    assert job.starts == [FIRST, RESUMED]
    assert "killed by SIGKILL: restarting" in caplog.text


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 130])
def test_a_final_exit_code_ends_the_supervision(tmp_path, code):
    job = Job(tmp_path, "saves-75", f"saves-{code}")
    assert job.run() == code
    assert len(job.starts) == 2


@pytest.mark.parametrize("ending, code", most_nightly([("dies", 1), ("137", 1), ("75", 75)], but=1))
def test_repeated_starts_without_progress_end_the_supervision(tmp_path, caplog, ending, code):
    job = Job(tmp_path, ending, "saves-dies", *[ending] * MAX_STARTS_WITHOUT_PROGRESS)
    assert job.run() == code
    assert len(job.starts) == 2 + MAX_STARTS_WITHOUT_PROGRESS, "a start that saved resets the count"
    assert f"{MAX_STARTS_WITHOUT_PROGRESS} times in a row" in caplog.text


def test_pauses_grow_up_to_a_limit(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(supervising, "MAX_PAUSE_S", 0.03)
    Job(tmp_path, *["dies"] * MAX_STARTS_WITHOUT_PROGRESS).run()
    assert [record.message.split(" in ")[-1] for record in caplog.records][:-1] == [
        "0.01 s",
        "0.02 s",
        "0.03 s",
        "0.03 s",
    ]


@pytest.mark.parametrize(
    "number, code", [(signal.SIGTERM, 75), (signal.SIGINT, 130), (signal.SIGUSR1, 76), (signal.SIGHUP, 75)]
)
def test_a_signal_is_forwarded_and_ends_the_supervision(tmp_path, request, monkeypatch, number, code):
    monkeypatch.setattr("core.signals._is_hung_up", False)
    if number == signal.SIGHUP:  # ignored under nohup
        request.addfinalizer(partial(signal.signal, number, signal.signal(number, signal.SIG_DFL)))
    job, before = Job(tmp_path, "saves-75", "waits-0"), signal.getsignal(number)

    when((tmp_path / "waiting").exists, lambda: os.kill(os.getpid(), number))
    assert job.run() == code
    assert len(job.starts) == 2
    assert signal.getsignal(number) == before


def test_a_signal_during_a_pause_ends_the_supervision(tmp_path, caplog):
    """After the pause, it would start the command again."""
    job = Job(tmp_path, "dies")
    job.supervisor.pause_s = 60.0

    def send() -> None:
        time.sleep(0.2)  # after the message it waits
        os.kill(os.getpid(), signal.SIGTERM)

    when(lambda: "restarting in" in caplog.text, send)
    assert job.run() == 75
    assert len(job.starts) == 1


def test_each_start_has_its_own_time_limit(tmp_path, monkeypatch):
    """The wall-time limit applies to each start, not to their sum."""
    monkeypatch.setenv("_LANDFALL_STARTED_AT", "1.0")
    show = "import os, sys; sys.exit('_LANDFALL_STARTED_AT' in os.environ or '_LANDFALL_SUPERVISED' not in os.environ)"
    assert Supervisor([sys.executable, "-S", "-c", show], last=tmp_path / "last.pt").run() == 0


@pytest.mark.nightly
def test_the_command_resumes_after_kill_9_and_saves_on_usr1(plant):
    words = ("--repo-root", str(plant), "--run-id", "run-1", "--until-done", *TINY, "training.epochs=100000")
    command = [sys.executable, "-m", "trainers.train_patchtst_ssl", *words, "logging.every_steps=1"]
    status = plant / "runs/patchtst_ssl/run-1/status.json"
    environment = {**os.environ, "PYTHONPATH": str(REPO_ROOT)}

    def wait_for_epoch(number: int) -> dict:
        def described() -> dict | None:
            found = json.loads(status.read_text()) if status.exists() else {"epoch": 0}
            return found if found["epoch"] >= number else None

        return until(described, patience_s=200)

    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        epoch = wait_for_epoch(1)["epoch"]
        (child,) = psutil.Process(process.pid).children()
        child.kill()
        child.wait()
        second = wait_for_epoch(epoch + 2)
        assert second["pid"] != child.pid
        process.send_signal(signal.SIGUSR1)
        errors = process.stderr.read()
    assert process.returncode == 75, errors
    assert "killed by SIGKILL: restarting in 1 s" in errors
    assert "resuming run-1 after" in errors
    assert "stopped: received SIGUSR1; saved checkpoints/patchtst_ssl.last.pt" in errors.splitlines()[-1]
