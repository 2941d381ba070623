"""Fits the charts of either stream to reference splits, with the settings of a configuration."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from core.config.schema import AnyConfig
from core.data.segments import window_starts
from core.data.splits import SCORING_SPLITS, SplitName
from core.data.windows import WindowSet
from inference.charts.process import ProcessChartSet, fit_process
from inference.charts.vibration import VibrationChartSet, fit_vibration
from inference.charts.vibration_features import Features, features_of

ChartSet = ProcessChartSet | VibrationChartSet


@dataclass(frozen=True)
class ReferenceFeatures:
    """Windows of the reference splits of vibration, cut as they are scored, and their features: computed once for
    several fits. Both are empty for process sensors."""

    windows: Mapping[SplitName, WindowSet]
    features: Mapping[SplitName, Features]

    def restricted(self, calibration_w: np.ndarray) -> ReferenceFeatures:
        """With some windows of the split `calibration` only, bool (W,)."""
        if not self.windows:
            return self
        index_w = np.flatnonzero(calibration_w)
        cut = {name: each_wcf[index_w] for name, each_wcf in self.features["calibration"].items()}
        windows = {**self.windows, "calibration": self.windows["calibration"].subset(index_w)}
        return ReferenceFeatures(windows, {**self.features, "calibration": cut})

    def errors(self, charts: ChartSet, reference: Mapping[SplitName, WindowSet]) -> Iterator[np.ndarray]:
        """The errors (S, C) of each reference split by charts of all of them."""
        for name, split in reference.items():
            own = (self.features[name],) if self.windows else ()
            yield charts.errors(self.windows.get(name, split), *own)


def reference_features(config: AnyConfig, reference: Mapping[SplitName, WindowSet]) -> ReferenceFeatures:
    if config.stream != "swinmae":
        return ReferenceFeatures({}, {})
    windows, settings = _as_scored(config, reference), config.scoring.charts.vibration
    return ReferenceFeatures(windows, {name: features_of(split, settings) for name, split in windows.items()})


def _as_scored(config: AnyConfig, reference: Mapping[SplitName, WindowSet]) -> dict[SplitName, WindowSet]:
    """The splits with the windows that scoring would cut, so that a mean over windows spans the same time."""
    stride = config.score_stride
    return {
        name: split
        if name in SCORING_SPLITS
        else replace(split, starts_w=window_starts(split.segments.rows_k2, split.window, stride))
        for name, split in reference.items()
    }


def fit_charts(
    config: AnyConfig,
    reference: Mapping[SplitName, WindowSet],
    own_past: Collection[str] = (),
    features: ReferenceFeatures | None = None,
) -> tuple[ChartSet, np.ndarray]:
    """The charts of all reference splits, and the errors (S, C) of the split `calibration` by charts fitted without it.

    own_past: file ids of the recordings of process sensors that are scored per recording. features: features of
    vibration (`reference_features`), if they are already computed.
    """
    scoring, charts = config.scoring, config.scoring.charts
    if config.stream == "swinmae":
        features = features or reference_features(config, reference)
        return fit_vibration(
            features.windows, span=scoring.smoothing_span, settings=charts.vibration, features=features.features
        )
    return fit_process(
        reference,
        own_past,
        span=scoring.smoothing_span,
        context=scoring.operating_context,
        context_channels=config.data.context_channels,
        score_switches=scoring.score_switches,
        settings=charts.process,
    )
