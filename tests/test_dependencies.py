"""All imports are declared and pinned; running needs no development tools, and migrating no torch."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib.metadata import metadata

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.support import REPO_ROOT
from tests.support.requirements import PROJECT, closure, requirements

# The extras that the code of each folder may rely on; `core` is shared, and migration uses what needs no extra of it.
EXTRAS = {
    "migration": (),
    "core": ("train",),
    "trainers": ("train",),
    "inference": ("mqtt", "onnx"),
    "pipelines": ("lab", "fleet"),
    "benchmarks": ("dev", "bench"),
    "tools": ("dev",),
    "tests": ("dev",),
}
OWN = {*EXTRAS, "landfall", "landfall_runtime"}
# Named by import where it differs from the name of its distribution.
DISTRIBUTIONS = {
    "yaml": "pyyaml",
    "PIL": "pillow",
    "hydra": "hydra-core",
    "sklearn": "scikit-learn",
    "pynvml": "nvidia-ml-py",
    "pywt": "pywavelets",
    "websocket": "websocket-client",
    "pre_commit": "pre-commit",
    "paho": "paho-mqtt",
}
# A runtime that only some machines have; the code that imports it looks first.
OPTIONAL = {"torch-xla"}
# Checkouts of other projects that benchmarks compare with, and the Colab modules that tests of migration imitate.
# Migration needs nbformat for notebooks of format 1 to 3 only, and names the command that installs it.
ELSEWHERE = {"benchmarks": {"swin-mae", "models", "src"}, "tests": {"google", "pip"}, "migration": {"nbformat"}}


def pinned(lock: str) -> set[str]:
    text = (REPO_ROOT / lock).read_text(encoding="utf-8")
    return {canonicalize_name(name) for name in re.findall(r"(?m)^([\w.-]+)==\S+ \\$", text)}


def declared(*extras: str) -> set[str]:
    return {canonicalize_name(Requirement(text).name) for text in requirements(*extras)}


def imported(folder: str) -> Iterator[tuple[str, str]]:
    """Distribution and importing file, of all that is neither the standard library's nor Landfall's."""
    for path in (REPO_ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            for name in {name.partition(".")[0] for name in names} - sys.stdlib_module_names - OWN:
                yield canonicalize_name(DISTRIBUTIONS.get(name, name)), path.relative_to(REPO_ROOT).as_posix()


@pytest.mark.parametrize("folder", EXTRAS)
def test_everything_imported_is_declared(folder):
    known = declared(*EXTRAS[folder]) | OPTIONAL | ELSEWHERE.get(folder, set())
    assert {(name, file) for name, file in imported(folder) if name not in known} == set()


def test_migrating_needs_neither_torch_nor_jupyterlab():
    heavy = {"torch", "numpy", "pandas", "jupyterlab", "jupyter-server", "hydra-core", "matplotlib"}
    assert closure(requirements()) & heavy == set()
    assert closure(requirements("lab")) >= heavy


@pytest.mark.skipif(
    sys.platform != "linux" or sys.version_info[:2] != (3, 11),
    reason="the locks are made on Linux with 3.11",
)
def test_the_locks_pin_what_the_declarations_need_and_nothing_else():
    run, develop = closure(requirements("lab")), closure(requirements("lab", "dev"))
    assert pinned("requirements.lock") == run | {"setuptools"}  # builds the editable install
    assert pinned("requirements-dev.lock") == develop - run - {"setuptools"}
    assert "--requirement requirements.lock" in (REPO_ROOT / "requirements-dev.lock").read_text(encoding="utf-8")


def test_each_locked_version_installs_on_the_oldest_supported_python():
    """Debian 12 has Python 3.11.2, where pip does not find what needs 3.11.5."""
    (oldest,) = (f"{each.version}.0" for each in SpecifierSet(PROJECT["requires-python"]))
    locked = pinned("requirements.lock") | pinned("requirements-dev.lock")
    needed = {name: metadata(name).get("Requires-Python", "") for name in locked}
    assert {name: python for name, python in needed.items() if not SpecifierSet(python).contains(oldest)} == {}


def test_each_line_of_a_lock_is_a_version_with_digests():
    entry = re.compile(r"[\w.-]+==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+\n")
    for lock in REPO_ROOT.glob("requirements*.lock"):
        rest = entry.sub("", lock.read_text(encoding="utf-8"))
        assert all(line.startswith(("#", "--requirement ")) for line in rest.splitlines()), lock.name
