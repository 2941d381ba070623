"""One real run of the whole pipeline, which the tests of this folder look at or damage a copy of."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.small_workspace import PIPELINE_ARGUMENTS, RUN_ID, build_small_workspace
from pipelines.run_local_training_pipeline import main


class FinishedWorkspace(NamedTuple):
    """Where the run lies, and how the command that made it ended."""

    root: Path
    exit_code: int
    stdout: str


@pytest.fixture(scope="session")
def finished_workspace(tmp_path_factory: pytest.TempPathFactory) -> FinishedWorkspace:
    """To look at only: every test sees the same one."""
    root = build_small_workspace(tmp_path_factory.mktemp("finished"))
    stdout = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(stdout):
        for name in [name for name in os.environ if name.startswith("LANDFALL_")]:
            patch.delenv(name)
        code = main([*PIPELINE_ARGUMENTS, "--repo-root", str(root), "--run-id", RUN_ID])
    return FinishedWorkspace(root, code, stdout.getvalue())


@pytest.fixture
def copied(finished_workspace: FinishedWorkspace, tmp_path: Path) -> Path:
    """A copy of the finished workspace to damage."""
    return shutil.copytree(finished_workspace.root, tmp_path / "copy")
