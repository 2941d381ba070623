"""The files of a workspace: after an upgrade of Landfall it keeps its own, but not an older page of the dashboard."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from core.workspace import CODE_ROOT
from pipelines.export_training_dashboard_state import main
from pipelines.init_workspace import PAGE, init_workspace

OLD = "the page of an older version\n"


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """A workspace of an older version, with a configuration and a notebook that were edited."""
    init_workspace(tmp_path / "plant")
    root = tmp_path / "plant"
    for name in (f"{PAGE}/js/app.mjs", "configs/trainer/quick.yaml", "notebooks/local_patchtst_ssl.ipynb"):
        (root / name).write_text(OLD, encoding="utf-8")
    (root / PAGE / "js/chart.mjs").unlink()
    return root


def test_an_export_brings_the_page_up_to_date_and_nothing_else(older):
    assert main(["--repo-root", str(older)]) == 0
    for name in ("js/app.mjs", "js/chart.mjs"):
        assert (older / PAGE / name).read_bytes() == (CODE_ROOT / PAGE / name).read_bytes()
    for name in ("configs/trainer/quick.yaml", "notebooks/local_patchtst_ssl.ipynb"):
        assert (older / name).read_text(encoding="utf-8") == OLD


def test_a_workspace_has_each_page_of_the_documentation_that_a_message_names(older):
    packages = [CODE_ROOT / name for name in ("core", "trainers", "inference", "migration", "pipelines")]
    code = "".join(path.read_text(encoding="utf-8") for package in packages for path in package.rglob("*.py"))
    named = set(re.findall(r"docs/[\w-]+\.md", code))
    assert len(named) > 5
    assert [page for page in named if not (older / page).is_file()] == []


def test_a_clone_keeps_its_own_page(older):
    (older / "landfall.py").touch()
    assert main(["--repo-root", str(older)]) == 0
    assert (older / PAGE / "js/app.mjs").read_text(encoding="utf-8") == OLD


def test_a_workspace_without_a_page_gets_none(older):
    (older / PAGE / "index.html").unlink()
    assert main(["--repo-root", str(older)]) == 0
    assert (older / PAGE / "js/app.mjs").read_text(encoding="utf-8") == OLD
