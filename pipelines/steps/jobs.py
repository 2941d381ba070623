"""One running step: its process, its output, and its progress."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.progress import span
from core.runlog import read_status
from core.secrets.redaction import redacted_text
from core.workspace import CODE_ROOT
from pipelines.steps.table import Step

TIME_OF_DAY = re.compile(r"^\d\d:\d\d:\d\d ")
_PROBLEM = re.compile(r"^(?:WARNING|ERROR|CRITICAL): ")
PROGRAM = re.compile(r"^(?:landfall [\w-]+(?: [\w-]+)?|[\w.-]+): ")

# An event of a job: a line of its output, or its exit code.
Report = Callable[["Job", str | int], None]


@dataclass
class Cells:
    """Progress of a notebook: the number of the running code cell, and the duration of each completed one."""

    count: int = 0
    number: int = 0
    title: str = ""
    started: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)

    def update(self, event: dict[str, Any]) -> None:
        if event["event"] == "notebook":
            self.count = event["cells"]
        elif event["event"] == "start":
            self.number, self.title, self.started = event["cell"], event["title"], time.monotonic()
        else:
            self.seconds[str(event["cell"])] = event["seconds"]


def is_problem(text: str) -> bool:
    """Whether a line of a log is a warning or an error."""
    return _PROBLEM.match(text) is not None


class Job:
    """The process of a step. Separate threads pass its output, without secrets, to `log_file` and `report`. cores: the
    CPU cores it may use, or None for all cores of this process.
    training: the folder of the run log of its training.
    earlier: duration of each cell in the last run in seconds, for an estimate.
    """

    def __init__(
        self,
        step: Step,
        command: Sequence[str],
        *,
        log_file: Path,
        report: Report,
        cores: set[int] | None = None,
        training: Path | None = None,
        earlier: dict[str, float] | None = None,
    ):
        self.step, self.cores = step, cores
        self.cells = Cells()
        self.log_file, self._error = log_file, ""
        self._report, self._training, self._earlier = report, training, earlier or {}
        self._began = time.monotonic()
        log_file.parent.mkdir(parents=True, exist_ok=True)
        self._log = log_file.open("a", encoding="utf-8")
        self._process = _start(command, cores)
        self._readers = [
            threading.Thread(target=read, name=f"{step.name} {read.__name__}", daemon=True)
            for read in (self._read_output, self._read_messages)
        ]
        for thread in (*self._readers, threading.Thread(target=self._wait, name=f"{step.name} _wait", daemon=True)):
            thread.start()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def cause(self) -> str:
        """The error of the step, without the name of the command: its last line on stderr that is not a log line,
        because commands print their error in one line (`core.cli`). Without an error, its exit code."""
        return PROGRAM.sub("", self._error, count=1) or f"exit code {self._process.poll()}; see {self.log_file.name}"

    def stop(self) -> None:
        """Sends a signal, so that the step saves its state and stops."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    # --------------------------------------------------------------------------------------------------------- progress
    def progress(self) -> str:
        """Progress and remaining time, in one line."""
        words, training = self._cell(), self._training_status()
        if training is not None:
            words.append(f"epoch {min(training['epoch'] + 1, training['epochs'])} of {training['epochs']}")
            words.append(f"step {training['step']} of {training['steps']}")
        words.append(f"{span(self.seconds)} so far")
        return ", ".join([*words, *self._left()])

    def quarters(self) -> int:
        """Number of completed quarters of the training's epochs, at most 3; 0 if it does not train."""
        training = self._training_status()
        done = 4 * training["epoch"] // training["epochs"] if training is not None and training["epochs"] else 0
        return min(done, 3)

    def note(self) -> str:
        """Progress in a few words, for the dashboard."""
        return ", ".join([*self._cell(), *self._left()])

    def _cell(self) -> list[str]:
        cells = self.cells
        title = f" ({cells.title})" if cells.title else ""
        return [f"cell {cells.number} of {cells.count}{title}"] if cells.number else []

    def _left(self) -> list[str]:
        left = self.seconds_left()
        return [] if left is None else [f"about {span(left)} left"]

    def seconds_left(self) -> float | None:
        """Remaining time from the run log during training, and for other cells from their last duration."""
        training, now = self._training_status(), self.cells.number
        this_cell = None if training is None else training.get("eta_seconds")
        if this_cell is None and str(now) in self._earlier:
            this_cell = max(0.0, self._earlier[str(now)] - (time.monotonic() - self.cells.started))
        if this_cell is None:
            return None
        return this_cell + sum(seconds for cell, seconds in self._earlier.items() if int(cell) > now)

    def _training_status(self) -> dict[str, Any] | None:
        status = read_status(self._training) if self._training is not None else None
        return status if status is not None and status.get("state") == "running" else None

    # ---------------------------------------------------------------------------------------------------------- output
    def _read_messages(self) -> None:
        for line in map(redacted_text, self._process.stderr):
            text = TIME_OF_DAY.sub("", line.rstrip())
            if text:
                self._log.write(line)
                self._error = self._error if TIME_OF_DAY.match(line) else text
                self._report(self, text)

    def _read_output(self) -> None:
        """Reads results in JSON, including the events of a notebook."""
        for line in self._process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                event = None
            if isinstance(event, dict) and "event" in event:
                self.cells.update(event)
            else:
                self._log.write(redacted_text(line))

    def _wait(self) -> None:
        for reader in self._readers:
            reader.join()
        code = self._process.wait()
        if code < 0:
            self._error = f"its process was killed by {signal.Signals(-code).name}"
        self._log.close()
        self._report(self, code)


def _start(command: Sequence[str], cores: set[int] | None) -> subprocess.Popen[str]:
    """Starts a process in a separate session: Ctrl-C goes to the pipeline only, which then stops its steps. A process
    inherits the cores of the thread that starts it.
    """
    mine = os.sched_getaffinity(0) if cores is not None else None
    if cores is not None:
        os.sched_setaffinity(0, cores)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", *command], cwd=CODE_ROOT, env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
            start_new_session=True,
        )  # fmt: skip
    finally:
        if mine is not None:
            os.sched_setaffinity(0, mine)
