"""Watches the kernel of a notebook: its memory, and why it died."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

from core.host import memory_mb, oom_kills
from core.process_memory import MIB

# A look reads the parent of every process of the machine, so it takes longer the more there are: at least so many
# seconds between two looks, and so many times as long as the last one took.
_SECONDS_BETWEEN_LOOKS, _TIMES_THE_LAST = 0.1, 50
# A process that was killed with this share of the total memory was most likely killed because memory ran out.
_NEARLY_ALL = 0.85
_LESS_MEMORY = "training.gradient_checkpointing=true, model.size=reduced or a smaller training.batch_size need less"
# Meaning of a signal, and a hint.
_SIGNALS = {
    "SIGSEGV": ("segmentation fault in compiled code (SIGSEGV)", "its cell shows the lines that led there"),
    "SIGBUS": (
        "bus error (SIGBUS), as when a disk is full or a mapped file shrinks",
        "check the disk, and run again",
    ),
    "SIGILL": ("illegal instruction (SIGILL)", "install a torch that was built for this processor"),
    "SIGFPE": ("arithmetic error in compiled code (SIGFPE)", "its cell shows the lines that led there"),
    "SIGABRT": ("aborted by compiled code (SIGABRT)", "its cell shows the lines that led there"),
    "SIGKILL": (
        "killed by another process (SIGKILL), as `kill -9` does",
        "find out which user or program ends processes on this machine",
    ),
    "SIGTERM": (
        "ended by another process (SIGTERM)",
        "find out which user or program ends processes on this machine",
    ),
}


@dataclass(frozen=True)
class Death:
    """Why a kernel died, its peak memory, a hint, and the position in the Python code if compiled code crashed."""

    cause: str
    peak_mb: float
    hint: str
    trace: tuple[str, ...] = ()


class KernelWatch:
    """Watches one kernel from its start to its end; a context manager. folder: where the kernel writes a traceback if
    it crashes. memory_limit_mb: memory limit of the kernel and its children together; above it they are killed.
    """

    def __init__(self, folder: Path, memory_limit_mb: float | None = None):
        self.memory_limit_mb = memory_limit_mb
        self._crash = folder / "crash.txt"
        self._process: subprocess.Popen | None = None
        self._peak_mb = 0.0
        self._is_over = threading.Event()
        self._exceeded = False
        self._oom_kills = oom_kills()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()

    @property
    def arguments(self) -> list[str]:
        """Arguments for the kernel's command line: Python writes a traceback to a file if compiled code crashes,
        because the kernel's sockets do not report it."""
        code = f"__import__('faulthandler').enable(open({str(self._crash)!r}, 'w'), all_threads=False)"
        return [f"--InteractiveShellApp.exec_lines={code}"]

    def started(self, process: subprocess.Popen) -> None:
        self._process = process
        threading.Thread(target=self._look, name="kernel memory", daemon=True).start()

    @property
    def is_dead(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def interrupt(self) -> None:
        """Interrupts the kernel like ■: training saves a checkpoint, other work stops immediately."""
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def death(self) -> Death:
        """The cause of death. Call it only after the kernel has died."""
        status = self._process.wait() if self._process is not None else 0
        peak_mb = max(self._peak_mb, _peak_of_children_mb())
        memory = memory_mb()
        if self._exceeded:
            cause = f"out of memory: --memory-limit is {self.memory_limit_mb:,.0f} MiB"
            return Death(cause, peak_mb, f"raise the limit; {_LESS_MEMORY}")
        if status >= 0:
            return Death(f"ended by itself with exit code {status}", peak_mb, "look for exit calls in the cell")
        name = signal.Signals(-status).name
        if name == "SIGKILL" and oom_kills() > self._oom_kills:
            cause = f"out of memory: killed by the system, the limit of its control group is {memory.total_mb:,} MiB"
            return Death(cause, peak_mb, f"raise the limit; {_LESS_MEMORY}")
        if name == "SIGKILL" and peak_mb > _NEARLY_ALL * memory.total_mb:
            cause = f"killed (SIGKILL), most likely out of memory: {memory.source} has {memory.total_mb:,} MiB"
            return Death(cause, peak_mb, _LESS_MEMORY)
        cause, hint = _SIGNALS.get(name, (f"ended by {name}", "run it again"))
        return Death(cause, peak_mb, hint, self._trace())

    def _trace(self) -> tuple[str, ...]:
        """The lines of the traceback from the cell on, the innermost first."""
        lines = self._crash.read_text(encoding="utf-8", errors="replace").splitlines() if self._crash.is_file() else []
        frames = (line.strip() for line in lines if line.startswith("  File "))
        return tuple(itertools.takewhile(lambda frame: "/IPython/core/" not in frame, frames))

    def _signal(self, number: signal.Signals) -> None:
        """Sends a signal to the kernel and its child processes: it leads a separate process group."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def _look(self) -> None:
        pause_s = _SECONDS_BETWEEN_LOOKS
        while not self._is_over.wait(pause_s):
            before_s = time.thread_time()
            try:
                kernel = psutil.Process(self._process.pid)
                processes = [kernel, *kernel.children(recursive=True)]
                held_mb = sum(process.memory_info().rss for process in processes) / MIB
            except psutil.Error:
                return
            self._peak_mb = max(self._peak_mb, held_mb)
            if self.memory_limit_mb is not None and held_mb > self.memory_limit_mb:
                self._exceeded = True
                self.kill()
                return
            pause_s = max(_SECONDS_BETWEEN_LOOKS, _TIMES_THE_LAST * (time.thread_time() - before_s))


def _peak_of_children_mb() -> float:
    """The peak memory of a child of this process, as recorded by the system for children that have ended."""
    if sys.platform == "win32":
        return 0.0
    import resource

    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return peak / (MIB if sys.platform == "darwin" else 1024)
