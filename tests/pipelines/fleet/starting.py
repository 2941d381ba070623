"""Starts a command of Landfall in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support import REPO_ROOT


def start(root: Path, *words: str, module: str = "pipelines.fleet.command") -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LANDFALL_")}
    command = [sys.executable, "-m", module, *words, "--repo-root", str(root)]
    return subprocess.Popen(
        command, cwd=REPO_ROOT, env={**environment, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
