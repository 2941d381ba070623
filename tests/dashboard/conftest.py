"""The browser, and workspaces served to it."""

from __future__ import annotations

import os

import pytest

from pipelines.export_training_dashboard_state import export_state
from tests.dashboard.browsing import find_chromium, serving, visiting
from tests.dashboard.builders import build_workspace, install_page

FLAGS = ("--disable-gpu", "--disable-background-networking", "--disable-sync", "--disable-component-update")


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    executable = find_chromium()
    if executable is None:
        pytest.skip("no Chromium found: install one or name it in $CHROMIUM")
    # Chromium refuses its sandbox to root, which is who runs tests in a container.
    sandbox = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=executable, args=[*FLAGS, *sandbox])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The address of the exported workspace."""
    root = build_workspace(tmp_path_factory.mktemp("workspace"))
    page = install_page(root)
    export_state(root)
    with serving(page) as url:
        yield url


@pytest.fixture
def bare(tmp_path):
    """The page folder of a workspace that has exported nothing, and its address."""
    page = install_page(tmp_path)
    with serving(page) as url:
        yield page, url


@pytest.fixture
def visit(browser):
    with visiting(browser) as open_page:
        yield open_page


@pytest.fixture(scope="module")
def opened(browser, site):
    """The exported workspace, opened once for all tests that only look."""
    with visiting(browser) as open_page:
        yield open_page(site)
