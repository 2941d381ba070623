"""Looks for files in folders that may be deleted meanwhile, be unreadable, or contain broken links; never raises."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def paths_in(folder: Path, pattern: str) -> list[Path]:
    """The entries of a folder, by name; empty if it is deleted meanwhile, or without permission."""
    try:
        return sorted(folder.glob(pattern))
    except (FileNotFoundError, PermissionError):
        return []


def skipped_by_glob(folder: Path) -> Iterator[tuple[Path, str]]:
    """What a glob of a folder and of its entries skips silently, with the reason: broken links on its path or in it,
    such as to a drive that is not connected, and folders without permission."""
    for path in (*reversed(folder.parents), folder, *paths_in(folder, "*")):
        try:
            if path.is_symlink() and not path.exists():
                yield path, "is a broken link"
            elif path.is_relative_to(folder) and path.is_dir() and not os.access(path, os.R_OK | os.X_OK):
                yield path, "cannot be read: Permission denied"
        except PermissionError:  # of the folder above
            yield path, "cannot be read: Permission denied"


def has_file(path: Path) -> bool:
    """Whether a file exists; False without permission for its folder."""
    try:
        return path.is_file()
    except PermissionError:
        return False


def changed_at(path: Path) -> float:
    """Modification time in seconds since 1970; 0 if there is none, which the reader of the file will report."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
