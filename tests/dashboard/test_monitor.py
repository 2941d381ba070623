"""The view of a running monitor changes as its document does."""

from __future__ import annotations

import json

import numpy as np
import pytest

from inference.watch.live_document import LiveDocument
from inference.watch.monitor import Scored
from pipelines.export_training_dashboard_state import export_state
from tests.dashboard.browsing import card, first_cells, serving
from tests.dashboard.builders import build_workspace
from tests.support.small_workspace import install_page


def scored(number: int, state: str, score: float = 2.5) -> Scored:
    start, recording = f"2026-02-01T00:0{number}:00.000", f"data/live/press_{number}.csv"
    report = {
        "id": f"{recording}#5", "state": state, "recording": recording, "start": start, "severity": score,
        "sentence": f"event {number}",
    }  # fmt: skip
    time_n = np.array([start], dtype="datetime64[ns]").astype(np.int64)
    return Scored(recording, np.array([5]), time_n, np.array([score]), np.array([0]), [report])


@pytest.mark.browser
@pytest.mark.slow
def test_new_events_of_a_monitor_appear(tmp_path, visit):
    build_workspace(tmp_path)
    install_page(tmp_path)
    export_state(tmp_path)
    events = tmp_path / "artifacts/watch/patchtst_events.jsonl"
    events.parent.mkdir(parents=True, exist_ok=True)
    events.write_text(json.dumps(scored(1, "closed").reports[0]) + "\n")
    with serving(tmp_path / "training_dashboard") as url:
        assert visit(url).locator("#to-monitor").count() == 0
        document = LiveDocument(tmp_path, "patchtst", 1.0, events)
        document.add_scores(scored(3, "open", 4.5))
        document.refresh()
        page = visit(url)
        machine = card(page, "Process sensors (FDC)")
        assert "Monitor running: 1 open event, the worst with 4.50 × the threshold." in machine.inner_text()
        page.locator("#to-monitor").click()
        page.wait_for_selector("#view[aria-busy=false][data-view=monitor]")
        assert first_cells(page, "events-patchtst") == ["data/live/press_3.csv", "data/live/press_1.csv"]
        assert page.locator("main h2").all_inner_texts() == ["Process sensors (FDC)"]
        assert "Monitor running. 1 open event." in page.locator("main").inner_text()
        assert page.locator(".light").inner_text() == "Open events"
        document.add_scores(scored(3, "closed"))
        document.add_scores(scored(2, "open"))
        document.refresh(ended=True)
        page.locator("#events-patchtst tbody tr").nth(2).wait_for()
        assert first_cells(page, "events-patchtst") == [f"data/live/press_{number}.csv" for number in (2, 3, 1)]
        assert first_cells(page, "files-patchtst") == ["data/live/press_3.csv", "data/live/press_2.csv"]
        assert "Monitor completed." in page.locator("main").inner_text()
        assert page.complaints == []
