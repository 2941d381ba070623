"""Thresholds: the conformal rank and its promise, the extrapolated tail, what is told of both, and when they refuse."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from core.config.schema import Threshold
from core.errors import EXIT_DATA, DataError, UsageError
from inference import thresholds
from inference.thresholds import (
    Achieved,
    CalibrationSample,
    achieved_in_words,
    burst_interval,
    calibrate,
    share_above,
    share_in_words,
)

POT = {"method": "pot"}


@pytest.mark.parametrize(
    ("n", "rate", "rank"), [(99, 0.01, 99), (100, 0.01, 100), (199, 0.01, 198), (1000, 0.05, 951), (60, 0.5, 31)]
)
def test_value_is_the_score_of_the_conformal_rank(n, rate, rank):
    scores = np.random.default_rng(0).permutation(np.arange(1, n + 1)).astype(np.float32)
    found = calibrate(scores, Threshold(false_alarm_rate=rate, min_calibration=10))
    assert found.value == rank
    assert found.achieved_rate == pytest.approx((n - rank) / n)
    assert found.achieved_rate <= rate
    assert (found.method, found.false_alarm_rate, found.calibration_scores) == ("conformal quantile", rate, n)


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


# ------------------------------------------------------------------------------------------------- peaks over threshold
@pytest.mark.parametrize("shape", [-0.2, 0.0, 0.3])
@pytest.mark.parametrize("rate", [1e-2, 1e-4])
def test_an_extrapolated_tail_leaves_the_rate_on_many_more_scores(shape, rate):
    """5,000 scores set a threshold for 1 in 10,000; a million others are held against it. Over the fits of 20 samples
    the mean rate is the one asked for."""
    rng = np.random.default_rng(0)

    def scores(num: int) -> np.ndarray:
        u = rng.random(num)
        return 1 - np.log(u) if shape == 0 else 1 + (u**-shape - 1) / shape

    asked = Threshold(**POT, false_alarm_rate=rate)
    new = scores(1_000_000)
    rates = [(new > calibrate(scores(5000), asked).value).mean() for _ in range(20)]
    assert np.exp(np.mean(np.log(np.maximum(rates, 1e-6)))) == pytest.approx(rate, rel=0.5)


def test_both_methods_agree_where_the_scores_are_many():
    scores = np.random.default_rng(1).gamma(3, size=100_000)
    found = [calibrate(scores, Threshold(**method, false_alarm_rate=0.001)).value for method in ({}, POT)]
    assert found[1] == pytest.approx(found[0], rel=0.03)
    assert calibrate(scores, Threshold(**POT)).method == "peaks over threshold"


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.floats(1e-5, 0.04), st.floats(1.1, 2.5), st.sampled_from(["conformal", "pot"]))
def test_a_rarer_alarm_never_has_a_lower_threshold(seed, rate, factor, method):
    scores = np.random.default_rng(seed).gamma(2, size=2000)
    try:
        rarer, oftener = (
            calibrate(scores, Threshold(method=method, false_alarm_rate=each)).value for each in (rate, factor * rate)
        )
    except DataError:
        assert method == "conformal"
        return
    # The two may rest on different tails: their fits differ by their own uncertainty.
    assert rarer >= oftener * (1 if method == "conformal" else 0.97)


def test_too_few_excesses_are_refused_and_so_are_scores_that_are_the_same():
    with pytest.raises(DataError, match=r"1499 calibration scores .* 1500 are needed"):
        calibrate(np.arange(1499.0), Threshold(**POT))
    same = np.r_[np.zeros(1995), np.arange(1, 6)]
    with pytest.raises(DataError, match=r"5 of 2000 calibration scores lie above their 98\.0% quantile, 0: 30 are"):
        calibrate(same, Threshold(**POT))
    with pytest.raises(ValidationError, match=r"false_alarm_rate = 0\.2 is no tail"):
        Threshold(**POT, false_alarm_rate=0.2)


def test_what_conformal_refuses_is_pointed_to_the_tail():
    with pytest.raises(DataError, match=r"extrapolate with scoring\.threshold\.method=pot") as caught:
        calibrate(np.arange(2000.0), Threshold(false_alarm_rate=1e-4))
    assert "method=pot" not in str(caught.value.message)
    assert calibrate(np.random.default_rng(0).gamma(2, size=2000), Threshold(**POT, false_alarm_rate=1e-4)).value > 0


# ------------------------------------------------------------------------------------------------------- what is told
def test_the_newer_half_is_held_against_a_threshold_of_the_older():
    older, newer = np.arange(1, 1001) / 1000, np.arange(1, 1001) / 1000 + 0.005
    found = CalibrationSample(np.r_[older, newer], seconds_per_score=60.0).threshold(Threshold())
    assert found.value == calibrate(np.r_[older, newer], Threshold()).value
    value = calibrate(older, Threshold()).value
    assert found.achieved.rate == (newer > value).mean() == pytest.approx(0.014)
    assert found.achieved.low <= found.achieved.rate <= found.achieved.high
    assert found.achieved.per_day == pytest.approx(0.014 * 1440)
    assert found.statement.startswith(
        "1 in 100 scores of normal operation is meant to be a false alarm; on the newer half of the calibration data "
        "it was 1.4 % ("
    )
    assert found.statement.endswith(" %), about 20 a day at this rate")
    assert found.to_json()["achieved"]["scores"] == 1000


def test_what_is_not_known_is_not_told():
    scores = np.random.default_rng(0).random(2000)
    told = CalibrationSample(scores, None, in_time=False).threshold(Threshold(false_alarm_rate=0.035)).statement
    assert told.startswith("3.5 in 100 scores")
    assert "on the second half" in told
    assert "a day" not in told
    few = CalibrationSample(scores[:150]).threshold(Threshold())
    assert few.achieved is None
    assert few.statement.endswith("half of the calibration data is too little to try that on the other half")
    none = share_above(scores, 2.0, seconds_per_score=1.0)
    assert (none.rate, none.low) == (0, 0)
    assert none.high == pytest.approx(3.7 / 2000, rel=0.01)


@pytest.mark.parametrize(
    ("rate", "words"), [(0.01, "1 in 100"), (0.05, "1 in 20"), (0.3, "30 in 100"), (1e-4, "1 in 10,000")]
)
def test_a_rate_in_words(rate, words):
    assert share_in_words(rate) == words


def test_the_interval_of_the_achieved_rate_holds_the_true_one_though_alarms_come_in_bursts():
    """Bursts of 20 alarms: an interval that took them for single ones would miss three times in four."""
    rng = np.random.default_rng(3)
    intervals = [burst_interval(np.repeat(rng.random(500) < 0.05, 20)) for _ in range(200)]
    assert np.mean([low <= 0.05 <= high for low, high in intervals]) > 0.85


def test_the_interval_knows_the_newest_scores():
    alarm_n = np.zeros(4199, dtype=bool)
    alarm_n[-190:] = True
    assert burst_interval(alarm_n)[1] > 0.045


def test_as_many_scores_as_the_method_needs_are_too_few_only_by_the_setting():
    with pytest.raises(DataError) as caught:
        calibrate(np.arange(99.0), Threshold(min_calibration=100))
    assert caught.value.hint.endswith("or lower scoring.threshold.min_calibration")


def test_thirty_excesses_are_enough():
    scores = np.random.default_rng(0).gamma(2, size=1500)
    assert (scores > np.quantile(scores, 0.98)).sum() == 30
    assert calibrate(scores, Threshold(**POT)).value > np.quantile(scores, 0.98)


def test_a_tail_without_a_shape_is_exponential(monkeypatch):
    """From one shape to the next there is no jump, and at none the threshold is that of an exponential tail."""
    scores = np.random.default_rng(0).exponential(size=5000)
    found = []
    for shape in (-1e-4, 0.0, 1e-4):
        monkeypatch.setattr(thresholds, "_generalised_pareto", lambda excess_m, shape=shape: (shape, 2.0))
        found.append(calibrate(scores, Threshold(**POT, false_alarm_rate=1e-4)).value)
    assert found[1] == pytest.approx(np.quantile(scores, 0.98) + 2.0 * np.log(0.02 / 1e-4), rel=1e-6)
    assert (found[0], found[2]) == pytest.approx((found[1], found[1]), rel=1e-3)


@pytest.mark.parametrize(("num_scores", "block"), [(1, 1), (30, 1), (1000, 50), (3999, 199), (4021, 200), (9000, 200)])
def test_the_interval_is_that_of_blocks(num_scores, block):
    """At least twenty of at most 200 scores; the first is what is left over."""
    alarm_n = np.arange(num_scores) ** 2 % 97 < 9
    blocks = [alarm_n[max(end - block, 0) : end] for end in range(num_scores, 0, -block)][::-1]
    drawn = np.random.default_rng(0).integers(len(blocks), size=(1000, len(blocks)))
    shares = [np.concatenate([blocks[each] for each in draw]).mean() for draw in drawn]
    assert burst_interval(alarm_n) == pytest.approx(tuple(np.quantile(shares, [0.025, 0.975])))


def test_the_interval_knows_the_oldest_scores():
    """117 scores are 23 blocks of five, and two are left over."""
    alarm_n = np.arange(117) == 0
    low, high = burst_interval(alarm_n)
    assert low <= alarm_n.mean() <= high


def test_an_achieved_rate_in_words_has_two_digits():
    assert achieved_in_words(Achieved(0.0123, 0.00456, 0.98, 100, None)) == "1.2 % (0.46 to 98 %)"


def test_without_scipy_a_tail_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    with pytest.raises(UsageError, match=r"method=pot needs scipy") as caught:
        calibrate(np.arange(2000.0), Threshold(**POT))
    assert caught.value.hint == "python -m pip install scipy"
