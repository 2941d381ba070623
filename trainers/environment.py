"""The environment of a run: interpreter, packages, hardware, code version."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.devices.backend import torch_versions
from core.devices.plan import DevicePlan
from core.git import git_state
from core.packages import version_of

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
        **decisions,
        "git": git_state(root),
        "packages": {name: version_of(name) for name in RECORDED_PACKAGES},
    }
