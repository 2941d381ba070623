"""The benchmark of known operating points: faults are easier to find where speed and load are known."""

from __future__ import annotations

import pytest

from benchmarks.operating_points import Plan, measure


@pytest.mark.nightly
def test_charts_that_know_speed_and_load_find_more():
    found = measure(1, Plan(fitted=40, calibration=10, healthy=10, faulty=12))
    assert set(found) == {"none", "rpm", "rpm, load"}
    assert found["rpm, load"].auroc > found["none"].auroc
    assert found["rpm, load"].recall > found["none"].recall
