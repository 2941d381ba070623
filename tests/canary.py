"""A secret that tests give to commands, and the search for it in their output and files."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

from tests.support import REPO_ROOT

CANARY = "canary7f3e91d0"
ENVIRONMENT = {
    "HF_TOKEN": f"hf_{CANARY}",
    "AWS_SECRET_ACCESS_KEY": f"{CANARY}/x",
    "WANDB_API_KEY": CANARY,
    "KAGGLE_KEY_PASSWORD": CANARY,
    "PIP_INDEX_URL": f"https://reader:{CANARY}@packages.example/simple",
}
# Where a share is mounted under the address that it was opened with.
SHARE = f"share/smb:/reader:{CANARY}@plant.example/logs"


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """A command of the repository with secrets in its environment."""
    environment = {**os.environ, **ENVIRONMENT, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=REPO_ROOT, env=environment, capture_output=True, text=True
    )


def files_that_hold_it(root: Path, *, but: Iterable[Path]) -> list[str]:
    given = set(but)
    return [
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.is_file() and path not in given and any(CANARY.encode() in part for part in contents(path))
    ]


def contents(path: Path) -> list[bytes]:
    """A file's bytes, those of its members where it is an archive."""
    if not zipfile.is_zipfile(path):
        return [path.read_bytes()]
    with zipfile.ZipFile(path) as archive:
        return [archive.read(name) for name in archive.namelist()]
