"""Fixtures that tests of several folders share."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support import REPO_ROOT


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the person who runs the tests reaches them."""
    for name in [name for name in os.environ if name.startswith("LANDFALL_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """An empty workspace with the project's configurations."""
    shutil.copytree(REPO_ROOT / "configs", tmp_path / "configs")
    (tmp_path / "core").mkdir()
    (tmp_path / "Makefile").touch()
    return tmp_path
