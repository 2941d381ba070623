"""A stopped command always ends with its documented exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from core.errors import EXIT_INTERRUPTED, EXIT_RESUMABLE
from tests.support import REPO_ROOT

# A background job of a shell without job control ignores SIGINT, a job of nohup SIGHUP, and so would the programs.
_HEEDING = (
    "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
)
# The module that is imported lets the test know, and takes its time.
_SLOW = "import pathlib, time\nprint('importing', flush=True)\ntime.sleep(30)\n"
_COMMAND = "from core.signals import install_signal_handlers\ninstall_signal_handlers()\nimport slow_to_import\n"
_IN_COMMAND = """
import argparse, sys, time
from core.cli import run_command
def work(arguments):
    print("working", flush=True)
    time.sleep(30)
sys.exit(run_command(work, argparse.ArgumentParser(prog="landfall work"), None))
"""
_CLEANING = """
import argparse, sys, time
from core.cli import run_command
def work(arguments):
    try:
        print("working", flush=True)
        time.sleep(30)
    finally:
        print("cleaning", flush=True)
        time.sleep(0.5)
        print("clean", flush=True)
sys.exit(run_command(work, argparse.ArgumentParser(prog="landfall work"), None))
"""
_IN_DESTRUCTOR = """
import argparse, sys, time
from core.cli import run_command
class Slow:
    def __del__(self):
        print("removing", flush=True)
        time.sleep(1)
def work(arguments):
    Slow()
    time.sleep(30)
sys.exit(run_command(work, argparse.ArgumentParser(prog="landfall work"), None))
"""
# Other threads keep the interpreter busy, so that the main thread has to wait.
_IN_BUSY_DESTRUCTOR = _IN_DESTRUCTOR.replace(
    "    Slow()\n",
    """
    import threading
    def spin():
        while True: pass
    sys.setswitchinterval(0.1)
    for _ in range(3):
        threading.Thread(target=spin, daemon=True).start()
    Slow()
""",
)
_WITH_EXIT_CODE = """
import argparse, sys
from core.cli import run_command
from core.signals import install_signal_handlers
install_signal_handlers(lambda code: code + 100)
def work(arguments):
    import slow_to_import
sys.exit(run_command(work, argparse.ArgumentParser(prog="landfall work"), None))
"""
_BEFORE = """
from core.signals import install_signal_handlers
install_signal_handlers()
import time
print("starting", flush=True)
time.sleep(30)
"""
_AFTER = """
import argparse, sys, time
from core.cli import run_command
code = run_command(lambda arguments: 3, argparse.ArgumentParser(prog="landfall work"), None)
print("ended", flush=True)
time.sleep(1)
sys.exit(code)
"""
CODES = [
    (signal.SIGTERM, EXIT_RESUMABLE),
    (signal.SIGUSR1, EXIT_RESUMABLE),
    (signal.SIGHUP, EXIT_RESUMABLE),
    (signal.SIGINT, EXIT_INTERRUPTED),
]


def ended_by(number: int, program: str, folder: Path) -> tuple[int, list[str]]:
    (folder / "slow_to_import.py").write_text(_SLOW)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPO_ROOT), str(folder)])}
    command = [sys.executable, "-c", _HEEDING + program]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        process.stdout.readline()
        process.send_signal(number)
        _, said = process.communicate()
    return process.returncode, said.splitlines()


@pytest.mark.parametrize("number, code", CODES)
@pytest.mark.parametrize(
    "program",
    [_COMMAND, _BEFORE, _IN_COMMAND, _IN_DESTRUCTOR, _IN_BUSY_DESTRUCTOR],
    ids=["while it imports", "before it works", "while it works", "while an object is removed", "while threads work"],
)
def test_a_signal_ends_a_command_with_its_code_and_one_line(number, code, program, tmp_path):
    ended, said = ended_by(number, program, tmp_path)
    assert ended == code
    assert len(said) == 1


@pytest.mark.parametrize("number, code", CODES)
def test_a_signal_while_a_command_imports_gives_the_exit_code_that_its_module_requested(number, code, tmp_path):
    ended, said = ended_by(number, _WITH_EXIT_CODE, tmp_path)
    assert (ended, len(said)) == (code + 100, 1)


def test_a_closed_terminal_is_heeded_once(tmp_path):
    """A shell repeats the signal of the system, which comes while the command cleans up after the first."""
    command = [sys.executable, "-c", _HEEDING + _CLEANING]
    environment = {**os.environ, "PYTHONPATH": str(REPO_ROOT)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        for _ in range(2):
            process.stdout.readline()
            process.send_signal(signal.SIGHUP)
        said, _ = process.communicate()
    assert (process.returncode, said) == (EXIT_RESUMABLE, "clean\n")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_after_a_command_does_not_change_its_exit_code(number, tmp_path):
    assert ended_by(number, _AFTER, tmp_path) == (3, [])


@pytest.mark.parametrize("number, code", CODES)
def test_a_process_that_ends_while_it_imports_leaves_no_lock(number, code, tmp_path):
    folder = tmp_path / "artifacts"
    program = (
        "import pathlib\nfrom core.lock import Lock\n"
        "from core.signals import install_signal_handlers\ninstall_signal_handlers()\n"
        f"with Lock() as lock:\n    lock.take(pathlib.Path({str(folder / 'report')!r}), key='x')\n"
        "    import slow_to_import\n"
    )
    ended, said = ended_by(number, program, tmp_path)
    assert (ended, len(said), list(folder.iterdir())) == (code, 1, [])


def test_a_signal_that_the_caller_ignores_stays_ignored(tmp_path):
    program = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n" + _COMMAND.replace(
        "slow_to_import", "math"
    )
    program += "\nprint(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)"
    done = subprocess.run([sys.executable, "-c", program], cwd=REPO_ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


@pytest.mark.parametrize("module", ["trainers.train_patchtst_ssl", "landfall"])
def test_slow_commands_handle_signals_before_their_imports(module):
    """Stops after certain imports."""
    program = (
        f"import sys, {module} as entry\n"
        "import core.signals as signals\n"
        "def stop(*_):\n    print(*sorted(sys.modules))\n    sys.exit()\n"
        "entry.install_signal_handlers = signals.install_signal_handlers = stop\n"
        "sys.argv = ['landfall', 'score']\nentry.main()"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=REPO_ROOT, capture_output=True, text=True, check=True)
    assert {"torch", "numpy", "pandas", "pydantic", "yaml"} & set(done.stdout.split()) == set()
