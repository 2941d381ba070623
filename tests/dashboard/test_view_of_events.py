"""The events of the view of the anomalies in a real browser: list, signals and spectra."""

from __future__ import annotations

import re

import pytest

from tests.dashboard.browsing import card, chart, data_of, expect, first_cells, saved, show
from tests.dashboard.builders import HOSTILE

pytestmark = pytest.mark.browser


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
