"""Every view of the page in a real browser: drawn without errors, texts of files as texts."""

from __future__ import annotations

import pytest

from tests.dashboard.browsing import VIEWS, show
from tests.dashboard.builders import HOSTILE, SCRIPT, SECOND

pytestmark = pytest.mark.browser


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_drawn_without_errors_or_external_requests(site, visit, view):
    page = visit(f"{site}#{view}")
    assert page.locator("h1").inner_text() == view.capitalize()
    assert page.locator("nav [aria-current]").inner_text() == view.capitalize()
    assert len(page.locator("main").inner_text()) > 200
    assert page.complaints == []


@pytest.mark.slow
def test_the_header_shows_verdict_time_and_zone(opened):
    show(opened, "overview")
    assert "Not ready" in opened.locator("#verdict").inner_text()
    assert "1 of 8 checks failed" in opened.locator("#verdict").inner_text()
    assert opened.locator("#stamp").inner_text().endswith("UTC · times in UTC")
    assert opened.title() == "Overview · Not ready · Landfall training dashboard"


@pytest.mark.slow
def test_texts_from_files_are_shown_as_texts_everywhere(opened):
    shown = {}
    for address in (*VIEWS, "anomalies?stream=swinmae&event=7", f"runs?run={SECOND}"):
        show(opened, address)
        shown[address] = opened.locator("main").inner_text()
        assert opened.locator("main script, main img").count() == 0
    assert SCRIPT in shown["overview"]
    assert SCRIPT in shown["anomalies"]
    assert HOSTILE in shown["anomalies?stream=swinmae&event=7"]
    assert "owned" not in opened.title()
    assert opened.complaints == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [1440, 390])
def test_numbers_stay_on_one_line_with_their_units(site, visit, width):
    page = visit(f"{site}#overview")
    page.set_viewport_size({"width": width, "height": 900})
    page.locator(".unbroken", has_text="5 % interval").first.wait_for()
    lines = page.locator("main .unbroken").evaluate_all(
        "all => all.map(one => [one.textContent, one.getClientRects().length])"
    )
    assert {"5 % interval", "Swin-MAE", "5 s"} <= {text for text, _ in lines}
    assert {number for _, number in lines} <= {0, 1}  # 0: in a closed part
