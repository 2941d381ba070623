"""The dashboard page where data is missing, damaged, or newer than the page."""

from __future__ import annotations

import json
import shutil

import pytest

from pipelines.export_training_dashboard_state import export_state
from tests.dashboard.browsing import anomalies, card
from tests.dashboard.builders import REPOSITORY, SECOND, build_workspace, write, write_checkpoint, write_scores

pytestmark = pytest.mark.browser


def test_without_an_export_the_page_says_how_to_make_one(bare, visit):
    text = visit(bare[1], charts=False).locator("main").inner_text()
    assert "Nothing has been exported yet" in text
    assert "make validate" in text


def test_an_export_of_an_empty_workspace_is_a_whole_page(bare, visit):
    page_folder, url = bare
    export_state(page_folder.parent)
    page = visit(url, charts=False)
    assert page.locator("h1").inner_text() == "Nothing has run yet"
    assert page.locator("#streams").get_by_text("Not started").count() == 2
    assert "This stream has not been trained yet." in page.locator("#loss").inner_text()
    assert page.locator("#anomalies").get_by_text("make validate").count() == 2
    assert page.complaints == []


def test_anomalies_name_the_command_that_finds_them_and_say_where_there_is_none(bare, visit):
    page_folder, url = bare
    root = page_folder.parent
    write_checkpoint(root, "swinmae", SECOND)
    write_scores(root, "patchtst", SECOND, labels=False, events=0)
    export_state(root)
    page = visit(url, charts=False)
    assert "No event: nothing rose above the threshold" in anomalies(page, "patchtst").inner_text()
    assert (
        anomalies(page, "swinmae")
        .inner_text()
        .endswith("Nothing scored yet: make score finds the events in the test files.")
    )
    write_scores(root, "patchtst", SECOND, labels=False)
    (root / "artifacts/scores/patchtst_events.json").unlink()
    export_state(root)
    page.reload()
    page.get_by_text("The list of events is missing").wait_for()
    assert page.complaints == []


@pytest.mark.parametrize(
    "content, expected",
    [
        ('{"schema_version": 2}', "has schema version 2; this page reads 1"),
        ("{}", "has schema version none"),
        ("null", "has schema version none"),
        ('{"schema_version": 1, "stre', "is not valid JSON"),
    ],
)
def test_a_state_the_page_cannot_read_is_explained(bare, visit, content, expected):
    page_folder, url = bare
    write(page_folder / "data/dashboard-state.json", content)
    page = visit(url, charts=False)
    text = page.get_by_role("alert").inner_text()
    assert expected in text
    assert "make validate" in text
    assert page.complaints == []


def test_a_damaged_record_or_index_costs_only_what_it_holds(bare, visit):
    page_folder, url = bare
    build_workspace(page_folder.parent)
    export_state(page_folder.parent)
    write(page_folder / f"data/runs/{SECOND}.json", "{")
    page = visit(url, charts=False)
    assert "is not valid JSON" in page.locator("#loss").inner_text()
    assert card(page, "patchtst").get_by_text("Epoch 12 of 12").count() == 1
    write(page_folder / "data/runs/index.json", "{")
    page.reload()
    page.wait_for_selector("#problems")
    assert "runs/index.json is not valid JSON" in page.locator("#problems").inner_text()


def test_a_newer_writer_may_add_fields_and_states(bare, visit):
    page_folder, url = bare
    build_workspace(page_folder.parent)
    export_state(page_folder.parent)
    file = page_folder / "data/dashboard-state.json"
    state = json.loads(file.read_text("utf-8")) | {"weather": {"sky": "clear"}}
    state["pipeline"][0]["state"] = "paused"
    write(file, state)
    page = visit(url, charts=False)
    assert "paused" in page.locator("#pipeline").inner_text()
    assert page.complaints == []


def test_without_the_chart_library_the_figures_are_still_there(bare, visit):
    page_folder, url = bare
    build_workspace(page_folder.parent)
    export_state(page_folder.parent)
    shutil.rmtree(page_folder / "vendor")
    page = visit(url, charts=False)
    page.get_by_text("The chart library is missing").first.wait_for()
    page.get_by_text("Figures per epoch").first.click()
    assert page.locator("#loss tr.best").first.inner_text().split("\t")[0] == "11"


def test_a_page_that_is_not_served_says_how_to_serve_it(browser):
    page = browser.new_page()
    page.goto((REPOSITORY / "training_dashboard" / "index.html").as_uri())
    assert "make dashboard" in page.locator("main").inner_text()
    page.close()
