"""A real notebook in its own process and kernel: normal execution, stops and crashes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from core.errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK, EXIT_RESUMABLE, EXIT_USAGE, UsageError
from pipelines.notebook_parameters import check_parameters, parameters_of
from tests.pipelines.executed_notebooks import Ended, end, execute, start, write_notebook
from tests.support import REPO_ROOT, most_nightly

pytestmark = pytest.mark.slow

HELD_MB = 300
TRAINING = """
import time
from core.errors import StoppedError
try:
    print("training", flush=True)
    time.sleep(120)
except KeyboardInterrupt:
    raise StoppedError("received SIGINT", "checkpoints/x.last.pt") from None
"""


def outputs(ended: Ended) -> list[list[Any]]:
    """For every code cell, including the parameters cell that papermill adds."""
    return [cell.outputs for cell in ended.executed.cells if cell.cell_type == "code"]


@pytest.fixture
def notebook(tmp_path: Path):
    return lambda *cells: write_notebook(tmp_path / "a.ipynb", *cells)


# ---------------------------------------------------------------------------------------------------------------- runs
def test_cells_are_reported_at_start_and_end_with_their_output(notebook):
    ended = execute(
        notebook("print(name * count)\nprint('<b>', flush=True)\nprint(2)", "import os; print(os.getcwd())"),
        *("-p", "count=3", "-p", 'name="ab"'),
    )
    assert ended.code == EXIT_OK, ended.messages
    first, *cells = ended.events
    assert first == {"event": "notebook", "cells": 4}
    assert [(event["event"], event["cell"]) for event in cells] == [
        (kind, cell) for cell in (1, 2, 3, 4) for kind in ("start", "end")
    ]
    assert [event["title"] for event in cells if event["event"] == "start"][-2:] == ["First", "Second"]
    assert all(0 <= event["seconds"] < 400 for event in cells if event["event"] == "end")
    assert "ababab\n" in ended.messages
    assert [output.text for output in outputs(ended)[-2]] == ["ababab\n<b>\n2\n"], "one block"
    folder = Path(ended.executed.metadata.papermill.input_path).parent
    assert outputs(ended)[-1][0].text.strip() == str(folder)
    page = (folder / "executed/a.html").read_text("utf-8")
    assert "ababab\n&lt;b&gt;\n2\n" in page
    assert "<script" not in page


def test_the_value_of_a_secret_in_the_code_is_hidden_in_each_output(notebook):
    ended = execute(
        notebook("token = given = name or ('hunter2')\nprint(given)", "raise ValueError(given)"), "-p", 'name=""'
    )
    assert ended.code == EXIT_FAILURE
    page = Path(ended.executed.metadata.papermill.output_path).with_suffix(".html")
    assert "***" in outputs(ended)[-2][0].text
    assert not [
        text for text in (ended.messages, nbformat.writes(ended.executed), page.read_text()) if "hunter2" in text
    ]


def test_an_unknown_parameter_ends_before_anything_runs(notebook):
    ended = execute(notebook("1"), "-p", "counts=3")
    assert (ended.code, ended.events, ended.executed) == (EXIT_USAGE, [], None)
    assert re.search(r"a\.ipynb .*'counts' .*\bcount\? .*count, name$", ended.last_line)


def test_parameters_are_those_of_the_tagged_cell(notebook, tmp_path):
    path = notebook("other = 3")
    assert parameters_of(path) == ["count", "name"]
    check_parameters(path, {"count": 1, "name": "y"})
    other = nbformat.read(path, as_version=4)
    other.cells[1].source = "count: int = 2\n%cd /\n"
    nbformat.write(other, tmp_path / "b.ipynb")
    (tmp_path / "c.ipynb").write_text("no notebook")
    for name in "bc":
        with pytest.raises(UsageError, match=rf"{name}\.ipynb is not"):
            parameters_of(tmp_path / f"{name}.ipynb")
    other.cells[1].source = "count: int = 2\nprint(count)"
    nbformat.write(other, tmp_path / "b.ipynb")
    assert parameters_of(tmp_path / "b.ipynb") == ["count"]


def test_a_failing_cell_decides_the_exit_code_and_leaves_what_came_before(notebook):
    ended = execute(notebook("print('before')", "from core.errors import DataError\nraise DataError('too short')", "3"))
    assert ended.code == 3
    assert "a.ipynb, In [3]: DataError: too short" in ended.last_line
    assert ended.last_line.endswith("the executed copy is executed/a.ipynb")
    before, failing, after = outputs(ended)[-3:]
    assert before[0].text == "before\n"
    assert failing[0].ename == "DataError"
    assert after == []
    assert "too short" in (Path(ended.executed.metadata.papermill.input_path).parent / "executed/a.html").read_text(
        "utf-8"
    )


@pytest.mark.nightly
def test_the_copy_is_valid_at_any_time(notebook):
    path = notebook("print('before')", "import time; time.sleep(60)")
    process, executed = start(path), path.parent / "executed/a.ipynb"
    try:
        for line in process.stdout:
            assert not executed.is_file() or nbformat.read(executed, as_version=4).cells
            if json.loads(line).get("title") == "Second":
                break
        cells = [cell for cell in nbformat.read(executed, as_version=4).cells if cell.cell_type == "code"]
        assert cells[-2].outputs[0].text == "before\n"
        assert [file.name for file in executed.parent.iterdir()] == ["a.ipynb"]
    finally:
        process.kill()
        process.communicate()


# ------------------------------------------------------------------------------------------------------------- stopping
@pytest.mark.nightly
def test_a_signal_lets_training_save_and_starts_no_other_cell(notebook):
    path = notebook(TRAINING, "print('never')")
    process = start(path)
    for line in process.stderr:
        if "training" in line:
            process.send_signal(signal.SIGTERM)
            break
    ended = end(process, path)
    assert ended.code == EXIT_RESUMABLE, ended.messages
    assert re.search(r"In \[2\]: StoppedError: .*SIGINT; saved checkpoints/x\.last\.pt", ended.last_line)
    assert outputs(ended)[-1] == []


def test_a_signal_ends_a_cell_that_saves_nothing(notebook):
    path = notebook("import time; print('waiting', flush=True); time.sleep(120)")
    process = start(path)
    for line in process.stderr:
        if "waiting" in line:
            process.send_signal(signal.SIGINT)
            break
    ended = end(process, path)
    assert ended.code == EXIT_INTERRUPTED
    assert "In [2]: KeyboardInterrupt" in ended.last_line


@pytest.mark.nightly
def test_a_cell_that_takes_too_long_is_named(notebook):
    """The cell of the parameters has the same limit."""
    ended = execute(notebook("import time; time.sleep(120)"), "--cell-timeout", "10")
    assert ended.code == EXIT_FAILURE
    assert re.search(r"a\.ipynb, In \[2\] \(First\) .*10\.0 s", ended.last_line)


@pytest.mark.nightly
def test_training_that_takes_too_long_is_resumable(notebook):
    ended = execute(notebook(TRAINING), "--cell-timeout", "10")
    assert ended.code == EXIT_RESUMABLE
    assert re.search(r"10\.0 s: .*SIGINT; saved checkpoints/x\.last\.pt", ended.last_line)


# -------------------------------------------------------------------------------------------------------------- deaths
HOLD = f"held = b'x' * {HELD_MB << 20}\n"
DEATHS = {
    "segfault": (HOLD + "import ctypes; ctypes.string_at(0)", "SIGSEGV"),
    "kill -9": (HOLD + "import os; os.kill(os.getpid(), 9)", "SIGKILL"),
    "exit": (HOLD + "import os; os._exit(7)", "exit code 7"),
}


@pytest.mark.parametrize("death", most_nightly(DEATHS, but=1))
def test_an_error_for_a_dead_kernel_names_cell_memory_and_cause(notebook, death):
    cell, cause = DEATHS[death]
    ended = execute(notebook("print('before')", cell))
    assert ended.code == EXIT_FAILURE
    assert re.search(rf"a\.ipynb, In \[3\] \(Second\): .*{cause}.*; peak memory ", ended.last_line)
    assert HELD_MB < peak_of(ended.last_line) < HELD_MB + 300
    before, dead = outputs(ended)[-2:]
    assert before[0].text == "before\n"
    assert dead[0].ename == "DeadKernelError"
    assert cause in dead[0].evalue


def peak_of(line: str) -> float:
    return float(line.partition("peak memory ")[2].partition(" MiB")[0].replace(",", ""))


@pytest.mark.nightly
def test_a_crash_shows_the_lines_that_led_to_it(notebook):
    ended = execute(notebook("import ctypes\ndef crash():\n    ctypes.string_at(0)\n", "crash()"))
    trace = outputs(ended)[-1][0].traceback
    assert trace[1].endswith("in string_at")
    assert [line.rpartition(" in ")[2] for line in trace[2:]] == ["crash", "<module>"]


# Takes 800 MiB and keeps them.
EAT = (
    "import time\nheld = []\nfor _ in range(80):\n    held.append(b'x' * (10 << 20)); time.sleep(0.02)\ntime.sleep(120)"
)


def test_a_kernel_over_its_memory_limit_is_ended_and_reported(notebook):
    ended = execute(notebook(EAT), "--memory-limit", "500")
    assert ended.code == EXIT_FAILURE
    assert re.search(r"In \[2\] \(First\): .*out of memory: --memory-limit .*500 MiB", ended.last_line)
    assert 450 < peak_of(ended.last_line) < 1500


@pytest.mark.nightly
def test_a_kernel_that_dies_before_its_first_cell_is_reported(notebook):
    ended = execute(notebook("1"), "--memory-limit", "20")
    assert ended.code == EXIT_FAILURE
    assert re.search(r"a\.ipynb, before its first cell: .*--memory-limit .*20 MiB", ended.last_line)


@pytest.fixture
def control_group() -> Iterator[Path]:
    """A control group with at most 600 MiB; processes enter it through its `cgroup.procs`."""
    lines = Path("/proc/self/cgroup").read_text().splitlines() if Path("/proc/self/cgroup").is_file() else []
    v1 = next((line.split(":")[2] for line in lines if line.split(":")[1] == "memory"), None)
    v2 = next((line.split(":")[2] for line in lines if line.startswith("0::")), "/")
    parent = Path("/sys/fs/cgroup/memory" + v1 if v1 else "/sys/fs/cgroup" + v2)
    group = parent / f"landfall-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if v1 else "memory.max")).write_text(str(600 << 20))
    except OSError as error:
        if group.is_dir():
            group.rmdir()
        pytest.skip(f"control groups cannot be made here: {error}")
    yield group
    for _ in range(100):
        try:
            group.rmdir()
            return
        except OSError:
            time.sleep(0.1)


@pytest.mark.nightly
def test_a_kernel_killed_by_the_system_for_low_memory_is_reported(notebook, control_group):
    path = notebook(EAT)
    enter = f"echo $$ > {control_group}/cgroup.procs && exec "
    words = " ".join([sys.executable, "-m", "pipelines.execute_notebook", str(path), f"{path.parent}/executed/a.ipynb"])
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    ended = end(subprocess.Popen(["sh", "-c", enter + words], cwd=REPO_ROOT, **pipes), path)
    assert ended.code == EXIT_FAILURE, ended.messages
    assert re.search(r"In \[2\] \(First\): .*killed by the system", ended.last_line)
    assert "control group is 600 MiB" in ended.last_line
    assert 300 < peak_of(ended.last_line) < 600
