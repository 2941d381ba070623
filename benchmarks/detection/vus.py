"""The volume under the precision-recall surface, which papers report; the product has no use for it."""

from __future__ import annotations

import numpy as np

from core.thinning import runs_of


def vus_pr(score_n: np.ndarray, label_n: np.ndarray, *, window: int = 100, thresholds: int = 250) -> float:
    """Volume under the precision-recall surface; NaN without anomalies or without normal points.

    (Paparrizos et al., Volume Under the Surface, VLDB 2022.) The edges of an anomaly are soft: outside of it, the label
    decreases over half of a buffer, so that an alarm that is a little early or late counts in part. The area is
    averaged over buffers of 0 to `window` points. `thresholds`: number of scores that are used as thresholds, evenly
    spaced by rank.

    The definition is that of the authors' code (`RangeAUC_volume_opt`): it counts a soft label only if its point is an
    alarm, and multiplies recall by the share of anomalies with an alarm.
    """
    anomalous_n = label_n.astype(bool)
    if anomalous_n.all() or not anomalous_n.any():
        return float("nan")
    first_e, stop_e = runs_of(anomalous_n)
    last_e = stop_e - 1

    # A point is an alarm from the first threshold k that it reaches; sums over points are then sums over k.
    rank_k = np.linspace(0, len(score_n) - 1, thresholds).astype(int)
    threshold_k = np.sort(score_n)[::-1][rank_k]
    alarms_from_n = np.searchsorted(-threshold_k, -score_n, side="left")
    alarms_k = _up_to(alarms_from_n, None, thresholds)
    hits_k = _up_to(alarms_from_n[anomalous_n], None, thresholds)
    positives = int(anomalous_n.sum())

    areas = []
    for buffer in range(window + 1):
        half = buffer // 2
        point_m, weight_m = _soft_edges(first_e, last_e, half, buffer, anomalous_n)
        soft_k = _up_to(alarms_from_n[point_m], weight_m, thresholds)
        seen_k = _seen(alarms_from_n, first_e - half, last_e + half, thresholds)
        found_k = hits_k + soft_k
        recall_k = np.minimum(found_k / (positives + soft_k / 2), 1.0) * seen_k
        areas.append(float(np.diff(recall_k, prepend=0.0) @ (found_k / alarms_k)))
    return float(np.mean(areas))


def _up_to(index_m: np.ndarray, weight_m: np.ndarray | None, length: int) -> np.ndarray:
    """The total weight of all points whose index is at most k: float64 (length,)."""
    return np.cumsum(np.bincount(index_m, weights=weight_m, minlength=length)).astype(np.float64)


def _soft_edges(
    first_e: np.ndarray, last_e: np.ndarray, half: int, buffer: int, anomalous_n: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The normal points within `half` of an anomaly, and their soft labels (at most 1 where edges overlap)."""
    if half == 0:
        return np.empty(0, dtype=np.int64), np.empty(0)
    distance_h = np.arange(1, half + 1)
    point_m = np.concatenate([np.add.outer(last_e, distance_h).ravel(), np.subtract.outer(first_e, distance_h).ravel()])
    weight_m = np.tile(np.sqrt(1 - distance_h / buffer), 2 * len(first_e))
    inside_m = (point_m >= 0) & (point_m < len(anomalous_n))
    inside_m[inside_m] = ~anomalous_n[point_m[inside_m]]
    point_u, group_m = np.unique(point_m[inside_m], return_inverse=True)
    return point_u, np.minimum(np.bincount(group_m, weights=weight_m[inside_m], minlength=len(point_u)), 1.0)


def _seen(alarms_from_n: np.ndarray, start_e: np.ndarray, end_e: np.ndarray, thresholds: int) -> np.ndarray:
    """Share of anomalies with at least one alarm at threshold k: float64 (k,). Overlapping anomalies count as one."""
    begins_e = np.append(True, end_e[:-1] >= 0) & np.append(True, end_e[:-1] < start_e[1:])
    ends_e = np.append(begins_e[1:], True)
    start_g = np.maximum(start_e[begins_e], 0)
    end_g = np.minimum(end_e[ends_e], len(alarms_from_n) - 1)
    # reduceat over [start, end + 1, start, end + 1, …]: every other result belongs to an anomaly.
    bounds = np.minimum(np.stack([start_g, end_g + 1], axis=1).ravel(), len(alarms_from_n) - 1)
    first_g = np.minimum.reduceat(alarms_from_n, bounds)[::2]
    first_g = np.where(end_g == len(alarms_from_n) - 1, np.minimum(first_g, alarms_from_n[-1]), first_g)
    return _up_to(first_g, None, thresholds) / len(first_g)
