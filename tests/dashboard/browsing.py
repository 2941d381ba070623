"""Opens the dashboard in a real browser and looks at it as a person would."""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import contextmanager
from pathlib import Path

from pipelines.serve_dashboard import make_server


def find_chromium() -> str | None:
    """The browser to test with: $CHROMIUM, else the first of the usual names on the path."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


@contextmanager
def serving(page: Path):
    with make_server(page, 0) as server:
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

    def open_page(url, *, charts=True):
        page = context.new_page()
        page.complaints = []
        page.on("console", lambda line: line.type in {"error", "warning"} and page.complaints.append(line.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("request", lambda request: is_local(request.url) or page.complaints.append(request.url))
        page.goto(url)
        page.wait_for_selector("#views[aria-busy=false]")
        if charts:
            wait_for_charts(page)
        return page

    yield open_page
    context.close()


def is_local(url):
    return url.startswith(("http://127.0.0.1:", "data:", "blob:http://127.0.0.1:"))


def wait_for_charts(page):
    page.wait_for_selector(".chart[aria-busy]", state="detached")


def card(page, stream):
    return page.locator(f"#streams [data-stream={stream}]")


def anomalies(page, stream):
    return page.locator(f"#anomalies [data-stream={stream}]")


def event_order(part):
    return part.locator("tbody tr").evaluate_all("rows => rows.map(row => Number(row.dataset.event))")


def curves(page, stream):
    """Name → number of points of the curves as drawn."""
    chart = page.locator(f"#loss [data-stream={stream}] .chart")
    return chart.evaluate("chart => Object.fromEntries(chart.data.map(trace => [trace.name, trace.x.length]))")


def run_order(page):
    return page.locator("#runs tbody tr").evaluate_all("rows => rows.map(row => row.dataset.run)")
