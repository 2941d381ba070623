"""Running means and sums, compared with pandas and with the textbook recursion."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from inference.running import Cusum, Ewma

SEGMENT_N = np.repeat(np.arange(4), [1, 700, 99, 1200])
PIECES = [[], [1, 2, 700, 701, 702, 1999], [500, 1000, 1500]]


def in_pieces(running: Callable[[np.ndarray, np.ndarray], np.ndarray], values_nc: np.ndarray, cuts: list[int]):
    split = zip(np.split(values_nc, cuts), np.split(SEGMENT_N, cuts), strict=True)
    return np.concatenate([running(values, segment) for values, segment in split])


def with_gaps(values_nc: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.where(rng.random(values_nc.shape) < 0.1, np.nan, values_nc)


@pytest.mark.parametrize("cuts", PIECES)
@pytest.mark.parametrize("span", [2, 10, 300])
def test_ewma_agrees_with_pandas_and_never_crosses_a_gap(span, cuts):
    rng = np.random.default_rng(span)
    values_nc = with_gaps(rng.exponential(size=(2000, 3)), rng)
    smooth_nc = pd.DataFrame(values_nc).groupby(SEGMENT_N).ewm(span=span).mean().to_numpy()
    found_nc = in_pieces(Ewma(span, 3), values_nc, cuts)
    np.testing.assert_allclose(found_nc, np.where(np.isnan(values_nc), np.nan, smooth_nc), rtol=1e-6)


@pytest.mark.parametrize("cuts", PIECES)
@pytest.mark.parametrize("span", [2, 12.5, 300])
def test_cusum_agrees_with_its_recursion_and_restarts_at_each_segment(span, cuts):
    rng = np.random.default_rng(int(span))
    z_nc = with_gaps(rng.normal(size=(2000, 3)) + np.array([0.0, 1.0, -1.0]), rng)
    found_nc = in_pieces(Cusum(span, 0.5, 3), z_nc, cuts)
    np.testing.assert_allclose(found_nc, _recursion(z_nc, 1 - 2 / (span + 1), allowance=0.5), atol=1e-7)


def _recursion(z_nc: np.ndarray, decay: float, *, allowance: float) -> np.ndarray:
    found_nc = np.full(z_nc.shape, np.nan)
    for column in range(z_nc.shape[1]):
        up = down = 0.0
        for row, z in enumerate(z_nc[:, column]):
            if row == 0 or SEGMENT_N[row] != SEGMENT_N[row - 1]:
                up = down = 0.0
            push = (0.0, 0.0) if np.isnan(z) else (z - allowance, -z - allowance)
            up, down = max(0.0, decay * up + push[0]), max(0.0, decay * down + push[1])
            found_nc[row, column] = np.nan if np.isnan(z) else max(up, down)
    return found_nc


def test_a_small_shift_accumulates_and_noise_below_the_allowance_does_not():
    z_nc = np.random.default_rng(0).normal(scale=0.1, size=(2000, 2))
    z_nc[:, 1] -= 1.0
    quiet, pushed = Cusum(20, 0.5, 2)(z_nc, np.zeros(2000))[100:].T
    assert quiet.max() == 0.0
    assert pushed.min() > 4.0
