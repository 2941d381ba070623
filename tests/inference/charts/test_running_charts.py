"""Charts along rows that come one by one, in several processes: the errors of all rows at once."""

from __future__ import annotations

import numpy as np
import pytest

from inference.charts import control_charts, cross_channel
from tests.inference.charts.plants import errors_of, plant, whole
from tests.support import most_nightly

SEGMENTS = np.array([[1200, 1203], [1203, 1700], [1750, 2000]])
CHARTS = {"control": control_charts.fit, "cross_channel": cross_channel.fit}


@pytest.mark.parametrize("kind", CHARTS)
@pytest.mark.parametrize("size", most_nightly([7, 1, 10_000], but=1))
def test_rows_in_pieces_with_a_restored_state_get_the_errors_of_all_rows(kind, size):
    values_nc = plant(2000, seed=3, num_channels=4)
    values_nc[np.random.default_rng(0).random(values_nc.shape) < 0.02] = np.nan
    values_nc[1300:1310, 2] += 40.0
    charts = CHARTS[kind](values_nc, whole(values_nc[:1200]), span=10)
    found, state = [], None
    for segment, (start, stop) in enumerate(SEGMENTS):
        for first in range(start, stop, size):
            running = charts.running()  # of a new process
            if state is not None:
                running.restore(state)
            found.append(running(values_nc[first : min(first + size, stop)], segment))
            state = running.state()
    np.testing.assert_allclose(np.concatenate(found), errors_of(charts, values_nc, SEGMENTS), rtol=1e-6, atol=1e-6)


def test_a_state_of_other_charts_is_refused():
    values_nc = plant(1500, seed=3, num_channels=4)
    one, other = (fit(values_nc, whole(values_nc), span=10).running() for fit in CHARTS.values())
    with pytest.raises(KeyError):
        other.restore(one.state())
