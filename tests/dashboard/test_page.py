"""The dashboard page in a real browser: what a person sees of an exported workspace."""

from __future__ import annotations

import pytest

from tests.dashboard.browsing import anomalies, card, curves, event_order, run_order, wait_for_charts
from tests.dashboard.builders import FIRST, SCRIPT, SECOND

pytestmark = pytest.mark.browser


# ------------------------------------------------------------------------------------------------------------- contents
def test_the_page_is_quiet_and_stays_on_this_machine(site, visit):
    page = visit(site)
    page.locator("#anomalies img").first.scroll_into_view_if_needed()
    page.get_by_text("logarithmic").click()
    page.locator("#runs tbody tr").last.click()
    wait_for_charts(page)
    assert page.complaints == []


def test_the_masthead_gives_the_verdict_and_the_time_of_export(opened):
    assert opened.locator("h1").inner_text() == "Not ready"
    assert "1 of 7 checks failed" in opened.locator("#verdict").inner_text()
    assert opened.locator(".stamp").inner_text().startswith("Exported ")
    assert opened.title() == "Not ready · Landfall training dashboard"


def test_the_pipeline_shows_six_stages_with_words(opened):
    stages = opened.locator("#pipeline li")
    texts = [text.split("\n") for text in stages.all_inner_texts()]
    assert [text[0] for text in texts] == ["Data", "Quality", "Train", "Score", "Validate", "Export"]
    assert [next(filter(None, text[1:])) for text in texts] == ["Done", "Attention", "Failed", "Done", "Failed", "Done"]


def test_the_card_of_a_stream_gives_its_figures_hardware_and_data_quality(opened):
    text = card(opened, "patchtst").inner_text()
    for expected in (
        "Completed",
        "Epoch 12 of 12",
        "0.1548 in epoch 11",
        "NVIDIA RTX 4000 Ada · bf16-mixed",
        "first CUDA device that passed a matrix product; bf16 is native",
        "13 of 14 files kept, 1 dropped, 1 with warnings",
        "62 % of the values are missing, at most 50 % may be",
    ):
        assert expected in text


def test_text_from_files_is_shown_as_text(opened):
    assert SCRIPT in card(opened, "swinmae").inner_text()
    assert SCRIPT in anomalies(opened, "swinmae").inner_text()
    assert opened.locator("#views script, #views img[src=x]").count() == 0
    assert "owned" not in opened.title()


def test_the_checklist_is_grouped_with_words_and_the_way_out(opened):
    assert opened.locator("#checklist caption b").all_inner_texts() == [
        "V-01 Environment",
        "V-02 Static quality",
        "V-03 Runtime",
    ]
    assert opened.locator("#checklist caption").nth(2).inner_text() == "V-03 Runtime 1 passed, 1 failed"
    failed = opened.locator("#checklist tr[data-status=FAIL]")
    assert failed.count() == 1
    text = failed.inner_text()
    assert "FAIL" in text
    assert "the run ended in epoch 5 of 12" in text
    assert "training.learning_rate=0.0003" in text


# ------------------------------------------------------------------------------------------------------------ anomalies
def test_the_anomalies_of_a_stream_give_statement_figures_and_threshold(opened):
    text = anomalies(opened, "patchtst").inner_text()
    for expected in (
        "One in 100 scores of normal operation is meant to be a false alarm; it was one in 90.",
        "0.941",
        "chance 0.047",
        "5,120 scores in 14 recordings",
        "93 alarms in 7 events",
        "0.8317",
        "quantile, from 2,140 normal scores, 1 % false alarms intended",
    ):
        assert expected in text
    assert "Event recall" not in text  # not among this scoring's figures
    assert "No labels, so no detection figures" in anomalies(opened, "swinmae").inner_text()


def test_the_picture_of_the_scores_is_shown_and_described(opened):
    picture = anomalies(opened, "patchtst").locator("img")
    picture.scroll_into_view_if_needed()
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") == 640
    assert "7 events found" in picture.get_attribute("alt")


def test_events_are_worst_first_and_sort_by_time(site, visit):
    page = visit(site, charts=False)
    part = anomalies(page, "patchtst")
    first = part.locator("tbody tr").first
    assert [cell.strip() for cell in first.inner_text().split("\t")] == [
        "2026-01-09 06:07:25\ndata/07.csv, with picture", "1.9 ×", "1.5 s", "rf_reflected_W 71 %, esc_current_uA 7 %"
    ]  # fmt: skip
    assert event_order(part) == [7, 6, 5, 4, 3, 2, 1]
    part.get_by_role("button", name="Begins").click()
    assert event_order(part) == [1, 2, 3, 4, 5, 6, 7]
    assert part.locator("th[data-column=start]").get_attribute("aria-sort") == "ascending"
    assert first.locator("td").nth(1).inner_text() == "a moment"
    assert anomalies(page, "swinmae").locator("tbody button").first.inner_text() == "second 445"


def test_an_event_opens_by_key_and_by_click_and_gives_the_focus_back(site, visit):
    page = visit(site, charts=False)
    part, dialog = anomalies(page, "patchtst"), page.get_by_role("dialog", name="PatchTST-SSL, event 7")
    button = part.locator("tbody button").first
    button.focus()
    page.keyboard.press("Enter")
    dialog.wait_for()
    assert "1.5 s in minute 7: up to 1.9 times the threshold." in dialog.inner_text()
    picture = dialog.locator("img")
    assert picture.evaluate("image => image.decode().then(() => image.naturalHeight)") == 240
    assert "event 7" in picture.get_attribute("alt")
    page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    assert button.evaluate("button => button === document.activeElement")
    part.locator("tr[data-event='4'] td").last.click()
    other = page.get_by_role("dialog", name="PatchTST-SSL, event 4")
    assert "have a picture" in other.inner_text()
    assert other.locator("img").count() == 0
    other.get_by_role("button", name="Close").click()
    other.wait_for(state="hidden")
    assert page.complaints == []


# ------------------------------------------------------------------------------------------------------ runs and curves
def test_the_curves_hold_every_epoch_and_mark_the_best(opened):
    expected = {"each step": 120, "training": 12, "validation": 12, "best: epoch 11": 1}
    assert curves(opened, "patchtst") == expected
    assert curves(opened, "swinmae") == {"each step": 50, "training": 5, "validation": 5, "best: epoch 5": 1}
    drawn = opened.locator("#loss [data-stream=patchtst] .scatterlayer path.point")
    assert drawn.count() == 12 + 12 + 1
    assert "best validation loss 0.1548 in epoch 11" in opened.locator("#loss [role=img]").first.get_attribute(
        "aria-label"
    )


def test_the_axis_turns_logarithmic(site, visit):
    page = visit(site)
    axis = "document.querySelector('.chart').layout.yaxis.type"
    assert page.evaluate(axis) == "linear"
    page.get_by_label("logarithmic").focus()
    page.keyboard.press("Space")
    wait_for_charts(page)
    assert page.evaluate(axis) == "log"


def test_runs_are_newest_first_and_sort_by_any_column(site, visit):
    page = visit(site, charts=False)
    assert run_order(page) == [SECOND, FIRST]
    head = page.locator("#runs th[data-column=best-swinmae]")
    head.get_by_role("button").click()
    assert run_order(page) == [FIRST, SECOND]
    assert head.get_attribute("aria-sort") == "ascending"
    head.get_by_role("button").press("Enter")
    assert run_order(page) == [SECOND, FIRST]
    assert "Stopped (no longer running)" in page.locator(f"#runs tr[data-run='{FIRST}']").inner_text()


def test_a_click_selects_a_run_and_makes_it_the_address(site, visit):
    page = visit(site)
    page.locator(f"#runs tr[data-run='{FIRST}']").click()
    shown = page.locator("#loss [data-stream=swinmae] .badge")
    shown.filter(has_text="Completed").wait_for()
    wait_for_charts(page)
    assert page.url.endswith(f"#run={FIRST}")
    assert curves(page, "patchtst")["training"] == 4
    assert page.locator("#runs tr[aria-current=true]").get_attribute("data-run") == FIRST
    assert page.locator("#run-choice").input_value() == FIRST
    assert FIRST in page.locator("#run-details").inner_text()
    page.go_back()
    shown.filter(has_text="Failed").wait_for()


def test_an_address_opens_its_run(site, visit):
    page = visit(f"{site}#run={FIRST}")
    assert curves(page, "swinmae")["training"] == 12
    details = page.locator("#run-details article").first
    details.get_by_text("Configuration").click()
    assert "training:\n  epochs: 12" in details.inner_text()
    assert "4f2c9d1e77aa, with local changes" in details.inner_text()


def test_an_address_of_an_unknown_run_says_so_and_shows_the_newest(site, visit):
    page = visit(f"{site}#run=20991231-000000-0000", charts=False)
    note = page.locator("#loss [role=status]")
    assert "There is no run 20991231-000000-0000" in note.inner_text()
    for hash, shown in (("%3Cscript%3E", "<script>"), ("%", "%"), ("../../dashboard-state", "../../dashboard-state")):
        page.evaluate("hash => { location.hash = hash; }", f"#run={hash}")
        note.filter(has_text=f"There is no run {shown} in").wait_for()
    assert f"Run {SECOND}" in page.locator("#loss [data-stream=patchtst]").inner_text()
    assert page.complaints == []


# ------------------------------------------------------------------------------------------------------ reading it well
CONTRAST = """() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const paint = (colours) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (rgb) => rgb.map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const poor = [];
  for (const node of document.querySelectorAll('body *:not(svg *)')) {
    const hasText = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!hasText || node.closest('.chart') || !node.checkVisibility()) continue;
    const under = [];
    for (let up = node; up; up = up.parentElement) under.unshift(getComputedStyle(up).backgroundColor);
    const [a, b] = [light(paint(under)), light(paint([...under, getComputedStyle(node).color]))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push(`${ratio.toFixed(2)} ${node.tagName}.${node.className} ${node.textContent}`);
  }
  return poor;
}"""


def test_all_text_has_enough_contrast_in_both_schemes(site, visit):
    page = visit(site)
    page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    page.locator("#anomalies tbody button").first.click()
    assert page.evaluate(CONTRAST) == []
    page.emulate_media(color_scheme="dark")
    wait_for_charts(page)
    page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    assert page.evaluate(CONTRAST) == []


def test_nothing_is_wider_than_the_window(site, visit):
    page = visit(site)
    for width in (1280, 768, 360):
        page.set_viewport_size({"width": width, "height": 900})
        # Charts follow the window with a delay.
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.locator("#anomalies tbody button").first.click()
        box = page.get_by_role("dialog").bounding_box()
        assert 0 <= box["x"] <= box["x"] + box["width"] <= width
        page.keyboard.press("Escape")


def test_every_control_has_a_name_and_no_id_is_used_twice(opened):
    ids = opened.evaluate("[...document.querySelectorAll('[id]')].map((node) => node.id)")
    assert len(ids) == len(set(ids))
    unnamed = opened.evaluate(
        "[...document.querySelectorAll('button, a, select, input')].filter((node) =>"
        " !node.textContent.trim() && !node.labels?.length && !node.querySelector('img[alt]')).length"
    )
    assert unnamed == 0
