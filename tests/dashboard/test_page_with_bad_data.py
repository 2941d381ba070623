"""The dashboard page where data is missing, damaged, hostile, or of another version."""

from __future__ import annotations

import json
import re

import pytest

from pipelines.dashboard.single_file import write_single_file
from pipelines.export_training_dashboard_state import export_state
from tests.dashboard.browsing import VIEWS, card, chart, data_of, expect, show
from tests.dashboard.builders import REPOSITORY, SECOND, build_workspace, write, write_checkpoint, write_scores
from tests.dashboard.whole import build_whole_workspace, change
from tests.support.small_workspace import install_page

pytestmark = pytest.mark.browser


@pytest.mark.slow
def test_the_page_without_an_export_names_the_command(bare, visit):
    text = visit(bare[1]).locator("main").inner_text()
    assert "Nothing has been exported" in text
    assert "landfall pipeline" in text


@pytest.mark.slow
def test_an_export_of_an_empty_workspace_names_a_command_in_every_view(bare, visit):
    page_folder, url = bare
    export_state(page_folder.parent)
    page = visit(url)
    assert "Nothing has run yet" in page.locator("#verdict").inner_text()
    commands = {}
    for view in VIEWS:
        show(page, view)
        commands[view] = set(page.locator("main code").all_inner_texts())
        if view == "training":
            assert page.locator(".controls").count() == 0, "there is no curve to control"
    train = {"landfall train patchtst", "landfall train swinmae"}
    assert commands == {
        "overview": {"landfall pipeline", "landfall quality", "landfall validate", *train},
        "fleet": {"landfall fleet report"},
        "monitor": {"landfall watch STREAM"},
        "training": train,
        "runs": {"landfall pipeline"},
        "data": {"landfall quality"},
        "anomalies": {"landfall pipeline"},
        "device": {"landfall pipeline", *train},
        "migration": {"landfall migrate NOTEBOOK"},
    }
    show(page, "overview")
    machine = card(page, "Process sensors (FDC)")
    assert machine.locator("code").all_inner_texts() == ["landfall pipeline", "landfall quality"], (
        "nothing scored, no file checked"
    )
    assert page.complaints == []


@pytest.mark.slow
def test_the_anomalies_view_names_the_scoring_command(bare, visit):
    page_folder, url = bare
    root = page_folder.parent
    write_checkpoint(root, "swinmae", SECOND)
    write_scores(root, "patchtst", SECOND, labels=False, events=0)
    export_state(root)
    page = visit(f"{url}#anomalies")
    assert "No event" in page.locator("main").inner_text()
    assert "landfall export" in page.locator("main").inner_text()
    show(page, "anomalies?stream=swinmae")
    assert "landfall score" in page.locator("main").inner_text()
    write_scores(root, "patchtst", SECOND, labels=False)
    (root / "artifacts/scores/patchtst_events.json").unlink()
    export_state(root)
    page.reload()
    show(page, "anomalies")
    assert "events is missing" in page.locator("main").inner_text()
    assert page.complaints == []


@pytest.mark.slow
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
    page = visit(url)
    text = page.locator("main").get_by_role("alert").inner_text()
    assert expected in text
    assert "landfall pipeline" in text
    assert page.complaints == []


@pytest.mark.slow
def test_a_damaged_document_affects_only_its_content(bare, visit):
    page_folder, url = bare
    build_whole_workspace(page_folder.parent)
    export_state(page_folder.parent)
    for name in (f"runs/{SECOND}.json", "series/patchtst.json", "quality/swinmae.json"):
        write(page_folder / "data" / name, "{")
    page = visit(f"{url}#training")
    assert f"data/runs/{SECOND}.json is not valid JSON." in page.locator("main").inner_text()
    for view, name in (("anomalies", "series/patchtst.json"), ("data", "quality/swinmae.json")):
        show(page, view)
        assert f"data/{name} is not valid JSON" in page.locator("main").inner_text()
    show(page, "overview")
    assert "Epoch 12 of 12" in card(page, "PatchTST-SSL").inner_text()
    write(page_folder / "data/runs/index.json", "{")
    page.reload()
    card(page, "Unreadable inputs").wait_for()
    assert "runs/index.json is not valid JSON" in card(page, "Unreadable inputs").inner_text()
    assert page.complaints == []


@pytest.mark.slow
def test_an_older_export_is_shown_as_far_as_possible(bare, visit):
    """The fields that came later are missing, as in an export of an earlier release."""
    page_folder, url = bare
    build_workspace(page_folder.parent)
    export_state(page_folder.parent)
    state = json.loads((page_folder / "data/dashboard-state.json").read_text("utf-8"))
    later = ("series", "quality_file", "decisions", "memory", "eta_seconds")
    streams = {
        name: {key: stream[key] for key in stream if key not in later} for name, stream in state["streams"].items()
    }
    pipeline = [{key: node[key] for key in node if key != "view"} for node in state["pipeline"][:6]]
    write(page_folder / "data/dashboard-state.json", state | {"streams": streams, "pipeline": pipeline})
    page = visit(url)
    for view in VIEWS:
        show(page, view)
        assert "could not be drawn" not in page.locator("main").inner_text()
    show(page, "data")
    assert "62 % of the values" in page.locator("main").inner_text()
    show(page, "device")
    assert "no memory" in page.locator("main").inner_text()
    assert page.complaints == []


@pytest.mark.slow
def test_a_newer_writer_may_add_fields_and_states(bare, visit):
    page_folder, url = bare
    build_workspace(page_folder.parent)
    state = json.loads(export_state(page_folder.parent).model_dump_json())
    nodes = [state["pipeline"][0] | {"state": "paused", "view": "weather"}, *state["pipeline"][1:]]
    change(page_folder, "dashboard-state.json", pipeline=nodes, weather={"sky": "clear"})
    page = visit(url)
    assert "Paused" in page.locator(".stages").inner_text()
    page.locator(".stages a").first.click()
    page.wait_for_url("**#weather")
    assert page.locator("#view").get_attribute("data-view") == "overview"
    assert page.complaints == []


@pytest.mark.slow
def test_invalid_and_huge_losses_are_flagged_and_the_page_continues(bare, visit):
    page_folder, url = bare
    build_workspace(page_folder.parent)
    export_state(page_folder.parent)
    record = json.loads((page_folder / f"data/runs/{SECOND}.json").read_text("utf-8"))
    run = record["streams"]["patchtst"]
    run["step_history"][20]["loss"] = None
    run["history"][4] |= {"train_loss": None, "val_loss": 1e308}
    run |= {"nan_steps": 3, "collapsed": True, "recoveries": 2}
    write(page_folder / f"data/runs/{SECOND}.json", record)
    page = visit(f"{url}#training?run={SECOND}")
    text = card(page, "PatchTST-SSL").inner_text()
    assert re.search(r"step 101\b.*\b3 steps", text)
    assert re.search(r"\b2 times\b.*rolled back", text)
    assert "The model has collapsed" in text
    loss = data_of(page, "Loss, PatchTST-SSL")
    assert [column[4] for column in loss.values()] == ["5", "", "1e+308"]
    expect(chart(page, "Loss, PatchTST-SSL").locator(".marks")).to_contain_text("not finite")
    for address in ("training?x=step", "training?scale=log", "training?x=step&smoothing=0.9"):
        show(page, address)
        expect(chart(page, "Loss, PatchTST-SSL").locator("canvas")).to_have_count(1)
    assert page.complaints == []


@pytest.mark.slow
def test_a_run_named_like_markup_stays_a_name(bare, visit):
    page_folder, url = bare
    build_workspace(page_folder.parent)
    export_state(page_folder.parent)
    index = json.loads((page_folder / "data/runs/index.json").read_text("utf-8"))
    hostile = "<img src=x onerror=document.title='owned'>"
    change(page_folder, "runs/index.json", runs=[index["runs"][0] | {"run_id": hostile, "device": hostile}])
    page = visit(f"{url}#runs")
    assert page.locator("#runs tbody th").inner_text() == hostile
    page.get_by_role("link", name=f"Curves of {hostile}").click()
    page.wait_for_selector("#view[data-view=training][aria-busy=false]")
    assert hostile in page.locator("main").inner_text()
    assert page.locator("main img").count() == 0
    assert "owned" not in page.title()


@pytest.mark.slow
def test_spreadsheet_formulas_are_saved_as_text(bare, visit):
    page_folder, url = bare
    build_workspace(page_folder.parent)
    export_state(page_folder.parent)
    index = json.loads((page_folder / "data/runs/index.json").read_text("utf-8"))
    streams = {"patchtst": {"state": "completed", "hardware": '=HYPERLINK("http://x"),1'}}
    change(page_folder, "runs/index.json", runs=[index["runs"][0] | {"streams": streams}])
    page = visit(f"{url}#runs")
    assert data_of(page, "Runs")["Hardware"] == ['\'=HYPERLINK("http://x"),1']


def test_a_page_that_is_not_served_says_how_to_serve_it(browser):
    page = browser.new_page()
    page.goto((REPOSITORY / "training_dashboard" / "index.html").as_uri())
    assert "landfall dashboard" in page.locator("main").inner_text()
    page.close()


@pytest.mark.slow
def test_a_page_opened_from_disk_links_to_the_single_file_report(browser, tmp_path):
    folder = install_page(build_workspace(tmp_path))
    export_state(tmp_path)
    write_single_file(tmp_path)
    page = browser.new_page()
    page.goto((folder / "index.html").as_uri())
    page.locator("main a").click()
    page.wait_for_selector("#verdict *")
    assert page.url.endswith("artifacts/report.html")
    assert "has to be served" not in page.locator("main").inner_text()
    page.close()
