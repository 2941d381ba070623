"""Training until it is done: restarts the command in a new process as long as there is a state to resume.

Imports no torch: the waiting process is small, and survives what kills the training process.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from core import checkpoint
from core.devices.process import without_start
from core.errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_KILLED, EXIT_RESUMABLE, CheckpointError
from core.stopping import STOP_SIGNALS

log = logging.getLogger(__name__)

# Starts in a row that saved nothing new, and the longest pause before the next one.
MOST_IN_VAIN, LONGEST_PAUSE_S = 5, 60.0
# Marks the process that trains. Not a LANDFALL_ name: those are configuration.
_SUPERVISED = "_LANDFALL_SUPERVISED"


def is_supervised(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is the one that trains, started by a supervisor."""
    return _SUPERVISED in environ


class Supervisor:
    """Starts a training command again while it ends with 75 or is killed, and passes signals on to it.

    last: the file of its state. Until that changes, a restart is the same command; afterwards it resumes.
    pause_s: before a restart after one that saved nothing; each further one doubles it.
    """

    def __init__(self, command: Sequence[str], *, last: Path, pause_s: float = 1.0):
        self.command, self.last, self.pause_s = list(command), last, pause_s
        self._process: subprocess.Popen[bytes] | None = None
        self._asked_to_stop: int | None = None
        self._woken = threading.Event()

    def run(self) -> int:
        """The exit code of the last start."""
        before = {number: signal.signal(number, self._pass_on) for number in _passed_on()}
        try:
            return self._until_done()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _until_done(self) -> int:
        started_with = state = self._state()
        in_vain = 0
        while True:
            code = self._start(is_begun=state != started_with)
            if self._asked_to_stop is not None:
                return _as_exit_code(code)
            if code != EXIT_RESUMABLE and code >= 0:
                return code
            previous, state = state, self._state()
            in_vain = in_vain + 1 if state == previous else 0
            ending = f"was killed by {signal.Signals(-code).name}" if code < 0 else "stopped"
            if in_vain == MOST_IN_VAIN:
                log.error("training %s %d times in a row without saving anything new: giving up", ending, in_vain)
                return _as_exit_code(code)
            pause_s = min(self.pause_s * 2 ** max(0, in_vain - 1), LONGEST_PAUSE_S) if in_vain or code < 0 else 0.0
            log.warning("training %s: starting it again%s", ending, f" in {pause_s:.3g} s" if pause_s else "")
            if self._woken.wait(pause_s):
                return EXIT_INTERRUPTED if self._asked_to_stop == signal.SIGINT else EXIT_RESUMABLE

    def _start(self, *, is_begun: bool) -> int:
        """Runs the command to its end: its exit code, or the negative number of the signal that it, or one of the
        processes it had started, died of."""
        go_on = ["--resume", "auto"] if is_begun else []
        environment = {**without_start(os.environ), _SUPERVISED: "1"}
        # A session of its own, so that one Ctrl-C is heard once: here.
        self._process = subprocess.Popen([*self.command, *go_on], env=environment, start_new_session=True)
        if self._asked_to_stop is not None:  # while it was being started
            self._process.send_signal(self._asked_to_stop)
        code = self._process.wait()
        if code < 0 and hasattr(os, "killpg"):  # its child processes must not survive it
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        return -signal.SIGKILL if code == EXIT_KILLED else code

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self._asked_to_stop = signal.SIGTERM if number == getattr(signal, "SIGHUP", None) else number
        self._woken.set()
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(self._asked_to_stop)

    def _state(self) -> str | None:
        """Changes whenever something is saved."""
        try:
            return checkpoint.describe(self.last)["sha256"]
        except (CheckpointError, KeyError):
            return None


def training_command(stream: str, words: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", f"trainers.train_{stream}_ssl", *words]


def _passed_on() -> list[int]:
    """A terminal that is closed asks to stop too, unless the user said otherwise (nohup)."""
    hangs_up = getattr(signal, "SIGHUP", None)
    heard = hangs_up is not None and signal.getsignal(hangs_up) != signal.SIG_IGN
    return [*STOP_SIGNALS, *([hangs_up] if heard else [])]


def _as_exit_code(code: int) -> int:
    return code if code >= 0 else EXIT_FAILURE
