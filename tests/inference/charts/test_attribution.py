"""Which channels an event comes from, although every coupled channel has a large error."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from benchmarks.plants.plant import SENSORS, make_plant
from inference.charts import attribution, control_charts, cross_channel
from inference.charts.cross_channel import CrossChannelChart
from inference.charts.cross_channel_regression import CrossChannelRegression
from inference.charts.process import Charts, ProcessChartSet
from inference.groups import POOLED
from tests.inference.charts.plants import Splits, errors_of, plant, whole
from tests.inference.charts.recipes import recipe
from tests.support import most_nightly

ROWS = slice(3000, 3200)


@pytest.fixture(scope="module")
def chart() -> CrossChannelChart:
    values_nc = recipe(6000, seed=0)
    return cross_channel.fit(values_nc, whole(values_nc), span=10)


def shift(values_nc: np.ndarray) -> None:
    values_nc[ROWS, 2] += 0.5


def oscillation(values_nc: np.ndarray) -> None:
    values_nc[ROWS, 4] += 0.4 * np.sin(np.arange(200) / 1.5)


def stuck(values_nc: np.ndarray) -> None:
    values_nc[ROWS, 1] = values_nc[ROWS.start, 1]


FAULTS = pytest.mark.parametrize(("fault", "channel"), [(shift, 2), (oscillation, 4), (stuck, 1)])


def mean_errors(charts: Charts, values_nc: np.ndarray, rows: slice) -> np.ndarray:
    return errors_of(charts, values_nc, whole(values_nc))[rows].mean(axis=0)


def shares_of(charts: Charts, values_nc: np.ndarray, rows: slice = ROWS) -> dict[int, float]:
    windows = Splits([values_nc]).of(test={0: (0, len(values_nc))})["test"]
    error_c = mean_errors(charts, values_nc, rows)
    return ProcessChartSet({POOLED: charts}).shares(windows, rows.start, rows.stop - 1, error_c, 3)


@FAULTS
def test_the_faulty_channel_has_the_errors_of_all(fault, channel, chart):
    values_nc = recipe(4000, seed=5)
    fault(values_nc)
    shares = shares_of(chart, values_nc)
    assert next(iter(shares)) == channel
    assert shares.pop(channel) > 0.8
    assert all(share < 0.1 for share in shares.values())


@FAULTS
def test_by_errors_a_healthy_channel_would_have_a_large_share(fault, channel, chart):
    values_nc = recipe(4000, seed=5)
    fault(values_nc)
    error_c = mean_errors(chart, values_nc, ROWS)
    assert np.delete(error_c, channel).max() > 0.1 * error_c.sum()


@pytest.mark.parametrize("fault", ["coupled step", "stuck", "oscillation", "delay"])
def test_a_healthy_sensor_of_a_pump_has_a_small_share(fault):
    pump = make_plant(fault, seed=1)
    train_nc, test_nc = (
        np.stack([signals[name] for name in SENSORS], axis=1).astype(np.float32) for signals in (pump.train, pump.test)
    )
    charts = control_charts.fit(train_nc, whole(train_nc), span=10)
    shares = shares_of(charts, test_nc, slice(pump.start, pump.stop))
    assert SENSORS[next(iter(shares))] in pump.sensors
    assert sum(share for channel, share in shares.items() if SENSORS[channel] not in pump.sensors) < 0.1


def test_two_faults_at_once_are_both_named(chart):
    values_nc = recipe(4000, seed=5)
    shift(values_nc)
    oscillation(values_nc)
    shares = shares_of(chart, values_nc)
    assert set(list(shares)[:2]) == {2, 4}
    assert list(shares.values()) == sorted(shares.values(), reverse=True)


def test_a_channel_without_values_has_no_share(chart):
    values_nc = recipe(4000, seed=5)
    values_nc[ROWS, 3] = np.nan
    shift(values_nc)
    shares = shares_of(chart, values_nc)
    assert 3 not in shares
    assert next(iter(shares)) == 2


def test_errors_that_no_residual_explains_keep_their_shares(chart):
    reference_nc = recipe(4000, seed=5)
    moment_ff = moment_of(chart.regression, reference_nc, ROWS) / 100  # smaller residuals than in reference rows
    moment_ff[-1, -1] = 200
    error_c = np.array([1.0, np.nan, 5.0, 0.0, 4.0, 0.0])
    assert attribution.shares(chart.regression, error_c, moment_ff, 3) == pytest.approx({2: 0.5, 4: 0.4, 0: 0.1})


def test_a_channel_with_a_small_error_is_not_blamed(chart):
    values_nc = recipe(4000, seed=5)
    shift(values_nc)
    moment_ff = moment_of(chart.regression, values_nc, ROWS)
    error_c = np.array([0.0, 0.0, 0.4, 0.0, 10.0, 0.0])
    assert attribution.shares(chart.regression, error_c, moment_ff, 3) == pytest.approx({4: 10 / 10.4})


def test_an_event_without_errors_has_no_channels(chart):
    moment_ff = moment_of(chart.regression, recipe(4000, seed=5), ROWS)
    assert attribution.shares(chart.regression, np.zeros(6), moment_ff, 3) == {}


def test_residuals_without_some_channels_are_those_of_a_regression_without_them():
    values_nc = plant(2000, seed=0, num_channels=4)
    regression, _, _ = CrossChannelRegression.fit(values_nc, whole(values_nc))
    (rows,) = regression.rows(values_nc, whole(values_nc))
    x_nf, num_own = rows.regressor_nf, regression.num_blocks
    precision_ff = np.linalg.inv(x_nf.T @ x_nf / len(x_nf))
    missing = [0, 2]
    own_b = np.concatenate([channel + 4 * np.arange(num_own) for channel in missing])
    new_nf = x_nf[500:600] * 2
    moment_bb = (precision_ff @ (new_nf.T @ new_nf / 100) @ precision_ff)[np.ix_(own_b, own_b)]
    excess = attribution._excess(precision_ff[np.ix_(own_b, own_b)], moment_bb, num_own)

    others_f = np.setdiff1d(np.arange(x_nf.shape[1]), own_b)
    weight_fc, square_c, _, _ = np.linalg.lstsq(x_nf[:, others_f], x_nf[:, missing], rcond=None)
    residual_nc = new_nf[:, missing] - new_nf[:, others_f] @ weight_fc
    expected = np.square(residual_nc).mean(axis=0) / (square_c / len(x_nf)) - 1
    np.testing.assert_allclose(excess, expected, rtol=1e-6)


@pytest.mark.parametrize("size", most_nightly([7, 1, 64], but=1))
def test_pieces_of_an_event_add_up(size, chart):
    values_nc = recipe(4000, seed=5)
    shift(values_nc)
    running, moment_ff = chart.running(), np.zeros_like(chart.regression.precision_ff)
    for start, stop in pairwise([*range(2000, ROWS.stop, size), ROWS.stop]):
        running(values_nc[start:stop], 0)
        regressor_nf = running.regressor_nf[max(0, ROWS.start - start) :]
        moment_ff += regressor_nf.T @ regressor_nf
    shares = attribution.shares(chart.regression, mean_errors(chart, values_nc, ROWS), moment_ff, 3)
    assert shares == pytest.approx(shares_of(chart, values_nc))


def moment_of(regression: CrossChannelRegression, values_nc: np.ndarray, rows: slice) -> np.ndarray:
    regressor_nf = np.concatenate([piece.regressor_nf for piece in regression.rows(values_nc, whole(values_nc))])[rows]
    return regressor_nf.T @ regressor_nf
