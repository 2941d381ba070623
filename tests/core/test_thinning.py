import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.thinning import kept


def test_short_series_are_not_thinned():
    assert kept(np.arange(7.0), 7).tolist() == list(range(7))
    assert kept(np.array([]), 5).tolist() == []


def test_peaks_dips_gaps_and_ends_stay():
    value_n = 1 + np.arange(50_000) % 7 / 10
    value_n[31_111], value_n[40_404], value_n[12_345] = 99.0, 0.001, np.nan
    position_k = kept(value_n, 2000)
    assert len(position_k) <= 2000
    assert {0, 12_345, 31_111, 40_404, 49_999} <= set(position_k.tolist())


@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), min_size=1, max_size=300),
    st.integers(min_value=5, max_value=60),
)
def test_thinned_values_are_ordered_limited_and_keep_the_extremes(values, limit):
    value_n = np.array(values)
    position_k = kept(value_n, limit)
    assert len(position_k) <= limit
    assert (np.diff(position_k) > 0).all()
    finite_n = value_n[np.isfinite(value_n)]
    if finite_n.size:
        left_k = value_n[position_k]
        left_k = left_k[np.isfinite(left_k)]
        assert (left_k.min(), left_k.max()) == (finite_n.min(), finite_n.max())
    if finite_n.size < len(value_n):
        assert not np.isfinite(value_n[position_k]).all()


def test_repeated_thinning_keeps_the_peak():
    value_n = np.random.default_rng(1).normal(size=10_000)
    value_n[4_321] = 50.0
    while len(value_n) > 20:
        value_n = value_n[kept(value_n, len(value_n) // 2)]
    assert value_n.max() == pytest.approx(50.0)
