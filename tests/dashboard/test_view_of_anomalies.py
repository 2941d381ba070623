"""The view of the anomalies in a real browser: scores over time and another threshold."""

from __future__ import annotations

import re

import pytest

from tests.dashboard.browsing import card, chart, data_of, expect, show
from tests.dashboard.whole import LONG, SPIKE, SPIKE_AT
from tests.support.waiting import until

pytestmark = pytest.mark.browser


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
        "from 2,140 normal scores; limit: 1 % false alarms",
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
