"""Innovations of single channels, against least squares."""

from __future__ import annotations

import numpy as np
import pytest

from inference.charts.innovations import RESIDUAL_CAP, Innovations

MIXING = np.array([[1.0, 0.0, 0.0], [0.8, 0.5, 0.0], [0.3, -0.4, 0.6]])


def residuals(num_rows: int = 20_000) -> np.ndarray:
    """Correlated rows in very different units."""
    return np.random.default_rng(0).normal(size=(num_rows, 3)) @ MIXING.T * [1.0, 100.0, 0.01]


def fitted(residual_nc: np.ndarray) -> Innovations:
    return Innovations.fit(np.array_split(residual_nc, 7), (residual_nc**2).mean(axis=0))


def test_what_the_others_do_not_predict_is_the_residual_of_least_squares():
    residual_nc = residuals()
    innovations = fitted(residual_nc)
    for channel in range(3):
        others_nf = np.delete(residual_nc, channel, axis=1)
        weight_f, *_ = np.linalg.lstsq(others_nf, residual_nc[:, channel], rcond=None)
        expected_n = residual_nc[:, channel] - others_nf @ weight_f
        found_n = residual_nc @ innovations.conditional_cc[:, channel]
        assert (found_n - expected_n).std() < 0.05 * expected_n.std()  # the shrinkage


def test_the_smaller_of_both_counts():
    residual_nc = residuals(2000)
    innovations = fitted(residual_nc)
    conditional_nc = residual_nc @ innovations.conditional_cc
    smaller_nc = np.minimum(np.abs(residual_nc), np.abs(conditional_nc))
    np.testing.assert_allclose(np.abs(innovations(residual_nc)), smaller_nc)


def test_a_missing_value_predicts_nothing_and_has_no_innovation():
    residual_nc = residuals()
    innovations = fitted(residual_nc)
    row_nc = residual_nc[:1].copy()
    row_nc[0, 1:] = np.nan
    found_nc = innovations(row_nc)
    assert found_nc[0, 0] == row_nc[0, 0]
    assert np.isnan(found_nc[0, 1:]).all()


def test_a_value_of_1e30_leaves_the_other_channels_as_they_are():
    residual_nc = residuals()
    row_nc = np.array([[0.1, 1e30, 0.001]])
    found_nc = fitted(residual_nc)(row_nc)
    np.testing.assert_array_equal(found_nc[0, [0, 2]], row_nc[0, [0, 2]])
    assert found_nc[0, 1] == pytest.approx(RESIDUAL_CAP * np.sqrt((residual_nc[:, 1] ** 2).mean()), rel=0.01)


def test_copied_constant_and_empty_channels_have_finite_weights():
    noise_n = np.random.default_rng(0).normal(size=500)
    residual_nc = np.column_stack([noise_n, noise_n, np.zeros(500), np.full(500, np.nan)])
    usual_c = np.array([1.0, 1.0, 0.01, np.nan])
    innovations = Innovations.fit([residual_nc], usual_c)
    assert np.isfinite(innovations.conditional_cc).all()
    assert np.abs(innovations(residual_nc)[:, :2]).max() < 0.02 * np.abs(noise_n).max()


def test_few_rows_of_many_independent_channels_predict_almost_nothing():
    """Without shrinkage, 39 channels would explain all of 40 rows."""
    residual_nc = np.random.default_rng(0).normal(size=(40, 40))
    new_nc = np.random.default_rng(1).normal(size=(1000, 40))
    conditional_nc = new_nc @ fitted(residual_nc).conditional_cc
    assert (conditional_nc**2).mean() < 1.2
