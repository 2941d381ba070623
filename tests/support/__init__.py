"""Helpers shared by tests of several folders."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from core.config.schema import STREAMS

REPO_ROOT = Path(__file__).resolve().parents[2]
SHARED_DATA = REPO_ROOT.parent / "shared" / "data"

needs_shared_data = pytest.mark.skipif(
    not SHARED_DATA.is_dir(), reason="shared data pack absent: no folder shared/data next to the repository"
)


def most_nightly(cases: Iterable[Any], *, but: int) -> list[Any]:
    """The cases of a parametrised test: the first `but` in its tier, the others at night. A tuple is several values."""
    cases = list(cases)
    rest = [case if isinstance(case, tuple) else (case,) for case in cases[but:]]
    return [*cases[:but], *(pytest.param(*values, marks=pytest.mark.nightly) for values in rest)]


def committed(path: str) -> bytes:
    """A file of the repository as it was committed, or as it is outside of git."""
    shown = subprocess.run(["git", "show", f"HEAD:{path}"], cwd=REPO_ROOT, capture_output=True, check=False)
    return (REPO_ROOT / path).read_bytes() if shown.returncode else shown.stdout


def copy_notebooks(folder: Path) -> None:
    """The repository's notebooks as they were committed: a user may edit and run the local ones, and add others."""
    folder.mkdir()
    for name in (f"{place}_{stream}_ssl.ipynb" for place in ("colab", "local") for stream in STREAMS):
        (folder / name).write_bytes(committed(f"notebooks/{name}"))


# Where several test sessions in a row, as in .ci/run, keep what they share.
_SHARED = os.environ.get("TESTS_SHARED", "")


def built_once(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], object]) -> Path:
    """A folder that all workers of this test session share: the first that asks builds it, the others wait for it.

    To look at or to copy only. `build` fills the folder, which exists.
    """
    base = factory.getbasetemp()
    shared = Path(_SHARED or (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base))
    folder, done = shared / name, shared / f"{name}.done"
    with FileLock(shared / f"{name}.lock"):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a worker that failed
            folder.mkdir()
            build(folder)
            done.touch()
    return folder
