"""The light of a stream: one of six states, and the reasons to distrust the scores."""

from __future__ import annotations

import pytest

from pipelines.dashboard.lights import light_of
from pipelines.dashboard.state_documents import Checkpoint, Detection, FalseAlarms, ScoreSummary, Threshold

MODEL = Checkpoint(path="checkpoints/patchtst_ssl.pt", present=True, run_id="new")


def scores(**facts) -> ScoreSummary:
    return ScoreSummary(**{"run_id": "new", "scores": 100, "recordings": 2, "events": 3, **facts})


@pytest.mark.parametrize(
    "checkpoint, found, open_events, state",
    [
        (None, None, None, "no model"),
        (MODEL, None, None, "no scores"),
        (MODEL, scores(run_id="old"), None, "stale"),
        (MODEL, scores(threshold=Threshold(departure="most scores have grown")), None, "drift"),
        (MODEL, scores(), None, "open events"),
        (MODEL, scores(), 0, "no event"),
        (MODEL, scores(events=0), None, "no event"),
        # Scores may outlive the model that made them.
        (None, scores(), None, "open events"),
    ],
)
def test_the_most_urgent_state_decides(checkpoint, found, open_events, state):
    assert light_of(checkpoint, found, open_events).state == state


@pytest.mark.parametrize("auroc, warned", [(0.52, True), (0.59, True), (0.61, False), (None, False)])
def test_scores_near_chance_are_a_warning(auroc, warned):
    (found,) = [light_of(MODEL, scores(detection=Detection(auroc=auroc))).warnings]
    assert bool(found) == warned
    assert not warned or f"{auroc:.2f}" in found[0]


@pytest.mark.parametrize("low, warned", [(0.03, True), (0.01, False)])
def test_a_broken_promise_of_false_alarms_is_a_warning(low, warned):
    threshold = Threshold(false_alarm_rate=0.02, achieved=FalseAlarms(rate=0.05, low=low, high=0.1))
    assert bool(light_of(MODEL, scores(threshold=threshold)).warnings) == warned


def test_a_stream_that_is_not_in_use_says_why():
    light = light_of(MODEL, scores(), why_off="no data: data/vib has no files")
    assert light.state == "not in use"
    assert "data/vib" in light.detail
    assert not light.warnings
