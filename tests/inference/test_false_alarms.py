"""Detectors fitted to simulated stationary processes keep the false alarms they state."""

from __future__ import annotations

import logging

import pytest

from benchmarks.false_alarms import simulate


@pytest.mark.slow
def test_the_stated_interval_holds_the_true_rate_of_whole_detectors():
    """40 of the benchmark's processes: fewer than 34 in 40 would be chance at 95 % once in a hundred runs."""
    logging.getLogger("inference").setLevel(logging.ERROR)
    try:
        found = simulate(40, seed=1)
    finally:
        logging.getLogger("inference").setLevel(logging.NOTSET)
    assert found.held >= 34 / 40
    assert 0.6 < found.true_over_asked < 1.3
