"""Fits a detector to reference splits: charts, baselines, group scales and thresholds. Each step uses scores of data
that was left out of the fit of the step before.

Suffixes: s score entry, c channel.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from core.config.recipe import is_for_short_runs
from core.config.schema import AnyConfig
from core.data.identity import digest_of_split
from core.data.splits import SplitName
from core.data.windows import WindowSet
from core.errors import DataError
from inference.charts.streams import ChartSet, ReferenceFeatures, fit_charts, reference_features
from inference.detector.calibration import restricted, second_half, windows_ending_in
from inference.detector.detector import (
    Detector,
    Halves,
    alarm_settings,
    calibrated,
    calibration_sample,
    settings_of,
)
from inference.detector.file import charts_alone
from inference.detector.group_scales import GroupScales, fit_group_scales, scale_of
from inference.detector.injected_faults import NORMAL, inject
from inference.detector.model_weight import WeightChoice, charts_only, choose_weight, not_compared
from inference.detector.split_scores import channel_baseline, mean_of_charts, score_split
from inference.entries import SplitErrors
from inference.groups import POOLED, keys_of, recordings_in, scored_per_recording
from inference.thresholds import calibrate

log = logging.getLogger(__name__)

CHARTS_ONLY = {"scoring.model_weight": 0.0}
# Errors of rows that were left out of the fit are up to about this many times those of rows in it: 1.1 times on
# simulated pumps, 1.6 on Tennessee Eastman, 1.8 on SMD (dev/LOG.md, 2026-11-29: A threshold that no fault reaches).
_MOST_OPTIMISM = 2.0

Reference = Mapping[SplitName, WindowSet]
Errors = Mapping[SplitName, SplitErrors]


def fit(
    config: AnyConfig,
    checkpoint_sha256: str | None,
    reference: Reference,
    errors: Errors,
    errors_of: Callable[[WindowSet], SplitErrors] | None = None,
) -> Detector:
    """A detector fitted to the reference splits, which include `calibration`.

    checkpoint_sha256: None without a model. errors: errors of the model on `calibration` and optionally on other
    splits; without a model, the entries of `calibration`. errors_of: computes the model's errors on other windows,
    needed for `scoring.model_weight: auto`.

    Calibration scores come from charts and baselines that were fitted without them, like the scores of new data. The
    whole procedure is then repeated on the first half of the calibration data and tested on the second.
    Raises DataError if the calibration data is too small for a threshold.
    """
    features, choice = reference_features(config, reference), None
    if checkpoint_sha256 is None:
        weight = 0.0
    elif config.scoring.model_weight == "auto":
        choice = weight_choice(config, reference, errors, errors_of, features)
        log.info("weight of the model: %g; %s", choice.weight, choice.reason)
        weight = choice.weight
    else:
        weight = config.scoring.model_weight
    detector, _ = fit_with_scores(config, checkpoint_sha256, reference, errors, features, model_weight=weight)
    detector = replace(detector, weight_choice=choice.to_json() if choice is not None else None)
    halves = _halves(config, checkpoint_sha256, reference, errors, features, weight)

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
    *,
    model_weight: float,
) -> tuple[Detector, np.ndarray]:
    """As `fit`, without the test on the second half; also returns the scores (S,) of the split `calibration`. features:
    features of the reference splits of vibration, if they are already computed. model_weight: weight of the model in a
    score, 0 to 1."""
    calibration, of_calibration, settings = reference["calibration"], errors["calibration"], settings_of(config)
    features = features or reference_features(config, reference)
    own_past = _own_past(config, reference)
    second_s = second_half(calibration, of_calibration, own_past)
    charts, chart_errors = _fit_charts(config, reference, own_past, features)
    baseline = partial(channel_baseline, errors, charts.scored_c)

    def fused(chart_sc: np.ndarray) -> np.ndarray:
        """Calibration scores (S,); the baseline for each half is computed without it."""
        of_half = [
            _raw_scores(config, of_calibration, baseline(without_s=half_s), chart_sc, model_weight)
            for half_s in (~second_s, second_s)
        ]
        return np.where(second_s, of_half[1], of_half[0])

    of_charts = [_raw_scores(config, of_calibration.entries, None, chart_sc, 0.0) for chart_sc in chart_errors]
    chart_mean = _chart_mean(of_charts[0], features.errors(charts, reference))

    def calibration_of(scores: Sequence[np.ndarray]) -> tuple[np.ndarray, dict[str, Any]]:
        """Calibration scores (S,), and `scales`, `sample` and `threshold` of a detector with them."""
        score_s, scales, changed = _normalised(scores, second_s, calibration, own_past)
        sample = calibration_sample(score_s, of_calibration, calibration, config.scoring.smoothing_span)
        sample = replace(sample, changed=changed, chart_mean=chart_mean, margin=charts.margin)
        threshold = calibrate(sample, config.scoring)
        return score_s, {"scales": scales, "sample": sample, "halves": None, "threshold": threshold}

    has_model = of_calibration.error_sc is not None
    score_s, own = calibration_of([fused(chart_sc) for chart_sc in chart_errors] if has_model else of_charts)
    detector = Detector(
        stream=config.stream,
        checkpoint_sha256=checkpoint_sha256,
        settings=settings if has_model else settings | CHARTS_ONLY,
        alarm_settings=alarm_settings(config.scoring),
        baseline_c=baseline(),
        charts=charts,
        own_past=own_past,
        data={name: digest_of_split(split) for name, split in reference.items()},
        recordings=tuple(recordings_in(calibration)),
        model_weight=model_weight if has_model else 0.0,
        **own,
    )
    if has_model:
        with suppress(DataError):  # a baseline that cannot be calibrated is not reported
            alone = charts_alone(detector, settings=settings | CHARTS_ONLY, **calibration_of(of_charts)[1])
            detector = replace(detector, charts_alone=alone)
    return detector, score_s


def _raw_scores(
    config: AnyConfig, errors: SplitErrors, baseline_c: np.ndarray | None, chart_sc: np.ndarray, model_weight: float
) -> np.ndarray:
    """Scores (S,) before they are normalised by group."""
    span = config.scoring.smoothing_span
    scores = score_split(errors, baseline_c, smoothing_span=span, chart_sc=chart_sc, model_weight=model_weight)
    return scores.score_s


def _chart_mean(score_s: np.ndarray, reference_errors: Iterable[np.ndarray]) -> float:
    """`CalibrationSample.chart_mean`. score_s: scores (S,) of the charts in the split `calibration`, fitted without it.
    reference_errors: errors (S, C) of each reference split by charts of all of them; read only if they are needed."""
    known_s = score_s[~np.isnan(score_s)]
    mean = float(known_s.mean(dtype=np.float64)) if len(known_s) else 1.0
    if mean >= 1.0:
        return mean
    of_all = min(1.0, _MOST_OPTIMISM * mean_of_charts(reference_errors))
    return mean / of_all if of_all > 0 else 1.0


def _own_past(config: AnyConfig, reference: Reference) -> tuple[str, ...]:
    """File ids of the recordings that are scored per recording."""
    return scored_per_recording(reference.values()) if config.stream == "patchtst" else ()


def _fit_charts(
    config: AnyConfig, reference: Reference, own_past: tuple[str, ...], features: ReferenceFeatures | None
) -> tuple[ChartSet, list[np.ndarray]]:
    """The charts, and errors (S, C) of the split `calibration` by charts fitted without it. If recordings are scored
    per recording, there are also errors by the charts of all recordings, which score new recordings."""
    charts, error_sc = fit_charts(config, reference, own_past, features)
    if not own_past:
        return charts, [error_sc]
    with _without_messages():  # nearly those of the fit to each recording
        of_all, error_of_all_sc = fit_charts(config, reference, (), features)
    return charts.joined(of_all), [error_sc, error_of_all_sc]


def weight_choice(
    config: AnyConfig,
    reference: Reference,
    errors: Errors,
    errors_of: Callable[[WindowSet], SplitErrors],
    features: ReferenceFeatures | None = None,
) -> WeightChoice:
    """Chooses the weight of the model by faults injected into the second half of the calibration data. Charts and
    baselines are fitted without that half. In short runs of process sensors the charts are used alone, without a
    comparison. errors_of, features: as in `fit` and `fit_with_scores`."""
    rows_k = np.concatenate([split.segments.lengths_k for split in reference.values()])
    if config.stream == "patchtst" and is_for_short_runs(config.data.window, rows_k):
        return charts_only(
            "the runs are too short for windows of the usual lengths; the model made scores worse on one of two public "
            "sets of such runs (docs/detection.md); set scoring.model_weight to use the model too"
        )
    halves = _split(config, reference, errors, features or reference_features(config, reference))
    if halves is None:
        return not_compared("half of the calibration data is too little to inject faults")
    second = halves.second
    if config.stream == "patchtst" and not config.scoring.look_ahead:
        second = windows_ending_in(reference["calibration"], second)
    if not len(second):
        return not_compared("half of the calibration data is shorter than a window")
    own_past = _own_past(config, halves.reference)
    with _without_messages():  # the fit to all data logs the same
        charts, _ = _fit_charts(config, halves.reference, own_past, halves.features)
        injected = inject(second, config.stream, span=config.scoring.smoothing_span, seed=config.seed)
        of_model, chart_sc = errors_of(injected.windows), charts.errors(injected.windows)
        baseline_c = channel_baseline(halves.errors, charts.scored_c)
    is_normal_s = injected.fault_s == NORMAL
    keys = keys_of(injected.windows, own_past) if own_past else []
    key_s = np.repeat(np.array(keys, dtype=object), injected.windows.segments.lengths_k[: len(keys)])

    def score_of(model_weight: float) -> np.ndarray:
        """Scores (S,); for recordings that are scored per recording, relative to their normal scores."""
        score_s = _raw_scores(config, of_model, baseline_c, chart_sc, model_weight)
        for key in set(keys):
            score_s[key_s == key] /= scale_of(score_s[(key_s == key) & is_normal_s])
        return score_s

    return choose_weight(score_of, injected.fault_s)


def _normalised(
    scores: Sequence[np.ndarray], second_s: np.ndarray, calibration: WindowSet, own_past: tuple[str, ...]
) -> tuple[np.ndarray, GroupScales, tuple[str, ...]]:
    """Calibration scores (S,) in which all groups have the same scale, the scales, and the recordings that have changed
    (`fit_group_scales`). scores: scores by the charts of each group; if recordings are scored per recording, also
    scores by the charts of all recordings."""
    score_s, scales, changed = fit_group_scales(scores[0], second_s, calibration, own_past)
    if not own_past:
        return score_s, scales, changed
    pooled = scale_of(scores[1])
    pooled_scale = scales.usual if np.isnan(pooled) else np.float32(pooled)
    scales = replace(scales, scale={**scales.scale, POOLED: pooled_scale})
    lengths_k = calibration.segments.lengths_k
    has_own_s = np.repeat([key != POOLED for key in keys_of(calibration, own_past)], lengths_k)
    return np.where(has_own_s, score_s, scores[1] * (scales.usual / pooled_scale)), scales, changed


@dataclass(frozen=True)
class _Split:
    """Reference data with the first half of the calibration data, and the second half."""

    reference: Reference
    errors: Errors
    features: ReferenceFeatures
    second: WindowSet
    second_errors: SplitErrors


def _split(config: AnyConfig, reference: Reference, errors: Errors, features: ReferenceFeatures) -> _Split | None:
    """None if a half is empty."""
    both = reference["calibration"], errors["calibration"]
    second_s = second_half(*both, _own_past(config, reference))
    if not second_s.any() or second_s.all():
        return None
    (first, first_errors), (second, second_errors) = (restricted(*both, half_s) for half_s in (~second_s, second_s))
    reference, errors = {**reference, "calibration": first}, {**errors, "calibration": first_errors}
    return _Split(reference, errors, features.restricted(~second_s), second, second_errors)


def _halves(
    config: AnyConfig,
    checkpoint_sha256: str | None,
    reference: Reference,
    errors: Errors,
    features: ReferenceFeatures,
    model_weight: float,
) -> list[Halves | None] | None:
    """`Detector.halves` for the detector and for its charts alone: calibration scores of a detector that is fitted to
    the first half of the calibration data, and its scores of the second half. None if half of the data is not enough.
    """
    split = _split(config, reference, errors, features)
    if split is None:
        return None
    try:
        with _without_messages():  # the fit to all data logged the same
            of_first, _ = fit_with_scores(
                config, checkpoint_sha256, split.reference, split.errors, split.features, model_weight=model_weight
            )
            scored = of_first.score_with_baseline(split.second_errors, split.second)
    except DataError:
        return None
    halves: list[Halves | None] = []
    for detector, scores in zip((of_first, of_first.charts_alone), scored, strict=True):
        if detector is None:
            continue
        sample = calibration_sample(scores.score_s, split.second_errors, split.second, config.scoring.smoothing_span)
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
