"""The view of training in a real browser: curves, epochs and several runs."""

from __future__ import annotations

import pytest

from tests.dashboard.browsing import card, chart, data_of, expect, show
from tests.dashboard.builders import FIRST, SECOND
from tests.support.waiting import until

pytestmark = pytest.mark.browser


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
