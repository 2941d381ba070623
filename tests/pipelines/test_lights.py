"""The light of a stream: one of six states, and the reasons to distrust the scores."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from inference.false_alarms import FalseAlarms
from inference.summary import ScoreSummary, Threshold
from pipelines.dashboard.state_documents import Checkpoint
from pipelines.dashboard.verdict import light_of

SINCE = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
MODEL = Checkpoint(path="checkpoints/patchtst_ssl.pt", present=True, run_id="new", since=SINCE)


def threshold(**facts) -> Threshold:
    expected = FalseAlarms(rate=0.02, low=0.01, high=0.03, scores=100, bursts=2)
    common = {"value": 1.0, "false_alarm_rate": 0.02, "false_events_per_day": None}
    return Threshold(**common, calibration_scores=100, calibration_days=None, expected=expected, **facts)


def scores(**facts) -> ScoreSummary:
    return ScoreSummary(**{"run_id": "new", "scores": 100, "recordings": 2, "events": 3, **facts})


@pytest.mark.parametrize(
    "checkpoint, found, open_events, state",
    [
        (None, None, 0, "no model"),
        (MODEL, None, 0, "no scores"),
        (MODEL, scores(run_id="old"), 3, "stale"),
        (MODEL, scores(run_id=None, scored_at=SINCE - timedelta(hours=1)), 3, "stale"),
        # Control charts scored after the training, as requested.
        (MODEL, scores(run_id=None, scored_at=SINCE + timedelta(hours=1)), 3, "open events"),
        (MODEL, scores(threshold=threshold(departure="most scores have grown")), 3, "drift"),
        (MODEL, scores(), 3, "open events"),
        (MODEL, scores(), 0, "no event"),
        (MODEL, scores(events=0), 0, "no event"),
        # Scores may outlive the model that made them.
        (None, scores(), 3, "open events"),
    ],
)
def test_the_most_urgent_state_decides(checkpoint, found, open_events, state):
    assert light_of(checkpoint, found, open_events).state == state


@pytest.mark.parametrize("auroc, warned", [(0.52, True), (0.59, True), (0.61, False), (None, False)])
def test_scores_near_chance_are_a_warning(auroc, warned):
    (found,) = [light_of(MODEL, scores(detection={"auroc": auroc}), 0).warnings]
    assert bool(found) == warned
    assert not warned or f"{auroc:.2f}" in found[0]


@pytest.mark.parametrize("low, warned", [(0.03, True), (0.01, False)])
def test_more_false_alarms_than_stated_are_a_warning(low, warned):
    achieved = FalseAlarms(rate=0.05, low=low, high=0.1, scores=50, bursts=1)
    assert bool(light_of(MODEL, scores(threshold=threshold(achieved=achieved)), 0).warnings) == warned


def test_drift_does_not_hide_open_events():
    found = light_of(MODEL, scores(threshold=threshold(departure="Most scores have grown")), 2)
    assert found.detail == "2 open events in 2 recordings. Most scores have grown."
