"""Which channels an event comes from, although every coupled channel has a large error."""

from __future__ import annotations

import numpy as np
import pytest

from inference.charts.cross_channel import CrossChannelChart, fit
from inference.charts.process import ProcessChartSet
from inference.groups import POOLED
from tests.inference.charts.plants import Splits, errors_of, whole
from tests.inference.charts.test_cross_channel import recipe

ROWS = slice(3000, 3200)


@pytest.fixture(scope="module")
def chart() -> CrossChannelChart:
    values_nc = recipe(6000, seed=0)
    return fit(values_nc, whole(values_nc), span=10)


def shift(values_nc: np.ndarray) -> None:
    values_nc[ROWS, 2] += 0.5


def oscillation(values_nc: np.ndarray) -> None:
    values_nc[ROWS, 4] += 0.4 * np.sin(np.arange(200) / 1.5)


def stuck(values_nc: np.ndarray) -> None:
    values_nc[ROWS, 1] = values_nc[ROWS.start, 1]


FAULTS = pytest.mark.parametrize(("fault", "channel"), [(shift, 2), (oscillation, 4), (stuck, 1)])


def shares_of(chart: CrossChannelChart, values_nc: np.ndarray) -> dict[int, float]:
    windows = Splits([values_nc]).of(test={0: (0, len(values_nc))})["test"]
    return ProcessChartSet({POOLED: chart}).shares(windows, ROWS.start, ROWS.stop - 1, 3)


@FAULTS
def test_the_faulty_channel_explains_the_residuals_of_all(fault, channel, chart):
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
    error_c = errors_of(chart, values_nc, whole(values_nc))[ROWS].mean(axis=0)
    assert np.delete(error_c, channel).max() > 0.1 * error_c.sum()


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


@pytest.mark.parametrize("size", [1, 7, 64])
def test_pieces_of_an_event_add_up(size, chart):
    values_nc = recipe(4000, seed=5)
    shift(values_nc)
    running, moment_cc = chart.running(), np.zeros((6, 6))
    for start in range(2000, ROWS.stop, size):
        stop = min(start + size, ROWS.stop)
        running(values_nc[start:stop], 0)
        residual_nc = running.residual_nc[max(0, ROWS.start - start) :]
        moment_cc += residual_nc.T @ residual_nc
    assert chart.attribution.shares(moment_cc, 3) == pytest.approx(shares_of(chart, values_nc))
