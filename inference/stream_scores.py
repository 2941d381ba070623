"""From a trained model and its data to scores of the calibration and the test part, for whoever compares them.

`stream_errors` is the work, `stream_scores` the arithmetic: a benchmark asks for several shares of one work. What is
learned here and forgotten, `inference.detector` keeps.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from core.config.schema import AnyConfig, Stream
from core.data.dataset import SCORING_PARTS, PartName, StreamData
from core.data.windows import WindowSet
from inference.groups import fit_levels, judged_alone, normal_of, recordings_in
from inference.part_scores import PartErrors, PartScores, channel_baseline, part_errors, score_part
from inference.process_statistics import ProcessStatistics, fit_process
from inference.scoring import ScoringModel
from inference.spectra import SpectralStatistics, fit_spectral

Statistics = ProcessStatistics | SpectralStatistics
STATISTICS: dict[Stream, type[Statistics]] = {"patchtst": ProcessStatistics, "swinmae": SpectralStatistics}


@dataclass(frozen=True)
class StreamErrors:
    """Of the parts `calibration` and `test`: the model's errors, and the engineer's statistics beside them (empty where
    nobody asked). baseline_c: the model's normal error of each channel."""

    model: Mapping[PartName, PartErrors]
    baseline_c: np.ndarray
    statistics: Mapping[PartName, np.ndarray]


def stream_errors(config: AnyConfig, scoring: ScoringModel, data: StreamData, *, with_statistics: bool) -> StreamErrors:
    normal = normal_of(data.parts)
    of_normal = normal_errors(config, scoring, normal)
    model = {"calibration": of_normal["calibration"], "test": model_errors(config, scoring, data.parts["test"], "test")}
    statistics = {}
    if with_statistics:
        learned, calibration_sc = fit_statistics(config, normal, alone_in(config.stream, data))
        statistics = {"calibration": calibration_sc, "test": learned.errors(data.parts["test"])}
    return StreamErrors(model, channel_baseline(of_normal.values()), statistics)


def stream_scores(
    errors: StreamErrors, config: AnyConfig, data: StreamData, *, share: float
) -> tuple[PartScores, PartScores]:
    """Scores of the calibration and the test part. share: of the model in them, 1 for the model alone."""
    calibration, test = (
        score_part(
            errors.model[name],
            errors.baseline_c,
            smoothing_span=config.scoring.smoothing_span,
            statistic_sc=errors.statistics.get(name),
            share=share,
        )
        for name in SCORING_PARTS
    )
    calibration, levels = fit_levels(calibration, data.parts["calibration"], alone_in(config.stream, data))
    return calibration, levels.alike(test, data.parts["test"])


# --------------------------------------------------------------------------------------------------------------- pieces
def model_errors(config: AnyConfig, scoring: ScoringModel, windows: WindowSet, label: str) -> PartErrors:
    settings = config.scoring
    return part_errors(
        scoring,
        windows,
        batch_size=settings.batch_size,
        look_ahead=settings.look_ahead,
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
    step = max(1, config.data.score_stride // config.data.stride)
    thinned = {
        # Training cuts more windows than a score needs.
        name: part if name in SCORING_PARTS else part.subset(torch.arange(0, len(part), step))
        for name, part in normal.items()
    }
    return {name: model_errors(config, scoring, part, name) for name, part in thinned.items()}


def alone_in(stream: Stream, data: StreamData) -> tuple[str, ...]:
    """The recordings of the test part that are judged by their own past alone: process sensors, where each has one."""
    if stream != "patchtst":
        return ()
    return judged_alone(normal_of(data.parts).values(), recordings_in(data.parts["test"]))


def fit_statistics(
    config: AnyConfig, normal: Mapping[PartName, WindowSet], alone: Collection[str]
) -> tuple[Statistics, np.ndarray]:
    """What all normal parts teach, and the errors (S, C) of the part `calibration`, by what did not see it."""
    scoring, charts = config.scoring, config.scoring.charts
    if config.stream == "swinmae":
        return fit_spectral(normal, span=scoring.smoothing_span, settings=charts.vibration)
    return fit_process(
        normal,
        alone,
        span=scoring.smoothing_span,
        context=scoring.operating_context,
        context_channels=config.data.context_channels,
        settings=charts.process,
    )
