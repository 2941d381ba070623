"""The links at the root lead to one of the two versions of the migration track's documents."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import REPO_ROOT

LINKS = {"prd.md": "PRD.md", "trd.md": "TRD.md", "todo.md": "Todo.md"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    shutil.copy(REPO_ROOT / "Makefile", tmp_path)
    shutil.copytree(REPO_ROOT / "docs", tmp_path / "docs")
    return tmp_path


def make(target: str, folder: Path) -> subprocess.CompletedProcess:
    return subprocess.run(["make", target], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("first", "then"), [("local", "baseline"), ("baseline", "local"), ("local", "local")])
def test_the_links_switch_between_the_versions(first, then, checkout):
    for version in (first, then):
        assert make(f"docs-{version}", checkout).returncode == 0
        for link, name in LINKS.items():
            assert (checkout / link).readlink() == Path("docs/requirements", version, name)
            assert (checkout / link).read_text() == (REPO_ROOT / "docs/requirements" / version / name).read_text()
    assert sorted(path.name for path in checkout.iterdir()) == ["Makefile", "docs", *sorted(LINKS)]


def test_a_file_instead_of_a_link_prevents_the_switch(checkout):
    make("docs-local", checkout)
    (checkout / "todo.md").unlink()
    (checkout / "todo.md").write_text("mine")
    result = make("docs-baseline", checkout)
    assert result.returncode != 0
    assert "todo.md is a file" in result.stderr
    assert (checkout / "todo.md").read_text() == "mine"
    assert (checkout / "prd.md").readlink() == Path("docs/requirements/local/PRD.md")


def test_a_clone_starts_with_the_local_version():
    assert {link: (REPO_ROOT / link).resolve() for link in LINKS} == {
        link: REPO_ROOT / "docs/requirements/local" / name for link, name in LINKS.items()
    }
