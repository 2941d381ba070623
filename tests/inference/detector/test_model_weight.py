"""Faults injected into reference data, and the weight of the model that they lead to."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from core.data.windows import WindowSet
from inference.detector import model_weight
from inference.detector.fitting import weight_choice
from inference.detector.injected_faults import BETWEEN, NORMAL, inject
from inference.detector.model_weight import BOTH, FEWEST_FAULTS, WEIGHTS, choose_weight, found
from inference.detector.stored import load_splits, open_model
from inference.entries import SplitErrors
from inference.groups import reference_of
from inference.model_errors import model_errors, reference_errors
from inference.run_scoring_example import score_stream
from tests.inference.trained_workspace import configuration

NUM_FAULTS, LENGTH = 40, 25
both_streams = pytest.mark.parametrize("stream", ["patchtst", "swinmae"])


@pytest.fixture
def entries() -> np.ndarray:
    """Normal entries, then faults with entries of neither kind between them."""
    faults = [np.concatenate([np.full(LENGTH, BETWEEN), np.full(LENGTH, number)]) for number in range(NUM_FAULTS)]
    return np.concatenate([np.full(2000, NORMAL), *faults])


def scores(entries: np.ndarray, *, shift: float, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=len(entries)) + shift * (entries >= 0)


@pytest.mark.parametrize(
    ("charts", "model", "weight"),
    [(2.0, 2.0, BOTH), (2.5, 0.0, 0.0), (0.5, 3.0, 1.0), (9.0, 9.0, BOTH)],
    ids=["both find some", "the charts alone", "the model alone", "both find all"],
)
def test_a_component_counts_alone_only_where_the_other_finds_little(entries, charts, model, weight):
    chart_s, model_s = scores(entries, shift=charts, seed=0), scores(entries, shift=model, seed=1)
    choice = choose_weight(lambda each: (1 - each) * chart_s + each * model_s, entries)
    assert (choice.weight, choice.num_faults, tuple(choice.found)) == (weight, NUM_FAULTS, WEIGHTS)


def test_random_scores_show_nothing(entries):
    noise_s = scores(entries, shift=0.0, seed=2)
    assert found(noise_s, entries).mean() == pytest.approx(0.05, abs=0.02)
    choice = choose_weight(lambda weight: (1 - weight) * noise_s + weight * noise_s[::-1], entries)
    assert (choice.weight, choice.found) == (BOTH, {})
    assert "comparison" in choice.reason


def test_perfect_scores_find_all_faults_and_missing_scores_are_ignored(entries):
    score_s = np.where(entries >= 0, 9.0, 0.0)
    score_s[entries == 3] = np.nan
    share_f = found(score_s, entries)
    assert share_f[3] == 0
    assert (np.delete(share_f, 3) == 1).all()


def test_too_few_faults_show_nothing(entries):
    few_s = np.where(entries < FEWEST_FAULTS - 1, entries, BETWEEN)
    choice = choose_weight(lambda weight: scores(few_s, shift=5 * weight, seed=0), few_s)
    assert choice.weight == BOTH
    assert str(FEWEST_FAULTS) in choice.reason


@both_streams
def test_faults_are_injected_into_copies_except_the_first(trained, stream):
    windows, *_ = reference(trained, stream)
    before_nc = windows.series.values_nc.numpy().copy()
    span = 4
    injected, again = (inject(windows, stream, span=span, seed=3) for _ in range(2))
    np.testing.assert_array_equal(windows.series.values_nc.numpy(), before_nc)
    assert injected.windows.series.values_nc.numpy().tobytes() == again.windows.series.values_nc.numpy().tobytes()
    assert len(injected.fault_s) == len(SplitErrors.without_model(stream, injected.windows).row_s)
    assert len(np.unique(injected.fault_s[injected.fault_s >= 0])) >= FEWEST_FAULTS
    names = {recording.file_id for recording in windows.series.recordings}
    assert {recording.file_id for recording in injected.windows.series.recordings} <= names
    assert (injected.fault_s == NORMAL).sum() > 0
    other = inject(windows, stream, span=span, seed=4)
    assert other.windows.series.values_nc.numpy().tobytes() != again.windows.series.values_nc.numpy().tobytes()


@pytest.mark.nightly
@pytest.mark.parametrize("stream", ["patchtst", pytest.param("swinmae", marks=pytest.mark.nightly)])
def test_model_errors_of_the_fault_free_copy_equal_the_calibration_errors(trained, stream):
    windows, config, scoring, _ = reference(trained, stream)
    injected = inject(windows, stream, span=4, seed=3)
    own, copied = (model_errors(config, scoring, each, "a test") for each in (windows, injected.windows))
    has_windows = np.isin(own.segment_s, own.segment_s[~np.isnan(own.error_sc[:, 0])])
    of_copy_sc = copied.error_sc[injected.fault_s == NORMAL]
    np.testing.assert_allclose(of_copy_sc, own.error_sc[has_windows][: len(of_copy_sc)], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("stream", ["patchtst", pytest.param("swinmae", marks=pytest.mark.nightly)])
def test_scoring_chooses_stores_and_explains_the_weight(trained, stream, caplog):
    caplog.set_level("INFO")
    choice = score_stream(configuration(stream, trained, "scoring.model_weight=auto"), root=trained).summary["detector"]
    assert choice["model_weight"] == choice["weight_choice"]["weight"]
    assert "weight of the model" in caplog.text
    caplog.clear()
    again = score_stream(configuration(stream, trained, "scoring.model_weight=auto"), root=trained).summary["detector"]
    assert again["weight_choice"] == choice["weight_choice"]
    assert "weight of the model" not in caplog.text, "the stored detector scores"


def test_calibration_data_that_cannot_be_halved_shows_nothing(trained):
    windows, config, scoring, splits = reference(trained, "patchtst")
    normal = reference_of(splits)
    short = {**normal, "calibration": windows.subset(np.arange(1))}
    errors = reference_errors(config, scoring, normal)
    choice = weight_choice(config, short, errors, partial(model_errors, config, scoring, label="a test"))
    assert choice.weight == BOTH
    assert "too little" in choice.reason or "shorter than a window" in choice.reason or "room for" in choice.reason


@pytest.mark.parametrize(("cost", "weight"), [(0.0, BOTH), (0.04, BOTH), (0.06, 0.0)])
def test_a_model_that_finds_little_is_dropped_only_if_it_costs_some_of_what_the_charts_find(
    entries, monkeypatch, cost, weight
):
    shares = iter((0.8, 0.8 - cost, 0.1))
    monkeypatch.setattr(model_weight, "found", lambda *_: np.array([next(shares)]))
    assert choose_weight(lambda _: entries, entries).weight == weight


def test_the_charts_score_short_runs_alone(trained):
    _, config, scoring, splits = reference(trained, "patchtst")
    normal = reference_of(splits)
    errors = reference_errors(config, scoring, normal)
    errors_of = partial(model_errors, config, scoring, label="a test")
    assert weight_choice(config, normal, errors, errors_of).num_faults >= FEWEST_FAULTS, "long segments are compared"
    choice = weight_choice(config, {name: of_runs(split, 110) for name, split in normal.items()}, errors, errors_of)
    assert (choice.weight, choice.num_faults) == (0, 0)
    assert "runs" in choice.reason
    assert "scoring.model_weight" in choice.reason


def of_runs(windows: WindowSet, rows: int) -> WindowSet:
    """The split as if it were divided into runs."""
    runs = [
        (start, min(start + rows, stop))
        for first, stop in windows.segments.rows_k2
        for start in range(first, stop, rows)
    ]
    return replace(windows, segments_k2=np.array(runs))


def reference(root, stream):
    """The calibration windows, the configuration, the model, and all splits."""
    config, scoring = open_model(configuration(stream, root), root=root)
    splits = load_splits(config, scoring, ("train", "validation", "calibration", "test"), root=root).splits
    return reference_of(splits)["calibration"], config, scoring, splits
