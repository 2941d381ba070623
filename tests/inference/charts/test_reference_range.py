"""The range of each channel in the reference rows."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose

from inference.charts import reference_range
from inference.charts.reference_range import ReferenceRange
from inference.charts.reference_rows import FOLDS
from tests.inference.charts.plants import whole


def test_an_end_moves_outwards_by_what_one_fold_goes_beyond_the_others():
    z_nc = np.zeros((10 * FOLDS, 2), dtype=np.float32)
    z_nc[3], z_nc[15], z_nc[35] = (1, -2), (2.5, -2), (-4, 0)
    found = ReferenceRange.fit(z_nc, whole(z_nc))
    assert_allclose(found.high_c, [2.5 + 1.5, 0])
    assert_allclose(found.low_c, [-4 - 4, -2])
    assert_allclose(found.excess(np.array([[5, 1], [-9, -1], [np.nan, -5]])), [[1, 1], [1, 0], [np.nan, 3]])


def test_a_channel_without_a_value_has_no_range():
    z_nc = np.full((20, 2), np.nan, dtype=np.float32)
    z_nc[:5, 0] = 1  # values in one fold only
    found = ReferenceRange.fit(z_nc, whole(z_nc))
    assert_allclose(found.excess(np.array([[3.0, 1e9]])), [[2, 0]])


def test_ranges_of_several_segments_are_computed_in_pieces(monkeypatch):
    z_nc = np.random.default_rng(0).normal(size=(101, 3)).astype(np.float32)
    segments_k2 = np.array([[0, 40], [50, 60], [100, 151]])
    at_once = ReferenceRange.fit(z_nc, segments_k2)
    monkeypatch.setattr(reference_range, "_VALUES_AT_A_TIME", 3 * 7)
    in_pieces = ReferenceRange.fit(z_nc, segments_k2)
    assert_allclose(in_pieces.low_c, at_once.low_c)
    assert_allclose(in_pieces.high_c, at_once.high_c)
