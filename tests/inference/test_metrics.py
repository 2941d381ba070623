"""Detection figures against scikit-learn, ties included, and where they are undefined."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn import metrics as reference

from inference.metrics import auroc, average_precision, detection_metrics


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
