"""Detectors fitted to simulated stationary processes have the false alarm rate that they state."""

from __future__ import annotations

import logging

import pytest

from benchmarks.false_alarms import simulate


@pytest.mark.nightly
def test_the_stated_interval_contains_the_true_alarm_rate_of_a_detector():
    """12 of the 200 processes of the benchmark: at 95 %, fewer than 10 are within the interval once in fifty runs."""
    logging.getLogger("inference").setLevel(logging.ERROR)
    found = simulate(12, seed=1)
    assert found.held >= 10 / 12
    assert 0.4 < found.true_over_requested < 1.6
