"""The overview in a real browser: pipeline, machines and checklist."""

from __future__ import annotations

import json

import pytest

from pipelines.export_training_dashboard_state import export_state
from tests.dashboard.browsing import card, show
from tests.dashboard.builders import FIRST, SECOND, build_workspace

pytestmark = pytest.mark.browser


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
