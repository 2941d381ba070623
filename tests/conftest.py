"""Fixtures that tests of several folders share."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import REPO_ROOT


@pytest.fixture(autouse=True)
def _plain_environment() -> Iterator[None]:
    """No setting of the person who runs the tests reaches them, and what one test sets no other sees: looking at the
    hardware prepares its allocators through the environment."""
    before = dict(os.environ)
    for name in [name for name in before if name.startswith(("LANDFALL_", "COMPUTE_"))]:
        del os.environ[name]
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """An empty workspace with the project's configurations."""
    shutil.copytree(REPO_ROOT / "configs", tmp_path / "configs")
    (tmp_path / "core").mkdir()
    (tmp_path / "Makefile").touch()
    return tmp_path
