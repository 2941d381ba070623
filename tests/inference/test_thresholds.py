"""Thresholds: the quantile and its guarantee, rare events, the extrapolated tail, and the statements about them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from core.config.schema import Scoring
from core.errors import EXIT_DATA, DataError
from core.numbers import ratio_in_words
from inference.calibrated_threshold import departure, number, percent, rate_in_words
from inference.false_alarms import CalibrationSample, FalseAlarms, poisson_interval
from inference.thresholds import calibrate


def sample_of(score_n: np.ndarray, segment_n: np.ndarray | None = None, **known) -> CalibrationSample:
    score_n = np.asarray(score_n, dtype=np.float32)
    return CalibrationSample(score_n, np.zeros(len(score_n), np.int64) if segment_n is None else segment_n, **known)


def independent(score_n: np.ndarray) -> CalibrationSample:
    """Each score in a segment of its own, so that each alarm is a burst."""
    return sample_of(score_n, np.arange(len(score_n)))


def asked(**threshold) -> Scoring:
    return Scoring(threshold={"false_events_per_day": None, "min_calibration": 10, **threshold})


# ---------------------------------------------------------------------------------------------------------- conformal
@pytest.mark.parametrize(
    ("n", "rate", "rank"), [(99, 0.01, 99), (100, 0.01, 100), (199, 0.01, 198), (1000, 0.05, 951), (60, 0.5, 31)]
)
def test_the_threshold_of_independent_scores_has_the_conformal_rank(n, rate, rank):
    scores = np.random.default_rng(0).permutation(np.arange(1, n + 1))
    found = calibrate(independent(scores), asked(false_alarm_rate=rate))
    assert found.value == rank
    assert found.expected.rate == pytest.approx((n - rank) / n)
    assert found.expected.bursts == n - rank
    assert not found.shortfall
    assert (found.false_alarm_rate, found.calibration_scores) == (rate, n)


def test_the_alarm_rate_holds_on_new_scores():
    rng = np.random.default_rng(1)
    wanted = asked(false_alarm_rate=0.05)
    rates = [
        (rng.exponential(size=2000) > calibrate(independent(rng.exponential(size=119)), wanted).value).mean()
        for _ in range(400)
    ]
    assert np.mean(rates) == pytest.approx(0.05, abs=0.003)


def test_a_threshold_allows_for_one_more_burst():
    """Ten bursts of ten alarms in 10,000 scores: 1 % may alarm, and the next burst would make it more."""
    scores = np.random.default_rng(0).random(10_000)
    for burst in range(10):
        scores[500 + 1000 * burst : 510 + 1000 * burst] = 10 + burst
    found = calibrate(sample_of(scores), asked(false_alarm_rate=0.01))
    assert found.expected.bursts == 9
    assert found.value == 10


def test_too_few_scores_extrapolate_the_tail_and_report_the_supported_rate():
    scores = np.random.default_rng(0).permutation(np.arange(1, 51))
    found = calibrate(independent(scores), asked(false_alarm_rate=0.01))
    assert 50 < found.value < 100
    assert "50 calibration scores" in found.shortfall
    assert " 2 % " in found.shortfall
    assert "times that score" in found.shortfall
    assert found.expected.high > 0.05
    assert found.shortfall in found.statement


def test_the_extrapolated_threshold_has_the_requested_rate_where_the_tail_is_a_power():
    """As many as exceed the largest of 50 scores, 2 %, would be twice the requested rate."""
    samples = (np.random.default_rng(seed).pareto(4, size=50) + 1 for seed in range(300))
    values = np.array([calibrate(independent(scores), asked(false_alarm_rate=0.01)).value for scores in samples])
    assert np.median(values**-4.0) == pytest.approx(0.01, rel=0.35)


def test_the_extrapolated_threshold_is_not_below_the_largest_score():
    scores = np.append(np.linspace(1, 1.01, 49), 5.0)
    assert calibrate(independent(scores), asked(false_alarm_rate=0.01)).value >= 5.0


def test_a_threshold_at_the_largest_score_is_called_that():
    found = calibrate(independent(np.full(50, 2.0)), asked(false_alarm_rate=0.01))
    assert found.value == 2.0
    assert found.shortfall.endswith("the threshold is that score")


def test_a_constant_score_is_its_own_extrapolation():
    assert calibrate(independent(np.zeros(50)), asked(false_alarm_rate=0.01)).value == 0.0


def test_fewer_scores_than_the_minimum_are_rejected():
    with pytest.raises(DataError, match=r"\b49\b.*\b50\b") as caught:
        calibrate(sample_of(np.arange(49)), Scoring())
    assert caught.value.exit_code == EXIT_DATA
    assert "scoring.threshold.min_calibration" in caught.value.hint


@pytest.mark.nightly
@given(st.integers(0, 10_000), st.floats(1e-5, 0.04), st.floats(1.1, 2.5))
def test_a_rarer_alarm_never_has_a_lower_threshold(seed, rate, factor):
    scores = sample_of(np.random.default_rng(seed).gamma(2, size=2000))
    rarer, oftener = (calibrate(scores, asked(false_alarm_rate=each)).value for each in (rate, factor * rate))
    assert rarer >= oftener


# --------------------------------------------------------------------------------------------------- stated intervals
def smoothed_squares(rng: np.random.Generator, recordings: int, rows: int, phi: float, span: int) -> np.ndarray:
    """Scores (R, N) of a stationary process: exponentially weighted means over squares of an AR(1) process."""
    from scipy.signal import lfilter

    warm_up = 300
    noise_rn = rng.standard_normal((recordings, warm_up + rows))
    x_rn = lfilter([np.sqrt(1 - phi**2)], [1, -phi], noise_rn, axis=1)
    weight = 2 / (span + 1)
    return lfilter([weight], [1, weight - 1], x_rn**2, axis=1)[:, warm_up:]


@pytest.mark.slow
def test_the_stated_interval_contains_the_true_rate_of_stationary_processes():
    """200 processes: white or autocorrelated, smoothed or not, one recording or 34, 96 to 10,000 rows each."""
    rng, held, supported, ratios = np.random.default_rng(5), [], 0, []
    truth = {
        (phi, span): np.sort(smoothed_squares(rng, 20, 100_000, phi, span).ravel())
        for phi in (0.0, 0.9)
        for span in (1, 10, 30)
    }
    for number_of_process in range(200):
        phi, span = list(truth)[number_of_process % len(truth)]
        recordings = int(rng.choice([1, 34]))
        rows = int(rng.choice([96, 300] if recordings > 1 else [96, 300, 1000, 3000, 10_000]))
        rate = float(rng.choice([0.001, 0.01, 0.05]))
        scores_rn = smoothed_squares(rng, recordings, rows, phi, span)
        sample = sample_of(scores_rn.ravel(), np.repeat(np.arange(recordings), rows), span=span)
        found = calibrate(sample, asked(false_alarm_rate=rate))
        truth_n = truth[phi, span]
        true_rate = 1 - np.searchsorted(truth_n, found.value, side="right") / len(truth_n)
        held.append(found.expected.low <= true_rate <= found.expected.high)
        if not found.shortfall:
            supported += 1
            ratios.append(true_rate / rate)
    assert np.mean(held) >= 0.93
    assert supported > 100
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize("count", [1, 3, 10, 200])
def test_the_interval_of_a_count_equals_garwood(count):
    low, high = poisson_interval(count)
    assert low == pytest.approx(chi2.ppf(0.025, 2 * count) / 2)
    assert high == pytest.approx(chi2.ppf(0.975, 2 * (count + 1)) / 2)


def test_zero_alarms_do_not_prove_a_rate_of_zero():
    found = sample_of(np.arange(1000.0), seconds_per_score=1.0).false_alarms(2000.0, asked())
    assert (found.rate, found.low, found.bursts, found.events_per_day) == (0, 0, 0, 0)
    assert found.high >= poisson_interval(0)[1] / 1000
    assert found.events_per_day_high == pytest.approx(poisson_interval(0)[1] * 86.4)


# ------------------------------------------------------------------------------------------------------------- events
def hourly(num_days: float, heights: list[float], length: int = 5) -> CalibrationSample:
    """A score a minute, near 1, with disturbances of so many scores, evenly spread."""
    num_scores = round(num_days * 1440)
    scores = np.random.default_rng(0).random(num_scores)
    for place, height in enumerate(heights):
        first = (place + 1) * num_scores // (len(heights) + 1)
        scores[first : first + length] = height
    return sample_of(scores, seconds_per_score=60.0)


def test_a_threshold_gives_the_requested_events_per_day():
    sample = hourly(4, [2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    rare = asked(false_alarm_rate=0.05, false_events_per_day=1.0)
    found = calibrate(sample, rare)
    assert found.value == 4.0  # three events in four days are above it; a fourth in that time keeps the promise
    assert sample.num_events(found.value, rare) == 3
    assert found.expected.events_per_day == pytest.approx(0.75)
    assert found.expected.events_per_day_low < 0.75 < found.expected.events_per_day_high
    assert calibrate(sample, asked(false_alarm_rate=0.05)).value < 2


def test_events_too_short_to_count_do_not_raise_the_threshold():
    sample = hourly(4, [2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    patient = Scoring(event_min_length=6, threshold={"false_alarm_rate": 0.05, "false_events_per_day": 1.0})
    assert calibrate(sample, patient).value < 2


def test_calibration_data_shorter_than_an_event_is_reported():
    found = calibrate(hourly(0.5, [2.0, 3.0]), asked(false_alarm_rate=0.1, false_events_per_day=1.0))
    assert found.value == 3.0
    assert "12 h" in found.shortfall
    assert f"{number(poisson_interval(0)[1] / 0.5)} per day" in found.shortfall


def test_a_quiet_part_that_is_too_short_does_not_set_a_low_threshold():
    asked_for = asked(false_alarm_rate=0.1, false_events_per_day=1.0)
    half, enough = hourly(0.5, [2.0, 3.0]), hourly(4, [2.0, 3.0])
    quiet = calibrate(replace(half, chart_mean=0.6), asked_for)
    assert quiet.value == pytest.approx(3.0 / 0.6)
    assert "divided by 0.60," in quiet.shortfall
    for usual in (half, replace(half, chart_mean=1.0), replace(half, chart_mean=1.4)):
        found = calibrate(usual, asked_for)
        assert found.value == 3.0
        assert "reference data" not in found.shortfall
    assert calibrate(replace(enough, chart_mean=0.6), asked_for).value == calibrate(enough, asked_for).value


@pytest.mark.parametrize(
    ("median", "chart_mean", "is_unlike"),
    [
        (1.0, 1.0, False),
        (3.9, 5.0, False),
        (4.1, 5.0, True),
        (77.0, 60.0, True),
        (77.0, 1.0, False),
        (1.0, 30.0, False),
    ],
    ids=[
        "usual",
        "below the limit",
        "above the limit",
        "far above",
        "scores of another scale",
        "one recording of many",
    ],
)
def test_calibration_data_of_another_operating_point_is_named(median, chart_mean, is_unlike):
    sample = replace(independent(np.linspace(0.5 * median, 1.5 * median, 1001)), chart_mean=chart_mean)
    found = calibrate(sample, asked(false_alarm_rate=0.1))
    assert ("unlike the other reference data" in found.shortfall) == is_unlike
    assert (f"half of its scores are {ratio_in_words(median)} or more" in found.statement) == is_unlike


def test_a_margin_raises_a_threshold_from_too_few_events():
    threshold = {"false_alarm_rate": 0.1, "false_events_per_day": 1.0}
    few, many = Scoring(event_min_length=5, threshold=threshold), Scoring(event_min_length=1, threshold=threshold)
    half, enough = hourly(0.5, [2.0, 3.0]), hourly(4, [2.0, 3.0])
    found = calibrate(replace(half, chart_mean=0.6, margin=1.3), few)
    assert found.value == pytest.approx(3.0 / 0.6 * 1.3)
    assert "multiplied by 1.3," in found.shortfall
    assert "multiplied" not in calibrate(half, few).shortfall
    for sample, settings in ((half, many), (enough, few)):  # extrapolated from fifteen events; long enough
        assert calibrate(replace(sample, margin=1.3), settings).value == calibrate(sample, settings).value


@pytest.mark.nightly
def test_the_levels_of_events_are_extrapolated_to_rarer_ones():
    """Peaks with a Pareto tail: as many events as requested exceed the threshold in a much longer time."""
    hours, per_day, decay = 12, 1.0, 0.4
    rng = np.random.default_rng(1)
    peaks = [2 * (rng.pareto(1 / decay, size=5 * hours) + 1) for _ in range(200)]
    settings = Scoring(event_min_length=3, threshold={"false_alarm_rate": 0.5, "false_events_per_day": per_day})
    value_n = np.array([calibrate(hourly(hours / 24, list(each)), settings).value for each in peaks])
    rate_n = 5 * 24 * (value_n / 2) ** (-1 / decay)  # events per day with a peak above the threshold
    assert np.median(rate_n) == pytest.approx(per_day, rel=0.35)


def test_too_few_events_to_extrapolate_leave_the_threshold_at_the_highest():
    sample = hourly(0.5, [2.0, 3.0, 4.0])
    settings = Scoring(event_min_length=5, threshold={"false_alarm_rate": 0.5, "false_events_per_day": 1.0})
    assert calibrate(sample, settings).value == 4.0


def test_events_are_not_extrapolated_from_hours_to_months():
    heights = [2 + 0.1 * number for number in range(20)]
    sample = hourly(0.5, heights)
    values = [
        calibrate(sample, asked(false_alarm_rate=0.5, false_events_per_day=per_day)).value for per_day in (1.0, 0.01)
    ]
    assert values[0] > max(heights)
    assert values[1] == pytest.approx(max(heights))


def test_a_rate_of_events_needs_time_stamps():
    scores = np.random.default_rng(0).random(2000)
    found = calibrate(sample_of(scores), asked(false_events_per_day=1.0))
    assert found.expected.events_per_day is None
    assert "per day" not in found.statement


# ----------------------------------------------------------------------------------------------------------- in words
def test_a_changed_process_is_named_in_the_statement():
    found = calibrate(sample_of(np.random.default_rng(0).random(2000)), asked())
    kept = found.with_achieved(FalseAlarms(0.02, 0.01, 0.03, scores=1000, bursts=9))
    changed = found.with_achieved(FalseAlarms(0.2, 0.1, 0.3, scores=1000, bursts=9))
    assert "20 % (10 to 30 %)" in changed.statement
    assert "process changed" in changed.statement
    assert "process changed" not in kept.statement


def test_scores_unlike_those_of_calibration_are_reported():
    rng = np.random.default_rng(0)
    calibration = sample_of(rng.gamma(4, size=5000))
    threshold = calibrate(calibration, asked())
    assert departure(threshold, calibration, sample_of(rng.gamma(4, size=5000))) == ""
    with_fault = rng.gamma(4, size=5000)
    with_fault[700:760] *= 10
    assert departure(threshold, calibration, sample_of(with_fault)) == ""
    output = departure(threshold, calibration, sample_of(2 * rng.gamma(4, size=5000)))
    assert "landfall calibrate" in output
    assert "1.98 times" in output


@pytest.mark.parametrize(
    ("value", "words"), [(0, "0"), (1.0, "1"), (0.0123, "0.012"), (12.3, "12"), (1234.0, "1,200"), (0.4, "0.4")]
)
def test_numbers_have_two_digits_and_no_exponent(value, words):
    assert number(value) == words


def test_shares_are_written_in_words():
    assert rate_in_words(FalseAlarms(0.0123, 0.00456, 0.98, 100, 3)) == "1.2 % (0.46 to 98 %)"
    assert percent(0.01) == "1 %"


def test_charts_without_a_model_are_not_sent_to_the_command_that_needs_one():
    rng = np.random.default_rng(0)
    calibration = sample_of(rng.gamma(4, size=5000))
    output = departure(
        calibrate(calibration, asked()), calibration, sample_of(2 * rng.gamma(4, size=5000)), by_charts=True
    )
    assert "landfall calibrate" not in output
    assert "data.splits.calibration" in output
