"""The wheel: no conflict with other distributions, migration without torch, and a new workspace."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import landfall
from tests.support import REPO_ROOT
from tests.support.requirements import closure, requirements

# What `setup.py` and pyproject.toml read.
SOURCES = (
    "setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "landfall.py", "landfall_runtime.py", "core",
    "trainers", "inference", "migration", "pipelines", "configs", "notebooks", "training_dashboard", "docs",
)  # fmt: skip
# Runs commands with nothing importable but the wheel and the distributions named, whatever else is installed here.
RESTRICTED = """
import importlib.abc, importlib.metadata, json, re, sys
wheel, permitted, commands = json.loads(sys.stdin.read())
owners = importlib.metadata.packages_distributions()

class Refuser(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        known = {re.sub("[-_.]+", "-", owner).lower() for owner in owners.get(name.partition(".")[0], ())}
        if known and not known & {*permitted, "landfall"}:
            raise ModuleNotFoundError(f"not installed: {name}", name=name)

sys.meta_path.insert(0, Refuser())
sys.path.insert(0, wheel)
import landfall
codes = [landfall.main(command) for command in commands]
import core
assert core.__file__.startswith(wheel), core.__file__
sys.exit(max(codes))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel's files as pip would install them, built from a copy, so that no build folder appears here."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        source, copy = REPO_ROOT / name, folder / "source" / name
        copy.parent.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        else:
            shutil.copy(source, copy)
    (folder / "source/training_dashboard/data").mkdir(exist_ok=True)
    (folder / "source/training_dashboard/data/secret.json").touch()
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    subprocess.run([*command, "--wheel-dir", folder, folder / "source"], check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def run_restricted(wheel: Path, *commands: list[str]) -> subprocess.CompletedProcess[str]:
    given = json.dumps([str(wheel), sorted(closure(requirements())), commands])
    return subprocess.run(
        [sys.executable, "-c", RESTRICTED], input=given, cwd=wheel.parent, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_the_wheel_installs_no_common_package_names(wheel):
    names = {path.name for path in wheel.iterdir() if not path.name.endswith(".dist-info")}
    assert names == {"landfall.py", "landfall_runtime.py", "landfall_home"}


@pytest.mark.slow
def test_the_wheel_contains_all_code_and_no_results(wheel):
    home = wheel / "landfall_home"
    for package in ("core", "trainers", "inference", "migration", "pipelines"):
        ours = {path.relative_to(REPO_ROOT) for path in (REPO_ROOT / package).rglob("*.py")}
        assert {path.relative_to(home) for path in (home / package).rglob("*.py")} == ours
    assert not (home / "training_dashboard/data").exists()


@pytest.mark.slow
def test_a_wheel_creates_a_workspace_and_migrates_without_torch(wheel, tmp_path):
    folder, notebook = tmp_path / "plant", tmp_path / "colab_a.ipynb"
    shutil.copy(REPO_ROOT / "notebooks/colab_patchtst_ssl.ipynb", notebook)
    done = run_restricted(wheel, ["init", str(folder)], ["migrate", str(notebook)])
    assert done.returncode == 0, done.stderr
    assert (folder / "configs/patchtst_ssl_local.yaml").read_bytes() == (
        REPO_ROOT / "configs/patchtst_ssl_local.yaml"
    ).read_bytes()
    assert (folder / "training_dashboard/index.html").is_file()
    assert (folder / "docs/README.md").is_file()
    assert (tmp_path / "local_a.ipynb").is_file()
    again = run_restricted(wheel, ["init", str(folder)])
    assert (again.returncode, "configs" in again.stderr) == (2, True)


@pytest.mark.slow
def test_a_command_with_a_missing_extra_names_it(wheel):
    done = run_restricted(wheel, ["pipeline"])
    assert done.returncode == 1
    assert "[lab]" in done.stderr


def test_the_version_is_declared_once(capsys):
    project = tomllib.loads((REPO_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" in project["project"]["dynamic"]
    assert landfall.main(["--version"]) == 0
    assert capsys.readouterr().out == f"landfall {landfall.__version__}\n"
