"""Screenshots of every view, to look at after a change of the page.

    python -m tests.dashboard.gallery DIR [--state live] [--view overview]

The states are `finished`, the export of this workspace (`make validate` makes one), and made-up ones: `empty`, `failed`
and `live`. Each view is taken at three widths, light and dark, and as it is printed; so is the worst event of each
stream.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from core.workspace import write_json
from pipelines.export_training_dashboard_state import export_state
from tests.dashboard.browsing import VIEWS, find_chromium, serving, settle, show
from tests.dashboard.whole import build_whole_workspace, live_document, write_fleet, write_monitor
from tests.support.small_workspace import install_page

STATES = ("finished", "empty", "failed", "live")
WIDTHS = (1440, 1024, 390)
# Time limit of a screenshot on a busy machine.
BUSY_MS = 300_000
# Charts are drawn when they are close to the visible area.
SCROLL = """async () => {
  for (let y = 0; y < document.body.scrollHeight; y += 500) {
    scrollTo(0, y);
    await new Promise((done) => setTimeout(done, 60));
  }
  scrollTo(0, 0);
}"""


def make_workspace(root: Path, state: str) -> Path:
    """The page of a made-up workspace."""
    if state == "failed":
        build_whole_workspace(root)
    page = install_page(root)
    if state == "failed":
        write_fleet(page)
        write_monitor(root)
    export_state(root)
    return page


def progress(root: Path) -> None:
    """Renews the documents of running trainings and a running monitor: those without news are shown as silent."""
    for stream in ("patchtst", "swinmae"):
        write_json(root / f"training_dashboard/data/live/{stream}.json", live_document(7, stream=stream))
    write_monitor(root, ended=False)


def take(
    browser: Browser, page: Path, folder: Path, views: Sequence[str], before_each: Callable[[], None]
) -> Iterator[Path]:
    """Takes the screenshots of a workspace's page."""
    folder.mkdir(parents=True, exist_ok=True)
    state = json.loads((page / "data/dashboard-state.json").read_text("utf-8"))
    worst = {name: (stream["detections"] or {}).get("events") for name, stream in state["streams"].items()}
    events = [f"anomalies?stream={name}&event={found[0]['id']}" for name, found in worst.items() if found]
    with serving(page) as url:
        for width in WIDTHS:
            before_each()
            tab = browser.new_page(viewport={"width": width, "height": 900}, timezone_id="UTC")
            tab.set_default_timeout(BUSY_MS)
            tab.goto(url)
            settle(tab)
            for address in (*views, *(events if "anomalies" in views else [])):
                before_each()
                show(tab, address)
                name = re.sub(r"[^a-z0-9]+", "-", address)
                tab.evaluate(SCROLL)
                for scheme in ("light", "dark"):
                    tab.emulate_media(color_scheme=scheme)
                    settle(tab)
                    file = folder / f"{name}-{width}-{scheme}.png"
                    tab.screenshot(path=file, full_page=True)
                    yield file
                if width == WIDTHS[0]:
                    tab.pdf(path=folder / f"{name}.pdf", format="A4")
                    yield folder / f"{name}.pdf"
            tab.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.dashboard.gallery", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--state", action="append", choices=STATES, help="only this state; may be repeated")
    parser.add_argument("--view", action="append", choices=VIEWS, help="only this view; may be repeated")
    parser.add_argument("--repo-root", type=Path, default=Path(), metavar="DIR", help="workspace of `finished`")
    arguments = parser.parse_args()
    sandbox = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as made:
        browser = driver.chromium.launch(executable_path=find_chromium(), args=sandbox)
        for state in arguments.state or STATES:
            root = arguments.repo_root if state == "finished" else Path(made, state)
            page = root / "training_dashboard" if state == "finished" else make_workspace(root, state)
            if not (page / "data/dashboard-state.json").exists():
                parser.error(f"{root} has no exported state: run make validate, or choose other states with --state")
            renew = (lambda root=root: progress(root)) if state == "live" else lambda: None
            for file in take(browser, page, arguments.folder / state, arguments.view or VIEWS, renew):
                sys.stdout.write(f"{file}\n")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
