"""What running needs is declared and pinned, and none of the development tools is part of it."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support import REPO_ROOT

PACKAGES = ("core", "trainers", "inference", "migration", "pipelines")
PROJECT = tomllib.loads((REPO_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DEVELOP = PROJECT["optional-dependencies"]["dev"]
# Named by import where it differs from the name of its distribution.
DISTRIBUTIONS = {
    "yaml": "pyyaml",
    "PIL": "pillow",
    "hydra": "hydra-core",
    "sklearn": "scikit-learn",
    "pynvml": "nvidia-ml-py",
}
# A runtime that only some machines have; the code that imports it looks first.
OPTIONAL = {"torch-xla"}


def closure(requirements: Iterable[str]) -> set[str]:
    """All distributions that pip installs for these, as far as this environment has them."""
    found: set[str] = set()
    waiting = [(Requirement(text), "") for text in requirements]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for wanted in ("", *requirement.extras):
            if (key := f"{name}[{wanted}]") not in found:
                found.add(key)
                waiting += [(Requirement(text), wanted) for text in metadata.requires(name) or []]
    return {key.partition("[")[0] for key in found}


def pinned(lock: str) -> set[str]:
    text = (REPO_ROOT / lock).read_text(encoding="utf-8")
    return {canonicalize_name(name) for name in re.findall(r"(?m)^([\w.-]+)==\S+$", text)}


def declared(requirements: Iterable[str]) -> set[str]:
    return {canonicalize_name(Requirement(text).name) for text in requirements}


def imported() -> Iterator[tuple[str, str]]:
    """Distribution and importing file, of all that is neither the standard library's nor Landfall's."""
    for path in (path for package in PACKAGES for path in (REPO_ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            for name in {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {*PACKAGES}:
                yield canonicalize_name(DISTRIBUTIONS.get(name, name)), path.relative_to(REPO_ROOT).as_posix()


def test_everything_imported_is_declared():
    known = declared(PROJECT["dependencies"]) | OPTIONAL
    assert [(name, file) for name, file in imported() if name not in known] == []


@pytest.mark.skipif(
    sys.platform != "linux" or sys.version_info[:2] != (3, 11),
    reason="the locks are made on Linux with 3.11",
)
def test_the_locks_pin_what_the_declarations_need_and_nothing_else():
    run = closure(PROJECT["dependencies"])
    assert pinned("requirements.lock") == run | {"setuptools"}  # builds the editable install
    assert pinned("requirements-dev.lock") == closure([*PROJECT["dependencies"], *DEVELOP]) - run - {"setuptools"}
    assert "--requirement requirements.lock" in (REPO_ROOT / "requirements-dev.lock").read_text(encoding="utf-8")
