"""The workspace: where its root is, and how files are written so that a killed process never leaves half of one."""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from core.errors import UsageError

_MARKERS = ("configs", "core", "Makefile")


def find_root(start: Path | str | None = None) -> Path:
    """The workspace that holds `start` (default: the current folder): the nearest folder with the project's markers.

    Raises UsageError where no folder above `start` is a workspace.
    """
    origin = Path(start) if start is not None else Path.cwd()
    resolved = origin.resolve()
    for folder in (resolved, *resolved.parents):
        if all((folder / marker).exists() for marker in _MARKERS):
            return folder
    raise UsageError(f"{origin} is not inside a Landfall workspace", hint="change into the repository, or --repo-root")


def relative(path: Path | str, root: Path) -> str:
    """`path` as written in configs and records: relative to the root where possible, with forward slashes.

    A link inside the root, such as `data/` that leads to a network drive, keeps its own name.
    """
    full = Path(root, path)
    if not full.is_relative_to(root):
        full, root = full.resolve(), root.resolve()
    return Path(os.path.relpath(full, root)).as_posix()


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Gives a temporary path beside `path`; on success it is flushed to disk and renamed over `path`, else removed.

    The temporary name is hidden and ends in `.part`: what a killed process leaves behind matches no glob of real files.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    part = Path(name)
    try:
        yield part
        with part.open("rb+") as written:
            os.fsync(written.fileno())
        part.chmod(0o666 & ~_umask())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes) -> None:
    with atomic_file(path) as part:
        part.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode("utf-8"))


def json_text(value: Any) -> str:
    """Strict JSON: NaN and infinity raise ValueError, for no browser reads them."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def compact_json(value: Any) -> str:
    """As `json_text`, on one line: for documents that no person reads."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def write_json(path: Path, value: Any) -> None:
    """Raises ValueError for NaN and infinity."""
    write_text(path, json_text(value))


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def new_run_id() -> str:
    """Sorts by time and is unique: `20261121-083000-1f3a`."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
