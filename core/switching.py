"""Replaces several files in one step: after a kill at any moment, all of them are the old ones or all the new ones.

The new files are first written next to their targets. Then a journal in the root of the workspace lists them. After its
second version is written, the switch is final, and the next process completes it (`finish`).
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from core.errors import LockedError
from core.lock import Lock
from core.reading import read_json_object
from core.workspace import flush_folder, write_json, writing

log = logging.getLogger(__name__)

JOURNAL = ".landfall-switch.json"
# Name of its lock.
_LOCKED = "landfall-switch"


@dataclass(frozen=True)
class _Move:
    """One replacement, as paths relative to the root. kept: the new name of the current `target`; None if there is
    none."""

    target: str
    staged: str
    kept: str | None


def switch(sources: Mapping[str, Path], *, root: Path, suffix: str) -> list[str]:
    """Replaces targets by copies of `sources`, whose keys are the targets' paths relative to `root`. Returns the names
    of the previous files, which are kept with `suffix` added.

    Call it while the targets are locked. Raises WriteError before anything is replaced.
    """
    journal = root / JOURNAL
    with Lock(command="an import") as lock:
        lock.take(root / _LOCKED, key="--repo-root")
        _complete(root)
        token = secrets.token_hex(4)
        moves = [_move(root, target, token=token, suffix=suffix) for target in sources]
        _note(journal, moves, is_decided=False)
        try:
            for move in moves:
                _stage(sources[move.target], root / move.staged)
        except BaseException:
            _undo(root, moves)
            raise
        _note(journal, moves, is_decided=True)
        _complete(root)
    return [move.kept for move in moves if move.kept is not None]


def finish(root: Path) -> None:
    """Completes, or removes, a switch whose process was killed. Call it before files that an import places are read."""
    journal = root / JOURNAL
    if not journal.is_file():
        return
    with suppress(LockedError), Lock() as lock:  # held: its process is running, and its targets are locked
        lock.take(root / _LOCKED, key="--repo-root")
        _complete(root)


def _move(root: Path, target: str, *, token: str, suffix: str) -> _Move:
    path = PurePosixPath(target)
    kept = path.with_name(path.name + suffix).as_posix() if (root / target).exists() else None
    return _Move(target, path.with_name(f".{path.name[:60]}.{token}.incoming").as_posix(), kept)


def _note(journal: Path, moves: Sequence[_Move], *, is_decided: bool) -> None:
    write_json(journal, {"is_decided": is_decided, "moves": [asdict(move) for move in moves]})
    flush_folder(journal.parent)


def _stage(source: Path, staged: Path) -> None:
    with writing(staged):
        staged.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, staged)
        with staged.open("rb+") as file:
            os.fsync(file.fileno())


def _complete(root: Path) -> None:
    journal = root / JOURNAL
    try:
        noted = read_json_object(journal)
        moves = [_Move(**move) for move in noted["moves"]]
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError) as error:
        log.warning("%s cannot be read and is removed: %s", journal, error)
        journal.unlink(missing_ok=True)
        return
    if not noted.get("is_decided"):
        _undo(root, moves)
        return
    for move in moves:
        with writing(root / move.target):
            _place(root, move)
    for folder in {(root / move.target).parent for move in moves}:
        flush_folder(folder)
    journal.unlink()


def _place(root: Path, move: _Move) -> None:
    """Replaces one target; may be repeated after an interruption. Every target exists at any time."""
    staged, target = root / move.staged, root / move.target
    if not staged.exists():
        return
    if move.kept is not None and not (root / move.kept).exists() and target.exists():
        try:
            os.link(target, root / move.kept)
        except OSError:  # a file system without links
            target.replace(root / move.kept)
    staged.replace(target)


def _undo(root: Path, moves: Sequence[_Move]) -> None:
    for move in moves:
        with suppress(OSError):  # its folder could not be made
            (root / move.staged).unlink()
    (root / JOURNAL).unlink(missing_ok=True)
