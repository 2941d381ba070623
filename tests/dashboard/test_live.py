"""The page while a run trains, and while its server is away."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from core.workspace import utc_now, write_json
from pipelines.export_training_dashboard_state import export_state
from tests.dashboard.browsing import card, data_of, expect, serving, settle
from tests.dashboard.whole import LIVE, change, live_document
from tests.support.small_workspace import install_page
from tests.support.waiting import until

pytestmark = [pytest.mark.browser, pytest.mark.slow]

# Who comes back to a tab sees what is new at once.
COMING_BACK = "document.dispatchEvent(new Event('visibilitychange'))"
TWO_MINUTES_PASS = "() => { const now = Date.now; Date.now = () => now() + 120_001; }"
# The requests for documents that change, with their times in seconds, in order.
REQUESTS = """() => performance.getEntriesByType('resource')
  .map(({ name, startTime }) => [name.split('/').at(-1), (performance.timeOrigin + startTime) / 1000])
  .sort(([, one], [, other]) => one - other)"""


@pytest.fixture
def page_folder(tmp_path):
    """The page of a workspace in which nothing was trained."""
    page = install_page(tmp_path)
    export_state(tmp_path)
    return page


def train(page_folder, epoch, **changes):
    write_json(page_folder / "data/live/patchtst.json", live_document(epoch, **changes))


def test_a_curve_grows_and_ends_while_the_page_is_open(page_folder, visit):
    train(page_folder, 2)
    with serving(page_folder) as url:
        page = visit(f"{url}#training")
        settle(page)
        part = card(page, "PatchTST-SSL")
        for expected in (LIVE, "epoch 2 of 12 · 10 min left", "812.5 windows/s", "910 MiB"):
            assert expected in part.inner_text()
        assert data_of(page, "Loss, PatchTST-SSL")["epoch"] == ["1", "2"]
        drawn = page.locator("figure").first.screenshot()
        train(page_folder, 5)
        part.get_by_text("epoch 5 of 12 · 7 min left").wait_for()
        assert data_of(page, "Loss, PatchTST-SSL")["epoch"] == ["1", "2", "3", "4", "5"]
        until(lambda: page.locator("figure").first.screenshot() != drawn)
        page.locator("#smoothing").focus()
        train(page_folder, 12, state="completed", eta_seconds=None)
        part.get_by_text("Completed").wait_for()
        assert page.locator("#smoothing").evaluate("input => input === document.activeElement")
        assert page.complaints == []


def test_the_overview_follows_the_run_and_reports_silence(page_folder, visit):
    train(page_folder, 3)
    with serving(page_folder) as url:
        page = visit(url)
        part = card(page, "PatchTST-SSL")
        for expected in ("Running", "Epoch 3 of 12", "3 min · 25 %, 9 min left", LIVE, "0.3667 in epoch 3"):
            assert expected in part.inner_text()
        assert part.get_by_role("meter").get_attribute("aria-valuenow") == "25"
        verdict = page.locator("#verdict")
        assert "Train: PatchTST-SSL running" in verdict.inner_text()
        assert "Running\nPatchTST-SSL running" in page.locator("#stage-train").inner_text()
        assert "No update since" not in part.inner_text()
        train(page_folder, 4)
        part.get_by_text("Epoch 4 of 12").wait_for()
        assert "No update since" not in part.inner_text()
        page.evaluate(TWO_MINUTES_PASS)
        part.get_by_text("No update since").wait_for()  # without any news
        assert "Silent" in part.inner_text()
        assert "Nothing has run yet" in verdict.inner_text()
        assert "Running" not in part.inner_text()
        assert page.complaints == []


def test_a_run_without_decisions_has_a_text_instead_of_an_empty_table(page_folder, visit):
    train(page_folder, 3)
    with serving(page_folder) as url:
        page = visit(f"{url}#device")
        part = card(page, "PatchTST-SSL")
        part.get_by_text("This run has recorded no decision yet.").wait_for()
        assert part.locator("table").count() == 0


def test_the_list_of_runs_links_to_the_first_run_while_it_is_trained(page_folder, visit):
    train(page_folder, 3)
    with serving(page_folder) as url:
        page = visit(f"{url}#runs")
        page.get_by_role("main").get_by_role("link", name="Training").click()
        card(page, "PatchTST-SSL").get_by_text(LIVE).first.wait_for()


def test_the_card_of_a_machine_follows_its_first_training(page_folder, visit):
    train(page_folder, 3)
    with serving(page_folder) as url:
        page = visit(url)
        machine, other = page.locator(".card:has(.light)").all()
        assert "No model" in machine.inner_text()
        assert "The first model is being trained: 25 %, 9 min left." in machine.inner_text()
        assert "landfall score finds the events after the training" in machine.inner_text()
        assert "train one first" in other.inner_text()
        assert "Done\nread by the training, not checked" in page.locator("#stage-data").inner_text()
        assert "Not started\nnothing scored yet" in page.locator("#stage-score").inner_text()
        train(page_folder, 6)
        machine.get_by_text("50 %, 6 min left").wait_for()
        write_state(page_folder, "running", "PatchTST-SSL cell 3 of 15")
        page.locator("#stage-score").get_by_text("Waiting").wait_for()
        titles = page.locator("main h2").all_inner_texts()
        assert titles.index("Pipeline") < titles.index("Validation checklist")
        machine.get_by_text("the running pipeline scores after the training").wait_for()
        assert page.complaints == []


def write_state(page_folder, train, detail, **changes):
    """Writes the pipeline's live document for a state of its training."""
    verdict = {"state": "running", "title": "Pipeline running", "detail": "run 1"}
    now = {"state": "running", "run_id": "1", "updated_at": utc_now(), "verdict": verdict, "schema_version": 1}
    stages = [{"id": "train", "state": train, "detail": detail}]
    write_json(page_folder / "data/live/pipeline.json", {**now, "stages": stages, **changes})


@pytest.mark.nightly
def test_the_pipelines_picture_follows_its_run_and_an_export_takes_over(page_folder, visit):
    write_state(page_folder, "running", "PatchTST-SSL cell 3 of 15")
    with serving(page_folder) as url:
        page = visit(url)
        stage, verdict = page.locator("#stage-train"), page.locator("#verdict")
        assert "Running\nPatchTST-SSL cell 3 of 15" in stage.inner_text()
        assert "Pipeline running" in verdict.inner_text()
        stage.focus()
        write_state(page_folder, "running", "PatchTST-SSL cell 4 of 15")
        stage.get_by_text("cell 4 of 15").wait_for()
        assert stage.evaluate("link => link === document.activeElement")
        export_state(page_folder.parent)
        change(page_folder, "dashboard-state.json", verdict={"state": "done", "title": "Ready", "detail": ""})
        write_state(page_folder, "done", "", verdict=None, state="completed", stages=[])
        written = time.time()
        verdict.get_by_text("Ready").wait_for()
        later = [name for name, at in page.evaluate(REQUESTS) if at > written]
        first = later[: later.index("dashboard-state.json")]
        assert first.count("pipeline.json") <= 1, "at once, not when the state's turn comes"
        assert "nothing trained yet" in stage.inner_text()
        assert page.complaints == []


def test_a_failure_stays_visible_until_the_next_export(page_folder, visit):
    write_state(page_folder, "failed", "PatchTST-SSL failed: In [4]: no data", verdict=None, state="failed")
    with serving(page_folder) as url:
        page = visit(url)
        assert "failed: In [4]: no data" in page.locator("#stage-train").inner_text()
        export_state(page_folder.parent)
        page.evaluate(COMING_BACK)
        page.locator("#stage-train").get_by_text("nothing trained yet").wait_for()


def test_a_silent_pipeline_is_not_shown_as_running(page_folder, visit):
    change(page_folder, "dashboard-state.json", generated_at="2026-01-01T00:00:00Z")
    write_state(page_folder, "running", "x", updated_at=(datetime.now(UTC) - timedelta(seconds=121)).isoformat())
    with serving(page_folder) as url:
        page = visit(url)
        assert "Pipeline silent" in page.locator("#verdict").inner_text()
        assert "No update since" in page.locator("#verdict").inner_text()
        assert "nothing trained yet" in page.locator("#stage-train").inner_text()


def test_later_runs_and_exports_are_noticed(page_folder, visit):
    with serving(page_folder) as url:
        page = visit(url)
        part = card(page, "PatchTST-SSL")
        assert "landfall train patchtst" in part.inner_text()
        train(page_folder, 1)
        page.evaluate(COMING_BACK)
        part.get_by_text("Running").wait_for()
        train(page_folder, 12, state="completed", eta_seconds=None)
        change(page_folder, "dashboard-state.json", verdict={"state": "done", "title": "Ready", "detail": ""})
        page.evaluate(COMING_BACK)
        page.locator("#verdict", has_text="Ready").wait_for()
        assert page.complaints == []


def test_the_message_about_a_lost_server_stays_without_training(page_folder, visit):
    with serving(page_folder) as url:
        page = visit(url)
    page.evaluate(COMING_BACK)
    page.locator("#contact").get_by_text("The server does not respond").wait_for()
    page.wait_for_timeout(3000)
    assert "The server does not respond" in page.locator("#contact").inner_text()


def test_the_page_reports_a_lost_server_and_keeps_its_data(page_folder, visit):
    train(page_folder, 2)
    with serving(page_folder) as url:
        page = visit(url)
        page.context.set_offline(True)  # another process could take the port of a server that is away
        notice = page.locator("#contact")
        notice.get_by_text("This page shows its last state").wait_for()
        assert "landfall dashboard" in notice.inner_text()
        assert "Epoch 2 of 12" in card(page, "PatchTST-SSL").inner_text()
        train(page_folder, 6)
        page.context.set_offline(False)
        card(page, "PatchTST-SSL").get_by_text("Epoch 6 of 12").wait_for()
        expect(notice).to_be_empty()
