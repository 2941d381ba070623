"""A simple baseline: PCA residuals (Q) with an exponentially weighted mean."""

from __future__ import annotations

import numpy as np

from benchmarks.plants.plant import SENSORS, Plant
from inference.metrics import auroc

# Span of the mean in rows, and shares of the variance that the components keep: common choices, without labels.
SPAN = 30
SHARES = (0.95, 0.99)


def pca_q_auroc(plant: Plant, share: float) -> float:
    """Row AUROC on the test data of components that keep `share` of the variance of the training data."""
    train_nc, test_nc = (np.stack([values[name] for name in SENSORS], axis=1) for values in (plant.train, plant.test))
    center_c, scale_c = train_nc.mean(axis=0), train_nc.std(axis=0)
    test_nc = (np.where(np.isnan(test_nc), center_c, test_nc) - center_c) / scale_c
    variance_c, axes_cc = np.linalg.eigh(np.cov((train_nc - center_c) / scale_c, rowvar=False))
    kept = int(np.searchsorted(np.cumsum(variance_c[::-1]) / variance_c.sum(), share)) + 1
    axes_ck = axes_cc[:, ::-1][:, :kept]
    q_n = np.square(test_nc - test_nc @ axes_ck @ axes_ck.T).sum(axis=1)
    label_n = np.zeros(len(q_n), dtype=np.int8)
    label_n[plant.start : plant.stop] = 1
    return auroc(_smoothed(q_n), label_n)


def _smoothed(values_n: np.ndarray) -> np.ndarray:
    weight, level, found_n = 2 / (SPAN + 1), float(values_n[0]), np.empty_like(values_n)
    for row, value in enumerate(values_n):
        level += weight * (value - level)
        found_n[row] = level
    return found_n
