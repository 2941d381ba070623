"""The environment of a run: interpreter, packages, hardware, code version."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from core.devices.backend import torch_versions
from core.devices.detect import devices_used
from core.devices.plan import DevicePlan

RECORDED_PACKAGES = (
    "torch", "numpy", "pandas", "pyarrow", "hydra-core", "pydantic", "papermill", "nbformat", "matplotlib",
)  # fmt: skip


def environment_record(root: Path, plan: DevicePlan, decisions: Mapping[str, Any]) -> dict[str, Any]:
    """decisions: model and batch sizes chosen for the hardware."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        **torch_versions(),
        "device": plan.to_json(),
        "devices_used": [device.to_json() for device in devices_used(plan)],
        **decisions,
        "git": git_state(root),
        "packages": {name: version_of(name) for name in RECORDED_PACKAGES},
    }


def git_state(root: Path) -> dict[str, Any]:
    """The commit, and whether files differ from it; both are None outside a git checkout."""
    commit = _git(root, "rev-parse", "HEAD")
    status = _git(root, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": None if status is None else bool(status)}


# Git reads commands from the settings of the user, the system and the checkout: these are not read or not followed.
_NO_COMMANDS = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}", "--no-optional-locks")
_NO_SETTINGS = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "LC_ALL": "C"}


def _git(root: Path, *arguments: str) -> str | None:
    environment = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT") if name in os.environ} | _NO_SETTINGS
    command = ["git", *_NO_COMMANDS, *arguments]
    try:
        result = subprocess.run(
            command, cwd=root, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()


def version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
