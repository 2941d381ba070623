"""Git queries that execute no command from the settings of the checkout or of the user."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Settings can name commands: monitors, hooks, filters of files, programs that fetch a missing object. The settings of
# the user and the system are not read, those of the checkout are overridden, and no protocol may fetch.
_ENVIRONMENT: Mapping[str, str] = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_NO_LAZY_FETCH": "1",
    "LC_ALL": "C",
}
_OVERRIDES = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}", "--no-optional-locks")


def git_state(root: Path) -> dict[str, Any]:
    """The commit, and whether tracked files differ from it; both are None outside a git checkout. The second is also
    None if the checkout has filters: they are commands, and git runs them to compare.
    """
    filters = git_output(root, "config", "--name-only", "--get-regexp", r"^filter\.")
    status = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all")
    changed = None if filters else git_output(root, *status)
    return {"commit": git_output(root, "rev-parse", "HEAD"), "dirty": None if changed is None else bool(changed)}


def tracked_files(root: Path, folders: tuple[str, ...]) -> frozenset[str] | None:
    """The files of folders that git tracks, relative to `root`; None without git or without such files."""
    listed = git_output(root, "ls-files", "-z", "--", *folders)
    return frozenset(filter(None, listed.split("\0"))) or None if listed else None


def git_output(root: Path, *arguments: str) -> str | None:
    """The output of a git command that reads only, or None if it fails."""
    environment = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT") if name in os.environ} | _ENVIRONMENT
    command = ["git", *_OVERRIDES, *arguments]
    try:
        result = subprocess.run(
            command, cwd=root, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=30, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()
