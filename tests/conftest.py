"""Fixtures that tests of several folders share."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# jsonschema builds 38 grammars for addresses when this is installed: 1.3 s that no schema of ours needs.
sys.modules.setdefault("rfc3987_syntax", None)

from tests.support import REPO_ROOT  # noqa: E402

# Examples that Hypothesis draws for a property; $HYPOTHESIS_PROFILE chooses.
for _profile, _examples in {"dev": 30, "nightly": 1000}.items():
    hypothesis.settings.register_profile(
        _profile,
        max_examples=_examples,
        derandomize=_profile == "dev",  # a failure on one machine is one on every machine
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

_FLAGS = ("--disable-gpu", "--disable-background-networking", "--disable-sync", "--disable-component-update")


_MEMORY, _MEMORY_BYTES = Path("/dev/shm"), 4 * 2**30


def pytest_configure(config: pytest.Config) -> None:
    """Temporary folders are in memory where it has room: a small training flushes 90 files, 12 ms each on a disk."""
    chosen = config.option.basetemp or "PYTEST_DEBUG_TEMPROOT" in os.environ
    if not chosen and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _MEMORY_BYTES:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(_MEMORY)


_PACKAGES = ("benchmarks", "core", "inference", "migration", "pipelines", "tools", "trainers")
# Shared fixtures that take a minute: a run of the complete pipeline.
_SLOW_FIXTURES = frozenset({"finished_workspace"})


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that is nightly, or needs a slow fixture or a browser, is slow. Marks are set before pytest leaves out
    tests by them."""
    for item in items:
        is_slow = any(item.get_closest_marker(name) for name in ("nightly", "browser"))
        if is_slow or _SLOW_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


_OBJECTS_UNTIL_COLLECTION = 10_000


def pytest_collection_finish() -> None:
    """What has been imported by now stays: the garbage collector need not search it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_UNTIL_COLLECTION)


def pytest_unconfigure() -> None:
    """Python searches all objects for garbage when it ends: a second of processor time with PyTorch."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _plain_environment() -> Iterator[None]:
    """Tests do not see the user's settings, nor settings of other tests: looking at the hardware prepares its
    allocators through the environment."""
    before = dict(os.environ)
    for name in [name for name in before if name.startswith(("LANDFALL_", "COMPUTE_"))]:
        del os.environ[name]
    yield
    after = dict(os.environ)
    for name in after.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before.items() - after.items())


@pytest.fixture(autouse=True)
def _levels_of_loggers() -> Iterator[None]:
    """A command that makes a package silent, as a benchmark does, does so in its own test only."""
    yield
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if name.partition(".")[0] in _PACKAGES and isinstance(logger, logging.Logger):
            logger.setLevel(logging.NOTSET)


@pytest.fixture(autouse=True)
def _traced_as_before() -> Iterator[None]:
    """A test that takes the tracer away, as an error inside of it does, ends the counting of lines for itself alone."""
    tracer = sys.gettrace()
    yield
    if tracer is not None and sys.gettrace() is not tracer:
        sys.settrace(tracer)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """An empty workspace with the project's configurations."""
    shutil.copytree(REPO_ROOT / "configs", tmp_path / "configs")
    return tmp_path


@pytest.fixture(scope="session")
def browser():
    """Chromium, one for all tests of a process: playwright can be started there only once."""
    from tests.dashboard.browsing import find_chromium

    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    executable = find_chromium()
    if executable is None:
        pytest.skip("no Chromium found: install one or name it in $CHROMIUM")
    # Chromium has no sandbox for root, the user of tests in a container.
    sandbox = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=executable, args=[*_FLAGS, *sandbox])
        yield chromium
        chromium.close()
