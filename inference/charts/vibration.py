"""Control charts of vibration: the distances of level, spectrum and modulation of a window from those of reference
windows.

There are four charts, each with its own features of a window (`inference.charts.vibration_features`): the overall
level, the spectrum, the low-frequency lines, and the modulation. The distance of a chart is Hotelling's T² (Annals of
Mathematical Statistics 1931). Speed and load move the features of a chart together. The covariance of reference windows
accounts for that: another operating point raises no alarm, a small change across it does. The covariance is that of
single windows, of which there are many. The scored features are exponentially weighted means over the windows of a file
(Lowry et al., A Multivariate Exponentially Weighted Moving Average Control Chart, Technometrics 1992), because the
state of a machine lasts longer than a window.

Reference windows are scored by charts that were fitted without their recording (cross-fitting), so that their errors
are as large as those of new recordings.

Suffixes: w window, c channel (axis), f feature.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import torch
from torch import Tensor

from core.config.charts import VibrationCharts
from core.data.splits import SplitName
from core.data.windows import WindowSet
from inference import running
from inference.charts.vibration_features import CHARTS, Features, features_of, smoothed
from inference.running import decay_of

FOLDS = 8
# With fewer files, time segments are left out instead: fewer of them, because neighbouring windows are similar.
_FEWEST_FILES, _SEGMENTS = 4, 4
_SMALLEST = 1e-12


@dataclass(frozen=True)
class Chart:
    """Features of reference windows: mean and deviation (C, F), and the LU factors (C, F, F) and pivots of their shrunk
    correlation matrix. float64."""

    mean_cf: Tensor
    scale_cf: Tensor
    factor_cff: Tensor
    pivot_cf: Tensor

    @classmethod
    def fit(cls, reference_wcf: Tensor, settings: VibrationCharts) -> Self:
        mean_cf = reference_wcf.nanmean(0)
        centred_cwf = (reference_wcf - mean_cf).nan_to_num().transpose(0, 1)
        scale_cf = centred_cwf.square().mean(1).sqrt().clamp(min=settings.deviation_floor)
        scaled_cwf = centred_cwf / scale_cf.unsqueeze(1)
        correlation_cff = scaled_cwf.transpose(1, 2) @ scaled_cwf / scaled_cwf.shape[1]
        identity_ff = torch.eye(mean_cf.shape[-1], dtype=torch.float64)
        return cls(mean_cf, scale_cf, *torch.linalg.lu_factor(correlation_cff + settings.shrinkage * identity_ff))

    def distances(self, new_wcf: Tensor) -> Tensor:
        """Squared Mahalanobis distances over the number of features, (W, C); NaN for an axis without values."""
        offset_cwf = ((new_wcf - self.mean_cf) / self.scale_cf).transpose(0, 1)
        solved_cfw = torch.linalg.lu_solve(self.factor_cff, self.pivot_cf, offset_cwf.transpose(1, 2))
        return (offset_cwf * solved_cfw.transpose(1, 2)).mean(-1).transpose(0, 1)


@dataclass(frozen=True)
class Reference:
    """Distances of a chart on reference windows that were left out of its fit. float64.

    lasting_c, passing_c: the mean distance is the first plus the second times the variance that averaging leaves (C,).
    gradual: the relative distance that counts 1. limit: the largest reference distance; freedom: degrees of freedom of
    the chi-square with the moments of the reference distances; all of the mean over axes.
    """

    lasting_c: Tensor
    passing_c: Tensor
    gradual: Tensor
    limit: Tensor
    freedom: Tensor

    @classmethod
    def fit(cls, single_wc: Tensor, averaged_wc: Tensor, left_w: Tensor) -> Self:
        """single_wc, averaged_wc: distances of single windows and of means over windows."""
        single_c, averaged_c = single_wc.nanmean(0), averaged_wc.nanmean(0)
        passing_c = ((single_c - averaged_c) / (1 - left_w.mean()).clamp(min=_SMALLEST)).clamp(min=0).minimum(single_c)
        lasting_c = single_c - passing_c
        relative_w = _relative(averaged_wc, lasting_c, passing_c, left_w).nanmean(1)
        relative_w = relative_w[~relative_w.isnan()]
        mean, std = relative_w.mean(), relative_w.std(correction=0).clamp(min=_SMALLEST)
        return cls(lasting_c, passing_c, _usual(relative_w), relative_w.max(), 2 * (mean / std) ** 2)

    def relative(self, distance_wc: Tensor, left_w: Tensor) -> Tensor:
        """Distances relative to those expected after as many windows, (W, C)."""
        return _relative(distance_wc, self.lasting_c, self.passing_c, left_w)

    def excess(self, relative_w: Tensor) -> Tensor:
        """The log-likelihood ratio of a larger variance, of the part beyond the limit: 0 for a reference window."""
        ratio_w = (relative_w / self.limit).clamp(min=1)
        return self.freedom / 2 * (ratio_w - 1 - ratio_w.log())


def _relative(distance_wc: Tensor, lasting_c: Tensor, passing_c: Tensor, left_w: Tensor) -> Tensor:
    return distance_wc / (lasting_c + passing_c * left_w.unsqueeze(1)).clamp(min=_SMALLEST)


def _usual(values_w: Tensor) -> Tensor:
    """The mean, or the root mean square over √3 where that is larger, as in `split_scores.channel_baseline`."""
    return values_w.mean().maximum(values_w.square().mean().sqrt() / 3**0.5).clamp(min=_SMALLEST)


@dataclass(frozen=True)
class VibrationChartSet:
    """The charts of vibration.

    charts: by name, fitted to all reference windows. references: usual distances of each. usual: the sum of all charts
    that counts 1. span: of the means over windows. settings: constants of all charts.
    """

    charts: Mapping[str, Chart]
    references: Mapping[str, Reference]
    usual: Tensor
    span: int
    settings: VibrationCharts

    def errors(self, windows: WindowSet) -> np.ndarray:
        """Errors of windows, about 1 for reference windows: float32 (W, C). The sum of all charts is divided among the
        axes by their distances."""
        averaged = smoothed(features_of(windows, self.settings), windows, self.span)
        distances = {name: chart.distances(averaged[name]) for name, chart in self.charts.items()}
        return self._errors(distances, variance_left(windows, self.span))

    def _errors(self, distances: Mapping[str, Tensor], left_w: Tensor) -> np.ndarray:
        sum_w, relative_wcn = _sum_of_charts(self.references, distances, left_w, self.settings)
        share_wc = relative_wcn.nansum(-1)
        share_wc = torch.where(distances["level"].isnan(), torch.nan, share_wc)
        share_wc = share_wc / share_wc.nanmean(1, keepdim=True).clamp(min=_SMALLEST)
        return ((sum_w / self.usual).unsqueeze(1) * share_wc).float().numpy()

    def try_out(self) -> None:
        """Computes the errors of one window. Raises an error of PyTorch, or ValueError, for arrays that do not fit
        together."""
        distances = {name: chart.distances(chart.mean_cf.unsqueeze(0)) for name, chart in self.charts.items()}
        if self._errors(distances, torch.ones(1)).shape != distances["level"].shape or self.span < 1:
            raise ValueError("its charts do not give one error for each axis")

    def to_arrays(self) -> dict[str, np.ndarray]:
        settings = np.array(self.settings.model_dump_json())
        held = {"usual": self.usual.numpy(), "span": np.array(self.span), "settings": settings}
        for kind, named in (("chart", self.charts), ("reference", self.references)):
            for name, each in named.items():
                held |= {f"{kind}.{name}.{field}": value.numpy() for field, value in vars(each).items()}
        return held

    @classmethod
    def from_arrays(cls, held: Mapping[str, np.ndarray]) -> Self:
        def named(kind: str, of: type) -> dict:
            return {
                name: of(*(torch.from_numpy(held[f"{kind}.{name}.{field.name}"]) for field in fields(of)))
                for name in CHARTS
            }

        usual, settings = torch.from_numpy(held["usual"]), VibrationCharts.model_validate_json(str(held["settings"]))
        return cls(named("chart", Chart), named("reference", Reference), usual, int(held["span"]), settings)


def _sum_of_charts(
    references: Mapping[str, Reference],
    distances: Mapping[str, Tensor],
    left_w: Tensor,
    settings: VibrationCharts,
) -> tuple[Tensor, Tensor]:
    """The sum of all charts (W,), and their relative distances (W, C, charts).

    The distances of level and spectrum rank unusual windows. An excess of any chart but the level indicates a defect.
    """
    weights = {"level": settings.level_weight, "spectrum": 1.0}
    sum_w, relative = torch.zeros(len(left_w), dtype=torch.float64), []
    for name, reference in references.items():
        relative.append(reference.relative(distances[name], left_w))
        mean_w = relative[-1].nanmean(1)
        if name in weights:
            sum_w = sum_w + weights[name] * mean_w / reference.gradual
        if name != "level":
            sum_w = sum_w + settings.excess_weight * reference.excess(mean_w).nan_to_num()
    return sum_w, torch.stack(relative, dim=-1)


def variance_left(windows: WindowSet, span: int) -> Tensor:
    """The variance of the exponentially weighted mean of independent windows, from the first of a file on: (W,)."""
    file_w = windows.file_of()
    number_w = np.arange(1, len(file_w) + 1) - np.searchsorted(file_w, file_w)
    return torch.from_numpy(running.variance_left(decay_of(span), number_w))


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

    windows: of the reference splits; all splits have the same stride, so that `span` windows are equally long.
    features: of the windows (`features_of`), if they are known.
    """
    settings = settings or VibrationCharts()
    features = features or {name: features_of(split, settings) for name, split in windows.items()}
    reference = _ReferenceWindows(
        single=_joined(list(features.values())),
        averaged=_joined([smoothed(each, windows[name], span) for name, each in features.items()]),
        left_w=torch.cat([variance_left(split, span) for split in windows.values()]),
        fold_w=folds_of(list(windows.values())),
    )
    learned = reference.learned(span, settings)
    is_calibration_w = torch.cat([torch.full((len(split),), name == "calibration") for name, split in windows.items()])
    error_sc = np.empty((len(windows["calibration"]), reference.averaged["level"].shape[1]), dtype=np.float32)
    fold_s = reference.fold_w[is_calibration_w]
    for fold in fold_s.unique():
        others_w = reference.fold_w != fold
        without = reference.of(others_w).learned(span, settings) if others_w.any() else learned
        mine = reference.of(is_calibration_w & ~others_w)
        distances = {name: chart.distances(mine.averaged[name]) for name, chart in without.charts.items()}
        error_sc[(fold_s == fold).numpy()] = without._errors(distances, mine.left_w)
    return learned, error_sc


@dataclass(frozen=True)
class _ReferenceWindows:
    """Features of reference windows and of means over windows, the variance that averaging leaves (W,), and the fold of
    each window (W,)."""

    single: Features
    averaged: Features
    left_w: Tensor
    fold_w: Tensor

    def of(self, chosen_w: Tensor) -> _ReferenceWindows:
        single, averaged = (
            {name: each_wcf[chosen_w] for name, each_wcf in features.items()}
            for features in (self.single, self.averaged)
        )
        return _ReferenceWindows(single, averaged, self.left_w[chosen_w], self.fold_w[chosen_w])

    def learned(self, span: int, settings: VibrationCharts) -> VibrationChartSet:
        charts, references, distances = {}, {}, {}
        for name in CHARTS:
            charts[name] = Chart.fit(self.single[name], settings)
            single_wc, distances[name] = _cross_fitted(self.single[name], self.averaged[name], self.fold_w, settings)
            references[name] = Reference.fit(single_wc, distances[name], self.left_w)
        sum_w, _ = _sum_of_charts(references, distances, self.left_w, settings)
        return VibrationChartSet(charts, references, _usual(sum_w[~sum_w.isnan()]), span, settings)


def _joined(each: list[Features]) -> Features:
    return {name: torch.cat([features[name] for features in each]) for name in CHARTS}


def folds_of(splits: list[WindowSet]) -> Tensor:
    """The number of the fold of each window, (W,): neighbouring files, or segments of time where there are few files.

    All windows of a file are in one fold, in all splits: a chart that was fitted to a recording has smaller distances
    on it than on a new one.
    """
    file_w = np.concatenate([split.file_of() for split in splits])
    start_w = np.concatenate([split.starts_w.numpy() for split in splits])
    files, number_w = np.unique(file_w, return_inverse=True)
    if len(files) >= _FEWEST_FILES:
        return torch.from_numpy(number_w * min(FOLDS, len(files)) // len(files))
    number_w = np.argsort(np.argsort(start_w, kind="stable"))
    return torch.from_numpy(number_w * min(_SEGMENTS, len(start_w)) // len(start_w))


def _cross_fitted(
    single_wcf: Tensor, averaged_wcf: Tensor, fold_w: Tensor, settings: VibrationCharts
) -> tuple[Tensor, Tensor]:
    """Distances (W, C) of single windows and of means over windows, by charts fitted to the other folds."""
    single_wc = torch.empty(single_wcf.shape[:2], dtype=torch.float64)
    averaged_wc = torch.empty_like(single_wc)
    for fold in fold_w.unique():
        mine_w = fold_w == fold
        chart = Chart.fit(single_wcf if mine_w.all() else single_wcf[~mine_w], settings)
        single_wc[mine_w] = chart.distances(single_wcf[mine_w])
        averaged_wc[mine_w] = chart.distances(averaged_wcf[mine_w])
    return single_wc, averaged_wc
