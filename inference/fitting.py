"""Fits a detector to reference splits: charts, baselines, group scales and thresholds, each on data left out of its
fit.

Suffixes: s score entry, c channel.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np

from core.config.schema import AnyConfig
from core.data.splits import PartName
from core.data.windows import WindowSet
from core.errors import DataError
from inference.calibration import restricted, second_half
from inference.charts.streams import ReferenceFeatures, fit_charts, reference_features
from inference.detector import (
    Detector,
    Halves,
    alarm_settings,
    calibrated,
    calibration_sample,
    identity,
    raw_scores,
    settings_of,
)
from inference.detector_file import charts_alone
from inference.group_scales import GroupScales, fit_group_scales, scale_of
from inference.groups import POOLED, keys_of, recordings_in, scored_per_recording
from inference.model_errors import PartErrors
from inference.part_scores import channel_baseline
from inference.thresholds import calibrate

CHARTS_ONLY = {"scoring.model_weight": 0.0}

Reference = Mapping[PartName, WindowSet]
Errors = Mapping[PartName, PartErrors]


def fit(config: AnyConfig, checkpoint_sha256: str | None, reference: Reference, errors: Errors) -> Detector:
    """A detector of the reference splits, `calibration` among them.

    errors: the model's on that split and perhaps on others; without a model, for which `checkpoint_sha256` is None, the
    entries of that split.

    Calibration scores are those of charts and baselines that were fitted without them, as scores of new data are. The
    whole procedure is then repeated on the first half of the calibration data and tested on the second.
    Raises DataError where the calibration data is too small for a threshold.
    """
    features = reference_features(config, reference)
    detector, _ = fit_with_scores(config, checkpoint_sha256, reference, errors, features)
    halves = _halves(config, checkpoint_sha256, reference, errors, features, detector)

    def tested(each: Detector, which: int) -> Detector:
        own = halves[which] if halves is not None else None
        return replace(each, halves=own, threshold=calibrated(each.sample, own, each.alarm_settings))

    alone = detector.charts_alone
    return replace(tested(detector, 0), charts_alone=tested(alone, 1) if alone is not None else None)


def fit_with_scores(
    config: AnyConfig,
    checkpoint_sha256: str | None,
    reference: Reference,
    errors: Errors,
    features: ReferenceFeatures | None = None,
) -> tuple[Detector, np.ndarray]:
    """As `fit`, without the test on the second half; and the scores (S,) of the split `calibration`. features: of the
    reference splits of vibration, where they are known."""
    calibration, of_calibration, settings = reference["calibration"], errors["calibration"], settings_of(config)
    own_past = scored_per_recording(reference.values()) if config.stream == "patchtst" else ()
    second_s = second_half(calibration, of_calibration, own_past)
    groupings = (own_past, ()) if own_past else ((),)  # a new recording is scored by charts of all recordings
    fitted = [fit_charts(config, reference, each, features) for each in groupings]
    charts = fitted[0][0].joined(fitted[1][0]) if own_past else fitted[0][0]

    def fused(chart_sc: np.ndarray) -> np.ndarray:
        """Calibration scores (S,), those of each half by a baseline without it."""
        of_half = [
            raw_scores(of_calibration, channel_baseline(errors, without_s=half_s), chart_sc, settings).score_s
            for half_s in (~second_s, second_s)
        ]
        return np.where(second_s, of_half[1], of_half[0])

    def of_charts(chart_sc: np.ndarray) -> np.ndarray:
        return raw_scores(of_calibration.entries, None, chart_sc, settings | CHARTS_ONLY).score_s

    def calibration_of(scores_of: Callable[[np.ndarray], np.ndarray]) -> tuple[np.ndarray, dict[str, Any]]:
        """Calibration scores (S,), and `scales`, `sample` and `threshold` of a detector with them."""
        score_s, scales = _normalised([scores_of(chart_sc) for _, chart_sc in fitted], second_s, calibration, own_past)
        sample = calibration_sample(score_s, of_calibration, calibration, config.scoring.smoothing_span)
        threshold = calibrate(sample, config.scoring)
        return score_s, {"scales": scales, "sample": sample, "halves": None, "threshold": threshold}

    has_model = of_calibration.error_sc is not None
    score_s, own = calibration_of(fused if has_model else of_charts)
    detector = Detector(
        stream=config.stream,
        checkpoint_sha256=checkpoint_sha256,
        settings=settings if has_model else settings | CHARTS_ONLY,
        alarm_settings=alarm_settings(config.scoring),
        baseline_c=channel_baseline(errors),
        charts=charts,
        own_past=own_past,
        data={name: identity(part) for name, part in reference.items()},
        recordings=tuple(recordings_in(calibration)),
        **own,
    )
    if has_model:
        with suppress(DataError):  # a baseline that cannot be calibrated is not reported
            alone = charts_alone(detector, settings=settings | CHARTS_ONLY, **calibration_of(of_charts)[1])
            detector = replace(detector, charts_alone=alone)
    return detector, score_s


def _normalised(
    scores: Sequence[np.ndarray], second_s: np.ndarray, calibration: WindowSet, own_past: tuple[str, ...]
) -> tuple[np.ndarray, GroupScales]:
    """Calibration scores (S,) in which all groups have the same scale, and the scales. scores: by the charts of each
    group, and where recordings are scored per recording, also by those of all."""
    score_s, scales = fit_group_scales(scores[0], second_s, calibration, own_past)
    if not own_past:
        return score_s, scales
    pooled = scale_of(scores[1])
    pooled_scale = scales.usual if np.isnan(pooled) else np.float32(pooled)
    scales = replace(scales, scale={**scales.scale, POOLED: pooled_scale})
    lengths_k = calibration.segments.lengths_k
    has_own_s = np.repeat([key != POOLED for key in keys_of(calibration, own_past)], lengths_k)
    return np.where(has_own_s, score_s, scores[1] * (scales.usual / pooled_scale)), scales


def _halves(
    config: AnyConfig,
    checkpoint_sha256: str | None,
    reference: Reference,
    errors: Errors,
    features: ReferenceFeatures,
    whole: Detector,
) -> list[Halves | None] | None:
    """For the detector and for its charts alone: the sample of one that is fitted to the first half of the calibration
    data, and its scores of the second half. None where half is too little."""
    both = reference["calibration"], errors["calibration"]
    second_s = second_half(*both, whole.own_past)
    if not second_s.any() or second_s.all():
        return None
    (first, first_errors), (second, second_errors) = (restricted(*both, half_s) for half_s in (~second_s, second_s))
    reference, errors = {**reference, "calibration": first}, {**errors, "calibration": first_errors}
    try:
        with _without_messages():  # they were logged for the whole
            of_first, _ = fit_with_scores(config, checkpoint_sha256, reference, errors, features.restricted(~second_s))
            scored = of_first.score_with_baseline(second_errors, second)
    except DataError:
        return None
    halves: list[Halves | None] = []
    for detector, scores in zip((of_first, of_first.charts_alone), scored, strict=True):
        if detector is None:
            continue
        sample = calibration_sample(scores.score_s, second_errors, second, config.scoring.smoothing_span)
        halves.append((detector.sample, sample) if len(sample.score_n) else None)
    return halves


@contextmanager
def _without_messages() -> Iterator[None]:
    package = logging.getLogger("inference")
    before = package.level
    package.setLevel(logging.ERROR)
    try:
        yield
    finally:
        package.setLevel(before)
