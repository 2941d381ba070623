"""Vendored code equals the published release: origin and digests are recorded next to it."""

from __future__ import annotations

import hashlib
import json

import pytest

from tests.support import REPO_ROOT

LIBRARIES = sorted(path for path in (REPO_ROOT / "training_dashboard/lib").iterdir() if path.is_dir())


@pytest.mark.parametrize("folder", LIBRARIES, ids=lambda folder: folder.name)
def test_every_vendored_file_has_its_recorded_digest(folder):
    origin = json.loads((folder / "ORIGIN.json").read_text(encoding="utf-8"))
    found = {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "ORIGIN.json"
    }
    assert found == origin["files"]
    assert origin["version"] in origin["source"]
    assert f"v{origin['version']}".encode() in b"".join(path.read_bytes()[:200] for path in folder.glob("*.js"))
