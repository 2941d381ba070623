"""Two runs never write the same files, even if processes are killed."""

import errno
import json
import os
import signal
import subprocess
import sys

import filelock
import pytest

from core import owner
from core.errors import LandfallError, LockedError, WriteError
from core.lock import Lock
from core.owner import Owner
from tests.support import REPO_ROOT, most_nightly

_HOLDER = """
import pathlib, sys, time
from core.lock import Lock
with Lock(sys.argv[2]) as held:
    held.take(pathlib.Path(sys.argv[1]), key="logging.checkpoint_path")
    print("held", flush=True)
    sys.stdin.read()
"""
# Each says it is inside by a folder that only one process can make at a time.
_CONTENDER = """
import pathlib, sys, time
from core.errors import LockedError
from core.lock import Lock
target, inside = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
entered = 0
print("here", flush=True)
sys.stdin.readline()
until = time.monotonic() + 120.0
while entered < 20 and time.monotonic() < until:
    try:
        with Lock("run") as held:
            held.take(target, key="x")
            inside.mkdir()
            time.sleep(0.002)
            inside.rmdir()
            entered += 1
    except LockedError:
        pass
print(entered)
"""


@pytest.fixture
def target(tmp_path):
    return tmp_path / "patchtst_ssl.pt"


def locks(folder) -> list[str]:
    return sorted(path.name for path in folder.glob(".*"))


LOCK = [".patchtst_ssl.pt.lock", ".patchtst_ssl.pt.lock.json"]


@pytest.fixture
def holder(target):
    """A process that holds the lock until its stdin is closed."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(target), "run-1"],
        cwd=REPO_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def take(target, run_id="run-2") -> None:
    with Lock(run_id) as mine:
        mine.take(target, key="logging.checkpoint_path")


def test_a_lock_is_released(target, tmp_path):
    with Lock("run-1") as mine:
        mine.take(target, key="x")
        mine.take(target, key="x")
        assert locks(tmp_path) == LOCK
    assert locks(tmp_path) == []
    take(target)


def test_a_second_owner_is_rejected_with_owner_and_hint(target, holder, tmp_path):
    with pytest.raises(LockedError) as refused:
        take(target)
    output = str(refused.value)
    assert output.startswith(f"{target} ")
    assert f"run-1 (process {holder.pid} on " in output
    assert "logging.checkpoint_path" in output
    assert "\n" not in output
    assert locks(tmp_path) == LOCK, "a refused run leaves nothing"


def test_other_files_of_the_folder_are_not_locked(target, holder):
    take(target.with_name("swinmae_ssl.pt"))
    take(target.with_name("patchtst_ssl"))


def test_a_lock_also_applies_within_the_process(target):
    """Two threads of a notebook's kernel, or a run within a run."""
    with Lock("run-1") as mine:
        mine.take(target, key="x")
        with pytest.raises(LockedError, match=f"process {os.getpid()} on"):
            take(target)


def test_the_lock_of_a_killed_process_is_taken_over_and_reported(target, holder, tmp_path, caplog):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    take(target)
    assert f"{target}: run run-1 (process {holder.pid}" in caplog.text
    assert locks(tmp_path) == []


def test_abandoned_locks_are_removed_and_held_ones_stay(target, holder, tmp_path):
    for name in (".dead.lock", ".dead.lock.json"):
        (tmp_path / name).touch()
    take(target.with_name("another.pt"))
    assert locks(tmp_path) == LOCK


def test_a_zombie_process_counts_as_dead(target, tmp_path):
    """Its id still exists as a zombie, because the first process of a container does not wait for children."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(target), "run-1"],
        cwd=REPO_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with process.stdin, process.stdout:
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        take(target)
    process.wait()


def test_only_one_of_many_competing_processes_holds_the_lock(target, tmp_path):
    inside = tmp_path / "inside"
    contenders = [
        subprocess.Popen(
            [sys.executable, "-c", _CONTENDER, str(target), str(inside)],
            cwd=REPO_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(3)
    ]  # fmt: skip
    assert [process.stdout.readline() for process in contenders] == ["here\n"] * 3
    for process in contenders:
        process.stdin.write("\n")
        process.stdin.flush()
    results = [process.communicate() for process in contenders]
    assert results == [("20\n", "")] * 3
    assert locks(tmp_path) == []


@pytest.mark.parametrize("lost", ["lock", "owner", "another owner"])
def test_a_run_that_lost_its_lock_writes_no_more(target, tmp_path, lost):
    """As after the disconnection of a network drive."""
    with Lock("run-1") as mine:
        mine.take(target, key="x")
        mine.check()
        lock, owner_file = (tmp_path / name for name in LOCK)
        if lost == "another owner":
            owner_file.write_text(json.dumps({**json.loads(owner_file.read_text()), "token": "0"}))
        else:
            {"lock": lock, "owner": owner_file}[lost].unlink()
        with pytest.raises(LandfallError, match="was lost"):
            mine.check()


def test_a_file_system_without_locks_causes_a_warning(target, monkeypatch, caplog):
    def no_locks(self):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(filelock.FileLock, "acquire", no_locks)
    take(target)
    assert "No locks available" in caplog.text


@pytest.mark.parametrize(
    "content", most_nightly([b"{", b"", b"[1]", b"\xff"], but=1), ids=["torn", "empty", "list", "binary"]
)
def test_a_damaged_lock_of_a_running_process_is_still_held(target, tmp_path, content):
    with Lock("run-1") as mine:
        mine.take(target, key="x")
        (tmp_path / LOCK[1]).write_bytes(content)
        with pytest.raises(LockedError):
            take(target)


def test_the_run_is_named_when_it_is_known(target, tmp_path):
    with Lock() as mine:
        mine.take(target, key="x")
        mine.name_run("run-7")
        assert json.loads((tmp_path / LOCK[1]).read_text())["run_id"] == "run-7"


# --------------------------------------------------------------------------------------------------------------- owners
def test_an_owner_is_read_from_a_file_name():
    here = Owner.this_process()
    assert Owner.named_in(f".20261121-083000-1f3a.json.{here.token}.abcdef01.part") == here
    assert Owner.named_in(".x.json.part") is None
    assert not here.is_dead()


def test_a_fork_is_another_process():
    here, (read, write) = Owner.this_process(), os.pipe()
    if (pid := os.fork()) == 0:
        os.write(write, str(Owner.this_process() == here).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 10) == b"False"


def test_owners_on_other_machines_are_never_called_dead():
    assert not Owner("0123abcd", 2**22 + 1, 1).is_dead()
    assert Owner(owner._machine(), 2**22 + 1, 1).is_dead()


def test_owners_hidden_by_the_system_are_never_called_dead(monkeypatch):
    """Many clusters hide the processes of other users."""

    def forbidden(pid, number):
        raise PermissionError(1, "Operation not permitted")

    other = Owner(owner._machine(), 2**22 + 1, 1)
    assert (other.is_of_here, other.is_dead()) == (True, True)
    assert Owner(owner._machine(), 10**30, 1).is_dead(), "no process has such a number"
    monkeypatch.setattr(os, "kill", forbidden)
    assert (other.is_of_here, other.is_dead()) == (False, False)
    assert Owner.this_process().is_of_here, "what can be seen is asked nothing"


# ---------------------------------------------------------------------------------------------------- steps of a parent
_STEP = """
import pathlib, sys
from core.errors import LockedError
from core.lock import Lock
with Lock(command="a step") as held:
    try:
        held.take(pathlib.Path(sys.argv[1]), key="x")
    except LockedError as error:
        sys.exit(f"refused: {error.owner}")
    print("held", flush=True)
    sys.stdin.read()
"""


def start_step(target, **options) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", _STEP, str(target)], cwd=REPO_ROOT,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def outcome_of(process: subprocess.Popen) -> str:
    output = process.communicate()
    return output[0].strip() or output[1].strip()


@pytest.mark.slow
def test_a_parent_shares_its_lock_with_one_child_at_a_time(target, tmp_path):
    stranger = dict(os.environ)
    with Lock("run-1", command="landfall pipeline", is_shared=True) as mine:
        mine.take(target, key="x")
        step = start_step(target)
        assert step.stdout.readline() == "held\n"
        assert "a step" in outcome_of(start_step(target))
        assert "landfall pipeline, run run-1" in outcome_of(start_step(target, env=stranger))
        step.communicate()
        assert outcome_of(start_step(target)) == "held"
    assert locks(tmp_path) == []
    assert outcome_of(start_step(target, env=stranger)) == "held"


def test_a_step_that_outlives_its_parent_keeps_others_out(target):
    with Lock("run-1", is_shared=True) as mine:
        mine.take(target, key="x")
        step = start_step(target)
        assert step.stdout.readline() == "held\n"
    with pytest.raises(LockedError, match="a step"):
        take(target)
    step.communicate()
    take(target)


def test_a_read_only_folder_needs_no_lock(target, monkeypatch):
    def refused(*_):
        raise OSError(errno.EROFS, "Read-only file system", str(target.with_name(".x")))

    monkeypatch.setattr(filelock.FileLock, "acquire", refused)
    with Lock() as mine:
        mine.take_if_writable(target, key="x")
        with pytest.raises(WriteError):
            mine.take(target, key="x")


def test_a_folder_is_cleared_once_for_many_targets(tmp_path, monkeypatch):
    """An import locks each run folder: clearing at each of them would take a time that grows with their square."""
    cleared = []
    monkeypatch.setattr("core.lock._clear", cleared.append)
    with Lock("run-1") as lock:
        for name in ("a", "b", "c"):
            lock.take(tmp_path / "runs" / name, key="x")
        lock.take(tmp_path / "model.pt", key="x")
    assert cleared == [tmp_path / "runs", tmp_path]
