import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import REPO_ROOT

TARGETS = {
    "setup", "setup-dev", "sample-data", "validate", "test", "lint", "lab", "dashboard", "train-patchtst",
    "train-swinmae", "score", "export", "bench", "bench-full", "clean", "coverage", "import-artifacts",
    "docs-local", "docs-baseline", "site", "test-slow", "test-nightly", "test-all",
    "sbom", "licences", "audit",
}  # fmt: skip
NEED_NO_SETUP = {"clean", "docs-local", "docs-baseline"}
DEVELOP = {"setup-dev", "test", "test-slow", "test-nightly", "test-all", "lint", "coverage", "bench", "bench-full"}

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")

# `make test` runs these tests: its own flags and arguments must not reach the make under test.
_OF_MAKE = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "ARGS")
OUTSIDE_MAKE = {name: value for name, value in os.environ.items() if name not in _OF_MAKE}


def make(folder: Path, *arguments: str) -> str:
    command = ["make", "--no-print-directory", *arguments]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=OUTSIDE_MAKE)
    assert result.returncode == 0, result.stderr
    return result.stdout


def script(path: Path, text: str) -> Path:
    """A program for the shell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The files that make reads in a fresh clone."""
    shutil.copy(REPO_ROOT / "Makefile", tmp_path)
    locks = [f"requirements{of}.lock" for of in ("", "-dev", "-audit")]
    for name in (*locks, "pyproject.toml", "pipelines/sample_data/command.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.fixture
def ready(clone: Path) -> Path:
    """The clone after set-up."""
    for name in (".venv/.ready", "samples/data/sample-data.json"):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).touch()
    return clone


@pytest.mark.parametrize("arguments", [[], ["help"]])
def test_help_lists_exactly_the_targets(arguments):
    lines = make(REPO_ROOT, *arguments).splitlines()
    found = dict(re.fullmatch(r"  make (\S+) +(\S.*)", line).groups() for line in lines if line.startswith("  make "))
    assert found.keys() == TARGETS


@pytest.mark.parametrize("target", sorted(TARGETS - NEED_NO_SETUP))
def test_a_fresh_clone_is_set_up_before_the_job(clone, target):
    plan = make(clone, "-n", target)
    assert "-m venv .venv" in plan
    assert "--no-deps --require-hashes --requirement requirements.lock" in plan
    job = plan.splitlines()[-1]
    assert "venv .venv" not in job
    assert ("--requirement requirements-dev.lock" in plan) == (target in DEVELOP)


def test_set_up_can_be_repeated_for_packages_that_were_changed(ready):
    locked = "--no-deps --require-hashes --requirement requirements.lock"
    assert locked not in make(ready, "-n", "setup")
    assert locked in make(ready, "-n", "-B", "setup")


@pytest.mark.parametrize("target", ["sbom", "licences", "audit"])
def test_the_tools_that_list_packages_are_not_among_them(ready, target):
    plan = make(ready, "-n", target)
    assert ".venv/audit/bin/python -m pip install --quiet --no-deps --require-hashes" in plan
    assert re.search(r"^\.venv/bin/python -m pip", plan, re.MULTILINE) is None


def test_validate_plans_set_up_then_data_then_the_pipeline(clone):
    plan = make(clone, "-n", "validate")
    steps = ["-m venv", "requirements.lock", "pipelines.sample_data", "pipelines.run_local_training_pipeline"]
    places = [plan.index(step) for step in steps]
    assert places == sorted(places)


def test_a_second_validate_neither_installs_nor_makes_data(ready):
    plan = make(ready, "-n", "validate", "ARGS=trainer=quick")
    assert plan.strip() == ".venv/bin/python -m pipelines.run_local_training_pipeline trainer=quick"


def test_options_reach_jupyterlab(ready):
    (line,) = make(ready, "-n", "lab", "ARGS=--no-browser").splitlines()
    assert line.split() == [".venv/bin/python", "-m", "pipelines.open_lab", "--", "--no-browser"]


def test_another_interpreter_and_torch_build_may_be_given(clone):
    plan = make(clone, "-n", "setup", "PYTHON=python3.12", "TORCH_INDEX=https://example.org/whl")
    assert "python3.12 -m venv" in plan
    assert "--index-url https://example.org/whl" in plan
    assert "--index-url" not in make(clone, "-n", "setup")


def test_the_version_of_another_torch_build_is_the_locked_one(clone):
    shutil.copy(REPO_ROOT / "requirements.lock", clone)
    script(clone / ".venv/bin/python", 'echo "$@" >>pip.log')  # stands for pip
    make(clone, "setup", "TORCH_INDEX=https://example.org/whl")
    log = (clone / "pip.log").read_text()
    assert re.search(r"(?m)--index-url https://example\.org/whl torch==[\d.]+$", log)


def test_an_environment_without_pip_is_completed(clone):
    """As Debian's Python leaves it if its package python3-venv is absent."""
    script(clone / ".venv/bin/python", "exit 1")
    interpreter = script(clone / "python", 'test "$1" = -c || cp complete .venv/bin/python')
    script(clone / "complete", 'echo "$@" >>pip.log')
    make(clone, "setup", f"PYTHON={interpreter}")
    assert "-m pip install" in (clone / "pip.log").read_text()


def test_an_old_interpreter_is_rejected_by_name(clone):
    old = script(clone / "old-python", "exit 1")
    result = subprocess.run(["make", "setup", f"PYTHON={old}"], cwd=clone, capture_output=True, text=True)
    assert result.returncode == 2
    assert "Landfall needs Python 3.11 or newer" in result.stderr
    assert not (clone / ".venv").exists()


def test_clean_keeps_user_data(ready):
    (ready / "data").mkdir()
    (ready / "data" / "mine.csv").touch()
    (ready / "runs").mkdir()
    make(ready, "clean")
    assert (ready / "data" / "mine.csv").exists()
    assert not (ready / "runs").exists()
    assert not (ready / ".venv").exists()
    make(ready, "clean")
