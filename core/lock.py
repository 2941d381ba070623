"""Locks, so that no two runs write the same files at the same time.

The lock is a system lock on a file `.<name>.lock` next to the target (`filelock`: flock on Unix, or its own substitute
on file systems without locks). It ends with the process that holds it, however the process ends. Next to it
`.<name>.lock.json` names the owner for processes that are rejected.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
import socket
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from core.errors import LandfallError, LockedError, WriteError
from core.reading import json_object_or_none
from core.signals import RELEASES
from core.workspace import remove_abandoned, utc_now, write_json, writing

if TYPE_CHECKING:
    from filelock import BaseFileLock

log = logging.getLogger(__name__)

# Longer than the release of a lock takes in another process.
_TIMEOUT_S = 0.5
# Set in child processes of a holder: the token of its locks. It is not a LANDFALL_ name because those set
# configuration.
_SHARED = "_LANDFALL_LOCK"
# Errors of a file system without locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP)


class Lock:
    """The locks that this process holds for one run: none at first, then those of all targets that were taken. A
    context manager.

    run_id, command: shown to rejected processes; the run may be set later.
    is_shared: child processes may take the same targets, one at a time.
    """

    def __init__(self, run_id: str | None = None, *, command: str = "", is_shared: bool = False):
        self._owner = {
            "run_id": run_id, "command": command, "host": socket.gethostname(), "pid": os.getpid(), "since": utc_now(),
            "token": secrets.token_hex(8),
        }  # fmt: skip
        self._held: dict[Path, BaseFileLock] = {}
        self._is_shared = is_shared
        self._cleared: set[Path] = set()

    def __enter__(self) -> Self:
        if self._is_shared:
            os.environ[_SHARED] = self._owner["token"]
        RELEASES.append(self._release)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_shared:
            os.environ.pop(_SHARED, None)
        self._release()
        RELEASES.remove(self._release)

    def _release(self) -> None:
        for target, held in self._held.items():
            # Removed while the lock is held: the next process checks that its file is still the one in the folder.
            for path in (_owner_path(target), _lock_path(target)):
                with suppress(OSError):
                    path.unlink()
            held.release()

    def take(self, target: Path, *, key: str, wait_s: float = _TIMEOUT_S) -> None:
        """Reserves `target`, a file or folder, for the run of this process.

        key: the setting that gives another run its own target. wait_s: time to wait for another run to release it.
        Raises LockedError if another run writes it, WriteError if the lock cannot be written.
        """
        if _is_of_parent(target):
            target = _within(target)
        self._take(target, key=key, wait_s=wait_s)
        if not self._is_shared and (inner := _lock_path(_within(target))).exists():
            self._refuse_survivor(target, inner, key=key)

    def take_if_writable(self, target: Path, *, key: str) -> None:
        """Like `take`; a read-only target needs no lock."""
        try:
            self.take(target, key=key)
        except WriteError as error:
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise
            log.debug("%s is not locked: its folder is read-only", target)

    def _refuse_survivor(self, target: Path, inner: Path, *, key: str) -> None:
        """Raises LockedError if a child of a killed process still writes."""
        from filelock import FileLock, Timeout

        try:
            with FileLock(inner, timeout=_TIMEOUT_S, thread_local=False):
                pass
        except Timeout as error:
            raise _refused(target, _read(_within(target)), key) from error

    def _take(self, target: Path, *, key: str, wait_s: float) -> None:
        from filelock import FileLock, Timeout

        if target in self._held:
            return
        path = _lock_path(target)
        held = FileLock(path, timeout=wait_s, thread_local=False)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                held.acquire()
            except Timeout as error:
                raise _refused(target, _read(target), key) from error
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                log.warning("%s is not locked, because its file system has no locks: %s", target, error.strerror)
        self._held[target] = held
        if _owner_path(target).exists():
            log.warning("taking over the lock of %s: %s ended without releasing it", target, _described(_read(target)))
        write_json(_owner_path(target), self._owner)
        remove_abandoned(target)
        if target.parent not in self._cleared:  # once: an import locks thousands of run folders
            self._cleared.add(target.parent)
            _clear(target.parent)

    def name_run(self, run_id: str) -> None:
        """Sets the run's name once it is known."""
        self._owner["run_id"] = run_id
        for target in self._held:
            write_json(_owner_path(target), self._owner)

    def check(self) -> None:
        """Raises LandfallError if another run holds the lock now: a network drive was disconnected, or files were
        removed by hand."""
        for target in self._held:
            if _read(target).get("token") != self._owner["token"] or not _lock_path(target).exists():
                raise LandfallError(
                    f"the lock {_lock_path(target)} was lost: another run may write the same files",
                    hint="check which runs are active, then resume",
                )


def _refused(target: Path, owner: dict[str, Any], key: str) -> LockedError:
    return LockedError(target, _described(owner), hint=f"wait for it, end it, or give this run another {key}")


def _is_of_parent(target: Path) -> bool:
    """Whether the parent process holds and shares the lock."""
    token = os.environ.get(_SHARED)
    return token is not None and _read(target).get("token") == token


def _within(target: Path) -> Path:
    """The lock of a child process for a target that its parent holds."""
    return target.with_name(f"{target.name}.step")


def _lock_path(target: Path) -> Path:
    return target.with_name(f".{target.name}.lock")


def _owner_path(target: Path) -> Path:
    return target.with_name(f".{target.name}.lock.json")


def _read(target: Path) -> dict[str, Any]:
    """The description of the lock's owner; empty if it is missing or damaged."""
    return json_object_or_none(_owner_path(target)) or {}


def _described(owner: dict[str, Any]) -> str:
    if not owner:
        return "another run"
    names = [owner.get("command"), f"run {owner['run_id']}" if owner.get("run_id") else None]
    named = ", ".join(filter(None, names)) or "another run"
    return f"{named} (process {owner.get('pid')} on {owner.get('host')}, since {owner.get('since')})"


def _clear(folder: Path) -> None:
    """Removes leftover files of dead runs."""
    from filelock import FileLock, Timeout

    remove_abandoned(folder)
    for owner_path in folder.glob(".*.lock.json"):
        path = owner_path.with_suffix("")
        with suppress(Timeout, OSError), FileLock(path, blocking=False):
            owner_path.unlink()
            path.unlink()
