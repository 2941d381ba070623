"""Accessibility of the page: keyboard, screen readers, both colour schemes, any width, print, and downloads."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from tests.dashboard.browsing import PATIENCE_MS, VIEWS, chart, data_of, expect, heights, saved, settle, show

pytestmark = pytest.mark.browser

EVENT = "anomalies?stream=swinmae&event=7"
ADDRESSES = (*VIEWS, EVENT)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.nightly)])
def test_axe_finds_no_violation_in_any_view(site, visit, scheme):
    """Its rules include contrast."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = visit(site)
    page.emulate_media(color_scheme=scheme)
    found = {}
    for address in ADDRESSES:
        show(page, address)
        page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
        results = axe.run(page, options={"resultTypes": ["violations"]}).response
        found[address] = [(rule["id"], rule["nodes"][0]["html"][:200]) for rule in results["violations"]]
    assert found == {address: [] for address in ADDRESSES}


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 768, 3840])
def test_nothing_is_wider_than_the_window(site, visit, width):
    page = visit(site)
    page.set_viewport_size({"width": width, "height": 900})
    for address in ADDRESSES:
        show(page, address)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, address


@pytest.mark.slow
def test_every_control_is_reachable_by_keyboard(site, visit):
    page = visit(site)
    focused = lambda: page.evaluate("document.activeElement.id || document.activeElement.textContent")  # noqa: E731
    page.keyboard.press("Tab")
    assert focused() == "to-overview"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#view[data-view=fleet][aria-busy=false]")
    assert focused() == "to-fleet"
    for _ in range(len(VIEWS) - 2):
        page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert focused() == "CSV"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


@pytest.mark.slow
def test_a_chart_reads_its_values_by_key(site, visit):
    page = visit(f"{site}#training")
    settle(page)
    figure = chart(page, "Loss, PatchTST-SSL")
    assert "run 20261121-083000-1f3a with 12 epochs" in figure.get_attribute("aria-label")
    figure.focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    figure.locator(".u-value", has_text="0.1548").wait_for()
    assert figure.locator(".u-value").all_inner_texts() == ["11", "0.1156", "0.1548"]


@pytest.mark.slow
def test_ids_are_used_once_and_controls_have_names(site, visit):
    page = visit(site)
    for address in ADDRESSES:
        show(page, address)
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map((node) => node.id)")
        assert len(ids) == len(set(ids))


@pytest.mark.slow
@pytest.mark.parametrize("address", ["training", EVENT])
def test_the_page_does_not_move_when_a_chart_is_drawn(site, visit, address):
    page = visit(f"{site}#{address}")
    settle(page)
    before = heights(page)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    settle(page)
    assert heights(page) == pytest.approx(before, abs=1)


@pytest.mark.slow
def test_the_printed_page_has_every_chart_and_no_controls(site, visit):
    page = visit(f"{site}#training")
    page.emulate_media(color_scheme="dark")
    assert page.locator(".frame canvas").count() < 12
    page.pdf()
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator(".frame canvas").count() == page.locator(".frame").count() == 12
    assert not page.locator("nav").is_visible()
    show(page, "anomalies")
    assert page.locator("#events th", has_text="Begins").is_visible()
    assert not page.get_by_role("button", name="Events as CSV").is_visible()
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(28, 40, 48)"
    show(page, "anomalies?stream=patchtst&event=7")
    assert page.locator("textarea").count() == 2
    assert not any(box.is_visible() for box in page.locator("textarea").all())
    meter = page.locator(".meter span").first
    assert meter.evaluate("bar => getComputedStyle(bar).printColorAdjust") == "exact"


# ----------------------------------------------------------------------------------------------------------- takeaways
@pytest.mark.slow
def test_a_chart_is_saved_as_a_drawing_and_as_a_picture(site, visit):
    page = visit(f"{site}#{EVENT}")
    settle(page)
    for title, drawn in (("Anomaly score, data/07.csv", "path"), ("x, measured minus expected", "image")):
        svg = ElementTree.fromstring(saved(page, f"{title} as SVG"))
        space = {"svg": "http://www.w3.org/2000/svg"}
        assert title in "".join(svg.itertext())
        assert svg.findall(f".//svg:svg/svg:{drawn}", space)
        assert saved(page, f"{title} as PNG").startswith(b"\x89PNG")
    assert page.complaints == []


@pytest.mark.slow
def test_a_chart_outside_the_screen_is_saved_as_well(site, visit):
    page = visit(f"{site}#training")
    button = "() => document.querySelector('[aria-label=\"Loss, Swin-MAE as SVG\"]').click()"
    assert chart(page, "Loss, Swin-MAE").locator("canvas").count() == 0
    with page.expect_download() as download:
        page.evaluate(button)
    assert b"<path" in download.value.path().read_bytes()
    assert page.complaints == []


@pytest.mark.slow
def test_a_table_is_saved_as_it_is_shown(site, visit):
    page = visit(f"{site}#data")
    page.get_by_label("Filter Files of PatchTST-SSL").fill("lot_0")
    page.get_by_text("10 of 14").wait_for()
    page.locator("#files-patchtst-file").press("Enter")
    page.locator("#files-patchtst-file").press("Enter")
    files = data_of(page, "Files of PatchTST-SSL")["File"]
    assert files == [f"lot_{number:02}.parquet" for number in reversed(range(10))]


@pytest.mark.slow
def test_charts_fit_the_paper_and_are_restored(opened):
    show(opened, "anomalies?stream=patchtst&event=7")
    widths = "() => [...document.querySelectorAll('.uplot')].map((plot) => plot.offsetWidth)"
    before = opened.evaluate(widths)
    assert max(before) > 640
    opened.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert max(opened.evaluate(widths)) <= 640
    opened.evaluate("dispatchEvent(new Event('afterprint'))")
    assert opened.evaluate(widths)[: len(before)] == before


@pytest.mark.slow
def test_touch_shows_values(site, browser):
    context = browser.new_context(viewport={"width": 390, "height": 800}, has_touch=True)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(f"{site}#anomalies?stream=patchtst&event=7")
    settle(page)
    figure = chart(page, "Score")
    figure.scroll_into_view_if_needed()
    settle(page)
    box = figure.locator(".u-over").bounding_box()
    value = figure.locator(".u-legend .u-value").last
    assert value.inner_text() in ("–", "--")
    page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + 20)
    expect(value).to_have_text(re.compile(r"\d"))
    assert float(value.inner_text()) > 0
    context.close()


def test_values_read_by_keyboard_are_announced(opened):
    show(opened, "anomalies?stream=patchtst&event=7")
    figure = chart(opened, "Score")
    figure.scroll_into_view_if_needed()
    settle(opened)
    figure.press("ArrowRight")
    figure.press("End")
    expect(figure.locator("output")).to_have_text(re.compile("^recording's own clock 2026-01-09 06:0.*, score "))
    assert figure.locator("[aria-live]").count() == 0
