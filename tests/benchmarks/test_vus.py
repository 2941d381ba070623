"""The volume under the precision-recall surface against the implementation of its authors."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.detection.vus import vus_pr


def softly_labelled(seed, length, spells, levels):
    """Scores in steps of 1 / `levels`, larger inside of spells, and their labels."""
    rng = np.random.default_rng(seed)
    label_n = np.zeros(length, dtype=np.int8)
    for first, stop in spells:
        label_n[first:stop] = 1
    score_n = rng.normal(size=length) + 1.5 * label_n
    return (np.round(score_n * levels) / levels).astype(np.float32), label_n


@pytest.mark.parametrize(
    "case, window, expected",
    [
        ((0, 400, ((50, 80), (200, 210)), 1000), 20, 0.5874062961001756),
        ((1, 400, ((0, 15), (100, 103), (110, 140), (385, 400)), 1000), 40, 0.6810920703390336),  # at both ends
        ((2, 600, ((300, 420),), 4), 100, 0.6901489379731717),  # with many ties
        ((3, 150, ((20, 21), (25, 26), (30, 60)), 1000), 100, 0.7632552403583469),  # edges that overlap
    ],
)
def test_the_volume_equals_the_authors_implementation(case, window, expected):
    """Expected: `RangeAUC_volume_opt` of the package vus 0.0.6 on the same scores."""
    assert vus_pr(*softly_labelled(*case), window=window) == pytest.approx(expected, abs=1e-12)


def test_the_volume_of_a_perfect_score_and_of_one_class():
    label_n = np.zeros(1000, dtype=np.int8)
    label_n[500:600] = 1
    assert vus_pr(label_n.astype(np.float32) + np.linspace(0, 0.1, 1000), label_n, window=0) > 0.99
    assert math.isnan(vus_pr(np.arange(10.0), np.zeros(10)))
    assert math.isnan(vus_pr(np.arange(10.0), np.ones(10)))
