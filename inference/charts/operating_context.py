"""The operating context of a row, and the usual size of residuals in it.

A recipe takes a process through the same states repeatedly, and in some of them, such as a change of step, every
prediction is worse. A residual is therefore compared with the residuals of similar contexts in the reference data
(locally weighted conformal prediction: Lei, G'Sell, Rinaldo, Tibshirani and Wasserman, Journal of the American
Statistical Association 2018).

That is valid only for a process that repeats itself. A server under an unusual load has no similar past, and its
nearest contexts would hide a fault. `recurrence` measures without labels whether a process repeats itself, by the
method of analogues (Lorenz, Journal of the Atmospheric Sciences 1969).

Suffixes: n row, c channel, k segment or component, f feature, m reference row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from inference.running import Ewma, Running

COMPONENTS = 8
# Features of the recent past: differences of a row from its means over this many smoothing spans.
PAST_SPANS = (0.5, 3.0)
# Number of reference rows that are kept, and number of them that a row is compared with.
REFERENCES, NEIGHBOURS = 4000, 30
# The overall mean square counts as this many additional neighbours.
PRIOR_NEIGHBOURS = 2
# Reference rows closer in time than this many smoothing spans are not independent of each other.
APART_SPANS = 6
# `recurrence` predicts the change over `_CHANGE_SPANS` smoothing spans of `_PREDICTED` rows, each from `_ANALOGUES`
# similar rows.
_CHANGE_SPANS, _ANALOGUES, _PREDICTED = 2, 8, 1500


@dataclass(frozen=True)
class ContextFeatures:
    """Features of a row's context: principal components of the row, and its distances from its recent means.

    loading_ck: float64 (C, K), from standardised rows to components. span: smoothing span in rows.
    """

    loading_ck: np.ndarray
    span: int

    @classmethod
    def fit(cls, filled_nc: np.ndarray, span: int, channels_c: np.ndarray | None = None) -> Self:
        """filled_nc: standardised rows without NaN. channels_c: bool (C,), the channels that describe the context."""
        chosen_nc = filled_nc if channels_c is None else filled_nc * channels_c
        _, deviation_k, vector_kc = np.linalg.svd(chosen_nc - chosen_nc.mean(axis=0), full_matrices=False)
        deviation_k = deviation_k[:COMPONENTS] / np.sqrt(max(len(filled_nc), 1))
        loading_ck = vector_kc[:COMPONENTS].T / np.sqrt(np.maximum(deviation_k, 1e-6))
        return cls(loading_ck if channels_c is None else loading_ck * channels_c[:, np.newaxis], span)

    def extractor(self) -> Extractor:
        """For rows that come in pieces, in order."""
        return Extractor(self)


class Extractor(Running):
    """Features of rows that come in pieces: float32 (n, 3 K)."""

    def __init__(self, features: ContextFeatures):
        self.loading_ck = features.loading_ck
        self._means = tuple(Ewma(max(1.0, spans * features.span), features.loading_ck.shape[1]) for spans in PAST_SPANS)

    def __call__(self, filled_nc: np.ndarray, segment_n: np.ndarray) -> np.ndarray:
        component_nk = filled_nc @ self.loading_ck
        short_nk, long_nk = (component_nk - mean(component_nk, segment_n) for mean in self._means)
        return np.concatenate([component_nk, short_nk, 0.5 * long_nk], axis=1).astype(np.float32)


@dataclass(frozen=True)
class ResidualScale:
    """The usual size of residuals in a context.

    reference_mf: float32 (M, F), contexts of reference rows. square_mc: float32 (M, C), the squares of their residuals.
    usual_c: float64 (C,), the mean square over all reference rows.
    """

    reference_mf: np.ndarray
    square_mc: np.ndarray
    usual_c: np.ndarray

    @classmethod
    def fit(cls, feature_nf: np.ndarray, residual_nc: np.ndarray) -> tuple[Self, np.ndarray]:
        """Keeps up to `REFERENCES` rows, evenly spaced in time. Also returns their indices, int64 (M,)."""
        kept_m = np.unique(np.linspace(0, len(feature_nf) - 1, min(REFERENCES, len(feature_nf))).astype(np.int64))
        square_nc = np.square(residual_nc, dtype=np.float64)
        usual_c = mean_of_observed(square_nc)
        square_mc = np.where(np.isnan(square_nc[kept_m]), usual_c, square_nc[kept_m])
        return cls(feature_nf[kept_m], square_mc.astype(np.float32), usual_c), kept_m

    @cached_property
    def _tree(self):
        from scipy.spatial import cKDTree

        return cKDTree(self.reference_mf)

    def __call__(self, feature_nf: np.ndarray) -> np.ndarray:
        """The root mean square of residuals in the most similar contexts, at least that of all rows: float64 (n, C)."""
        _, neighbour_nk = self._tree.query(feature_nf, k=np.arange(1, self._num_neighbours() + 1))
        return self._of(neighbour_nk, np.ones(neighbour_nk.shape))

    def of_references(
        self, feature_nf: np.ndarray, row_n: np.ndarray, reference_m: np.ndarray, apart: int
    ) -> np.ndarray:
        """The same for reference rows themselves, without neighbours less than `apart` rows away."""
        count = self._num_neighbours()
        _, neighbour_nk = self._tree.query(feature_nf, k=np.arange(1, min(3 * count, len(self.reference_mf)) + 1))
        counts_nk = (np.abs(reference_m[neighbour_nk] - row_n[:, np.newaxis]) > apart).astype(np.float64)
        counts_nk *= np.cumsum(counts_nk, axis=1) <= count
        return self._of(neighbour_nk, counts_nk)

    def _of(self, neighbour_nk: np.ndarray, weight_nk: np.ndarray) -> np.ndarray:
        sum_nc = np.einsum("nk,nkc->nc", weight_nk, self.square_mc[neighbour_nk])
        count_n1 = weight_nk.sum(axis=1, keepdims=True)
        local_nc = (sum_nc + PRIOR_NEIGHBOURS * self.usual_c) / (count_n1 + PRIOR_NEIGHBOURS)
        return np.sqrt(np.maximum(local_nc, self.usual_c))

    def _num_neighbours(self) -> int:
        return min(NEIGHBOURS, max(5, len(self.reference_mf) // 20))

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {"reference_mf": self.reference_mf, "square_mc": self.square_mc, "usual_c": self.usual_c}

    @classmethod
    def from_arrays(cls, held: Mapping[str, np.ndarray]) -> Self:
        return cls(*(held[name] for name in ("reference_mf", "square_mc", "usual_c")))


def recurrence(filled_nc: np.ndarray, segment_n: np.ndarray, span: int) -> float:
    """How well the next change of a process is predicted by the changes after similar contexts at other times.

    filled_nc: standardised rows without NaN, (n, C). segment_n: number of each row's segment, ascending. span:
    smoothing span in rows.
    Returns the share of the variance of changes over two smoothing spans that is explained, at most 1: near 1 for a
    recipe, .2 to .7 for processes that do not repeat themselves exactly; 0 if there are too few rows.
    """
    from scipy.spatial import cKDTree

    features = ContextFeatures.fit(filled_nc, span)
    feature_nf = features.extractor()(filled_nc, segment_n)
    step = _CHANGE_SPANS * span
    row_m = np.flatnonzero(segment_n[:-step] == segment_n[step:]) if len(filled_nc) > step else np.empty(0, np.int64)
    if len(row_m) < 3 * _ANALOGUES * APART_SPANS:
        return 0.0
    # Plain components: those of the features are scaled to equal weight.
    component_nk = filled_nc @ (features.loading_ck / np.linalg.norm(features.loading_ck, axis=0).clip(min=1e-12))
    change_mk = component_nk[row_m + step] - component_nk[row_m]
    reference_r = np.unique(np.linspace(0, len(row_m) - 1, min(REFERENCES, len(row_m))).astype(np.int64))
    asked_q = np.unique(np.linspace(0, len(row_m) - 1, min(_PREDICTED, len(row_m))).astype(np.int64))
    nearest = min(NEIGHBOURS * 2, len(reference_r))
    _, found_qk = cKDTree(feature_nf[row_m[reference_r]]).query(feature_nf[row_m[asked_q]], k=np.arange(1, nearest + 1))
    apart_qk = np.abs(row_m[reference_r][found_qk] - row_m[asked_q][:, np.newaxis]) > max(APART_SPANS * span, 2 * step)
    weight_qk = (apart_qk & (np.cumsum(apart_qk, axis=1) <= _ANALOGUES)).astype(np.float64)
    weight_qk /= np.maximum(weight_qk.sum(axis=1, keepdims=True), 1.0)
    predicted_qk = np.einsum("qr,qrk->qk", weight_qk, change_mk[reference_r][found_qk])
    changed = float(np.square(change_mk[asked_q]).sum())
    return 1.0 - float(np.square(change_mk[asked_q] - predicted_qk).sum()) / changed if changed > 0 else 0.0


def mean_of_observed(values_nc: np.ndarray) -> np.ndarray:
    """Mean of each column without its missing values, float64 (C,); NaN for a column without any value."""
    count_c = (~np.isnan(values_nc)).sum(axis=0)
    return np.where(count_c > 0, np.nansum(values_nc, axis=0) / np.maximum(count_c, 1), np.nan)
