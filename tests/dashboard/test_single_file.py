"""The page as one file, opened from the disk by a real browser."""

from __future__ import annotations

import re
import time

import pytest

from pipelines.dashboard.single_file import write_single_file
from tests.dashboard.browsing import show
from tests.support import most_nightly
from tests.support.waiting import PATIENCE_S

# A file cannot be written to, and shows no monitor.
ONLY_SERVED = re.compile(r"Annotate a time span, such as maintenance\n|Monitor completed: .*\n+")
VIEWS = ("overview", "fleet", "training", "runs", "data", "anomalies", "device", "migration")


@pytest.fixture(scope="module")
def address(whole):
    return write_single_file(whole).as_uri()


@pytest.mark.slow
@pytest.mark.parametrize("view", most_nightly(VIEWS, but=1))
def test_every_view_is_drawn_without_a_server(address, visit, site, view):
    page, served = visit(address), visit(site)
    for each in (page, served):
        show(each, view)

    def texts() -> tuple[str, str]:
        return page.inner_text("main"), ONLY_SERVED.sub("", served.inner_text("main"))

    deadline = time.monotonic() + PATIENCE_S
    while len(set(texts())) > 1 and time.monotonic() < deadline:  # both load details of events after the view is drawn
        served.wait_for_timeout(100)
    assert len(set(texts())) == 1, texts()
    assert page.complaints == []


@pytest.mark.slow
def test_an_event_opens_from_the_single_file(address, visit):
    page = show(visit(address), "anomalies")
    page.get_by_role("link", name="2026-01-09").first.click()
    page.wait_for_selector("figure >> text=measured")
    assert page.complaints == []
