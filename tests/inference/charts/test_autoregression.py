"""The regression on the last rows of all channels."""

from __future__ import annotations

import numpy as np
import pytest

from core.config.charts import ProcessCharts
from inference.charts import autoregression
from inference.charts.autoregression import Autoregression
from inference.charts.reference_rows import FOLDS
from tests.inference.charts.plants import plant, whole

CHARTS = ProcessCharts()


def fit(values_nc: np.ndarray, segments_k2: np.ndarray) -> tuple[Autoregression, np.ndarray]:
    return autoregression.fit(values_nc, segments_k2, CHARTS)


def residual(regression: Autoregression, values_nc: np.ndarray) -> np.ndarray:
    return np.concatenate([regression.residual(rows) for rows in regression.rows(values_nc, whole(values_nc))])


def test_the_autoregression_is_a_ridge_regression():
    """Solved as one least-squares problem with the penalty as extra rows, towards the channel's own past."""
    values_nc = plant(400, seed=0).astype(np.float64)
    regression, _ = fit(values_nc, whole(values_nc))
    z_nc = (values_nc - values_nc.mean(axis=0)) / values_nc.std(axis=0)
    lags, folds = CHARTS.lags, np.split(z_nc, FOLDS)
    padded = [np.concatenate([np.repeat(fold_nc[:1], lags, axis=0), fold_nc]) for fold_nc in folds]
    lagged = [np.concatenate([fold_mc[lag : lag - lags] for fold_mc in padded]) for lag in range(lags)]
    own_nc = np.mean(lagged, axis=0)
    persistence_c = (own_nc * z_nc).sum(axis=0) / (own_nc**2).sum(axis=0)
    x_nf = np.column_stack([*lagged, np.ones(len(z_nc))]).clip(-autoregression.CLIP, autoregression.CLIP)
    extra_ff = np.eye(x_nf.shape[1])[:-1] * np.sqrt(autoregression.PENALTY * len(z_nc))
    target = np.concatenate([z_nc - persistence_c * own_nc, np.zeros((len(extra_ff), 3))])
    expected_fc = np.linalg.lstsq(np.concatenate([x_nf, extra_ff]), target, rcond=None)[0]
    np.testing.assert_allclose(regression.persistence_c, persistence_c)
    np.testing.assert_allclose(regression.weight_fc, expected_fc, atol=1e-8)


def test_residuals_of_reference_rows_are_as_large_as_those_of_new_rows():
    regression, normal_sc = fit(plant(4000, seed=0), whole(plant(4000, seed=0)))
    assert residual(regression, plant(4000, seed=1)).std() == pytest.approx(normal_sc.std(), rel=0.1)


def test_a_random_walk_is_predicted_to_stay_and_noise_to_return():
    rng = np.random.default_rng(0)
    values_nc = np.column_stack([np.cumsum(rng.normal(size=3000)), rng.normal(size=3000)])
    regression, _ = fit(values_nc, whole(values_nc))
    assert regression.persistence_c[0] > 0.95
    assert regression.persistence_c[1] < 0.2
