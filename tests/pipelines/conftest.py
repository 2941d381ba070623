"""A real run of the complete pipeline; tests of this folder read it, or damage a copy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import REPO_ROOT, built_once
from tests.support.small_workspace import PIPELINE_ARGUMENTS, RUN_ID, build_small_workspace


class FinishedWorkspace(NamedTuple):
    """The folder of the run, and the result of its command."""

    root: Path
    exit_code: int
    stdout: str
    log: list[str]


@pytest.fixture(scope="session")
def finished_workspace(tmp_path_factory: pytest.TempPathFactory) -> FinishedWorkspace:
    """Read-only: all tests share it."""
    folder = built_once(tmp_path_factory, "pipeline", run_pipeline)
    ended = json.loads((folder / "ended.json").read_text(encoding="utf-8"))
    return FinishedWorkspace(folder / "workspace", **ended)


def run_pipeline(folder: Path) -> None:
    root = build_small_workspace(folder / "workspace")
    command = [sys.executable, "-m", "pipelines.run_local_training_pipeline", "--repo-root", str(root)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LANDFALL_")}
    ended = subprocess.run(
        [*command, *PIPELINE_ARGUMENTS, "--run-id", RUN_ID],
        cwd=REPO_ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    output = {"exit_code": ended.returncode, "stdout": ended.stdout, "log": ended.stderr.splitlines()}
    (folder / "ended.json").write_text(json.dumps(output), encoding="utf-8")


@pytest.fixture
def copied(finished_workspace: FinishedWorkspace, tmp_path: Path) -> Path:
    """A copy of the finished workspace to damage."""
    return shutil.copytree(finished_workspace.root, tmp_path / "copy")
