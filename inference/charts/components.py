"""The residual of principal components, whose mean square over channels is the Q statistic, also called SPE.

The components hold 90 % of the variance of reference rows (Jackson and Mudholkar, Control Procedures for Residuals
Associated With Principal Component Analysis, Technometrics 1979). The residual of a row does not depend on the rows
before it, so a lasting shift between channels stays visible, while a regression on the last rows soon follows it. For
the same reason the residual grows in a plant that drifts: `fit` measures how much larger Q is when the components are
fitted to the other half of the reference rows.

Suffixes: n row, c channel, k component or segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from core.data.blocks import blocks, gathered, slices
from core.data.medians import median
from inference.charts.reference_rows import Sums, rows_of_folds

VARIANCE_KEPT = 0.9
_VALUES_AT_A_TIME = 2**20


@dataclass(frozen=True)
class Components:
    """centre_c: mean of the standardised reference rows, float64 (C,). left_cc: projection on the residual of the
    components; zeros if all components are needed to hold the variance. The residual of a single channel is its value:
    Q is the square of the standardised value then."""

    centre_c: np.ndarray
    left_cc: np.ndarray

    def residual(self, z_nc: np.ndarray) -> np.ndarray:
        """The residual of standardised rows (n, C), NaN where a value is missing: float64 (n, C)."""
        return np.where(np.isnan(z_nc), np.nan, (np.nan_to_num(z_nc) - self.centre_c) @ self.left_cc)


@dataclass
class _Moments(Sums):
    """Number, sum (C,) and sum of products (C, C) of rows."""

    count: int
    sum_c: np.ndarray
    product_cc: np.ndarray

    @classmethod
    def of(cls, z_nc: np.ndarray) -> _Moments:
        filled = (np.nan_to_num(piece_nc) for piece_nc in _pieces(z_nc))
        return cls.total([cls(len(rows_nc), rows_nc.sum(axis=0), rows_nc.T @ rows_nc) for rows_nc in filled])

    def components(self) -> Components:
        centre_c = self.sum_c / self.count
        variance_c, vector_cc = np.linalg.eigh(self.product_cc / self.count - np.outer(centre_c, centre_c))
        share_c = np.cumsum(variance_c[::-1]) / max(variance_c.sum(), 1e-12)
        loading_ck = vector_cc[:, ::-1][:, : int(np.searchsorted(share_c, VARIANCE_KEPT)) + 1]
        if len(centre_c) == 1:  # no other channel predicts it: its residual is its value
            return Components(centre_c, np.eye(1))
        if loading_ck.shape[1] == len(centre_c):  # unrelated channels: only rounding is left
            return Components(centre_c, np.zeros((len(centre_c),) * 2))
        return Components(centre_c, np.eye(len(centre_c)) - loading_ck @ loading_ck.T)


def fit(z_nc: np.ndarray, segments_k2: np.ndarray, scratch: Path | None = None) -> tuple[Components, np.ndarray, float]:
    """The components of reference rows, the out-of-fold residuals of these rows, and the drift.

    z_nc: standardised rows (S, C) of the segments (K, 2), NaN missing. The residuals are float32 (S, C), in `scratch`
    if they are long. Drift: the median Q of each half of the rows with components fitted to the other half, averaged,
    divided by the median Q with components fitted to all rows; at least 1.
    """
    folds = rows_of_folds(z_nc, segments_k2)
    found = [_Moments.of(fold_nc) for fold_nc in folds]
    of_all = _Moments.total(found).components()
    others = [_Moments.total(found[:at] + found[at + 1 :] or found).components() for at in range(len(found))]
    left = (
        each.residual(piece_nc).astype(np.float32)
        for each, fold_nc in zip(others, folds, strict=True)
        for piece_nc in _pieces(fold_nc)
    )
    return of_all, gathered(left, scratch), _drift(folds, found, scratch) if found[1:] else 1.0


def _pieces(z_nc: np.ndarray) -> Iterator[np.ndarray]:
    return (z_nc[piece] for piece in slices(z_nc, num_values=_VALUES_AT_A_TIME))


def _drift(folds: Sequence[np.ndarray], found: Sequence[_Moments], scratch: Path | None) -> float:
    half = len(folds) // 2
    halves = [slice(half), slice(half, None)]
    of_half = [_Moments.total(found[part]).components() for part in halves]
    of_other_half = [_median_q(of_half[1 - at], folds[part], scratch) for at, part in enumerate(halves)]
    known = [q for q in of_other_half if not np.isnan(q)]
    of_all = _median_q(_Moments.total(found).components(), folds, scratch)
    return max(float(np.mean(known)) / max(of_all, 1e-9), 1.0) if known else 1.0


def _median_q(components: Components, folds: Sequence[np.ndarray], scratch: Path | None) -> float:
    """Median Q of the rows with a value; NaN if there is none."""
    pieces = (piece_nc for fold_nc in folds for piece_nc in _pieces(fold_nc))
    q_n = gathered((_q(components.residual(z_nc)) for z_nc in pieces), scratch)
    return float(median(partial(blocks, q_n), len(q_n)))


def _q(left_nc: np.ndarray) -> np.ndarray:
    """The mean square of each row that has a value, (n,); rows without any are left out."""
    count_n = (~np.isnan(left_nc)).sum(axis=1)
    return np.nansum(left_nc**2, axis=1)[count_n > 0] / count_n[count_n > 0]
