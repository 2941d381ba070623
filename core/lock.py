"""Locks: what a run writes, no other run writes at the same time.

The lock is the system's, of a file `.<name>.lock` next to what it guards (`filelock`: flock on Unix, and its own
substitute where a file system has none). It ends with the process that holds it, whatever ends that. Next to it
`.<name>.lock.json` names the owner for those who are refused.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import secrets
import socket
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from core.errors import LandfallError, LockedError
from core.workspace import remove_abandoned, utc_now, write_json, writing

if TYPE_CHECKING:
    from filelock import BaseFileLock

log = logging.getLogger(__name__)

# Longer than another process takes to release a lock that it has just removed.
_TIMEOUT_S = 0.5
# Errors of a file system without locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP)


class Lock:
    """What this process writes for one run: nothing at first, then whatever it has taken. A context manager.

    run_id: named to those who are refused; it may become known later.
    """

    def __init__(self, run_id: str | None = None):
        self._owner = {
            "run_id": run_id, "host": socket.gethostname(), "pid": os.getpid(), "since": utc_now(),
            "token": secrets.token_hex(8),
        }  # fmt: skip
        self._held: dict[Path, BaseFileLock] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for target, held in self._held.items():
            # While it is held: whoever takes it next looks whether the file is still the one in the folder.
            for path in (_owner_path(target), _lock_path(target)):
                with suppress(OSError):
                    path.unlink()
            held.release()

    def take(self, target: Path, *, key: str) -> None:
        """From now on only this process's run writes `target`, a file or folder.

        key: the setting by which another run would get one of its own.
        Raises LockedError where another run writes it, WriteError where the lock cannot be written.
        """
        from filelock import FileLock, Timeout

        if target in self._held:
            return
        path = _lock_path(target)
        held = FileLock(path, timeout=_TIMEOUT_S, thread_local=False)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                held.acquire()
            except Timeout as error:
                hint = f"wait for it, end it, or give this run another {key}"
                raise LockedError(target, _in_words(_read(target)), hint=hint) from error
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                log.warning("%s is not locked, as its file system has no locks: %s", target, error.strerror)
        self._held[target] = held
        if _owner_path(target).exists():
            log.warning("taking over %s: %s has ended without releasing it", target, _in_words(_read(target)))
        write_json(_owner_path(target), self._owner)
        _clear(target)

    def name_run(self, run_id: str) -> None:
        """Sets the run's name once it is known."""
        self._owner["run_id"] = run_id
        for target in self._held:
            write_json(_owner_path(target), self._owner)

    def check(self) -> None:
        """Raises LandfallError where another run holds the lock by now: a network drive was cut off, or files were
        removed by hand."""
        for target in self._held:
            if _read(target).get("token") != self._owner["token"] or not _lock_path(target).exists():
                raise LandfallError(
                    f"the lock {_lock_path(target)} was lost: another run may write the same files",
                    hint="see what runs, and resume",
                )


def _lock_path(target: Path) -> Path:
    return target.with_name(f".{target.name}.lock")


def _owner_path(target: Path) -> Path:
    return target.with_name(f".{target.name}.lock.json")


def _read(target: Path) -> dict[str, Any]:
    """What the owner of the lock wrote; empty where that is missing or damaged."""
    try:
        owner = json.loads(_owner_path(target).read_bytes())
    except (OSError, ValueError):
        return {}
    return owner if isinstance(owner, dict) else {}


def _in_words(owner: dict[str, Any]) -> str:
    if not owner:
        return "another run"
    return f"run {owner.get('run_id')} (process {owner.get('pid')} on {owner.get('host')}, since {owner.get('since')})"


def _clear(target: Path) -> None:
    """Removes what dead runs have left in the folder of `target`, and in itself where it is one."""
    from filelock import FileLock, Timeout

    for folder in (target.parent, target):
        remove_abandoned(folder)
    for owner_path in target.parent.glob(".*.lock.json"):
        path = owner_path.with_suffix("")
        with suppress(Timeout, OSError), FileLock(path, blocking=False):
            owner_path.unlink()
            path.unlink()
