"""Locks: what a run writes, no other run writes at the same time.

A lock is a file beside what it guards, `.<name>.<owner>.<chance>.lock`, one for each run that wants it. Who wants it
writes its own, whole, and only then looks for others: whoever looks second sees the first. Nobody ever replaces what
another wrote; files of dead processes are removed, which any number of processes may do at once.

This asks of a file system only that a renamed file is there for the next who lists its folder, so it holds on NFS, SMB
and the drives of notebook services, where `flock` and `fcntl` do nothing, or work within one machine, or are lost when
a library opens and closes the file; and a lock of the system would not say whose it is.

Whether an owner on this machine lives, its number and the time of its start tell. Of other machines only what they do
can be seen: a live owner touches its file every few seconds, and who waits watches for that, with no clock but its own.
"""

from __future__ import annotations

import json
import logging
import os
import random
import re
import secrets
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from core.errors import LandfallError, LockedError
from core.owner import Owner
from core.workspace import remove_abandoned, utc_now, write_json

log = logging.getLogger(__name__)

_TOUCH_EVERY_S = 5.0
# An owner on another machine that has not touched its lock while it was watched for so long is taken for dead.
_WATCH_S = 45.0
# Two that ask at the same moment both step back, and ask again after times of chance.
_ATTEMPTS, _LONGEST_PAUSE_S = 20, 0.2


class Lock:
    """What this process writes for one run: nothing at first, then whatever it has taken. A context manager.

    run_id: told to those who are refused; it may become known later.
    """

    def __init__(self, run_id: str | None = None):
        self._told = {
            "run_id": run_id, "host": socket.gethostname(), "pid": os.getpid(), "since": utc_now(), "held": False,
        }  # fmt: skip
        self._token = f"{Owner.this_process().token}.{secrets.token_hex(4)}"
        self._taken: list[Path] = []
        self._is_over = threading.Event()
        self._touching = threading.Thread(target=self._touch, name="lock", daemon=True)

    def __enter__(self) -> Self:
        self._touching.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._touching.join()
        for path in self._taken:
            try:
                path.unlink(missing_ok=True)
            except OSError as cause:  # when this process has ended, nobody minds the file
                log.warning("the lock %s stays: %s", path, cause)

    def take(self, target: Path, *, key: str) -> None:
        """From now on only this process's run writes `target`, a file or folder.

        key: the setting by which another run would get one of its own.
        Raises LockedError where another run writes it, WriteError where the lock cannot be written.
        """
        path = target.with_name(f".{target.name}.{self._token}.lock")
        if path in self._taken:
            return
        self._taken.append(path)
        for _ in range(_ATTEMPTS):
            self._write(path, held=False)
            other = _other(path, target)
            if other is None:
                self._write(path, held=True)
                _clear(target)
                return
            path.unlink(missing_ok=True)
            if other.held:
                break
            time.sleep(random.uniform(0.0, _LONGEST_PAUSE_S))
        self._taken.remove(path)
        way_out = f"wait for it, end it, or give this run another {key}"
        raise LockedError(target, other.in_words(), hint=way_out)

    def tell(self, run_id: str) -> None:
        """The run is known by now."""
        self._told["run_id"] = run_id
        for path in self._taken:
            self._write(path, held=True)

    def check(self) -> None:
        """Raises LandfallError where another run has taken this one for dead: this machine slept, or was cut off."""
        for path in self._taken:
            if not path.exists():
                raise LandfallError(
                    f"the lock {path} is gone: another run took this one for dead", hint="see what runs, and resume"
                )

    def _write(self, path: Path, *, held: bool) -> None:
        write_json(path, {**self._told, "held": held})

    def _touch(self) -> None:
        while not self._is_over.wait(_TOUCH_EVERY_S):
            for path in tuple(self._taken):
                try:
                    os.utime(path)
                except OSError:  # `check` tells
                    log.debug("cannot touch %s", path, exc_info=True)


@dataclass(frozen=True)
class _Other:
    """Another process with a lock: what its file says."""

    path: Path
    told: dict[str, Any]

    @property
    def held(self) -> bool:
        """Whether it has what it asked for; one that cannot be read is of a form we do not know."""
        return bool(self.told.get("held", True))

    def in_words(self) -> str:
        told = self.told
        return f"run {told.get('run_id')} (process {told.get('pid')} on {told.get('host')}, since {told.get('since')})"


def _other(mine: Path, target: Path) -> _Other | None:
    """Somebody alive who has the lock or asks for it. What the dead left is removed, and told."""
    pattern = re.compile(rf"\.{re.escape(target.name)}\.([0-9a-f]+-\d+-\d+)\.[0-9a-f]+\.lock")
    for path in sorted(target.parent.glob(".*.lock")):
        found = pattern.fullmatch(path.name)
        told = _read(path) if found and path != mine else None
        if told is None:
            continue
        other, owner = _Other(path, told), Owner.named_in(found[1])
        is_dead = owner.is_dead() if owner.is_of_here else _is_silent(other)
        if is_dead:
            log.warning("taking over %s: %s is dead", target, other.in_words())
            path.unlink(missing_ok=True)
        elif path.exists():
            return other
    return None


def _clear(target: Path) -> None:
    """Removes what dead runs have left in the folder of `target`, and in itself where it is one."""
    for folder in (target.parent, target):
        remove_abandoned(folder)
    for path in target.parent.glob(".*.lock"):
        owner = Owner.named_in(path.name)
        if owner is not None and owner.is_dead():
            path.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any] | None:
    """What a lock says; None where it is gone by now."""
    try:
        told = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def _is_silent(other: _Other) -> bool:
    """Whether an owner that cannot be seen from here does not touch its lock any more, which takes a while to see."""
    before, until = _touched(other.path), time.monotonic() + _WATCH_S
    log.info(
        "watching for %.0f s whether %s still lives: it is of another machine, boot or user", _WATCH_S, other.in_words()
    )
    while time.monotonic() < until:
        time.sleep(min(1.0, _WATCH_S))
        if _touched(other.path) != before:
            return False
    return True


def _touched(path: Path) -> int | None:
    """When a file was last touched; opening it makes a network drive look instead of remembering."""
    try:
        with path.open("rb") as file:
            return os.fstat(file.fileno()).st_mtime_ns
    except OSError:
        return None
