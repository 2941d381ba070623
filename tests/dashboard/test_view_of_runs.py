"""The view of the runs in a real browser."""

from __future__ import annotations

import pytest

from pipelines.dashboard.single_file import write_single_file
from tests.dashboard.browsing import card, data_of, first_cells, show
from tests.dashboard.builders import FIRST, SECOND

pytestmark = pytest.mark.browser


def test_runs_sort_by_any_column_and_filter_by_any_word(opened):
    show(opened, "runs")
    assert first_cells(opened, "runs") == [SECOND, FIRST]
    head = opened.get_by_role("button", name="Best loss, Swin-MAE")
    head.click()
    assert first_cells(opened, "runs") == [FIRST, SECOND]
    head.press("Enter")
    assert first_cells(opened, "runs") == [SECOND, FIRST]
    heading = opened.locator("#runs th", has=head)
    assert heading.get_attribute("aria-sort") == "descending"
    assert list(data_of(opened, "Runs"))[:3] == ["Run", "State", "Started"]


@pytest.mark.slow
def test_the_executed_notebook_opens_from_the_served_page_and_from_the_single_file(whole, site, visit):
    from_disk = write_single_file(whole, whole / "reports/all.html").as_uri()
    for address in (site, from_disk):
        page = visit(f"{address}#runs?run={FIRST}")
        page.get_by_role("link", name="local_patchtst_ssl.html").click()
        page.get_by_text("CUDA out of memory").wait_for()
        assert "owned" not in page.title()
        assert page.complaints == []


@pytest.mark.slow
def test_one_selected_run_shows_settings_and_two_show_differences(site, visit):
    page = visit(f"{site}#runs?run={FIRST}")
    details = card(page, "PatchTST-SSL")
    assert "4f2c9d1e77aa, with local changes" in details.inner_text()
    assert f"runs/patchtst_ssl/{FIRST}/model.pt\nlandfall promote {FIRST}" in details.inner_text()
    assert f"artifacts/notebooks/{FIRST}/local_patchtst_ssl.html" in details.inner_text()
    details.get_by_text("The configuration").click()
    assert "training.epochs: 12" in details.inner_text()
    page.get_by_role("checkbox", name=SECOND).check()
    card(page, "PatchTST-SSL: what differs").wait_for()
    difference = data_of(page, "Differences, PatchTST-SSL")
    assert difference == {"Setting": ["config.training.learning_rate"], FIRST: ["0.003"], SECOND: ["0.001"]}
    assert "are the same" in card(page, "Swin-MAE: what differs").inner_text()
    page.reload()
    assert page.get_by_role("checkbox", name=SECOND).is_checked()
    page.get_by_role("link", name="Show their curves together").click()
    page.wait_for_selector("#view[data-view=training]")
    assert page.complaints == []
