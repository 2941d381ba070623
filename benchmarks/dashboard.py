"""Load time and response time of the dashboard, with many runs and a long recording, in a real Chromium.

    python -m benchmarks.dashboard [--runs 200] [--scores 1000000] [--rounds 9] [--write]
    python -m benchmarks.dashboard --picture

The workspace is built and exported as the tests do it. Each round opens the page in a new browser profile, so nothing
is cached. Response time is the time from the click or key press to the first frame with the result. `--picture`
creates the figure of the README from the export of this workspace.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.run import RESULTS, environment
from core.cli import add_root_argument, root_of, run_command
from core.errors import EXIT_OK, UsageError
from pipelines.export_training_dashboard_state import export_state
from tests.dashboard.browsing import find_chromium, serving, settle
from tests.dashboard.builders import START, write_run
from tests.dashboard.whole import build_whole_workspace
from tests.pipelines.more_inputs import RECORDING, write_score_table
from tests.support.small_workspace import install_page

PICTURE = Path("docs/images/dashboard-anomalies.png")
FIRST_PAINT_MS, RESPONSE_MS = 1000, 100
PAINT, ARRIVAL, CLOSE = LOADING = (
    "first paint",
    "the state has arrived",
    "every score of the part has been fetched and drawn",
)
LISTEN = """for (const name of ['pointerup', 'click', 'keydown', 'input']) {
  addEventListener(name, (event) => { window.inputTime = event.timeStamp; }, { capture: true });
}"""
# Checks once per frame; the task after a frame runs when that frame is being displayed.
WATCH = """() => {{
  window.inputTime = null;
  window.shown = new Promise((resolve) => {{
    const look = () => requestAnimationFrame(() => (window.inputTime && ({}))
      ? setTimeout(() => resolve(performance.now() - window.inputTime)) : look());
    look();
  }});
}}"""
DRAWN = "document.querySelector('#view[data-view={}][aria-busy=false]')"
ARRIVED = "performance.getEntriesByType('resource').find((one) => one.name.includes('state')).responseEnd"


@dataclass(frozen=True)
class Timing:
    """Durations in milliseconds over all rounds."""

    what: str
    median: float
    worst: float
    goal: float

    @classmethod
    def of(cls, what: str, times: list[float], goal: float = RESPONSE_MS) -> Timing:
        return cls(what, round(statistics.median(times), 1), round(max(times), 1), goal)

    def __str__(self) -> str:
        return f"{self.what:58} {self.median:7.1f} ms, at most {self.worst:7.1f} ms (goal {self.goal:g} ms)"


def build(root: Path, runs: int, scores: int) -> Path:
    """A page with `runs` runs of both streams and a recording of `scores` scores."""
    build_whole_workspace(root)
    for number in range(runs - 2):
        for stream in ("patchtst", "swinmae"):
            start = START - timedelta(hours=number + 30)
            write_run(root, stream, f"{start:%Y%m%d-%H%M%S}-{number:04x}", start=start, scale=1 + number % 7 / 10)
    noise = np.random.default_rng(7).gamma(2, 0.1, scores)
    write_score_table(root, "patchtst", {RECORDING: noise})
    page = install_page(root)
    export_state(root)
    return page


@contextmanager
def browser() -> Iterator[Any]:
    """Raises UsageError if playwright or Chromium is missing."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise UsageError("playwright is not installed", hint="run `make setup-dev`") from error
    executable = find_chromium()
    if executable is None:
        raise UsageError("no Chromium found", hint="install one or name it in $CHROMIUM")
    flags = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=executable, args=flags)
        yield chromium
        chromium.close()


def measure(chromium: Any, url: str) -> dict[str, float]:
    """One visit: action → milliseconds."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.add_init_script(LISTEN)
    page.goto(url)
    page.wait_for_selector("#view[aria-busy=false]")
    page.evaluate("() => new Promise(requestAnimationFrame)")
    found = {PAINT: page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")}
    found[ARRIVAL] = page.evaluate(ARRIVED)

    def measure(what: str, act: Callable[[], Any], ready: str) -> None:
        page.evaluate(WATCH.format(ready))
        act()
        found[what] = page.evaluate("window.shown")

    for view in ("training", "runs", "data", "device", "overview"):
        measure(f"show {view}", page.locator(f"#to-{view}").click, DRAWN.format(view))
    page.locator("#to-runs").click()
    page.wait_for_selector("#runs")
    measure(
        "sort the runs", page.locator("#runs-duration").click, "document.querySelector('#runs [aria-sort=descending]')"
    )
    rows = "document.querySelector('#runs tbody').rows.length"
    fewer = f"{rows} < {page.evaluate(rows)}"
    measure("filter the runs", lambda: page.locator("#runs-filter").fill("00c"), fewer)
    measure("pick a run", page.locator("#runs input").first.click, "document.querySelector('.cards .card')")
    page.locator("#to-training").click()
    page.wait_for_selector("figure canvas")
    measure("turn the loss logarithmic", page.locator("#scale-log + span").click, "location.hash.includes('scale=log')")
    measure("show anomalies", page.locator("#to-anomalies").click, DRAWN.format("anomalies"))
    page.wait_for_selector("figure canvas")
    box = page.locator(".u-over").first.bounding_box()
    middle = box["y"] + box["height"] / 2

    def drag() -> None:
        page.mouse.move(box["x"] + 300, middle)
        page.mouse.down()
        page.mouse.move(box["x"] + 330, middle, steps=4)
        page.mouse.up()

    legend, value = (f"document.querySelector('.u-{part}').innerText" for part in ("legend", "value"))
    measure("zoom into the scores", drag, "true")
    page.locator(".u-over").first.dblclick()
    measure(CLOSE, drag, f"{legend}.includes('every score')")
    measure("read a value", lambda: page.locator("figure").first.press("ArrowRight"), f"{value} !== '–'")
    context.close()
    return found


def timings(runs: int, scores: int, rounds: int) -> list[Timing]:
    with tempfile.TemporaryDirectory() as folder:
        page = build(Path(folder), runs, scores)
        with browser() as chromium, serving(page) as url:
            visits = [measure(chromium, url) for _ in range(rounds)]
    goals = {what: FIRST_PAINT_MS if what in LOADING else RESPONSE_MS for what in visits[0]}
    return [Timing.of(what, [visit[what] for visit in visits], goal) for what, goal in goals.items()]


def take_picture(root: Path) -> Path:
    """Creates the README's figure of an exported workspace, in few colours: the score and the first signal of the
    longest event of the process sensors, the drift of the sample data."""
    from PIL import Image

    state = json.loads((root / "training_dashboard/data/dashboard-state.json").read_text("utf-8"))
    events = state["streams"]["patchtst"]["detections"]["events"]
    shown = max(events, key=lambda event: event["duration_seconds"])["id"]
    with browser() as chromium, serving(root / "training_dashboard") as url:
        page = chromium.new_page(viewport={"width": 1000, "height": 2400}, timezone_id="UTC")
        page.goto(f"{url}#anomalies?stream=patchtst&event={shown}")
        settle(page)
        figures = page.locator(".card", has=page.locator("h2", has_text=f"Event {shown}")).locator("figure").all()[:2]
        boxes = [figure.bounding_box() for figure in figures]
        top = page.evaluate("scrollY") + boxes[0]["y"] - 8
        bottom = top + boxes[-1]["y"] + boxes[-1]["height"] + 16 - boxes[0]["y"]
        clip = {"x": 0, "y": top, "width": 1000, "height": bottom - top}
        picture = Image.open(io.BytesIO(page.screenshot(clip=clip, full_page=True))).convert("RGB")
    picture.quantize(64, dither=Image.Dither.NONE).save(PICTURE, optimize=True)
    return PICTURE


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.dashboard", description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--scores", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--picture", action="store_true", help=f"create {PICTURE} instead")
    add_root_argument(parser)
    parser.add_argument("--write", action="store_true", help="keep the results in benchmarks/results/")

    def command(arguments: argparse.Namespace) -> int:
        if arguments.picture:
            sys.stdout.write(f"{take_picture(root_of(arguments))}\n")
            return EXIT_OK
        found = timings(arguments.runs, arguments.scores, arguments.rounds)
        sys.stdout.write("".join(f"{timing}\n" for timing in found))
        if arguments.write:
            setting = {name: getattr(arguments, name) for name in ("runs", "scores", "rounds")}
            times = [asdict(timing) for timing in found]
            document = {"question": "dashboard", **environment(), **setting, "milliseconds": times}
            (RESULTS / "dashboard.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        return EXIT_OK

    return run_command(command, parser, None)


if __name__ == "__main__":
    sys.exit(main())
