"""Principal components of normal rows: Q against scikit-learn's, and the drift."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA

from core.data.segments import rows_of
from inference.charts.components import VARIANCE_KEPT, fit
from inference.charts.reference_rows import FOLDS, folds_of
from tests.inference.charts.plants import plant, whole


def standardised(values_nc: np.ndarray) -> np.ndarray:
    return ((values_nc - values_nc.mean(axis=0)) / values_nc.std(axis=0)).astype(np.float32)


def test_residuals_equal_those_of_scikit_learn():
    z_nc = standardised(plant(3000, seed=0, num_channels=6))
    components, _, _ = fit(z_nc, whole(z_nc))
    theirs = PCA(n_components=VARIANCE_KEPT, svd_solver="full").fit(z_nc)
    expected_nc = z_nc - theirs.inverse_transform(theirs.transform(z_nc))
    np.testing.assert_allclose(components.residual(z_nc), expected_nc, atol=1e-5)


def test_rows_are_scored_by_components_of_other_folds():
    z_nc = np.random.default_rng(0).normal(size=(40, 20)).astype(np.float32)
    components, left_nc, _ = fit(z_nc, whole(z_nc))
    assert (left_nc**2).mean() > 2 * (components.residual(z_nc) ** 2).mean()


def test_drift_is_one_for_stable_components_and_large_for_moving_ones():
    z_nc = standardised(np.random.default_rng(0).normal(size=(4000, 5)))
    assert fit(z_nc, whole(z_nc))[2] == pytest.approx(1.0, abs=0.1)
    turned_nc = plant(4000, seed=0)
    turned_nc[2000:, 0] *= -1
    assert fit(standardised(turned_nc), whole(turned_nc))[2] > 3


def test_missing_rows_cause_no_drift():
    """Half of the rows, an empty half, and no rows."""
    z_nc = standardised(plant(4000, seed=0, num_channels=5))
    whole_drift = fit(z_nc, whole(z_nc))[2]
    z_nc[1000:3000] = np.nan
    assert fit(z_nc, whole(z_nc))[2] == pytest.approx(whole_drift, abs=0.1)
    z_nc[:3000] = np.nan
    assert fit(z_nc, whole(z_nc))[2] == 1.0
    assert fit(np.full_like(z_nc, np.nan), whole(z_nc))[2] == 1.0


def test_folds_contain_each_row_once():
    segments_k2 = np.array([[3, 10], [20, 21], [40, 99]])
    folds = folds_of(segments_k2)
    assert len(folds) == FOLDS
    assert np.concatenate([rows_of(fold) for fold in folds]).tolist() == rows_of(segments_k2).tolist()
    assert rows_of(segments_k2).tolist() == [*range(3, 10), 20, *range(40, 99)]


def test_unrelated_channels_have_no_components():
    z_nc = np.random.default_rng(0).normal(size=(2000, 4)).astype(np.float32)
    plane, left_nc, _ = fit(z_nc, whole(z_nc))
    assert not plane.left_cc.any()
    assert not left_nc.any()
