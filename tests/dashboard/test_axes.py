"""Axes and colours of the charts in a real browser."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines.export_training_dashboard_state import export_state
from tests.dashboard.browsing import chart, data_of, expect, settle, show, ticks_of
from tests.dashboard.whole import build_whole_workspace
from tests.pipelines.more_inputs import RECORDING, write_score_table
from tests.support.waiting import until

pytestmark = pytest.mark.browser


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


def test_charts_follow_the_colour_scheme(opened):
    show(opened, "training")
    figure = opened.locator("figure").first
    light = figure.screenshot()
    opened.emulate_media(color_scheme="dark")
    until(lambda: figure.screenshot() != light)
    opened.emulate_media(color_scheme="light")
    until(lambda: figure.screenshot() == light)


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
