"""Workspaces served to the browser."""

from __future__ import annotations

import pytest

from pipelines.export_training_dashboard_state import export_state
from tests.dashboard.browsing import serving, visiting
from tests.dashboard.whole import build_whole_workspace, write_fleet, write_monitor
from tests.support.small_workspace import install_page


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """A workspace that shows something in every view, exported."""
    root = build_whole_workspace(tmp_path_factory.mktemp("workspace"))
    page = install_page(root)
    write_fleet(page)
    write_monitor(root)
    export_state(root)
    return root


@pytest.fixture(scope="session")
def site(whole):
    """The address of that workspace's page."""
    with serving(whole / "training_dashboard") as url:
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
    """The whole workspace, opened once for all tests that only look."""
    with visiting(browser) as open_page:
        yield open_page(site)
