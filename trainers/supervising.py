"""`--until-done`: restarts training in a new process while there is a state to resume.

Imports no torch: the supervising process stays small, and survives if the training process is killed for memory.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from core import checkpoint
from core.errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_KILLED, EXIT_RESUMABLE, CheckpointError
from core.signals import is_hangup, is_repeated, stop_signals
from core.stopping import without_start

log = logging.getLogger(__name__)

# Maximum number of consecutive starts that save nothing new, and the longest pause before the next start.
MAX_STARTS_WITHOUT_PROGRESS, MAX_PAUSE_S = 5, 60.0
# Marks the process that trains. Not a LANDFALL_ name: those are configuration.
_SUPERVISED = "_LANDFALL_SUPERVISED"


def is_supervised() -> bool:
    """Whether this process trains and was started by a supervisor."""
    return _SUPERVISED in os.environ


class Supervisor:
    """Restarts a training command while it ends with 75 or is killed, and forwards signals to it.

    last: the file of the training state. Until it changes, a restart is the same command; afterwards it resumes.
    pause_s: seconds before the restart of a killed process, or after a start that saved nothing; doubled for each
        further start without progress.
    """

    def __init__(self, command: Sequence[str], *, last: Path, pause_s: float = 1.0):
        self.command, self.last, self.pause_s = list(command), last, pause_s
        self._process: subprocess.Popen[bytes] | None = None
        self._stop_signal: int | None = None
        self._woken = threading.Event()

    def run(self) -> int:
        """The exit code of the last start."""
        before = {number: signal.signal(number, self._forward) for number in stop_signals()}
        try:
            return self._until_done()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _until_done(self) -> int:
        started_with = state = self._state()
        without_progress = 0
        while True:
            code = self._start(has_state=state != started_with)
            if self._stop_signal is not None:
                return _as_exit_code(code)
            if code != EXIT_RESUMABLE and code >= 0:
                return code
            previous, state = state, self._state()
            without_progress = without_progress + 1 if state == previous else 0
            ending = f"was killed by {signal.Signals(-code).name}" if code < 0 else "stopped"
            if without_progress == MAX_STARTS_WITHOUT_PROGRESS:
                log.error("training %s %d times in a row without progress: giving up", ending, without_progress)
                return _as_exit_code(code)
            must_pause = without_progress or code < 0
            pause_s = min(self.pause_s * 2 ** max(0, without_progress - 1), MAX_PAUSE_S) if must_pause else 0.0
            log.warning("training %s: restarting%s", ending, f" in {pause_s:.3g} s" if pause_s else "")
            if self._woken.wait(pause_s):
                return EXIT_INTERRUPTED if self._stop_signal == signal.SIGINT else EXIT_RESUMABLE

    def _start(self, *, has_state: bool) -> int:
        """Runs the command: its exit code, or the negative number of the signal that killed a process."""
        resume = ["--resume", "auto"] if has_state else []
        environment = {**without_start(os.environ), _SUPERVISED: "1"}
        # A separate session, so that only this process gets Ctrl-C.
        self._process = subprocess.Popen([*self.command, *resume], env=environment, start_new_session=True)
        if self._stop_signal is not None:  # while it was being started
            self._process.send_signal(self._stop_signal)
        code = self._process.wait()
        if code < 0 and hasattr(os, "killpg"):  # its child processes must not survive it
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        return -signal.SIGKILL if code == EXIT_KILLED else code

    def _forward(self, number: int, frame: FrameType | None) -> None:
        if is_repeated(number):
            return
        self._stop_signal = signal.SIGTERM if is_hangup(number) else number
        self._woken.set()
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(self._stop_signal)

    def _state(self) -> str | None:
        """The digest of the saved state; None if there is none."""
        try:
            return checkpoint.describe(self.last)["sha256"]
        except (CheckpointError, KeyError):
            return None


def training_command(stream: str, words: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", f"trainers.train_{stream}_ssl", *words]


def _as_exit_code(code: int) -> int:
    return code if code >= 0 else EXIT_FAILURE
