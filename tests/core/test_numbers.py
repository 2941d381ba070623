import numpy as np
import pytest

from core.numbers import counted, decimals_for, duration_in_words, listed, plain, ratio_in_words, size_in_words


@pytest.mark.parametrize("scale, decimals", [(0.83, 5), (1.0, 4), (-123.4, 2), (5e7, 0), (0.0, 5), (np.nan, 5)])
def test_five_significant_digits_whatever_the_scale(scale, decimals):
    assert decimals_for(scale, 5) == decimals


def test_non_finite_numbers_become_none_at_any_depth():
    assert listed(np.array([[0.123456, np.nan], [np.inf, 1.0]], dtype=np.float32), 3) == [[0.123, None], [None, 1.0]]
    assert listed(np.array([1.5, 2.5]), 0) == [2.0, 2.0]


@pytest.mark.parametrize("num_bytes, words", [(5e10, "50.0 GB"), (1e9, "1.0 GB"), (999e6, "999.0 MB"), (0, "0.0 MB")])
def test_sizes_are_reported_in_their_unit(num_bytes, words):
    assert size_in_words(num_bytes) == words


@pytest.mark.parametrize(
    "ratio, words",
    [(1.0401, "1.04"), (1.0, "1.00"), (9.996, "10.0"), (12.34, "12.3"), (99.96, "100"), (283.4, "283"),
     (999.7, "1,000"), (1e6, "> 1,000"), (np.inf, "> 1,000"), (0.5, "0.50"), (1e-5, "< 0.01"), (0.0, "0")],
)  # fmt: skip
def test_ratios_are_written_without_an_exponent(ratio, words):
    assert ratio_in_words(ratio) == words


@pytest.mark.parametrize(
    "value, words",
    [(0.83172, "0.832"), (1.28e6, "1,280,000"), (1.2e-7, "0.000000120"), (np.nan, "nan"), (-2.5, "-2.50")],
)
def test_plain_numbers_have_no_exponent(value, words):
    assert plain(value) == words


@pytest.mark.parametrize(
    "seconds, words",
    [(0, "0 s"), (0.0427, "43 ms"), (0.0005, "0.5 ms"), (1, "1 s"), (2.24, "2.2 s"), (13.2, "13 s"), (119.6, "120 s"),
     (180, "3 min"), (200, "3.3 min"), (5400, "90 min"), (7200, "2 h"), (1e6, "12 days")],
)  # fmt: skip
def test_durations_have_a_readable_unit(seconds, words):
    assert duration_in_words(seconds) == words


@pytest.mark.parametrize(("number", "text"), [(0, "0 events"), (1, "1 event"), (2, "2 events"), (1200, "1,200 events")])
def test_a_number_of_things_has_singular_and_plural(number, text):
    assert counted(number, "event") == text
