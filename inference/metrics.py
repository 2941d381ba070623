"""Metrics of scores against labelled anomalies, point by point.

There is no point adjustment: it counts a complete anomaly as found if a single point of it is found, so that random
scores look excellent (Kim et al., Towards a Rigorous Evaluation of Time-Series Anomaly Detection, AAAI 2022). There is
no best F1 either: the threshold is the calibrated one, because in operation there are no labels to choose a threshold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Below this area under the ROC curve of rows, scores count as near chance (0.5).
NEAR_CHANCE = 0.6


@dataclass(frozen=True)
class Detection:
    """Metrics of labelled test data; NaN if undefined, such as the precision without any alarm.

    auroc, average_precision: over all thresholds; the chance levels are 0.5 and `prevalence`.
    f1, precision, recall, false_alarm_rate (alarms among normal points), miss_rate: at the calibrated threshold.
    """

    auroc: float
    average_precision: float
    f1: float
    precision: float
    recall: float
    false_alarm_rate: float
    miss_rate: float
    prevalence: float


def is_near_chance(auroc: float | None) -> bool:
    """Whether scores hardly separate labelled faults from normal rows; False without labels."""
    return auroc is not None and auroc < NEAR_CHANCE


def detection_metrics(score_n: np.ndarray, label_n: np.ndarray, threshold: float) -> Detection:
    """score_n: float (N,) without NaN. label_n: (N,) of 0 and 1. A score above the threshold is an alarm."""
    anomalous_n, alarm_n = label_n.astype(bool), score_n > threshold
    hits = int((alarm_n & anomalous_n).sum())
    false_alarms = int((alarm_n & ~anomalous_n).sum())
    misses = int((~alarm_n & anomalous_n).sum())
    rejections = int((~alarm_n & ~anomalous_n).sum())
    return Detection(
        auroc=auroc(score_n, label_n),
        average_precision=average_precision(score_n, label_n),
        f1=ratio(2 * hits, 2 * hits + false_alarms + misses),
        precision=ratio(hits, hits + false_alarms),
        recall=ratio(hits, hits + misses),
        false_alarm_rate=ratio(false_alarms, false_alarms + rejections),
        miss_rate=ratio(misses, hits + misses),
        prevalence=ratio(hits + misses, len(label_n)),
    )


def auroc(score_n: np.ndarray, label_n: np.ndarray) -> float:
    """Area under the ROC curve: the probability that an anomaly has a higher score than a normal point, with half
    weight for ties (Mann and Whitney, 1947).

    NaN if only one class is present. Arguments as for `detection_metrics`.
    """
    _, group_n, count_g = np.unique(score_n, return_inverse=True, return_counts=True)
    rank_g = np.cumsum(count_g) - (count_g - 1) / 2  # ranks from 1; tied scores share their mean rank
    anomalous_n = label_n.astype(bool)
    positives = int(anomalous_n.sum())
    outranked = rank_g[group_n[anomalous_n]].sum() - positives * (positives + 1) / 2
    return ratio(float(outranked), positives * (len(label_n) - positives))


def average_precision(score_n: np.ndarray, label_n: np.ndarray) -> float:
    """Area under the precision-recall curve as a sum of steps, as in scikit-learn; NaN without anomalies."""
    values_g, group_n, count_g = np.unique(-score_n, return_inverse=True, return_counts=True)
    hits_g = np.bincount(group_n, weights=label_n, minlength=len(values_g))
    precision_g = np.cumsum(hits_g) / np.cumsum(count_g)
    return ratio(float((precision_g * hits_g).sum()), float(hits_g.sum()))


def ratio(part: float, whole: float) -> float:
    """NaN if the whole is 0."""
    return part / whole if whole else float("nan")
