"""Annotations of events and time spans in a real browser."""

from __future__ import annotations

import json

import pytest

from pipelines.export_training_dashboard_state import export_state
from tests.dashboard.browsing import card, chart, data_of, expect, first_cells, settle, show
from tests.dashboard.builders import SCRIPT
from tests.dashboard.whole import build_whole_workspace

pytestmark = pytest.mark.browser


@pytest.mark.slow
def test_an_event_is_acknowledged_labelled_and_commented(bare, visit):
    page_folder, url = bare
    build_whole_workspace(page_folder.parent)
    export_state(page_folder.parent)
    page = visit(f"{url}#anomalies?stream=patchtst&event=7")
    event = card(page, "Event 7")
    event.locator("#acknowledged").check()
    event.locator("#label").select_option("false alarm")
    event.locator("#comment").fill(SCRIPT)
    event.locator("#keep").click()
    event.get_by_text("Noted").wait_for()
    assert event.locator("#comment").input_value() == SCRIPT
    assert event.locator("#acknowledged").is_checked()
    table = data_of(page, "Events")
    assert table["State"] == ["acknowledged, false alarm"] + ["open"] * 6
    assert table["Comment"][0] == SCRIPT
    show(page, "overview")
    assert "6 open events" in card(page, "Process sensors (FDC)").inner_text()
    assert page.complaints == []
    # A label is optional.
    show(page, "anomalies?stream=patchtst&event=6")
    event = card(page, "Event 6")
    event.locator("#acknowledged").check()
    event.locator("#keep").click()
    event.get_by_text("Noted").wait_for()
    stored = json.loads((page_folder.parent / "artifacts/scores/patchtst_annotations.json").read_text("utf-8"))
    assert stored[-1]["label"] is None
    page.locator("#state").select_option("acknowledged")
    assert len(first_cells(page, "events")) == 1


@pytest.mark.nightly
def test_maintenance_is_marked_and_removed_by_keyboard(bare, visit):
    page_folder, url = bare
    build_whole_workspace(page_folder.parent)
    export_state(page_folder.parent)
    page = visit(f"{url}#anomalies?stream=patchtst")
    settle(page)
    page.get_by_text("Annotate a time span").press("Enter")
    page.locator("#span-keep").press("Enter")
    page.get_by_text("It was not saved").wait_for()
    page.locator("#span-visible").press("Enter")
    marks = chart(page, "Anomaly score, data/07.csv").locator(".marks")
    expect(marks).to_contain_text("new annotation")
    assert page.locator("#span-from").input_value() == "2026-01-09T06:00:29"
    for name, text in (("from", "2026-01-09T06:05"), ("to", "2026-01-09T06:10:30"), ("comment", SCRIPT)):
        page.locator(f"#span-{name}").fill(text)
    page.locator("#span-keep").press("Enter")
    page.locator("#annotations").wait_for()
    (stored,) = json.loads((page_folder.parent / "artifacts/scores/patchtst_annotations.json").read_text("utf-8"))
    assert (stored["start_seconds"], stored["end_seconds"], stored["label"]) == (300, 630, "maintenance")
    settle(page)
    expect(marks.locator("text")).to_have_text(["maintenance", "threshold"])
    assert data_of(page, "Annotations")["Comment"] == [SCRIPT]
    assert data_of(page, "Events")["State"] == ["acknowledged, maintenance"] + ["open"] * 6
    page.get_by_text("Annotate a time span").press("Enter")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    assert [rule["id"] for rule in axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]] == []
    page.get_by_role("button", name="Remove the annotation of 2026-01-09 06:05:00").press("Enter")
    page.locator("#annotations").wait_for(state="detached")
    settle(page)
    expect(marks.locator("text")).to_have_text(["threshold"])
    assert page.complaints == []
