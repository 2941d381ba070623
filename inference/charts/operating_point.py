"""The features of a vibration window that are expected at the operating point of its recording.

Speed and load change level, spectrum and modulation of a healthy machine. Where they are known, a polynomial of them is
fitted to the features of reference windows, and the charts score the differences from it (regression adjustment:
Mandel, The Regression Control Chart, Journal of Quality Technology 1969). The degree is 0, 1 or 2: the one that best
predicts the features at operating points that were left out of the fit, so that machines which differ for another
reason than their speed are not fitted. Beyond the reference range, a polynomial predicts nothing; the nearest point of
the range is used instead.

Suffixes: w window, k quantity of an operating point, m term of a polynomial, c channel (axis), f feature.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Self

import numpy as np

from core.data.windows import WindowSet

log = logging.getLogger(__name__)
FOLDS = 8
_HIGHEST_DEGREE = 2
# An operating point that is outside of the reference range by more than this share of it is named.
_TOLERANCE = 0.05
_SMALLEST = 1e-12


def operating_points(windows: WindowSet) -> np.ndarray:
    """The operating point of each window, float64 (W, K); K is 0 where none is known."""
    points = [recording.operating_point for recording in windows.series.recordings]
    return np.array(points, dtype=np.float64).reshape(len(points), -1)[windows.recording_of()]


@dataclass(frozen=True)
class PolynomialTerms:
    """Terms of a polynomial of an operating point, without the constant one.

    low_k, high_k: range of the reference windows. degree: of the polynomial; 0 has no terms.
    """

    low_k: np.ndarray
    high_k: np.ndarray
    degree: int

    @classmethod
    def chosen(cls, point_wk: np.ndarray, features: Mapping[str, np.ndarray]) -> Self:
        """Of the degree that best predicts the features (W, C, F) at left-out operating points."""
        low_k, high_k = (bound(point_wk, axis=0) for bound in (np.min, np.max))
        if not (high_k > low_k).any():
            return cls(low_k, high_k, 0)
        known_wm = [_standardised(each_wcf) for each_wcf in features.values()]
        _, number_w = np.unique(point_wk, axis=0, return_inverse=True)
        fold_w = number_w.reshape(-1) % FOLDS  # NumPy 2.0 returns (W, 1)
        each = [cls(low_k, high_k, degree) for degree in range(_HIGHEST_DEGREE + 1)]
        error_d = [_left_out_error(terms(point_wk), known_wm, fold_w) for terms in each]
        found = each[int(np.argmin(error_d))]
        log.info(
            "operating points: the control charts expect features by a polynomial of degree %d, which leaves %.0f %% "
            "of the variance at left-out operating points",
            found.degree, 100 * error_d[found.degree] / error_d[0],
        )  # fmt: skip
        return found

    def __call__(self, point_wk: np.ndarray) -> np.ndarray:
        """Terms (W, M), centred at the middle of the range."""
        middle_k, half_k = (self.high_k + self.low_k) / 2, np.maximum((self.high_k - self.low_k) / 2, _SMALLEST)
        unit_wk = (np.clip(point_wk, self.low_k, self.high_k) - middle_k) / half_k
        columns = [
            unit_wk[:, list(chosen)].prod(axis=1)
            for degree in range(1, self.degree + 1)
            for chosen in combinations_with_replacement(range(unit_wk.shape[1]), degree)
        ]
        return np.stack(columns, axis=1) if columns else np.empty((len(point_wk), 0))

    def warn_outside(self, windows: WindowSet) -> None:
        """Names a recording whose operating point is not close to the range of the reference data."""
        margin_k = _TOLERANCE * (self.high_k - self.low_k)
        low_k, high_k = self.low_k - margin_k, self.high_k + margin_k
        outside = [
            recording
            for recording in windows.series.recordings
            if ((recording.operating_point < low_k) | (recording.operating_point > high_k)).any()
        ]
        if outside:
            log.warning(
                "%s%s: the operating point %s is outside that of the reference data, %s to %s: the control charts "
                "expect what is usual at the nearest one",
                outside[0].file_id, f" and {len(outside) - 1} more" if len(outside) > 1 else "",
                _text(outside[0].operating_point), _text(self.low_k), _text(self.high_k),
            )  # fmt: skip


def _text(point_k: Iterable[float]) -> str:
    return ", ".join(f"{value:g}" for value in point_k)


def fit_terms(term_wm: np.ndarray, feature_wcf: np.ndarray) -> np.ndarray:
    """Coefficients (M, C, F) by least squares, with a constant that is not returned: charts have a mean of their
    own. 0 for an axis without values."""
    coefficient_mcf = np.zeros((term_wm.shape[1], *feature_wcf.shape[1:]))
    if not term_wm.shape[1]:
        return coefficient_mcf
    for axis in range(feature_wcf.shape[1]):
        known_w = ~np.isnan(feature_wcf[:, axis]).any(axis=-1)
        if known_w.any():
            design_wm = _with_constant(term_wm[known_w])
            coefficient_mcf[:, axis] = np.linalg.lstsq(design_wm, feature_wcf[known_w, axis], rcond=None)[0][1:]
    return coefficient_mcf


def _with_constant(term_wm: np.ndarray) -> np.ndarray:
    return np.concatenate([np.ones((len(term_wm), 1)), term_wm], axis=1)


def _standardised(feature_wcf: np.ndarray) -> np.ndarray:
    """Features in standard deviations, divided by the root of their number, so that each chart counts once: (W, C · F).
    A missing one is 0, the mean."""
    flat_wm = feature_wcf.reshape(len(feature_wcf), -1)
    known_wm = ~np.isnan(flat_wm)
    count_m = np.maximum(known_wm.sum(axis=0), 1)
    centred_wm = np.where(known_wm, flat_wm, 0.0)
    centred_wm = np.where(known_wm, centred_wm - centred_wm.sum(axis=0) / count_m, 0.0)
    deviation_m = np.sqrt((centred_wm**2).sum(axis=0) / count_m)
    return centred_wm / np.maximum(deviation_m, _SMALLEST) / flat_wm.shape[1] ** 0.5


def _left_out_error(term_wm: np.ndarray, features: list[np.ndarray], fold_w: np.ndarray) -> float:
    """The mean squared error of the prediction of left-out folds; infinite if the others do not determine what
    all of them do, as a slope from one speed."""
    value_wf, design_wm = np.concatenate(features, axis=1), _with_constant(term_wm)
    error, rank_of_all = 0.0, np.linalg.matrix_rank(design_wm)
    for fold in np.unique(fold_w):
        mine_w = fold_w == fold
        solution_mf, _, rank, _ = np.linalg.lstsq(design_wm[~mine_w], value_wf[~mine_w], rcond=None)
        if rank < rank_of_all:
            return np.inf
        error += float(((value_wf[mine_w] - design_wm[mine_w] @ solution_mf) ** 2).sum())
    return error / len(value_wf)
