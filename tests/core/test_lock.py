"""Two runs never write the same files, whoever dies at whatever moment."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading

import pytest

from core import lock, owner
from core.errors import LandfallError, LockedError
from core.lock import Lock
from core.owner import Owner
from tests.support import REPO_ROOT

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
until = time.monotonic() + 2.0
while time.monotonic() < until:
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
    return [path.name for path in folder.glob(".*")]


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


def test_what_is_taken_is_given_back(target, tmp_path):
    with Lock("run-1") as mine:
        mine.take(target, key="x")
        mine.take(target, key="x")
        assert len(locks(tmp_path)) == 1
    assert locks(tmp_path) == []
    take(target)


def test_the_second_is_refused_in_one_line_that_names_the_owner_and_the_way_out(target, holder, tmp_path):
    with pytest.raises(LockedError) as refused:
        take(target)
    told = str(refused.value)
    assert f"{target} is being written by run run-1 (process {holder.pid} on " in told
    assert "give this run another logging.checkpoint_path" in told
    assert "\n" not in told
    assert len(locks(tmp_path)) == 1, "who is refused leaves nothing"


def test_another_file_of_the_folder_is_free(target, holder):
    take(target.with_name("swinmae_ssl.pt"))
    take(target.with_name("patchtst_ssl"))


def test_a_lock_in_this_process_is_a_lock_too(target):
    """Two threads of a notebook's kernel, or a run within a run."""
    with Lock("run-1") as mine:
        mine.take(target, key="x")
        with pytest.raises(LockedError, match=f"process {os.getpid()} on"):
            take(target)


def test_the_lock_of_a_killed_process_is_taken_over_and_told(target, holder, tmp_path, caplog):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    take(target)
    assert f"taking over {target}: run run-1 (process {holder.pid}" in caplog.text
    assert locks(tmp_path) == []


def test_a_killed_process_that_nobody_has_waited_for_is_dead(target, tmp_path):
    """Its number is still there: a zombie, as under a container's first process that waits for nobody."""
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


def test_a_later_process_of_the_same_number_is_not_the_owner(target, tmp_path):
    with Lock("run-1") as mine:
        mine.take(target, key="x")
        (held,) = tmp_path.glob(".*.lock")
        here = Owner.this_process()
        earlier = Owner(here.machine, here.pid, here.started - 1)
        held.rename(held.with_name(held.name.replace(here.token, earlier.token)))
        take(target)


def test_of_many_that_ask_again_and_again_one_has_it_at_a_time(target, tmp_path):
    inside = tmp_path / "inside"
    contenders = [
        subprocess.Popen(
            [sys.executable, "-c", _CONTENDER, str(target), str(inside)],
            cwd=REPO_ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(3)
    ]  # fmt: skip
    results = [process.communicate() for process in contenders]
    assert [errors for _, errors in results] == ["", "", ""]
    assert sum(int(entered) for entered, _ in results) > 10
    assert locks(tmp_path) == []


def elsewhere(path):
    """A lock as a process of another machine would have written it."""
    here = Owner.this_process()
    there = path.with_name(path.name.replace(here.machine, "0123abcd"))
    path.rename(there)
    return there


@pytest.fixture
def of_another_machine(target, monkeypatch):
    monkeypatch.setattr(lock, "_WATCH_S", 0.6)
    with Lock("run-1") as theirs:
        theirs.take(target, key="x")
        yield elsewhere(next(target.parent.glob(".*.lock")))


def test_an_owner_on_another_machine_lives_as_long_as_it_touches_its_lock(target, of_another_machine):
    stop = threading.Event()

    def touch() -> None:
        while not stop.wait(0.05):
            os.utime(of_another_machine)

    thread = threading.Thread(target=touch)
    thread.start()
    with pytest.raises(LockedError, match="run-1"):
        take(target)
    stop.set()
    thread.join()


def test_an_owner_on_another_machine_that_is_silent_is_dead(target, of_another_machine, caplog):
    with caplog.at_level(logging.INFO):
        take(target)
    assert "watching for 1 s whether run run-1" in caplog.text
    assert not of_another_machine.exists()


def test_an_owner_touches_its_lock(target, tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "_TOUCH_EVERY_S", 0.01)
    with Lock("run-1") as mine:
        mine.take(target, key="x")
        (held,) = tmp_path.glob(".*.lock")
        os.utime(held, (0, 0))
        for _ in range(500):
            if held.stat().st_mtime > 0:
                break
            threading.Event().wait(0.01)
        assert held.stat().st_mtime > 0


def test_a_run_that_was_taken_for_dead_writes_no_more(target, tmp_path):
    with Lock("run-1") as mine:
        mine.take(target, key="x")
        mine.check()
        next(tmp_path.glob(".*.lock")).unlink()
        with pytest.raises(LandfallError, match="took this one for dead"):
            mine.check()


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff"], ids=["empty", "torn", "list", "binary"])
def test_a_damaged_lock_of_a_living_process_still_holds(target, tmp_path, content):
    with Lock("run-1") as mine:
        mine.take(target, key="x")
        next(tmp_path.glob(".*.lock")).write_bytes(content)
        with pytest.raises(LockedError):
            take(target)


def test_the_run_that_holds_it_is_told_when_it_is_known(target, tmp_path):
    with Lock() as mine:
        mine.take(target, key="x")
        mine.tell("run-7")
        assert json.loads(next(tmp_path.glob(".*.lock")).read_text())["run_id"] == "run-7"


# --------------------------------------------------------------------------------------------------------------- owners
def test_an_owner_is_read_from_the_name_it_is_in():
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


def test_of_another_machine_nobody_is_known_to_be_dead():
    assert not Owner("0123abcd", 2**22 + 1, 1).is_dead()
    assert Owner(owner._machine(), 2**22 + 1, 1).is_dead()


def test_of_a_process_that_the_system_hides_nobody_knows_that_it_is_dead(monkeypatch):
    """Many clusters show a user nothing of the processes of others."""

    def forbidden(pid, number):
        raise PermissionError(1, "Operation not permitted")

    other = Owner(owner._machine(), 2**22 + 1, 1)
    assert (other.is_of_here, other.is_dead()) == (True, True)
    assert Owner(owner._machine(), 10**30, 1).is_dead(), "no process has such a number"
    monkeypatch.setattr(os, "kill", forbidden)
    assert (other.is_of_here, other.is_dead()) == (False, False)
    assert Owner.this_process().is_of_here, "what can be seen is asked nothing"
