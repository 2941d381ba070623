import numpy as np
import pytest

from core.numbers import decimals_for, listed, size_in_words


@pytest.mark.parametrize("scale, decimals", [(0.83, 5), (1.0, 4), (-123.4, 2), (5e7, 0), (0.0, 5), (np.nan, 5)])
def test_five_significant_digits_whatever_the_scale(scale, decimals):
    assert decimals_for(scale, 5) == decimals


def test_what_is_not_finite_becomes_none_at_any_depth():
    assert listed(np.array([[0.123456, np.nan], [np.inf, 1.0]], dtype=np.float32), 3) == [[0.123, None], [None, 1.0]]
    assert listed(np.array([1.5, 2.5]), 0) == [2.0, 2.0]


@pytest.mark.parametrize("num_bytes, words", [(5e10, "50.0 GB"), (1e9, "1.0 GB"), (999e6, "999.0 MB"), (0, "0.0 MB")])
def test_sizes_are_told_in_their_unit(num_bytes, words):
    assert size_in_words(num_bytes) == words
