"""The two components of a score for either stream: the model's errors, and the charts with what they learn from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from core.config.schema import AnyConfig, Stream
from core.data.segments import window_starts
from core.data.splits import SCORING_PARTS, PartName
from core.data.windows import WindowSet
from inference.charts.process import ProcessStatistics, fit_process
from inference.charts.vibration import SpectralStatistics, fit_spectral
from inference.charts.vibration_features import Features, features_of
from inference.groups import judged_alone
from inference.part_scores import PartErrors, part_errors
from inference.scoring import ScoringModel

Statistics = ProcessStatistics | SpectralStatistics
STATISTICS: dict[Stream, type[Statistics]] = {"patchtst": ProcessStatistics, "swinmae": SpectralStatistics}


def model_errors(
    config: AnyConfig, scoring: ScoringModel, windows: WindowSet, label: str, *, keep_expected: bool = False
) -> PartErrors:
    settings = config.scoring
    return part_errors(
        scoring,
        windows,
        batch_size=settings.batch_size,
        look_ahead=settings.look_ahead,
        keep_expected=keep_expected,
        label=label,
        progress=config.logging.progress,
    )


def normal_errors(
    config: AnyConfig, scoring: ScoringModel, normal: Mapping[PartName, WindowSet]
) -> dict[PartName, PartErrors]:
    """The model's errors where they are normal: of process sensors all parts, whose channels have rare states, of
    vibration, whose axes are alike and whose images are dear, the part `calibration`."""
    if config.stream == "swinmae":
        normal = {"calibration": normal["calibration"]}
    step = max(1, config.score_stride // config.data.stride)
    thinned = {
        # Training cuts more windows than a score needs.
        name: part if name in SCORING_PARTS else part.subset(torch.arange(0, len(part), step))
        for name, part in normal.items()
    }
    return {name: model_errors(config, scoring, part, name) for name, part in thinned.items()}


def alone_in(stream: Stream, normal: Collection[WindowSet]) -> tuple[str, ...]:
    """The recordings that are each judged by their own past: of process sensors only."""
    return judged_alone(normal) if stream == "patchtst" else ()


def as_scored(config: AnyConfig, normal: Mapping[PartName, WindowSet]) -> dict[PartName, WindowSet]:
    """The normal parts of vibration cut as scoring cuts windows, so that a mean over windows spans the same time."""
    stride = config.score_stride
    return {
        name: part
        if name in SCORING_PARTS
        else replace(part, starts_w=torch.from_numpy(window_starts(part.segments.rows_k2, part.window, stride)))
        for name, part in normal.items()
    }


@dataclass(frozen=True)
class ReferenceFeatures:
    """What is computed once of the normal parts of vibration, though several detectors learn from it: the windows as
    they are scored, and their features. Both are empty for process sensors."""

    windows: Mapping[PartName, WindowSet]
    features: Mapping[PartName, Features]

    def restricted(self, calibration_w: np.ndarray) -> ReferenceFeatures:
        """With some windows of the part `calibration` only, bool (W,)."""
        if not self.windows:
            return self
        index_w = torch.from_numpy(np.flatnonzero(calibration_w))
        cut = {name: each_wcf[index_w] for name, each_wcf in self.features["calibration"].items()}
        windows = {**self.windows, "calibration": self.windows["calibration"].subset(index_w)}
        return ReferenceFeatures(windows, {**self.features, "calibration": cut})


def reference_features(config: AnyConfig, normal: Mapping[PartName, WindowSet]) -> ReferenceFeatures:
    if config.stream != "swinmae" or config.scoring.model_weight == 1.0:
        return ReferenceFeatures({}, {})
    windows = as_scored(config, normal)
    settings = config.scoring.charts.vibration
    return ReferenceFeatures(windows, {name: features_of(part, settings) for name, part in windows.items()})


def fit_statistics(
    config: AnyConfig,
    normal: Mapping[PartName, WindowSet],
    alone: Collection[str] = (),
    reference: ReferenceFeatures | None = None,
) -> tuple[Statistics, np.ndarray]:
    """What all normal parts teach, and the errors (S, C) of the part `calibration`, by what did not see it."""
    scoring, charts = config.scoring, config.scoring.charts
    if config.stream == "swinmae":
        reference = reference or reference_features(config, normal)
        return fit_spectral(
            reference.windows, span=scoring.smoothing_span, settings=charts.vibration, features=reference.features
        )
    return fit_process(
        normal,
        alone,
        span=scoring.smoothing_span,
        context=scoring.operating_context,
        context_channels=config.data.context_channels,
        settings=charts.process,
    )
