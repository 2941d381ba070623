"""From a trained model and its data to scores of the calibration and the test part: what a score is made of.

`stream_errors` is the work, `stream_scores` the arithmetic: a benchmark asks for several shares of one work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from core.config.schema import AnyConfig, Stream
from core.data.dataset import PART_NAMES, SCORING_PARTS, PartName, StreamData
from core.data.files import matches
from core.data.windows import WindowSet
from inference.autoregression import process_errors
from inference.groups import alike
from inference.part_scores import (
    PartErrors,
    PartScores,
    channel_baseline,
    part_errors,
    score_part,
    with_statistics,
)
from inference.scoring import ScoringModel
from inference.spectra import spectral_errors

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StreamErrors:
    """Of the parts `calibration` and `test`: the model's errors, and the engineer's statistics beside them (empty where
    nobody asked). baseline_c: the model's normal error of each channel."""

    model: Mapping[PartName, PartErrors]
    baseline_c: np.ndarray
    statistics: Mapping[PartName, np.ndarray]


_STATISTICS: dict[Stream, Callable[[Mapping[PartName, WindowSet]], dict[PartName, np.ndarray]]] = {
    "patchtst": process_errors,
    "swinmae": spectral_errors,
}


def parts_to_load(config: AnyConfig, *, root: Path) -> tuple[PartName, ...]:
    """The statistics learn from every normal row there is, so the parts of training are wanted too.

    Where their files are not at hand (a model that was trained elsewhere), calibration serves alone, said loudly.
    """
    if config.scoring.model_share == 1.0 and config.stream == "swinmae":
        return SCORING_PARTS
    data_root = (root / config.data.root).resolve()
    missing = [
        name
        for name in PART_NAMES
        if name not in SCORING_PARTS
        and not any(matches(pattern, data_root) for pattern in getattr(config.data.parts, name).files)
    ]
    if missing:
        log.warning(
            "the files of %s are not here: the statistics of a score learn from fewer normal rows than at the place of "
            "training, and its threshold is another",
            " and ".join(missing),
        )
    return tuple(name for name in PART_NAMES if name not in missing)


def stream_errors(config: AnyConfig, scoring: ScoringModel, data: StreamData, *, with_statistics: bool) -> StreamErrors:
    model = {
        name: part_errors(
            scoring, data.parts[name], batch_size=config.scoring.batch_size, label=name,
            progress=config.logging.progress,
        )
        for name in SCORING_PARTS
    }  # fmt: skip
    statistics = _STATISTICS[config.stream](data.parts) if with_statistics else {}
    return StreamErrors(model, channel_baseline(model["calibration"]), statistics)


def stream_scores(
    errors: StreamErrors, config: AnyConfig, data: StreamData, *, share: float
) -> tuple[PartScores, PartScores]:
    """Scores of the calibration and the test part. share: of the model in them, 1 for the model alone."""
    scores = []
    for name in SCORING_PARTS:
        mixed, divisor_c = errors.model[name], errors.baseline_c
        if share < 1.0:
            mixed = with_statistics(mixed, divisor_c, errors.statistics[name], share)
            divisor_c = np.ones_like(divisor_c)
        scores.append(score_part(mixed, divisor_c, smoothing_span=config.scoring.smoothing_span))
    calibration, test = scores
    return alike(calibration, test, data.parts) if config.stream == "patchtst" else (calibration, test)
