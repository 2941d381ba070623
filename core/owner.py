"""The process that owns a leftover file, and whether it is still running."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import socket
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

# A process that cannot be looked up has ended if it has not written for this time.
SILENCE = timedelta(minutes=2)
_TOKEN = re.compile(r"([0-9a-f]{8})-(\d+)-(\d+)")


@dataclass(frozen=True)
class Owner:
    """Unique identity of a process: machine, id and start time, so that a later process with the same id is different.

    machine: eight letters for host name, boot and, in a container, its PID namespace. started: by a monotonic clock.
    """

    machine: str
    pid: int
    started: int

    @classmethod
    def this_process(cls) -> Self:
        pid = os.getpid()  # read each time: a fork is another process
        return cls(_machine(), pid, _started(pid) or 0)

    @classmethod
    def named_in(cls, name: str) -> Self | None:
        """The owner of the last token in a file's name."""
        found = _TOKEN.findall(name)
        return cls(found[-1][0], int(found[-1][1]), int(found[-1][2])) if found else None

    @property
    def token(self) -> str:
        """The token for names of files."""
        return f"{self.machine}-{self.pid}-{self.started}"

    @property
    def is_of_here(self) -> bool:
        """Whether this process can determine if the owner is running. It cannot for other machines and earlier boots,
        and for other users if the system hides their processes."""
        return self.machine == _machine() and not _is_hidden(self.pid)

    def is_dead(self) -> bool:
        """Whether the process has certainly ended."""
        return self.is_of_here and _started(self.pid) != self.started


@functools.cache
def _machine() -> str:
    parts = [socket.gethostname()]
    for path, read in (("/proc/sys/kernel/random/boot_id", Path.read_text), ("/proc/self/ns/pid", os.readlink)):
        try:
            parts.append(str(read(Path(path))).strip())
        except OSError:  # not Linux: boots are distinguished by their start time
            parts.append("")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


def _started(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot (in 1/100 s on other systems than Linux); None if it does not
    exist.

    A zombie process counts as ended.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return None if fields[0] in "ZX" else int(fields[19])
    except OSError:
        pass
    import psutil

    try:
        return round(psutil.Process(pid).create_time() * 100)
    except psutil.Error:
        return None


def _is_hidden(pid: int) -> bool:
    """Whether another user has a process with this id that the system hides (`hidepid` of Linux's /proc)."""
    if os.name == "nt" or _started(pid) is not None:  # on Windows, the call below would end the process
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def has_ended(owner: str, updated_at: datetime | None, now: datetime) -> bool:
    """Whether the process that wrote a file has ended. owner: token of the process.

    If it cannot be looked up, as from another host of a shared folder, a process that has not written for `SILENCE`
    counts as ended.
    """
    process = Owner.named_in(owner)
    if process is not None and process.is_of_here:
        return process.is_dead()
    return updated_at is None or now - updated_at > SILENCE
