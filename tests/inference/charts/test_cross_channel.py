"""The chart of a repeating process: what it detects, what it tolerates, and when it is used."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from core.config.charts import ProcessCharts
from core.errors import ConfigError
from inference.charts import cross_channel_regression
from inference.charts.control_charts import ControlCharts
from inference.charts.cross_channel import CrossChannelChart, fit, process_recurrence
from inference.charts.cross_channel_regression import CrossChannelRegression
from inference.charts.process import fit_process
from inference.groups import reference_of
from tests.inference.charts.plants import Splits, errors_of, plant, whole
from tests.inference.charts.recipes import CYCLE, recipe


@pytest.fixture(scope="module")
def chart() -> CrossChannelChart:
    values_nc = recipe(6000, seed=0)
    return fit(values_nc, whole(values_nc), span=10)


def scores(chart: CrossChannelChart, values_nc: np.ndarray) -> np.ndarray:
    return np.nanmean(errors_of(chart, values_nc, whole(values_nc)), axis=1)


@pytest.mark.slow
def test_errors_of_new_reference_rows_are_about_one(chart):
    assert scores(chart, recipe(6000, seed=1)).mean() == pytest.approx(1.0, rel=0.35)


def test_step_changes_count_less_with_context(chart):
    everywhere_mc = np.broadcast_to(chart.scale.usual_c, chart.scale.square_mc.shape)
    blind = replace(chart, scale=replace(chart.scale, square_mc=everywhere_mc))
    after_change_n = np.arange(6000) % (CYCLE // 4) < 8
    with_context, without = (scores(each, recipe(6000, seed=1))[after_change_n].mean() for each in (chart, blind))
    assert with_context < 0.5 * without


@pytest.mark.parametrize("fault", ["shift", "stuck", "decoupled"])
def test_faults_far_smaller_than_recipe_steps_are_detected(chart, fault):
    """Each fault is smaller than a tenth of the recipe steps, or stays in the range of the channel."""
    values_nc, rows = recipe(3000, seed=1), slice(1500, 1800)
    if fault == "shift":
        values_nc[rows, 2] += 0.08
    elif fault == "stuck":
        values_nc[rows, 2] = values_nc[1500, 2]
    else:
        values_nc[rows, 2] = recipe(3000, seed=1)[1540:1840, 2]
    score_n = scores(chart, values_nc)
    assert np.median(score_n[1520:1800]) > 3 * np.quantile(score_n[:1500], 0.9)
    error_sc = errors_of(chart, values_nc, whole(values_nc))
    assert np.nanmean(error_sc[1520:1800], axis=0).argmax() == 2


def test_missing_values_have_no_error_and_do_not_affect_other_channels(chart):
    values_nc = recipe(3000, seed=1)
    complete_sc = errors_of(chart, values_nc, whole(values_nc))
    values_nc[1000:1030, 1] = np.nan
    error_sc = errors_of(chart, values_nc, whole(values_nc))
    assert np.isnan(error_sc[1000:1030, 1]).all()
    assert np.isnan(error_sc).sum() == 30
    others = [0, 2, 3, 4, 5]
    assert np.nanmax(error_sc[1000:1030][:, others]) < 3 * max(1.0, complete_sc[1000:1030][:, others].max())


def test_one_impossible_value_has_no_lasting_effect(chart):
    values_nc = recipe(3000, seed=1)
    values_nc[1500, 0] = 1e30
    score_n = scores(chart, values_nc)
    assert np.isfinite(score_n).all()
    assert score_n[1600:].mean() < 3


def test_a_channel_is_not_predicted_from_itself():
    values_nc = plant(2000, seed=0)
    regression, _, _ = CrossChannelRegression.fit(values_nc, whole(values_nc))
    num_channels = values_nc.shape[1]
    for channel in range(num_channels):
        assert not regression.weight_fc[channel:-1:num_channels, channel].any()


def test_weights_are_those_of_a_ridge_regression_without_the_own_channel():
    from sklearn.linear_model import Ridge

    values_nc = plant(1500, seed=0)
    regression, _, _ = CrossChannelRegression.fit(values_nc, whole(values_nc))
    (rows,) = regression.rows(values_nc, whole(values_nc))
    num_channels, channel = values_nc.shape[1], 1
    kept_f = np.arange(len(regression.weight_fc) - 1) % num_channels != channel
    found = cross_channel_regression._Moments.of(iter([rows]), None)
    expected = Ridge(alpha=0.01 * len(values_nc), solver="svd").fit(
        rows.regressor_nf[:, :-1][:, kept_f], rows.filled_nc[:, channel]
    )
    weight_fc = cross_channel_regression._weights(found.precision(0.01), num_channels)
    np.testing.assert_allclose(weight_fc[:-1, channel][kept_f], expected.coef_, atol=1e-6)


def test_computing_in_pieces_changes_nothing(chart, monkeypatch):
    values_nc = recipe(1000, seed=1)
    values_nc[300:310, 1] = np.nan
    at_once_sc = errors_of(chart, values_nc, whole(values_nc))
    monkeypatch.setattr(cross_channel_regression, "_VALUES_AT_A_TIME", 4 * 6 * 64)
    np.testing.assert_allclose(errors_of(chart, values_nc, whole(values_nc)), at_once_sc, rtol=1e-5, atol=1e-6)


def test_errors_do_not_depend_on_another_segment(chart):
    values_nc, apart_k2 = recipe(1000, seed=1), np.array([[0, 400], [600, 1000]])
    apart_sc = errors_of(chart, values_nc, apart_k2)
    values_nc[400:600] = -1e3
    np.testing.assert_array_equal(errors_of(chart, values_nc, apart_k2), apart_sc)


def test_errors_of_a_stored_chart_are_bit_identical(chart):
    values_nc = recipe(500, seed=1)
    again = CrossChannelChart.from_arrays(chart.to_arrays())
    np.testing.assert_array_equal(
        errors_of(again, values_nc, whole(values_nc)), errors_of(chart, values_nc, whole(values_nc))
    )


# ------------------------------------------------------------------------------------------------ when it is used
def test_repeated_contexts_are_recognised_and_random_ones_are_not():
    recipe_nc, random_nc = recipe(4000, seed=0), np.cumsum(np.random.default_rng(0).normal(size=(4000, 6)), axis=0)
    assert process_recurrence(recipe_nc, whole(recipe_nc), 10) > ProcessCharts().recurrence
    assert process_recurrence(random_nc, whole(random_nc), 10) < 0.5


def splits_of(recordings: list[np.ndarray]) -> dict:
    """The first 60 % of each recording is the train split, the next 15 % the calibration split, the rest the test
    split."""
    rows = {number: len(values_nc) for number, values_nc in enumerate(recordings)}
    bounds = {"train": (0.0, 0.6), "calibration": (0.6, 0.75), "test": (0.75, 1.0)}
    return Splits(recordings).of(
        **{name: {r: (int(low * n), int(high * n)) for r, n in rows.items()} for name, (low, high) in bounds.items()}
    )


@pytest.mark.parametrize(
    ("values_nc", "context", "kind"),
    [
        (recipe(3000, seed=0), "auto", CrossChannelChart),
        (recipe(3000, seed=0), "off", ControlCharts),
        (recipe(900, seed=0), "on", ControlCharts),
        (plant(3000, seed=0), "auto", ControlCharts),
        (plant(3000, seed=0), "on", CrossChannelChart),
    ],
    ids=["recipe", "recipe, off", "too few rows", "no recipe", "no recipe, on"],
)
def test_the_kind_of_chart_follows_from_data_and_settings(values_nc, context, kind):
    learned, _ = fit_process(reference_of(splits_of([values_nc])), span=10, context=context)
    assert {type(chart) for chart in learned.charts.values()} == {kind}


def test_named_context_channels_describe_the_context_and_must_exist():
    splits = splits_of([recipe(3000, seed=0)])
    learned, _ = fit_process(reference_of(splits), span=10, context_channels=("c1", "c4"))
    (chart,) = learned.charts.values()
    assert chart.features.loading_ck[[1, 4]].any()
    assert not chart.features.loading_ck[[0, 2, 3, 5]].any()
    with pytest.raises(ConfigError, match=r"data\.context_channels.*setpoint"):
        fit_process(reference_of(splits), span=10, context_channels=("setpoint",))


@pytest.mark.slow
def test_calibration_errors_are_as_large_as_those_of_new_rows():
    """The chart that scores the calibration rows has not seen them: their errors are as large as those of new rows."""
    splits = splits_of([recipe(8000, seed=0), recipe(8000, seed=1)])
    learned, calibration_sc = fit_process(reference_of(splits), span=10)
    quantiles = [
        np.quantile(np.nanmean(each_sc, axis=1), 0.95) for each_sc in (calibration_sc, learned.errors(splits["test"]))
    ]
    assert quantiles[0] == pytest.approx(quantiles[1], rel=0.3)


@pytest.mark.slow
def test_calibration_rows_alone_are_scored_out_of_fold():
    values_nc = recipe(4000, seed=0)
    splits = Splits([values_nc]).of(calibration={0: (0, 4000)})
    learned, calibration_sc = fit_process(splits, span=10)
    assert not np.isnan(calibration_sc).any()
    new_nc = recipe(4000, seed=5)
    (chart,) = learned.charts.values()
    expected = np.quantile(scores(chart, new_nc), 0.9)
    assert np.quantile(calibration_sc.mean(axis=1), 0.9) == pytest.approx(expected, rel=0.3)


@pytest.mark.parametrize(("context", "kind"), [("on", CrossChannelChart), ("off", ControlCharts)])
def test_predictions_for_some_rows_equal_those_for_all_rows(context, kind):
    values_nc = recipe(3000, seed=0)
    splits = splits_of([values_nc, recipe(2000, seed=1)])
    learned, _ = fit_process(reference_of(splits), span=10, context=context)
    assert {type(chart) for chart in learned.charts.values()} == {kind}
    windows = splits["test"]
    (start, stop), *_ = windows.segments.rows_k2.tolist()
    whole_nc = learned.expected(windows, np.arange(start, stop))
    np.testing.assert_allclose(learned.expected(windows, np.arange(start + 150, start + 190)), whole_nc[150:190])
    seen_nc = windows.series.rows_nc[start:stop]
    left_c = np.nanmean((seen_nc - whole_nc) ** 2, axis=0) / np.nanvar(seen_nc, axis=0)
    assert np.median(left_c) < 0.5, "an expectation is nearer than the mean"
