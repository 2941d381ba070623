"""Control charts: the faults that each detects, and equal treatment of reference rows and new rows."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
from scipy.signal import lfilter

from benchmarks.detection.detectors import groups_of
from core.config.charts import ProcessCharts
from inference.charts import autoregression, control_charts
from inference.charts.control_charts import ControlCharts, fit
from inference.charts.innovations import Innovations
from inference.charts.process import ProcessChartSet, fit_process
from inference.groups import POOLED, reference_of, scored_per_recording
from tests.inference.charts.plants import Splits, errors_of, out_of_fold, plant, whole

# Without `cross_shift`, which has a share of the weight of `cross`.
ONLY_CROSS = ProcessCharts(cusum_share=0.0)


def charted(values_nc: np.ndarray, new_nc: np.ndarray) -> np.ndarray:
    charts = fit(values_nc, whole(values_nc), span=10)
    return errors_of(charts, new_nc, whole(new_nc))


def test_errors_of_new_and_reference_rows_are_about_one():
    values_nc = plant(4000, seed=0, noise=2.0)
    charts, reference_sc = fit(values_nc, whole(values_nc), span=10), out_of_fold(values_nc)
    new_nc = plant(4000, seed=1, noise=2.0)
    assert reference_sc.mean() == pytest.approx(1.0, rel=0.25)
    assert errors_of(charts, new_nc, whole(new_nc)).mean() == pytest.approx(reference_sc.mean(), rel=0.1)


@pytest.mark.slow
def test_reference_errors_equal_new_errors_even_with_many_regressors():
    """In sample, 121 regressors would explain most of 300 rows of noise."""
    values_nc = np.random.default_rng(0).normal(size=(5300, 20)).astype(np.float32)
    charts, reference_sc = fit(values_nc, np.array([[0, 300]]), span=10), out_of_fold(values_nc, 300)
    assert errors_of(charts, values_nc, np.array([[300, 5300]])).mean() == pytest.approx(reference_sc.mean(), rel=0.2)


def test_a_decoupled_channel_is_detected_within_its_range():
    values_nc = plant(2000, seed=1)
    values_nc[1000:, 2] = plant(2000, seed=2)[1000:, 2]
    error_sc = charted(plant(4000, seed=0), values_nc)
    assert error_sc[1050:, 2].mean() > 3 * error_sc[:1000, 2].mean()


def test_a_lasting_shift_is_detected_after_a_thousand_rows():
    """By then the regression predicts the shift; the components do not."""
    values_nc = plant(3000, seed=1)
    values_nc[1000:, 1] += 1.5
    error_sc = charted(plant(4000, seed=0), values_nc)
    assert error_sc[2000:].mean() > 1.5 * error_sc[:1000].mean()


def coupled(num_rows: int, seed: int) -> np.ndarray:
    """Three sensors that follow a load at once, and one that follows it slowly; each has a little noise of its own."""
    rng = np.random.default_rng(seed)
    load_n = np.repeat(rng.uniform(-1, 1, size=num_rows // 100 + 1), 100)[:num_rows]
    slow_n = np.zeros(num_rows)
    for row in range(1, num_rows):
        slow_n[row] = 0.98 * slow_n[row - 1] + 0.02 * load_n[row]
    clean_nc = np.column_stack([load_n, 2 * load_n, -load_n, 3 * slow_n])
    return (clean_nc + 0.02 * rng.normal(size=clean_nc.shape)).astype(np.float32)


def test_a_lasting_shift_of_a_channel_that_follows_others_slowly_stays_detected():
    """The autoregression follows the shift after a few rows, and no component joins the present of one channel and the
    past of another."""
    new_nc, channel = coupled(3000, seed=1), 3
    new_nc[2000:, channel] += 0.5
    charts = fit(coupled(4000, seed=0), np.array([[0, 4000]]), span=10)
    square_nc = [
        np.concatenate([regression.residual(rows) ** 2 for rows in regression.rows(new_nc, whole(new_nc))])
        for regression in (charts.cross.regression, charts.regression)
    ]
    of_others, of_past = (each[2500:, channel].mean() / each[500:2000, channel].mean() for each in square_nc)
    assert of_others > 5 * of_past
    error_sc = errors_of(charts, new_nc, whole(new_nc))
    assert error_sc[2500:, channel].mean() > 5 * error_sc[500:2000, channel].mean()


def test_a_channel_that_follows_others_slowly_has_usual_errors_at_the_start_of_a_segment():
    charts, new_nc, channel = fit(coupled(4000, seed=0), np.array([[0, 4000]]), span=10), coupled(9000, seed=1), 3
    short_k2 = np.column_stack([np.arange(0, 9000, 300), np.arange(300, 9001, 300)])

    def of_first_rows(charts: ControlCharts) -> float:
        """Mean error in the first rows of segments, relative to the later ones."""
        error_kr = errors_of(charts, new_nc, short_k2)[:, channel].reshape(-1, 300)
        return error_kr[:, :60].mean() / error_kr[:, 200:].mean()

    assert of_first_rows(charts) < 3
    assert of_first_rows(replace(charts, start_bc=np.ones((1, new_nc.shape[1])))) > 6


def test_reference_segments_too_short_for_a_past_leave_the_errors_of_first_rows_as_they_are():
    values_nc = coupled(4000, seed=0)
    rows_k = np.arange(0, 4001, 200)
    assert (fit(values_nc, np.column_stack([rows_k[:-1], rows_k[1:]]), span=10).start_bc == 1).all()


def test_innovations_that_all_channels_share_do_not_hide_a_fault_of_one():
    """Noise of the load moves all channels; noise of one sensor is smaller. More noise of the load is a change too."""
    rng = np.random.default_rng(0)

    def loaded(num_rows: int, more: slice = slice(0)) -> np.ndarray:
        shock_n = 0.3 * rng.normal(size=num_rows)
        shock_n[more] *= 3
        load_n = lfilter([1.0], [1.0, -0.9], shock_n)
        return (load_n[:, np.newaxis] * [1.0, 2.0, -1.0] + 0.02 * rng.normal(size=(num_rows, 3))).astype(np.float32)

    values_nc, new_nc = loaded(6000), loaded(3000, more=slice(2800, 2900))
    new_nc[2000:2100, 1] += 0.15 * rng.normal(size=100).astype(np.float32)
    charts = fit(values_nc, whole(values_nc), span=10)
    charts = replace(charts, cross=None, components_share=0.0, shared_weight=2.0)
    independent = Innovations(np.eye(3), np.full(3, np.inf))
    usual = charts.usual._replace(innovation_c=charts.usual.residual_c)
    plain = replace(charts, innovations=independent, usual=usual)
    without_shared = replace(charts, shared_weight=0.0)
    normal, of_sensor, of_load = slice(2000), slice(2020, 2100), slice(2820, 2900)
    found = {}
    for name, each in {"all": charts, "plain": plain, "without shared": without_shared}.items():
        error_n = errors_of(each, new_nc, whole(new_nc)).mean(axis=1)
        found[name] = [(error_n[rows] > error_n[normal].max()).mean() for rows in (of_sensor, of_load)]
    assert found["plain"][0] < 0.1 < 0.8 < found["all"][0]
    assert found["without shared"][1] < 0.3 < 0.8 < found["all"][1]


def test_channels_that_explain_nothing_leave_the_errors_as_they_are():
    values_nc = np.random.default_rng(0).normal(size=(4000, 3)).astype(np.float32)
    charts = fit(values_nc, whole(values_nc), span=10)
    assert charts.cross.explained_c.max() < 0.01
    np.testing.assert_allclose(
        errors_of(charts, values_nc, whole(values_nc)),
        errors_of(replace(charts, cross=None), values_nc, whole(values_nc)),
        rtol=0.1,
    )


def test_the_regression_on_other_channels_counts_up_to_its_limit():
    new_nc, limit = coupled(1000, seed=1), ProcessCharts().cross_channel_limit
    new_nc[500:] = new_nc[500:, ::-1]
    charts = fit(coupled(4000, seed=0), np.array([[0, 4000]]), span=10, settings=ONLY_CROSS)
    charts = replace(charts, range_weight_c=np.zeros(4))
    without = replace(charts, cross=None)
    without_sc = errors_of(without, new_nc, whole(new_nc)) * without.total
    largest_sc = (without_sc + charts.cross.explained_c * limit) / charts.total
    assert (errors_of(charts, new_nc, whole(new_nc)) <= largest_sc + 1e-3).all()


def test_a_single_large_residual_does_not_raise_the_regression_on_other_channels_for_long():
    new_nc, span = coupled(1000, seed=1), 10
    new_nc[500, 0] += 100
    charts = fit(coupled(4000, seed=0), np.array([[0, 4000]]), span=span, settings=ONLY_CROSS)
    without = replace(charts, cross=None)
    with_sc, without_sc = (errors_of(each, new_nc, whole(new_nc)) * each.total for each in (charts, without))
    chart_s = (with_sc - without_sc)[:, 0] / charts.cross.explained_c[0]
    assert chart_s[500] > chart_s[499] + 1
    assert chart_s[500 + 2 * span] < 1.5


@pytest.mark.parametrize(
    "num_channels, blocks", [(1, None), (8, 9), (100, 5), pytest.param(600, 1, marks=pytest.mark.nightly), (1025, None)]
)
def test_many_channels_have_fewer_regressors(num_channels, blocks):
    values_nc = np.random.default_rng(0).normal(size=(80, num_channels)).astype(np.float32)
    cross = control_charts.CrossChannelResidual.fit(values_nc, whole(values_nc), 10, ProcessCharts())
    assert (cross and (len(cross.regression.weight_fc) - 1) / num_channels) == blocks


def test_a_lasting_shift_of_a_well_explained_channel_adds_up_to_a_limit(monkeypatch):
    span, shifted, after = 10, slice(530, 800), slice(860, 1000)
    known_nc, new_nc = (plant(2000, seed=seed, noise=0.3) for seed in (0, 1))
    charts = fit(known_nc, whole(known_nc), span=span)
    new_nc[500:800, 0] += 2 * np.sqrt(charts.cross.usual_c[0]) * known_nc[:, 0].std()
    score_s = errors_of(charts, new_nc, whole(new_nc)).mean(axis=1)
    monkeypatch.setattr(control_charts, "_SHIFT_LIMIT", 0.0)
    without_s = errors_of(charts, new_nc, whole(new_nc)).mean(axis=1)
    assert np.median(score_s[shifted]) > 2 * np.median(without_s[shifted])
    assert np.median(score_s[after]) < 1.2


def test_a_lasting_shift_does_not_add_up_where_channels_explain_each_other_less(monkeypatch):
    known_nc, new_nc = (plant(2000, seed=seed, noise=3.0) for seed in (0, 1))
    new_nc[500:800, 0] += 10
    charts = replace(fit(known_nc, whole(known_nc), span=10), range_weight_c=np.zeros(3))
    error_sc = errors_of(charts, new_nc, whole(new_nc))
    monkeypatch.setattr(control_charts, "_SHIFT_LIMIT", 0.0)
    np.testing.assert_array_equal(errors_of(charts, new_nc, whole(new_nc)), error_sc)


def test_components_count_less_if_couplings_change():
    values_nc = plant(2000, seed=0, noise=3.0)
    steady = fit(values_nc, whole(values_nc), span=10)
    values_nc[1000:, 2] -= 2 * (values_nc[1000:, 2] - 50)
    moving = fit(values_nc, whole(values_nc), span=10)
    assert steady.components_share == ProcessCharts().components_share
    assert moving.components_share < 0.05


@pytest.mark.parametrize("changes", [False, True])
def test_a_drift_is_logged_with_the_key_that_names_operating_points(caplog, changes):
    values_nc = plant(2000, seed=0, num_channels=6, noise=3.0)
    values_nc[1000:, 2] += 30 * changes
    with caplog.at_level(logging.INFO, logger="inference.charts.process"):
        fit_process(Splits([values_nc]).of(calibration={0: (0, 2000)}), span=10, context="off")
    assert ("data.context_channels" in caplog.text) == changes


def test_charts_that_follow_the_load_count_less_if_channels_explain_each_other():
    plants = (plant(2000, seed=0, noise=noise) for noise in (0.3, 3.0))
    coupled_charts, noisy = (fit(values_nc, whole(values_nc), span=10) for values_nc in plants)
    assert coupled_charts.cross.explained_c.mean() > 0.95 > 0.85 > noisy.cross.explained_c.mean()
    assert coupled_charts.components_share < 0.01 < noisy.components_share
    assert coupled_charts.shared_weight < 0.01 < noisy.shared_weight


def test_a_channel_that_grows_with_the_square_of_another_is_predicted():
    def pump(num_rows: int, seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        load_n = lfilter([1.0], [1.0, -0.95], rng.normal(size=num_rows))
        clean_nc = np.column_stack([load_n, load_n + 0.2 * load_n**2])
        return (clean_nc + 0.05 * rng.normal(size=clean_nc.shape)).astype(np.float32)

    cross = fit(pump(4000, seed=0), np.array([[0, 4000]]), span=10).cross
    assert cross.regression.squares
    assert cross.explained_c[1] > 0.99


def test_constants_of_the_configuration_are_used_and_stored():
    values_nc, settings = plant(2000, seed=0), ProcessCharts(lags=2, components_share=0.0, cusum_share=1.0)
    new_nc = plant(500, seed=1)
    charts = fit(values_nc, whole(values_nc), span=10, settings=settings)
    kept = control_charts.ControlCharts.from_arrays(charts.to_arrays())
    assert kept.settings == settings
    assert kept.regression.weight_fc.shape[0] == 2 * values_nc.shape[1] + 1
    np.testing.assert_array_equal(errors_of(kept, new_nc, whole(new_nc)), errors_of(charts, new_nc, whole(new_nc)))
    assert not np.allclose(errors_of(charts, new_nc, whole(new_nc)), charted(values_nc, new_nc))


def test_slow_drift_of_a_drifting_channel_is_normal():
    rng = np.random.default_rng(0)
    values_nc = np.column_stack([np.cumsum(rng.normal(size=3000)), rng.normal(size=3000)]).astype(np.float32)
    error_sc = charted(values_nc[:500], values_nc[500:])
    assert np.median(error_sc[2000:, 0]) < 3


def test_a_lasting_shift_of_a_single_channel_is_detected():
    """No other channel shows it, and the autoregression follows it after a few rows."""
    values_nc = plant(4000, seed=0, num_channels=1)
    charts, reference_sc = fit(values_nc, whole(values_nc), span=10), out_of_fold(values_nc)
    assert reference_sc.mean() == pytest.approx(1.0, abs=0.05)
    new_nc = plant(2000, seed=1, num_channels=1)
    new_nc[1000:] -= 6 * values_nc.std()
    error_sc = errors_of(charts, new_nc, whole(new_nc))
    assert error_sc[1100:].min() > 1.5 * error_sc[:1000].max()


@pytest.mark.parametrize("num_channels", [2, 5])
def test_channels_that_leave_their_range_together_stay_detected(num_channels):
    train_nc, test_nc = (plant(4000, seed, num_channels=num_channels) for seed in (0, 1))
    test_nc[1000:] -= 6 * train_nc.std(axis=0)
    charts = fit(train_nc, whole(train_nc), span=10)
    error_n = errors_of(charts, test_nc, whole(test_nc)).mean(axis=1)
    assert np.median(error_n[1100:]) > error_n[:1000].max()
    inside = replace(charts, range_weight_c=np.zeros(num_channels))
    assert np.median(errors_of(inside, test_nc, whole(test_nc)).mean(axis=1)[1100:]) < 2


def test_wear_of_all_channels_is_detected_before_a_row_leaves_its_range():
    """The load changes from row to row by one standard deviation. Wear adds up to three of them over 1,000 rows."""
    rng = np.random.default_rng(0)
    wear_n = np.clip((np.arange(3000) - 1000) / 1000, 0, 1) * 3
    load_2n = rng.normal(size=(2, 3000)) + np.array([np.zeros(3000), wear_n])
    train_nc, test_nc = (load_2n[:, :, np.newaxis] + 0.3 * rng.normal(size=(2, 3000, 8))).astype(np.float32)
    error_n = errors_of(fit(train_nc, whole(train_nc), span=10), test_nc, whole(test_nc)).mean(axis=1)
    assert np.mean(error_n[2200:] > error_n[:1000].max()) > 0.8


def test_the_range_of_a_channel_that_drifts_has_little_weight():
    values_nc = plant(2000, seed=0)
    values_nc[:, 1] += np.linspace(0, 30, 2000, dtype=np.float32)
    np.testing.assert_array_equal(
        fit(values_nc, whole(values_nc), span=10).range_weight_c > [0.9, 0.1, 0.9], [True, False, True]
    )


def test_a_single_channel_that_drifts_has_no_chart_of_its_level():
    rng = np.random.default_rng(0)
    values_nc = np.cumsum(rng.normal(size=(3000, 1)), axis=0).astype(np.float32)
    assert np.median(charted(values_nc[:500], values_nc[500:])) < 3


def test_missing_values_have_no_error():
    values_nc = plant(2000, seed=0)
    values_nc[500:520, 1] = np.nan
    charts, reference_sc = fit(values_nc, whole(values_nc), span=10), out_of_fold(values_nc)
    for error_sc in (reference_sc, errors_of(charts, values_nc, whole(values_nc))):
        assert np.isnan(error_sc[500:520, 1]).all()
        assert np.isnan(error_sc).sum() == 20


def test_a_change_of_a_constant_channel_is_detected():
    values_nc = plant(1000, seed=0)
    values_nc[:, 1] = 0.1
    charts, reference_sc = fit(values_nc, whole(values_nc), span=10), out_of_fold(values_nc)
    assert reference_sc[:, 1].max() < 1  # the first rows of each fold are drawn towards the centre, 1
    assert reference_sc.reshape(4, 250, 3)[:, 100:, 1].max() < 1e-3
    values_nc[500, 1] = 0.2
    assert errors_of(charts, values_nc, whole(values_nc))[500, 1] > 100


def test_a_fault_is_not_predicted_from_itself():
    values_nc = plant(1000, seed=0)
    values_nc[500:, 0] += 1000
    assert charted(plant(1000, seed=0), values_nc)[600:, 0].min() > 100


def test_a_spike_of_1e30_has_no_lasting_effect():
    values_nc = plant(1000, seed=0)
    values_nc[500, 0] = 1e30
    error_sc = charted(plant(1000, seed=0), values_nc)
    assert np.isfinite(error_sc).all()
    assert error_sc[800:].mean() < 3


def test_errors_do_not_depend_on_another_segment():
    values_nc, apart_k2 = plant(1000, seed=0), np.array([[0, 400], [600, 1000]])
    charts = fit(values_nc, whole(values_nc), span=10)
    apart_sc = errors_of(charts, values_nc, apart_k2)
    changed_nc = values_nc.copy()
    changed_nc[400:600] = -1e3
    np.testing.assert_array_equal(errors_of(charts, changed_nc, apart_k2), apart_sc)


@pytest.mark.slow
def test_computing_in_pieces_changes_nothing(monkeypatch):
    values_nc = plant(1000, seed=0)
    charts, reference_sc = fit(values_nc, whole(values_nc), span=10), out_of_fold(values_nc)
    error_sc = errors_of(charts, values_nc, whole(values_nc))
    monkeypatch.setattr(autoregression, "_VALUES_AT_A_TIME", 3 * 6 * 50)
    monkeypatch.setattr(control_charts, "_VALUES_AT_A_TIME", 3 * 70)
    charts, in_pieces_sc = fit(values_nc, whole(values_nc), span=10), out_of_fold(values_nc)
    np.testing.assert_allclose(in_pieces_sc, reference_sc, rtol=1e-4)
    np.testing.assert_allclose(errors_of(charts, values_nc, whole(values_nc)), error_sc, rtol=1e-4)


@pytest.mark.parametrize("num_rows", [1, 2, 5])
def test_a_few_reference_rows_are_enough(num_rows):
    values_nc = plant(100, seed=0)
    charts = fit(values_nc, np.array([[0, num_rows]]), span=10)
    assert np.isfinite(out_of_fold(values_nc, num_rows)).all()
    assert np.isfinite(errors_of(charts, values_nc, whole(values_nc))).all()


def test_charts_are_restored_from_arrays():
    rows = {"train": {0: (0, 300), 1: (0, 300)}, "calibration": {0: (300, 400), 1: (300, 400)}}
    splits = Splits([plant(1000, seed=0), plant(1000, seed=1)]).of(**rows, test={0: (400, 1000), 1: (400, 1000)})
    learned, _ = fit_process(reference_of(splits), ("machine_0", "machine_1"), span=10)
    again = ProcessChartSet.from_arrays(learned.to_arrays())
    np.testing.assert_array_equal(again.errors(splits["test"]), learned.errors(splits["test"]))


@pytest.mark.slow
def test_charts_of_many_channels_can_be_tried_out():
    values_nc = np.random.default_rng(0).normal(size=(80, 150)).astype(np.float32)
    charts = fit(values_nc, whole(values_nc), span=10, settings=ProcessCharts(lags=1))
    assert charts.cross.regression.lags == 0
    restored = ProcessChartSet.from_arrays(ProcessChartSet({POOLED: charts}).to_arrays())
    restored.try_out()


def test_each_recording_is_scored_by_its_own_reference_if_it_has_one():
    rows = {"train": {0: (0, 300), 1: (0, 300)}, "calibration": {0: (300, 400), 1: (300, 400)}}
    recordings = [plant(1000, seed=0), 1e3 * plant(1000, seed=1)]
    splits = Splits(recordings).of(**rows, test={0: (400, 1000), 1: (400, 1000)})
    assert len(groups_of(splits)) == 2
    alone = scored_per_recording(reference_of(splits).values())
    learned, calibration_sc = fit_process(reference_of(splits), alone, span=10)
    assert calibration_sc.shape == (200, 3)
    test_sc = learned.errors(splits["test"])
    assert test_sc.shape == (1200, 3)
    for half in (test_sc[:600], test_sc[600:]):
        assert 0.5 < half.mean() < 3


def test_calibration_rows_are_scored_by_the_other_reference_splits():
    values_nc = plant(1000, seed=0)
    splits = Splits([values_nc]).of(train={0: (0, 600)}, validation={0: (600, 700)}, calibration={0: (700, 1000)})
    _, calibration_sc = fit_process(splits, span=10)
    unaware = fit(values_nc, np.array([[0, 600], [600, 700]]), span=10)
    np.testing.assert_array_equal(calibration_sc, errors_of(unaware, values_nc, np.array([[700, 1000]])))


@pytest.mark.slow
def test_calibration_rows_are_scored_out_of_fold_if_other_splits_are_short(caplog):
    values_nc = plant(1000, seed=0)
    splits = Splits([values_nc]).of(train={0: (0, 400)}, calibration={0: (400, 1000)})
    with caplog.at_level("INFO"):
        _, calibration_sc = fit_process(splits, span=10)
    first = fit(values_nc, np.array([[0, 250], [250, 400], [400, 500], [750, 1000]]), span=10)
    fold_sc = errors_of(first, values_nc, np.array([[500, 750]]))  # the third of four folds, which it did not see
    np.testing.assert_allclose(calibration_sc[100:350], fold_sc, rtol=1e-5)
    assert "400 other reference rows" in caplog.text
    caplog.clear()
    with caplog.at_level("INFO"):
        fit_process(Splits([values_nc]).of(calibration={0: (0, 1000)}), span=10)
    assert "no other reference rows" in caplog.text


def test_a_common_regression_scores_recordings_without_reference_rows():
    recordings = [plant(1000, seed=0), plant(1000, seed=1)]
    splits = Splits(recordings).of(train={0: (0, 500)}, calibration={0: (500, 1000)}, test={1: (0, 1000)})
    ((own_k2, of_group),) = groups_of(splits)
    assert own_k2.tolist() == [[0, 500], [500, 1000]]
    assert of_group(splits["test"].segments.rows_k2).all()
    learned, _ = fit_process(reference_of(splits), span=10)
    assert 0.5 < learned.errors(splits["test"]).mean() < 2


@pytest.mark.slow
def test_errors_of_unrelated_channels_are_also_about_one():
    values_nc = np.random.default_rng(0).normal(size=(4000, 4)).astype(np.float32)
    charts, reference_sc = fit(values_nc, whole(values_nc), span=10), out_of_fold(values_nc)
    assert charts.components_share == 0.0
    assert reference_sc.mean() == pytest.approx(1.0, rel=0.1)


def test_a_channel_without_reference_values_is_not_scored():
    values_nc = plant(2000, seed=0)
    values_nc[:, 1] = np.nan
    new_nc = plant(500, seed=1)
    error_sc = charted(values_nc, new_nc)
    assert np.isnan(error_sc[:, 1]).all()
    assert np.nanmean(error_sc) < 2.0
