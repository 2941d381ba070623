"""The workspace: finds its root, and writes files so that a killed process never leaves an incomplete one."""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import logging
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from core.errors import LandfallError, UsageError, WriteError
from core.owner import Owner

log = logging.getLogger(__name__)

Other = TypeVar("Other")

# Folder of this code: a clone, or the folder that a wheel installs.
CODE_ROOT = Path(__file__).resolve().parents[1]
# The folder of the sample data, apart from the user's own in `data`.
SAMPLES = "samples"
# Folders of configuration groups, which mark a workspace.
_MARKERS = ("configs/local", "configs/trainer")
# Suffix of files that are being written. They are hidden and match no glob of real files.
_PART = ".part"
# Errors of file systems that do not support flushing a folder, as opposed to a failure.
_NO_FLUSH = (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.ENOSYS)
# After this time without a write, a process of another machine or an earlier boot counts as dead.
_SILENT_S = 3600.0


def find_root(start: Path | str | None = None) -> Path:
    """The workspace that contains `start` (default: the current folder): the nearest folder with configurations.

    Raises UsageError if no folder above `start` is a workspace.
    """
    try:
        origin = Path(start) if start is not None else Path.cwd()
    except FileNotFoundError as error:
        raise UsageError("the current folder was removed", hint="change folder, or pass --repo-root") from error
    resolved = origin.resolve()
    for folder in (resolved, *resolved.parents):
        if all((folder / marker).exists() for marker in _MARKERS):
            return folder
    raise UsageError(
        f"{origin} is not inside a Landfall workspace",
        hint="change into one, pass --repo-root, or create one: landfall init DIR",
    )


def root_or(other: Other) -> Path | Other:
    """The workspace that contains the current folder, or `other` if none does."""
    try:
        return find_root()
    except UsageError:
        return other


def broken_link(path: Path) -> Path | None:
    """The first link on a path that leads to itself or nowhere, such as to a drive that is not connected."""
    return next((each for each in (*reversed(path.parents), path) if each.is_symlink() and not each.exists()), None)


def holds_files(folder: Path) -> bool:
    """Whether a folder or a subfolder has a file that is not hidden; True if the folder is unreadable."""
    try:
        found = list(folder.iterdir()) if folder.is_dir() else []
    except PermissionError:
        return True
    return any(not path.name.startswith(".") and (path.is_file() or holds_files(path)) for path in found)


def relative(path: Path | str, root: Path) -> str:
    """`path` as written in configs and records: relative to the root where possible, with forward slashes.

    A link inside the root, such as `data/` to a network drive, keeps its own name.
    """
    full = Path(root, path)
    if not full.is_relative_to(root):
        full, root = full.resolve(), root.resolve()
    return Path(os.path.relpath(full, root)).as_posix()


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yields a temporary path next to `path`; on success it is flushed to disk and renamed to `path`, otherwise
    removed.

    Raises WriteError if the disk is full or the folder is not writable; the previous content of `path` stays.
    """
    with writing(path):
        part = temporary_path(path)
        try:
            part.touch(exist_ok=False)
            yield part
            with part.open("rb+") as written:
                os.fsync(written.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A context in which disk errors become a WriteError that names `path`, also if a library raises its own error."""
    try:
        yield
    except LandfallError:  # such as a stop, or an error that already names a file
        raise
    except Exception as error:
        cause = _disk_error(error, path)
        if cause is None:
            raise
        raise WriteError(path, cause) from error


def _disk_error(error: BaseException | None, path: Path) -> OSError | None:
    """The system error for the folder of `path`; torch raises its own error, which has the system error only in its
    context."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in WriteError.HINTS:
            named = Path(error.filename) if isinstance(error.filename, str) else path
            if named.parent == path.parent or path.is_relative_to(named):
                return error
        error = error.__context__
    return None


# ------------------------------------------------------------------------------------------------------ temporary files
def temporary_path(path: Path) -> Path:
    """A temporary name for `path` in the same folder, which is created; the name contains the owner.

    The first call for a folder removes leftover files of dead processes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _clean_once(path.parent.resolve(), os.getpid())
    owner = Owner.this_process().token
    return path.with_name(f".{path.name[:40]}.{owner}.{secrets.token_hex(4)}{_PART}")


@contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """A new folder next to `path` that only this user can open; removed at the end."""
    folder = temporary_path(path)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def _clean_once(folder: Path, pid: int) -> None:
    remove_abandoned(folder)


def remove_abandoned(folder: Path) -> None:
    """Removes the temporary files in a folder whose writers are dead.

    Files of other machines and earlier boots, whose writers are unknown, are removed an hour after the last write.
    """
    for part in folder.glob(f".*{_PART}"):
        owner = Owner.named_in(part.name)
        is_over = owner.is_dead() if owner is not None and owner.is_of_here else _is_silent(part)
        if not is_over:
            continue
        log.info("removing %s, the unfinished file of a process that died", part)
        if part.is_dir():
            shutil.rmtree(part, ignore_errors=True)
        else:
            with suppress(OSError):  # already removed, or of another user
                part.unlink()


def _is_silent(part: Path) -> bool:
    try:
        return time.time() - part.stat().st_mtime > _SILENT_S
    except FileNotFoundError:
        return False


def flush_folder(folder: Path) -> None:
    """Makes renames in the folder survive a power failure, in order. Windows cannot open folders, and some virtual and
    network drives cannot flush them."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_FLUSH:
            raise
        log.debug("%s cannot be flushed", folder, exc_info=True)
    finally:
        os.close(handle)


# ---------------------------------------------------------------------------------------------------------- whole files
def write_bytes(path: Path, data: bytes) -> None:
    with atomic_file(path) as part:
        part.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8. Names of files that are not valid UTF-8 are written with escapes, which JSON reads back."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def json_text(value: Any, *, default: Callable[[Any], Any] | None = None) -> str:
    """Strict JSON: NaN and infinity raise ValueError, because browsers cannot read them. `default` converts objects,
    as in `json.dumps`."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, default=default) + "\n"


def schema_text(model: type, *, mode: Literal["serialization", "validation"] = "serialization") -> str:
    """The JSON Schema of a pydantic model or a dataclass: of what it writes, or of what it reads."""
    from pydantic import TypeAdapter

    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json_text(dialect | TypeAdapter(model).json_schema(mode=mode))


def compact_json(value: Any) -> str:
    """Like `json_text`, on one line: for documents that only programs read."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def json_digest(value: Any) -> str:
    """SHA-256 of a value as JSON, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode("utf-8")).hexdigest()


def write_json(path: Path, value: Any) -> None:
    """Writes strict JSON. Raises ValueError for NaN and infinity."""
    write_text(path, json_text(value))


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def new_run_id() -> str:
    """A name that sorts by time, and is unique even if the clock repeats a second: `20261121-083000-1f3a77c2`."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"
