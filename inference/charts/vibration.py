"""Control charts of vibration: the distances of level, spectrum and modulation of a window from those of reference
windows.

There are four charts, each with its own features of a window (`inference.charts.vibration_features`): the overall
level, the spectrum, the low-frequency lines, and the modulation. The distance of a chart is Hotelling's T² (Annals of
Mathematical Statistics 1931). Speed and load move the features of a chart together. The covariance of reference windows
accounts for that: another operating point raises no alarm, a small change across it does. Where the operating point of
each recording is known (`data.context_channels`), what is expected there is subtracted first
(`inference.charts.operating_point`). The covariance is that of single windows, of which there are many. The scored
features are exponentially weighted means over the windows of a file
(Lowry et al., A Multivariate Exponentially Weighted Moving Average Control Chart, Technometrics 1992), because the
state of a machine lasts longer than a window.

Reference windows are scored by charts that were fitted without their recording (cross-fitting), so that their errors
are as large as those of new recordings.

Suffixes: w window, c channel (axis), f feature, m term of the operating point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from scipy.linalg import lu_factor, lu_solve

from core.config.charts import VibrationCharts
from core.data.splits import SplitName
from core.data.windows import WindowSet
from inference.charts.operating_point import PolynomialTerms, fit_terms, operating_points
from inference.charts.vibration_features import CHARTS, Features, features_of, smoothed
from inference.running import decay_of, variance_left

FOLDS = 8
# With fewer files, time segments are left out instead: fewer of them, because neighbouring windows are similar.
_FEWEST_FILES, _SEGMENTS = 4, 4
_SMALLEST = 1e-12
# Key of the terms of the operating point among the features, (W, 1, M): they are averaged over windows as features are.
_TERMS = "terms"


@dataclass(frozen=True)
class Chart:
    """Features of reference windows: coefficients (M, C, F) of the terms of the operating point, and of what they leave
    the mean and deviation (C, F), and the LU factors (C, F, F) of the shrunk correlation matrix, all float64, with the
    pivots (C, F), int32, counted from 1."""

    coefficient_mcf: np.ndarray
    mean_cf: np.ndarray
    scale_cf: np.ndarray
    factor_cff: np.ndarray
    pivot_cf: np.ndarray

    @classmethod
    def fit(cls, reference_wcf: np.ndarray, term_wm: np.ndarray, settings: VibrationCharts) -> Self:
        coefficient_mcf = fit_terms(term_wm, reference_wcf)
        reference_wcf = _without(reference_wcf, term_wm, coefficient_mcf)
        mean_cf = known_mean(reference_wcf, axis=0)
        centred_cwf = np.nan_to_num(reference_wcf - mean_cf).transpose(1, 0, 2)
        scale_cf = np.maximum(np.sqrt((centred_cwf**2).mean(axis=1)), settings.deviation_floor)
        scaled_cwf = centred_cwf / scale_cf[:, np.newaxis]
        correlation_cff = scaled_cwf.transpose(0, 2, 1) @ scaled_cwf / scaled_cwf.shape[1]
        shrunk_cff = correlation_cff + settings.shrinkage * np.eye(mean_cf.shape[-1])
        factors, pivots = zip(*map(lu_factor, shrunk_cff), strict=True)
        return cls(coefficient_mcf, mean_cf, scale_cf, np.stack(factors), np.stack(pivots).astype(np.int32) + 1)

    def distances(self, new_wcf: np.ndarray, term_wm: np.ndarray) -> np.ndarray:
        """Squared Mahalanobis distances divided by the number of features, (W, C); NaN for an axis without values."""
        new_wcf = _without(new_wcf, term_wm, self.coefficient_mcf)
        offset_cwf = ((new_wcf - self.mean_cf) / self.scale_cf).transpose(1, 0, 2)
        solved_cwf = np.stack(
            [
                lu_solve((factor_ff, pivot_f - 1), offset_wf.T, check_finite=False).T
                for factor_ff, pivot_f, offset_wf in zip(self.factor_cff, self.pivot_cf, offset_cwf, strict=True)
            ]
        )
        return (offset_cwf * solved_cwf).mean(axis=-1).T


def _without(feature_wcf: np.ndarray, term_wm: np.ndarray, coefficient_mcf: np.ndarray) -> np.ndarray:
    """Features without what the terms of the operating point predict."""
    return feature_wcf - np.tensordot(term_wm, coefficient_mcf, axes=1) if term_wm.shape[1] else feature_wcf


@dataclass(frozen=True)
class Reference:
    """Distances of a chart on reference windows that were left out of its fit. float64.

    lasting_c, passing_c: (C,); the expected distance is `lasting_c + passing_c * left`, where `left` is the share of
    the variance that averaging over windows leaves (`variance_of_means`). The others describe the relative distance,
    averaged over axes, of reference windows: gradual: its mean, or more. limit: its maximum. freedom: degrees of
    freedom of the scaled chi-square distribution with its mean and variance.
    """

    lasting_c: np.ndarray
    passing_c: np.ndarray
    gradual: np.float64
    limit: np.float64
    freedom: np.float64

    @classmethod
    def fit(cls, single_wc: np.ndarray, averaged_wc: np.ndarray, left_w: np.ndarray) -> Self:
        """single_wc, averaged_wc: distances of single windows and of means over windows, (W, C). left_w:
        `variance_of_means` of each window."""
        single_c, averaged_c = known_mean(single_wc, axis=0), known_mean(averaged_wc, axis=0)
        passing_c = (single_c - averaged_c) / max(1 - left_w.mean(), _SMALLEST)
        passing_c = np.minimum(np.maximum(passing_c, 0), single_c)
        lasting_c = single_c - passing_c
        relative_w = known_mean(_relative(averaged_wc, lasting_c, passing_c, left_w), axis=1)
        relative_w = relative_w[~np.isnan(relative_w)]
        mean, std = relative_w.mean(), max(relative_w.std(), _SMALLEST)
        return cls(lasting_c, passing_c, _usual(relative_w), relative_w.max(), 2 * (mean / std) ** 2)

    def relative(self, distance_wc: np.ndarray, left_w: np.ndarray) -> np.ndarray:
        """Distances (W, C) divided by the expected distances."""
        return _relative(distance_wc, self.lasting_c, self.passing_c, left_w)

    def excess(self, relative_w: np.ndarray) -> np.ndarray:
        """The log-likelihood ratio of a larger variance for the distance above the limit, (W,): 0 for a reference
        window."""
        with np.errstate(invalid="ignore"):  # a single reference window has the distance 0
            ratio_w = np.maximum(relative_w / self.limit, 1)
        return self.freedom / 2 * (ratio_w - 1 - np.log(ratio_w))


def _relative(distance_wc: np.ndarray, lasting_c: np.ndarray, passing_c: np.ndarray, left_w: np.ndarray) -> np.ndarray:
    return distance_wc / np.maximum(lasting_c + passing_c * left_w[:, np.newaxis], _SMALLEST)


def _usual(values_w: np.ndarray) -> np.float64:
    """The mean, or the root mean square divided by √3 if that is larger, as in `split_scores.channel_baseline`."""
    return np.maximum(max(values_w.mean(), np.sqrt((values_w**2).mean()) / 3**0.5), _SMALLEST)


def known_mean(values: np.ndarray, axis: int) -> np.ndarray:
    """Like `numpy.nanmean`, without its warning for an empty slice."""
    known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.where(known, values, 0.0).sum(axis=axis) / np.count_nonzero(known, axis=axis)


@dataclass(frozen=True)
class VibrationChartSet:
    """The charts of vibration.

    terms: of the operating point. charts: by name, fitted to all reference windows. references: reference distances of
    each chart. usual: the sum of all charts for reference windows; errors are divided by it. span: span of the means
    over windows. settings: constants of all charts.
    """

    terms: PolynomialTerms
    charts: Mapping[str, Chart]
    references: Mapping[str, Reference]
    usual: np.float64
    span: int
    settings: VibrationCharts

    scored_c = None  # all axes
    margin = 1.0

    def cross_regression(self, file_id: str) -> None:
        """Events are attributed by the errors of the axes, which no regression mixes."""
        return

    def errors(self, windows: WindowSet, features: Features | None = None) -> np.ndarray:
        """Errors of windows, about 1 for reference windows: float32 (W, C). The sum of all charts is divided among the
        axes by their distances. features: features of the windows, if they are already computed."""
        self.terms.warn_outside(windows)
        features = features or features_of(windows, self.settings)
        features = {**features, _TERMS: _terms_of(self.terms, windows)}
        averaged = smoothed(features, windows, self.span)
        distances = _distances(self.charts, averaged)
        return self._errors(distances, variance_of_means(windows, self.span))

    def _errors(self, distances: Mapping[str, np.ndarray], left_w: np.ndarray) -> np.ndarray:
        sum_w, relative_wcn = _sum_of_charts(self.references, distances, left_w, self.settings)
        share_wc = np.nansum(relative_wcn, axis=-1)
        share_wc = np.where(np.isnan(distances["level"]), np.nan, share_wc)
        share_wc = share_wc / np.maximum(known_mean(share_wc, axis=1), _SMALLEST)[:, np.newaxis]
        return ((sum_w / self.usual)[:, np.newaxis] * share_wc).astype(np.float32)

    def try_out(self) -> None:
        """Computes the errors of one window. Raises ValueError, or another error of NumPy, for arrays that do not fit
        together."""
        for chart in self.charts.values():
            pivot_cf = chart.pivot_cf  # LAPACK does not check them
            if pivot_cf.dtype.kind != "i" or pivot_cf.min() < 1 or pivot_cf.max() > chart.factor_cff.shape[-1]:
                raise ValueError("its pivots are not rows of its matrix")
        term_wm = self.terms(self.terms.low_k[np.newaxis])
        distances = {name: chart.distances(chart.mean_cf[np.newaxis], term_wm) for name, chart in self.charts.items()}
        if self._errors(distances, np.ones(1)).shape != distances["level"].shape or self.span < 1:
            raise ValueError("its charts do not give one error for each axis")

    def to_arrays(self) -> dict[str, np.ndarray]:
        settings = np.array(self.settings.model_dump_json())
        held = {"usual": np.array(self.usual), "span": np.array(self.span), "settings": settings}
        held |= {f"terms.{name}": np.asarray(value) for name, value in vars(self.terms).items()}
        for kind, named in (("chart", self.charts), ("reference", self.references)):
            for name, each in named.items():
                held |= {f"{kind}.{name}.{field}": np.asarray(value) for field, value in vars(each).items()}
        return held

    @classmethod
    def from_arrays(cls, held: Mapping[str, np.ndarray]) -> Self:
        def named(kind: str, of: type) -> dict:
            return {name: of(*(held[f"{kind}.{name}.{field.name}"] for field in fields(of))) for name in CHARTS}

        terms = PolynomialTerms(held["terms.low_k"], held["terms.high_k"], int(held["terms.degree"]))
        usual, settings = held["usual"], VibrationCharts.model_validate_json(str(held["settings"]))
        return cls(terms, named("chart", Chart), named("reference", Reference), usual, int(held["span"]), settings)


def _terms_of(terms: PolynomialTerms, windows: WindowSet) -> np.ndarray:
    return terms(operating_points(windows))[:, np.newaxis]


def _distances(charts: Mapping[str, Chart], features: Features) -> dict[str, np.ndarray]:
    return {name: chart.distances(features[name], features[_TERMS][:, 0]) for name, chart in charts.items()}


def _sum_of_charts(
    references: Mapping[str, Reference],
    distances: Mapping[str, np.ndarray],
    left_w: np.ndarray,
    settings: VibrationCharts,
) -> tuple[np.ndarray, np.ndarray]:
    """The sum of all charts (W,), and their relative distances (W, C, charts).

    The distances of level and spectrum rank unusual windows. An excess of any chart but the level indicates a defect.
    """
    weights = {"level": settings.level_weight, "spectrum": 1.0}
    sum_w, relative = np.zeros(len(left_w)), []
    for name, reference in references.items():
        relative.append(reference.relative(distances[name], left_w))
        mean_w = known_mean(relative[-1], axis=1)
        if name in weights:
            sum_w = sum_w + weights[name] * mean_w / reference.gradual
        if name != "level":
            sum_w = sum_w + settings.excess_weight * np.nan_to_num(reference.excess(mean_w))
    return sum_w, np.stack(relative, axis=-1)


def variance_of_means(windows: WindowSet, span: int) -> np.ndarray:
    """The variance of the exponentially weighted mean of independent windows of variance 1, (W,). The mean starts again
    at the first window of each file."""
    file_w = windows.file_of()
    number_w = np.arange(1, len(file_w) + 1) - np.searchsorted(file_w, file_w)
    return variance_left(decay_of(span), number_w)


# ------------------------------------------------------------------------------------------------------------- fitting
def fit_vibration(
    windows: Mapping[SplitName, WindowSet],
    *,
    span: int,
    settings: VibrationCharts | None = None,
    features: Mapping[SplitName, Features] | None = None,
) -> tuple[VibrationChartSet, np.ndarray]:
    """Charts of the windows of all reference splits, and the errors (S, C) of the split `calibration`: those of each
    fold by charts and references that were fitted without that fold.

    windows: windows of the reference splits; all splits have the same stride, so that `span` windows are equally long.
    features: features of the windows (`features_of`), if they are already computed.
    """
    settings = settings or VibrationCharts()
    features = features or {name: features_of(split, settings) for name, split in windows.items()}
    terms = PolynomialTerms.chosen(
        np.concatenate([operating_points(split) for split in windows.values()]), _joined(list(features.values()))
    )
    features = {name: {**each, _TERMS: _terms_of(terms, windows[name])} for name, each in features.items()}
    reference = _ReferenceWindows(
        single=_joined(list(features.values())),
        averaged=_joined([smoothed(each, windows[name], span) for name, each in features.items()]),
        left_w=np.concatenate([variance_of_means(split, span) for split in windows.values()]),
        fold_w=folds_of(list(windows.values())),
    )
    learned = reference.learned(terms, span, settings)
    is_calibration_w = np.repeat([name == "calibration" for name in windows], [len(each) for each in windows.values()])
    error_sc = np.empty((len(windows["calibration"]), reference.averaged["level"].shape[1]), dtype=np.float32)
    fold_s = reference.fold_w[is_calibration_w]
    for fold in np.unique(fold_s):
        others_w = reference.fold_w != fold
        without = reference.of(others_w).learned(terms, span, settings) if others_w.any() else learned
        mine = reference.of(is_calibration_w & ~others_w)
        error_sc[fold_s == fold] = without._errors(_distances(without.charts, mine.averaged), mine.left_w)
    return learned, error_sc


@dataclass(frozen=True)
class _ReferenceWindows:
    """Features of reference windows and of means over windows, the variance that averaging leaves (W,), and the fold of
    each window (W,)."""

    single: Features
    averaged: Features
    left_w: np.ndarray
    fold_w: np.ndarray

    def of(self, chosen_w: np.ndarray) -> _ReferenceWindows:
        single, averaged = (
            {name: each_wcf[chosen_w] for name, each_wcf in features.items()}
            for features in (self.single, self.averaged)
        )
        return _ReferenceWindows(single, averaged, self.left_w[chosen_w], self.fold_w[chosen_w])

    def learned(self, terms: PolynomialTerms, span: int, settings: VibrationCharts) -> VibrationChartSet:
        charts, references, distances = {}, {}, {}
        for name in CHARTS:
            charts[name] = Chart.fit(self.single[name], self.single[_TERMS][:, 0], settings)
            single_wc, distances[name] = self._cross_fitted(name, settings)
            references[name] = Reference.fit(single_wc, distances[name], self.left_w)
        sum_w, _ = _sum_of_charts(references, distances, self.left_w, settings)
        return VibrationChartSet(terms, charts, references, _usual(sum_w[~np.isnan(sum_w)]), span, settings)

    def _cross_fitted(self, name: str, settings: VibrationCharts) -> tuple[np.ndarray, np.ndarray]:
        """Distances (W, C) of single windows and of means over windows, by charts fitted to the other folds."""
        single_wcf, single_wm = self.single[name], self.single[_TERMS][:, 0]
        averaged_wcf, averaged_wm = self.averaged[name], self.averaged[_TERMS][:, 0]
        single_wc = np.empty(single_wcf.shape[:2])
        averaged_wc = np.empty_like(single_wc)
        for fold in np.unique(self.fold_w):
            mine_w = self.fold_w == fold
            others_w = mine_w if mine_w.all() else ~mine_w
            chart = Chart.fit(single_wcf[others_w], single_wm[others_w], settings)
            single_wc[mine_w] = chart.distances(single_wcf[mine_w], single_wm[mine_w])
            averaged_wc[mine_w] = chart.distances(averaged_wcf[mine_w], averaged_wm[mine_w])
        return single_wc, averaged_wc


def _joined(each: list[Features]) -> Features:
    return {name: np.concatenate([features[name] for features in each]) for name in each[0]}


def folds_of(splits: list[WindowSet]) -> np.ndarray:
    """The number of the fold of each window, (W,): neighbouring files, or segments of time where there are few files.

    All windows of a file are in one fold, in all splits: a chart that was fitted to a recording has smaller distances
    on it than on a new one.
    """
    file_w = np.concatenate([split.file_of() for split in splits])
    start_w = np.concatenate([split.starts_w for split in splits])
    files, number_w = np.unique(file_w, return_inverse=True)
    if len(files) >= _FEWEST_FILES:
        return number_w * min(FOLDS, len(files)) // len(files)
    number_w = np.argsort(np.argsort(start_w, kind="stable"))
    return number_w * min(_SEGMENTS, len(start_w)) // len(start_w)
