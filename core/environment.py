"""What a run ran on: interpreter, packages, hardware, code version."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from core.devices.backend import torch_versions
from core.devices.plan import DevicePlan

RECORDED_PACKAGES = (
    "torch", "numpy", "pandas", "pyarrow", "hydra-core", "pydantic", "papermill", "nbformat", "matplotlib",
)  # fmt: skip


def environment_record(root: Path, plan: DevicePlan, decisions: Mapping[str, Any]) -> dict[str, Any]:
    """decisions: what the hardware decided about model and batch."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        **torch_versions(),
        "device": plan.to_json(),
        **decisions,
        "git": git_state(root),
        "packages": {name: version_of(name) for name in RECORDED_PACKAGES},
    }


def git_state(root: Path) -> dict[str, Any]:
    """Commit and whether files differ from it; both None outside a git checkout."""
    commit = _git(root, "rev-parse", "HEAD")
    status = _git(root, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": None if status is None else bool(status)}


def _git(root: Path, *arguments: str) -> str | None:
    try:
        result = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()


def version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
