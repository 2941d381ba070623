"""Events at other thresholds: counts against the events that scoring itself would find."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from core.config.schema import Scoring
from inference.events.finding import event_lines
from inference.events.what_if import what_if
from inference.false_alarms import CalibrationSample

SETTINGS = Scoring(event_gap=1, event_min_length=1)


def table_of(score_n: np.ndarray, threshold: float) -> pd.DataFrame:
    lines = len(score_n)
    return pd.DataFrame(
        {"score": score_n, "threshold": threshold, "segment": np.zeros(lines, int), "seconds": np.arange(lines) * 60.0}
    )


def test_counts_equal_those_of_scoring_at_each_threshold():
    rng = np.random.default_rng(0)
    sample = CalibrationSample(rng.gamma(2, 0.5, 3000), np.zeros(3000, int), seconds_per_score=60.0)
    table = table_of(np.concatenate([rng.gamma(2, 0.5, 900), np.full(30, 40.0)]), 4.0)
    found = what_if(sample, table, 4.0, SETTINGS)
    assert 4.0 in [each.threshold for each in found]
    assert np.all(np.diff([each.threshold for each in found]) > 0)
    for each in found:
        first_e, _ = event_lines(table.assign(threshold=each.threshold), SETTINGS)
        assert each.events == len(first_e)
        assert each.per_day == pytest.approx(sample.num_events(each.threshold, SETTINGS) / sample.days)
        assert each.per_day_high > each.per_day
    # Above every normal score only the fault is left; at the fault's own height nothing is above.
    assert [each.events for each in found[-2:]] == [1, 0]


def test_rates_per_day_need_times_and_entries_need_scores():
    sample = CalibrationSample(np.linspace(0.5, 2.0, 200), np.zeros(200, int))
    assert {each.per_day for each in what_if(sample, table_of(np.ones(5), 1.5), 1.5, SETTINGS)} == {None}
    assert what_if(sample, table_of(np.full(5, np.nan), 1.5), 1.5, SETTINGS) == []
