"""The views of the page in a real browser: what a person sees of an exported workspace."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from pipelines.dashboard.single_file import write_single_file
from pipelines.export_training_dashboard_state import export_state
from tests.dashboard.browsing import VIEWS, card, chart, data_of, expect, first_cells, saved, settle, show
from tests.dashboard.builders import FIRST, HOSTILE, SCRIPT, SECOND, build_workspace
from tests.dashboard.whole import LONG, SPIKE, SPIKE_AT, build_whole_workspace
from tests.pipelines.more_inputs import RECORDING, write_score_table
from tests.support.waiting import until

pytestmark = pytest.mark.browser


# ----------------------------------------------------------------------------------------------------------- every view
@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_drawn_without_errors_or_external_requests(site, visit, view):
    page = visit(f"{site}#{view}")
    assert page.locator("h1").inner_text() == view.capitalize()
    assert page.locator("nav [aria-current]").inner_text() == view.capitalize()
    assert len(page.locator("main").inner_text()) > 200
    assert page.complaints == []


@pytest.mark.slow
def test_the_header_shows_verdict_time_and_zone(opened):
    show(opened, "overview")
    assert "Not ready" in opened.locator("#verdict").inner_text()
    assert "1 of 8 checks failed" in opened.locator("#verdict").inner_text()
    assert opened.locator("#stamp").inner_text().endswith("UTC · times in UTC")
    assert opened.title() == "Overview · Not ready · Landfall training dashboard"


@pytest.mark.slow
def test_texts_from_files_are_shown_as_texts_everywhere(opened):
    shown = {}
    for address in (*VIEWS, "anomalies?stream=swinmae&event=7", f"runs?run={SECOND}"):
        show(opened, address)
        shown[address] = opened.locator("main").inner_text()
        assert opened.locator("main script, main img").count() == 0
    assert SCRIPT in shown["overview"]
    assert SCRIPT in shown["anomalies"]
    assert HOSTILE in shown["anomalies?stream=swinmae&event=7"]
    assert "owned" not in opened.title()
    assert opened.complaints == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [1440, 390])
def test_numbers_stay_on_one_line_with_their_units(site, visit, width):
    page = visit(f"{site}#overview")
    page.set_viewport_size({"width": width, "height": 900})
    page.locator(".unbroken", has_text="5 % interval").first.wait_for()
    lines = page.locator("main .unbroken").evaluate_all(
        "all => all.map(one => [one.textContent, one.getClientRects().length])"
    )
    assert {"5 % interval", "Swin-MAE", "5 s"} <= {text for text, _ in lines}
    assert {number for _, number in lines} <= {0, 1}  # 0: in a closed part


# ------------------------------------------------------------------------------------------------------------- overview
def test_the_nodes_of_the_pipeline_picture_link_to_their_views(opened):
    show(opened, "overview")
    texts = [text.split("\n") for text in opened.locator(".stages li").all_inner_texts()]
    nodes = [[line for line in text if line] for text in texts]
    assert [node[0] for node in nodes] == ["Data", "Quality", "Train", "Score", "Validate", "Export", "Migration"]
    assert [node[1] for node in nodes][:5] == ["Done", "Attention", "Failed", "Done", "Failed"]
    opened.locator(".stages a", has_text="Score").click()
    opened.wait_for_selector("#view[data-view=anomalies]")


def test_the_card_of_a_stream_shows_run_events_and_data(opened):
    show(opened, "overview")
    text = card(opened, "PatchTST-SSL").inner_text()
    for expected in (
        "Completed",
        "Epoch 12 of 12",
        "0.1548 in epoch 11",
        SECOND,
        "NVIDIA RTX 4000 Ada · bf16-mixed",
    ):
        assert expected in text
    stopped = card(opened, "Swin-MAE").inner_text()
    assert "Failed" in stopped
    assert "landfall train swinmae --resume auto" in stopped
    assert f"of run {FIRST}" in stopped


def test_the_card_of_a_machine_shows_light_worst_event_and_false_alarms(opened):
    show(opened, "overview")
    machine = card(opened, "Process sensors (FDC)")
    machine.locator(".spark svg").wait_for()
    assert machine.locator(".light").inner_text() == "Open events"
    text = machine.inner_text()
    for expected in (
        "7 open events in 14 recordings.",
        "2026-01-09 06:07:25 and lasts 1.5 s",
        "1.88 × the threshold",
        "rf_reflected_W, 71 % of the error",
        "the control charts, 80 % of the score",
        "no such event in the calibration data; at most 3 per day (95 % interval)",
        "0.5 to 9 false events per day (95 % interval); limit: 1",
        "7 events in 14 recordings, from 5,120 scores",
        "6 of 8, by chance 1.5, at most 3 in 95 % of trials",
        "3, 1.5 per hour in 2 h",
        "13 of 14 files kept, 1 dropped, 1 with warnings",
    ):
        assert expected in text
    machine.get_by_role("link", name="2026-01-09 06:07:25").click()
    card(opened, "Event 7").wait_for()


def test_machines_are_above_software_with_failures_first(opened):
    show(opened, "overview")
    titles = opened.locator("main h2").all_inner_texts()
    assert titles[:4] == ["Machines", "Process sensors (FDC)", "Vibration scalograms", "Software"]
    assert titles.index("Software") < titles.index("Validation checklist") < titles.index("PatchTST-SSL")


@pytest.mark.slow
@pytest.mark.parametrize(
    "light, detail",
    [("drift", "most scores have grown"), ("stale", "an older model"), ("no event", "nothing"), ("no model", "train")],
)
def test_every_light_has_a_word_and_a_reason(bare, visit, light, detail):
    page_folder, url = bare
    build_workspace(page_folder.parent)
    export_state(page_folder.parent)
    state = json.loads((page_folder / "data/dashboard-state.json").read_text("utf-8"))
    state["streams"]["patchtst"]["light"] = {
        "state": light,
        "detail": f"{detail}: run `landfall score`.",
        "warnings": ["AUROC 0.52, chance is 0.5"],
    }
    (page_folder / "data/dashboard-state.json").write_text(json.dumps(state), "utf-8")
    machine = card(visit(url), "Process sensors (FDC)")
    assert machine.locator(".light").inner_text() == light.capitalize()
    assert f"{detail}: run landfall score." in machine.inner_text()
    assert machine.locator(".reason code").inner_text() == "landfall score"
    assert "AUROC 0.52" in machine.locator(".warning").inner_text()


def test_the_checklist_opens_at_failures_with_hints(opened):
    show(opened, "overview")
    groups = card(opened, "Validation checklist").locator("details")
    assert groups.locator("summary").all_inner_texts() == [
        "Outputs of the run: 1 failed, 1 passed",
        "Code, notebooks and configurations: 1 warned, 1 passed, 1 skipped",
        "Environment: 3 passed",
    ]
    assert [group.get_attribute("open") for group in groups.all()] == ["", "", None]
    text = groups.first.inner_text()
    assert text.index("the run ended in epoch 5 of 12") < text.index("PatchTST loss falls")
    assert "What to do: train again with training.learning_rate=0.0003" in text


# ------------------------------------------------------------------------------------------------------------- training
def test_the_loss_has_every_epoch_of_training_and_validation_and_marks_the_best(opened):
    show(opened, "training")
    loss = data_of(opened, "Loss, PatchTST-SSL")
    label = "loss (squared error, scaled)"
    assert list(loss) == ["epoch", f"training, {label}", f"validation, {label}"]
    assert loss["epoch"] == [str(epoch) for epoch in range(1, 13)]
    assert float(loss[f"validation, {label}"][10]) == pytest.approx(0.1548, abs=1e-4)
    expect(chart(opened, "Loss, PatchTST-SSL").locator(".marks")).to_contain_text("best: epoch 11")
    titles = opened.locator("section.card").first.locator(".charts h3").all_inner_texts()
    assert [title.partition(",")[0] for title in titles] == [
        "Loss", "Learning rate", "Gradient norm", "Throughput", "Memory", "GPU utilisation",
    ]  # fmt: skip


def test_gpu_utilisation_is_a_percentage_up_to_100(opened):
    show(opened, "training")
    used = data_of(opened, "GPU utilisation, PatchTST-SSL")
    assert set(used["GPU utilisation, % of the time"]) == {"87"}
    assert ticks_of(opened, "GPU utilisation, PatchTST-SSL", "end")[-1] == "100"


def test_the_marks_of_the_first_and_the_last_epoch_are_inside_the_plot(opened):
    show(opened, "training")
    plot = chart(opened, "Loss, Swin-MAE")
    plot.scroll_into_view_if_needed()
    expect(plot.locator(".marks")).to_contain_text("best: epoch 5")
    mark, area = (plot.locator(what).bounding_box() for what in (".marks path", ".u-over"))
    assert area["x"] < mark["x"]
    assert mark["x"] + mark["width"] < area["x"] + area["width"]


def test_the_table_of_epochs_opens_below_the_charts(opened):
    show(opened, f"training?run={SECOND}")
    part = card(opened, "PatchTST-SSL")
    part.get_by_text("Figures of every epoch").click()
    row = part.locator(f"#epochs-patchtst-{SECOND} tbody tr").nth(10).inner_text().split()
    assert row[:3] == ["11", "0.1156", "0.1548"]
    figures = data_of(opened, f"Epochs of PatchTST-SSL, {SECOND}")
    assert list(figures) == ["Epoch", "Training loss", "Validation loss", "Skill", "Learning rate", "Time", "Windows/s"]
    assert figures["Epoch"] == [str(epoch) for epoch in range(1, 13)]


def test_steps_replace_epochs_and_smoothing_keeps_the_raw_curve(opened):
    show(opened, "training?x=step")
    raw = data_of(opened, "Loss, PatchTST-SSL")
    label = "loss (squared error, scaled)"
    assert raw["step"][:3] == ["1", "6", "11"]
    opened.locator("#smoothing").fill("0.9")
    smooth = data_of(opened, "Loss, PatchTST-SSL")
    assert smooth[f"training, raw, {label}"] == raw[f"training, {label}"]
    first = [float(value) for value in smooth[f"training, {label}"] if value][:2]
    assert first[0] == pytest.approx(float(raw[f"training, {label}"][0]))
    assert first[1] != pytest.approx(float(raw[f"training, {label}"][1]))
    opened.wait_for_url(lambda url: "smoothing=0.9" in url)


def test_a_key_makes_the_loss_axis_logarithmic(opened):
    show(opened, "training")
    before = chart(opened, "Loss, PatchTST-SSL").screenshot()
    opened.locator("#scale-linear").focus()
    opened.keyboard.press("ArrowRight")
    opened.wait_for_url(lambda url: "scale=log" in url)
    assert opened.locator("#scale-log").evaluate("input => input === document.activeElement")
    until(lambda: chart(opened, "Loss, PatchTST-SSL").screenshot() != before)


def test_several_runs_are_overlaid_under_one_address(opened):
    show(opened, f"training?run={FIRST}")
    opened.locator("#run-choice").select_option(SECOND)
    opened.get_by_role("link", name=f"Leave out {SECOND}").first.wait_for()
    opened.wait_for_url(lambda url: url.endswith(f"#training?run={FIRST}&run={SECOND}"))
    loss = data_of(opened, "Loss, PatchTST-SSL")
    assert [name.split(",")[0] for name in loss] == [
        "epoch", f"{FIRST} training", f"{FIRST} validation", f"{SECOND} training", f"{SECOND} validation",
    ]  # fmt: skip
    assert sum(value != "" for value in loss[list(loss)[1]]) == 4
    opened.get_by_role("link", name=f"Leave out {FIRST}").first.click()
    opened.wait_for_url(lambda url: url.endswith(f"#training?run={SECOND}"))


@pytest.mark.slow
def test_an_address_of_an_unknown_run_is_reported(site, visit):
    for run in ("20991231-000000-0000", "%3Cscript%3E", "%25", "../../dashboard-state"):
        page = visit(f"{site}#training?run={run}")
        assert "json does not exist" in page.locator("main").inner_text()
        assert page.complaints == []


# ----------------------------------------------------------------------------------------------------------------- runs
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


# ----------------------------------------------------------------------------------------------------------------- data
def test_the_data_view_shows_decisions_findings_and_maps(opened):
    show(opened, "data")
    part = card(opened, "PatchTST-SSL")
    assert first_cells(opened, "files-patchtst")[:3] == ["lot_broken.csv", "lot_stuck.csv", "lot_00.parquet"]
    row = part.locator("tr", has_text="lot_broken.csv")
    assert "Drop" in row.inner_text()
    row.get_by_text("62 % of the values").first.click()
    assert row.locator(".findings li").count() == 1
    missing = data_of(opened, "Share of missing values, PatchTST-SSL")
    assert missing["lot_broken.csv"] == ["0.62", "0"]
    part.get_by_text("repeated values").click()
    repeated = data_of(opened, "Share of repeated values, PatchTST-SSL")
    assert repeated["lot_stuck.csv"] == ["0.1", "0.71"]
    assert next(iter(repeated.values())) == [HOSTILE, "chamber_pressure"]


# ------------------------------------------------------------------------------------------------------------ anomalies
def test_the_anomalies_view_shows_statement_figures_and_threshold(opened):
    show(opened, "anomalies")
    text = opened.locator("main").inner_text().lower()
    for expected in (
        "one in 100 scores of normal operation is meant to be a false alarm; it was one in 90.",
        "0.941",
        "chance 0.047",
        "6 of 8",
        "by chance 1.5, at most 3 in 95 % of trials",
        "1.5 per hour in 2 h",
        "at most scoring.event_gap + 1 scores before it",
        "5,120 scores in 14 recordings",
        "93 alarms in 7 events",
        "0.8317",
        "quantile, from 2,140 normal scores, 1 % false alarms",
    ):
        assert expected in text
    show(opened, "anomalies?stream=swinmae")
    assert "No labels" in opened.locator("main").inner_text()


@pytest.mark.slow
def test_the_timeline_shows_extremes_and_every_score_when_zoomed(opened):
    show(opened, "anomalies")
    title = "Anomaly score, data/07.csv"
    coarse = data_of(opened, title)
    assert len(coarse["highest, score"]) <= 2000
    assert max(map(float, coarse["highest, score"])) == pytest.approx(1.7)
    plot = chart(opened, title).locator(".u-over")
    box = plot.bounding_box()

    def zoom():
        opened.mouse.move(box["x"] + 1, box["y"] + 50)
        opened.mouse.down()
        opened.mouse.move(box["x"] + box["width"] / 5, box["y"] + 50, steps=4)
        opened.mouse.up()

    with opened.expect_response(re.compile(r"series/patchtst/\d+\.json")) as requested:
        zoom()
    requested.value.finished()
    fine = until(lambda: (found := data_of(opened, title)).get("every score, score") and found)
    every = [value for value in fine["every score, score"] if value]
    assert len(every) == 50_000 < LONG
    assert every[SPIKE_AT] == str(SPIKE)
    assert [value for value in fine["highest, score"] if value] == coarse["highest, score"]
    plot.dblclick()
    until(lambda: data_of(opened, title) == coarse)
    zoom()
    until(lambda: data_of(opened, title) != coarse)
    chart(opened, title).press("Escape")
    until(lambda: data_of(opened, title) == coarse)


def test_stream_and_recording_are_chosen(opened):
    show(opened, "anomalies")
    opened.locator("#recording").select_option("data/05.csv")
    chart(opened, "Anomaly score, data/05.csv").wait_for()
    opened.locator("#stream").select_option("swinmae")
    card(opened, "Swin-MAE").wait_for()
    assert opened.url.endswith("#anomalies?stream=swinmae")


def test_the_pointer_shows_the_values_of_a_time_in_all_charts_of_an_event(opened):
    show(opened, "anomalies?stream=patchtst&event=7")
    score, signal = chart(opened, "Score"), chart(opened, HOSTILE)
    for figure in (signal, score):
        figure.scroll_into_view_if_needed()
        figure.locator(".u-over").wait_for()
    score.locator(".u-over").hover()
    for figure in (score, signal):
        expect(figure.locator(".u-legend .u-value").first).to_contain_text("2026-01-09 06:07")
        expect(figure.locator(".u-legend .u-value").nth(1)).not_to_have_text("–")


def test_a_click_in_the_legend_hides_a_curve(opened):
    show(opened, "anomalies?stream=patchtst&event=7")
    figure = chart(opened, HOSTILE)
    figure.scroll_into_view_if_needed()
    before, entry = saved(opened, f"{HOSTILE} as SVG"), figure.locator(".u-legend .u-series th").nth(1)
    entry.click()
    assert saved(opened, f"{HOSTILE} as SVG").count(b"<path") == before.count(b"<path") - 1
    entry.click()
    assert saved(opened, f"{HOSTILE} as SVG").count(b"<path") == before.count(b"<path")


def test_charts_follow_the_colour_scheme(opened):
    show(opened, "training")
    figure = opened.locator("figure").first
    light = figure.screenshot()
    opened.emulate_media(color_scheme="dark")
    until(lambda: figure.screenshot() != light)
    opened.emulate_media(color_scheme="light")
    until(lambda: figure.screenshot() == light)


def test_an_event_opens_from_the_list_with_its_signals(opened):
    show(opened, "anomalies")
    assert first_cells(opened, "events")[0] == "2026-01-09 06:07:25\ndata/07.csv"
    assert "1.88 ×" in opened.locator("#events tbody tr").first.inner_text()
    assert data_of(opened, "Events")["Signals"] == ["recorded"] * 3 + ["not recorded"] * 4
    link = opened.locator("#events tbody a").first
    link.focus()
    opened.keyboard.press("Enter")
    event = card(opened, "Event 7")
    event.wait_for()
    assert "1.5 s in minute 7: peak 1.88 × threshold." in event.inner_text()
    assert "rf_reflected_W\n71 %" in event.inner_text()
    signal = data_of(opened, HOSTILE)
    assert [name.split(",")[0] for name in signal] == [
        "recording's own clock", "measured", "expected by the control charts",
    ]  # fmt: skip
    # The event begins at 06:07:25 of the recording's clock, which is its second 445.
    score = data_of(opened, "Score")
    assert score["recording's own clock"][:2] == ["2026-01-09 06:07:00", "2026-01-09 06:07:00.250"]
    for title in ("Score", HOSTILE):
        chart(opened, title).scroll_into_view_if_needed()
        for mark in ("onset", "end"):
            expect(chart(opened, title).locator(".marks text", has_text=re.compile(f"^{mark}$"))).to_have_count(1)
    assert "the control charts, 80 % of the score" in event.inner_text()
    opened.go_back()
    event.wait_for(state="detached")


def test_events_are_filtered_by_severity_channel_and_state(opened):
    show(opened, "anomalies?stream=patchtst&severity=5")
    assert first_cells(opened, "events") == []
    opened.locator("#severity").select_option("1")
    assert len(first_cells(opened, "events")) == 7
    opened.locator("#channel").focus()
    opened.locator("#channel").select_option("chamber_pressure")
    assert [cell.split()[0:2] for cell in first_cells(opened, "events")] == [
        ["2026-01-09", "06:02:25"], ["2026-01-09", "06:01:25"],
    ]  # fmt: skip
    # Choosing neither moves the page nor takes the focus.
    assert opened.evaluate("document.activeElement.id") == "channel"
    assert opened.evaluate("scrollY") > 0
    opened.wait_for_url(lambda url: url.endswith("#anomalies?stream=patchtst&severity=1&channel=chamber_pressure"))
    opened.locator("#state").select_option("open")
    assert len(first_cells(opened, "events")) == 2
    opened.locator("#channel").select_option("")
    opened.wait_for_url(lambda url: url.endswith("#anomalies?stream=patchtst&severity=1&state=open"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scores", "ticks"),
    [
        ([0.3, 1.8], ["0.5", "1", "2"]),
        ([0.02, 300], ["0.1", "1", "10", "100"]),
        ([3.1, 3.4], ["2.6", "2.8", "3", "3.2", "3.4", "3.6", "3.8", "4"]),
        ([1e-4, 1e9], ["0.0001", "0.01", "1", "100", "10,000", "1,000,000", "1e+8"]),
    ],
)
def test_ticks_of_a_logarithmic_axis_are_round(bare, visit, scores, ticks):
    page_folder, url = bare
    build_whole_workspace(page_folder.parent)
    write_score_table(page_folder.parent, "patchtst", {RECORDING: np.tile(scores, 50)})
    export_state(page_folder.parent)
    page = visit(f"{url}#anomalies?stream=patchtst")
    settle(page)
    assert ticks_of(page, f"Anomaly score, {RECORDING}", "end")[: len(ticks)] == ticks


def ticks_of(page, title, anchor):
    """The texts of a chart with this anchor: those of the vertical axis end there, those of the horizontal one have
    their middle there."""
    picture = ElementTree.fromstring(saved(page, f"{title} as SVG"))
    return [node.text for node in picture.iter("{http://www.w3.org/2000/svg}text") if node.get("text-anchor") == anchor]


def test_an_axis_of_several_days_has_dates_at_midnight(opened):
    show(opened, "anomalies")
    ticks = ticks_of(opened, "Anomaly score, data/07.csv", "middle")
    assert "2026-01-10" in ticks
    assert {len(tick) for tick in ticks if ":" in tick} == {len("06:00:00")}


def test_ticks_are_multiples_of_1_2_or_5_and_have_separators(opened):
    show(opened, "anomalies?stream=swinmae&event=7")
    assert ticks_of(opened, "Score", "middle")[:-2] == [str(second) for second in range(420, 471, 5)]
    show(opened, "anomalies?stream=swinmae")
    assert "20,000" in ticks_of(opened, "Anomaly score, data/07.csv", "middle")


def test_another_threshold_can_be_tried(opened):
    show(opened, "anomalies")
    slider, answer = opened.locator("#what-if"), opened.locator("output[for=what-if]")
    assert "Threshold 0.8317 (in use): 7 events" in answer.inner_text()
    slider.press("ArrowRight")
    assert re.match(
        r"Threshold 1\.2 \(1\.44 × .*: 4 events .* no event in the calibration data; .* 3 per day", answer.inner_text()
    )
    marks = chart(opened, "Anomaly score, data/07.csv").locator(".marks text")
    expect(marks).to_have_text(["threshold", "what if"])
    slider.press("ArrowLeft")
    expect(marks).to_have_text(["threshold"])


def test_an_event_opens_from_the_timeline(opened):
    show(opened, "anomalies?stream=patchtst&recording=data/05.csv")
    chart(opened, "Anomaly score, data/05.csv").locator(".hot").click(force=True)
    card(opened, "Event 5").wait_for()


def test_a_vibration_event_has_scalograms(opened):
    show(opened, "anomalies?stream=swinmae&event=7")
    for what, corner in (("measured", "-31"), ("expected by the model", "-34"), ("measured minus expected", "3")):
        rows = data_of(opened, f"x, {what}")
        assert rows["frequency (Hz) \\ time (s)"][0] == "10"
        assert list(rows.values())[-1][0] == corner
    assert [name.split(",")[0] for name in data_of(opened, HOSTILE)] == ["time (s)", "measured"]
    assert "They compare statistics of the vibration and predict no scalogram" in card(opened, "Event 7").inner_text()


def test_a_vibration_event_has_an_envelope_spectrum_with_the_lines_of_its_bearing(opened):
    show(opened, "anomalies?stream=swinmae&event=7")
    title = "x, carrier 2000 to 2400 Hz"
    rows = data_of(opened, title)
    event = [float(value) for value in rows["event, amplitude / mean power"]]
    assert float(rows["modulation frequency (Hz)"][event.index(max(event))]) == 107.0
    assert set(rows["normal neighbours, amplitude / mean power"]) == {"0.05"}
    # What is beyond the axis is not drawn.
    expect(chart(opened, title).locator(".marks text")).to_have_text(["cage 12 Hz", "outer race 107.5 Hz"])
    assert "With the geometry of the bearing" not in card(opened, "Event 7").inner_text()
    # The window with the highest score is marked within its surroundings.
    chart(opened, HOSTILE).scroll_into_view_if_needed()
    titles = chart(opened, HOSTILE).locator(".marks rect title")
    expect(titles).to_have_text(["event", "window with the highest score"])


# ------------------------------------------------------------------------------------------------- device and migration
def test_the_device_view_shows_decisions_with_reasons_and_memory(opened):
    show(opened, "device")
    assert "update its driver" in card(opened, "This machine").inner_text()
    text = card(opened, "PatchTST-SSL").inner_text()
    for expected in (
        "first CUDA device that passed a matrix product",
        "global batch size 64, micro-batch 32 × 2",
        "15,360 MiB",
    ):
        assert expected in text
    assert "measured peak is 80 %" in text


def test_the_migration_view_shows_findings_and_manual_steps(opened):
    show(opened, "migration")
    assert "cell 3, line 2: a key → revoke it" in card(opened, "Manual changes").inner_text()
    assert data_of(opened, "Findings by rule")["Findings"] == ["4", "1"]
    assert "local_plant.ipynb" in card(opened, "Notebooks").inner_text()


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


@pytest.mark.slow
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
