"""How well scores tell labelled anomalies from the rest, point by point.

No point adjustment: it credits a whole anomaly for one lucky point, so that random scores look excellent (Kim et al.,
Towards a Rigorous Evaluation of Time-Series Anomaly Detection, AAAI 2022). No best F1 either: the threshold is the
calibrated one, for nobody can choose one by labels in operation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Detection:
    """Figures of a labelled test; NaN where undefined, such as the precision of no alarm at all.

    auroc, average_precision: over all thresholds; chance is 0.5 and `prevalence`.
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
        f1=_ratio(2 * hits, 2 * hits + false_alarms + misses),
        precision=_ratio(hits, hits + false_alarms),
        recall=_ratio(hits, hits + misses),
        false_alarm_rate=_ratio(false_alarms, false_alarms + rejections),
        miss_rate=_ratio(misses, hits + misses),
        prevalence=_ratio(hits + misses, len(label_n)),
    )


def auroc(score_n: np.ndarray, label_n: np.ndarray) -> float:
    """Area under the ROC curve: the chance that an anomaly outranks a normal point, ties counting half.

    (Mann and Whitney, 1947.) NaN where only one class is present.
    """
    _, group_n, count_g = np.unique(score_n, return_inverse=True, return_counts=True)
    rank_g = np.cumsum(count_g) - (count_g - 1) / 2  # ranks from 1; tied scores share their mean rank
    anomalous_n = label_n.astype(bool)
    positives = int(anomalous_n.sum())
    outranked = rank_g[group_n[anomalous_n]].sum() - positives * (positives + 1) / 2
    return _ratio(float(outranked), positives * (len(label_n) - positives))


def average_precision(score_n: np.ndarray, label_n: np.ndarray) -> float:
    """Area under the precision-recall curve as a sum of steps, tied scores entering together; NaN without anomalies."""
    values_g, group_n, count_g = np.unique(-score_n, return_inverse=True, return_counts=True)
    hits_g = np.bincount(group_n, weights=label_n, minlength=len(values_g))
    precision_g = np.cumsum(hits_g) / np.cumsum(count_g)
    return _ratio(float((precision_g * hits_g).sum()), float(hits_g.sum()))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")
