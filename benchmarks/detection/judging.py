"""Evaluation of the models of one unit: one function for each value of `BenchmarkSet.judged_by`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.detection import masked
from benchmarks.detection.detectors import (
    CHARTS_ALONE,
    LANDFALL,
    MODEL_ALONE,
    Trained,
    scored,
    simple_methods,
    simple_vibration,
)
from benchmarks.detection.metrics import unit_metrics
from benchmarks.detection.pretraining import PRETRAINED, PRETRAINED_ALONE
from benchmarks.detection.sets import BenchmarkSet
from benchmarks.detection.unit import Unit
from core.data.dataset import load_stream_data
from core.data.splits import SPLIT_NAMES, TRAINING_SPLITS

Judged = dict[str, dict[str, Any]]
"""Metrics by detector."""


def _alarms(
    models: Mapping[str, Trained], unit: Unit, benchmark: BenchmarkSet, *, root: Path, with_simple: bool
) -> Judged:
    """Landfall with and without its model, and with a pre-trained model; other models alone; simple methods."""
    ours = models[LANDFALL]
    data = load_stream_data(ours.config, root=root, splits=SPLIT_NAMES, scaler=ours.scoring.scaler)
    weight = ours.config.scoring.model_weight
    weights = {
        LANDFALL: {LANDFALL: weight, MODEL_ALONE: 1.0, CHARTS_ALONE: 0.0},
        PRETRAINED: {PRETRAINED: weight, PRETRAINED_ALONE: 1.0},
    }
    found = [each for name, model in models.items() for each in scored(model, data, weights.get(name, {name: 1.0}))]
    looks_ahead = {each.detector for each in found if each.detector != CHARTS_ALONE} if _looks_ahead(ours) else set()
    if with_simple and benchmark.stream == "patchtst":
        found += simple_methods(data)
    elif with_simple:
        found += simple_vibration(data, ours.config.scoring.smoothing_span)
    return {
        each.detector: {
            **unit_metrics(each, unit, benchmark, ours.config.scoring),
            "look_ahead": each.detector in looks_ahead,
        }
        for each in found
    }


def _looks_ahead(model: Trained) -> bool:
    """Whether the score of a row depends on later rows."""
    return model.scoring.stream == "patchtst" and model.config.scoring.look_ahead


def _filling_in(
    models: Mapping[str, Trained], unit: Unit, benchmark: BenchmarkSet, *, root: Path, with_simple: bool
) -> Judged:
    """All models and simple methods on masked patches of the validation and test months."""
    ours = models[LANDFALL]
    data = load_stream_data(ours.config, root=root, splits=TRAINING_SPLITS, scaler=ours.scoring.scaler)
    series = data.splits["train"].series
    found = {
        name: masked.metrics_of(masked.filled_by(model.scoring), series, train_seconds=model.seconds)
        for name, model in models.items()
    }
    return found | (dict(masked.metrics_of_simple(series)) if with_simple else {})


JUDGES: dict[str, Callable[..., Judged]] = {"alarms": _alarms, "filling_in": _filling_in}
