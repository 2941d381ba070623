"""Opens the dashboard in a real browser and reads it as a user would."""

from __future__ import annotations

import csv
import os
import shutil
import threading
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

from pipelines.serve_dashboard import make_server

# Longer than Playwright's own: a busy machine may take ten times as long.
PATIENCE_MS = 60_000
VIEWS = ("overview", "fleet", "monitor", "training", "runs", "data", "anomalies", "device", "migration")


GO = """hash => hash === location.hash || new Promise((resolve) => {
  addEventListener('hashchange', resolve, { once: true });
  location.hash = hash;
})"""

# Playwright's own waiting evaluates texts in the page, which the page's policy forbids.
CHARTS_DRAWN = """async () => {
  const isInSight = ({ top, bottom }) => top < innerHeight && bottom > 0;
  const isDue = (frame) => !frame.firstChild && isInSight(frame.getBoundingClientRect());
  while ([...document.querySelectorAll('.frame')].some(isDue)) await new Promise(requestAnimationFrame);
}"""


def find_chromium() -> str | None:
    """The browser: $CHROMIUM, otherwise the first of the usual names on the path. The program without a window needs
    half the time."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


@contextmanager
def serving(page: Path, port: int = 0):
    with make_server(page, port) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server.url
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def visiting(browser):
    """A function that opens an address and returns the page once drawn; it closes what it opened.

    `page.complaints` collects errors and requests to other machines.
    """
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light", timezone_id="UTC")
    context.set_default_timeout(PATIENCE_MS)

    def open_page(url):
        page = context.new_page()
        page.complaints = []
        page.on("console", lambda line: line.type in {"error", "warning"} and page.complaints.append(line.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("request", lambda request: is_local(request.url) or page.complaints.append(request.url))
        page.goto(url)
        page.wait_for_selector("#view[aria-busy=false]")
        return page

    yield open_page
    context.close()


def is_local(url):
    return url.startswith(("http://127.0.0.1:", "file://", "data:", "blob:http://127.0.0.1:", "blob:null"))


def show(page, address):
    """Goes to a view, such as `training?x=step`, and waits until it is drawn with the charts in sight."""
    page.evaluate(GO, f"#{address}")
    settle(page)
    return page


def expect(locator):
    """Playwright's assertions about a locator, which are tried again until they hold."""
    from playwright.sync_api import expect

    expect.set_options(timeout=PATIENCE_MS)
    return expect(locator)


def settle(page):
    """Waits until the view is drawn, and every chart near the screen."""
    page.wait_for_selector("#view[aria-busy=false]")
    page.evaluate(CHARTS_DRAWN)


def card(page, title):
    return page.locator("section.card", has=page.get_by_role("heading", name=title, exact=True))


def chart(page, title):
    return page.locator("figure", has=page.get_by_role("heading", name=title, exact=True))


def saved(page, button):
    """The content of a download."""
    with page.expect_download() as download:
        page.get_by_role("button", name=button, exact=True).first.click()
    return download.value.path().read_bytes()


def data_of(page, title):
    """The data of a chart or a table from its CSV: column → values as texts."""
    names, *rows = csv.reader(saved(page, f"{title} as CSV").decode().splitlines())
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}


def heights(page):
    """The frames of all charts, drawn or not."""
    return page.evaluate("() => [...document.querySelectorAll('.frame')].map((frame) => frame.offsetHeight)")


def first_cells(page, table):
    return page.locator(f"#{table} tbody th").all_inner_texts()


def ticks_of(page, title, anchor):
    """The texts of a chart with this anchor: those of the vertical axis end there, those of the horizontal one have
    their middle there."""
    picture = ElementTree.fromstring(saved(page, f"{title} as SVG"))
    return [node.text for node in picture.iter("{http://www.w3.org/2000/svg}text") if node.get("text-anchor") == anchor]
