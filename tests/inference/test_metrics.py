"""Detection figures against scikit-learn, ties included, and where they are undefined."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn import metrics as reference

from inference.metrics import auroc, average_precision, detection_metrics, vus_pr


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("levels", [2, 7, 10_000])
def test_ranking_metrics_agree_with_scikit_learn(seed, levels):
    rng = np.random.default_rng(seed)
    label_n = (rng.random(500) < 0.2).astype(np.int8)
    score_n = np.floor(levels * (rng.random(500) + 0.3 * label_n)).astype(np.float32)
    assert auroc(score_n, label_n) == pytest.approx(reference.roc_auc_score(label_n, score_n), abs=1e-12)
    expected = reference.average_precision_score(label_n, score_n)
    assert average_precision(score_n, label_n) == pytest.approx(expected, abs=1e-12)


def test_threshold_metrics_agree_with_scikit_learn():
    rng = np.random.default_rng(3)
    label_n = (rng.random(800) < 0.3).astype(np.int8)
    score_n = rng.normal(size=800) + label_n
    found = detection_metrics(score_n, label_n, threshold=0.8)
    alarm_n = score_n > 0.8
    assert found.f1 == pytest.approx(reference.f1_score(label_n, alarm_n))
    assert found.precision == pytest.approx(reference.precision_score(label_n, alarm_n))
    assert found.recall == pytest.approx(reference.recall_score(label_n, alarm_n))
    assert found.false_alarm_rate == pytest.approx(alarm_n[label_n == 0].mean())
    assert found.miss_rate == pytest.approx(1 - found.recall)
    assert found.prevalence == pytest.approx(label_n.mean())


def test_a_score_at_the_threshold_is_not_an_alarm():
    found = detection_metrics(np.array([1.0, 1.0, 2.0]), np.array([0, 1, 1]), threshold=1.0)
    assert (found.precision, found.recall, found.false_alarm_rate) == (1.0, 0.5, 0.0)


def test_undefined_figures_are_nan():
    one_class = detection_metrics(np.array([0.1, 0.2]), np.array([0, 0]), threshold=1.0)
    assert all(math.isnan(value) for value in (one_class.auroc, one_class.average_precision, one_class.recall))
    assert math.isnan(one_class.precision)
    assert one_class.false_alarm_rate == 0.0
    assert math.isnan(detection_metrics(np.array([2.0]), np.array([1]), threshold=1.0).false_alarm_rate)


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
