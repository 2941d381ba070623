"""The conformal quantile: its rank, its promise, and when it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from core.config.schema import Threshold
from core.errors import EXIT_DATA, DataError
from inference.thresholds import calibrate


@pytest.mark.parametrize(
    ("n", "rate", "rank"), [(99, 0.01, 99), (100, 0.01, 100), (199, 0.01, 198), (1000, 0.05, 951), (60, 0.5, 31)]
)
def test_value_is_the_score_of_the_conformal_rank(n, rate, rank):
    scores = np.random.default_rng(0).permutation(np.arange(1, n + 1)).astype(np.float32)
    found = calibrate(scores, Threshold(false_alarm_rate=rate, min_calibration=10))
    assert found.value == rank
    assert found.achieved_rate == pytest.approx((n - rank) / n)
    assert found.achieved_rate <= rate
    assert found.to_json() == {
        "value": float(rank),
        "method": "conformal quantile",
        "false_alarm_rate": rate,
        "calibration_scores": n,
    }


def test_rate_holds_on_new_scores_of_the_same_kind():
    """Over many calibrations the mean false alarm rate lies just below what was asked for."""
    rng = np.random.default_rng(1)
    settings = Threshold(false_alarm_rate=0.05, min_calibration=10)
    rates = [
        (rng.exponential(size=2000) > calibrate(rng.exponential(size=119), settings).value).mean() for _ in range(400)
    ]
    assert np.mean(rates) == pytest.approx(0.05, abs=0.003)


def test_missing_scores_do_not_count():
    scores = np.r_[np.full(500, np.nan), np.arange(1, 100)]
    found = calibrate(scores, Threshold())
    assert (found.value, found.calibration_scores) == (99, 99)


def test_too_few_scores_are_refused_with_the_number_needed():
    with pytest.raises(DataError, match=r"98 calibration scores .* 0\.01: 99 are needed") as caught:
        calibrate(np.arange(98.0), Threshold(min_calibration=50))
    assert caught.value.exit_code == EXIT_DATA
    with pytest.raises(DataError, match="300 are needed"):
        calibrate(np.arange(200.0), Threshold(min_calibration=300))
    with pytest.raises(DataError, match="0 calibration scores"):
        calibrate(np.full(5, np.nan), Threshold())
