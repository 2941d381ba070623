"""A regression on all channels' last rows: what it foretells and what not, and that normal rows are judged fairly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from core.data.recording import Recording
from core.data.windows import Series, WindowSet
from inference import autoregression
from inference.autoregression import fit, fit_process
from inference.groups import groups_of, judged_alone, normal_of, recordings_in, rows_of


def plant(num_rows: int, seed: int, num_channels: int = 3) -> np.ndarray:
    """Channels that follow one slow hidden state, each with a little noise of its own."""
    rng = np.random.default_rng(seed)
    state_n = np.zeros(num_rows)
    for row in range(1, num_rows):
        state_n[row] = 0.95 * state_n[row - 1] + rng.normal()
    noise_nc = 0.3 * rng.normal(size=(num_rows, num_channels))
    return (state_n[:, np.newaxis] * np.linspace(1, 2, num_channels) + 50 + noise_nc).astype(np.float32)


def whole(values_nc: np.ndarray) -> np.ndarray:
    return np.array([[0, len(values_nc)]])


def test_new_normal_rows_have_errors_about_one():
    regression, normal_sc = fit(plant(4000, seed=0), whole(plant(4000, seed=0)))
    new_nc = plant(4000, seed=1)
    new_sc = regression.errors(new_nc, whole(new_nc))
    assert normal_sc.mean() == pytest.approx(1.0, abs=1e-3)
    assert new_sc.mean() == pytest.approx(1.0, rel=0.1)


def test_a_channel_that_leaves_the_others_is_seen_though_it_stays_in_its_range():
    regression, _ = fit(plant(4000, seed=0), whole(plant(4000, seed=0)))
    values_nc = plant(2000, seed=1)
    values_nc[1000:, 2] = plant(2000, seed=2)[1000:, 2]
    error_sc = regression.errors(values_nc, whole(values_nc))
    assert error_sc[1001:, 2].mean() > 2 * error_sc[:1000, 2].mean()


def test_normal_rows_are_judged_as_new_ones_are_even_by_too_many_regressors():
    """In sample, 161 regressors would explain most of 300 rows of noise."""
    rng = np.random.default_rng(0)
    values_nc = rng.normal(size=(5300, 20)).astype(np.float32)
    regression, normal_sc = fit(values_nc, np.array([[0, 300]]))
    new_sc = regression.errors(values_nc, np.array([[300, 5300]]))
    assert new_sc.mean() == pytest.approx(normal_sc.mean(), rel=0.15)


def test_what_is_missing_has_no_error_and_is_foretold_as_the_mean():
    values_nc = plant(2000, seed=0)
    values_nc[500:520, 1] = np.nan
    regression, normal_sc = fit(values_nc, whole(values_nc))
    assert np.isnan(normal_sc[500:520, 1]).all()
    assert np.isfinite(np.delete(normal_sc, np.s_[500:520], axis=0)).all()
    error_sc = regression.errors(values_nc, whole(values_nc))
    assert np.isnan(error_sc).sum() == 20


def test_a_channel_that_never_moved_alarms_when_it_moves():
    values_nc = plant(1000, seed=0)
    values_nc[:, 1] = 0.1
    regression, normal_sc = fit(values_nc, whole(values_nc))
    assert normal_sc[:, 1].max() < 1e-6
    values_nc[500, 1] = 0.2
    assert regression.errors(values_nc, whole(values_nc))[500, 1] > 1000


def test_a_fault_does_not_explain_itself():
    values_nc = plant(1000, seed=0)
    regression, _ = fit(values_nc, whole(values_nc))
    values_nc[500:, 0] += 1000
    error_sc = regression.errors(values_nc, whole(values_nc))
    assert error_sc[600:, 0].min() > 100


def test_no_regressor_comes_from_another_stretch():
    values_nc = plant(1000, seed=0)
    regression, _ = fit(values_nc, whole(values_nc))
    apart_sc = regression.errors(values_nc, np.array([[0, 400], [600, 1000]]))
    changed_nc = values_nc.copy()
    changed_nc[400:600] = -1e3
    np.testing.assert_array_equal(regression.errors(changed_nc, np.array([[0, 400], [600, 1000]])), apart_sc)


def test_pieces_change_nothing(monkeypatch):
    values_nc = plant(1000, seed=0)
    regression, normal_sc = fit(values_nc, whole(values_nc))
    monkeypatch.setattr(autoregression, "_VALUES_AT_A_TIME", 3 * 8 * 50)
    _, in_pieces_sc = fit(values_nc, whole(values_nc))
    np.testing.assert_allclose(in_pieces_sc, normal_sc, rtol=1e-5)
    np.testing.assert_allclose(regression.errors(values_nc, whole(values_nc)),
                               regression.errors(values_nc, np.array([[0, 1000]])))  # fmt: skip


def test_folds_hold_each_row_once():
    stretches_k2 = np.array([[3, 10], [20, 21], [40, 99]])
    folds = autoregression._folds(stretches_k2)
    assert len(folds) == autoregression.FOLDS
    assert np.concatenate([rows_of(fold) for fold in folds]).tolist() == rows_of(stretches_k2).tolist()
    assert rows_of(stretches_k2).tolist() == [*range(3, 10), 20, *range(40, 99)]


class Parts:
    """Recordings back to back, the same rows of each in a part."""

    def __init__(self, recordings: list[np.ndarray]):
        self.series = Series.of(
            [
                Recording(
                    f"machine_{number}", Path(f"{number}.csv"), values_tc, np.arange(len(values_tc)) * 10**9,
                    tuple(f"c{channel}" for channel in range(values_tc.shape[1])), 1.0, "sampling_rate",
                )
                for number, values_tc in enumerate(recordings)
            ],
            np.concatenate(recordings).astype(np.float32),
        )  # fmt: skip
        self.offsets_r = self.series.offsets_r

    def of(self, **bounds: dict[int, tuple[int, int]]) -> dict[str, WindowSet]:
        return {
            name: WindowSet(
                self.series,
                torch.zeros(0, dtype=torch.int64),
                64,
                np.array([[self.offsets_r[r] + low, self.offsets_r[r] + high] for r, (low, high) in rows.items()]),
            )
            for name, rows in bounds.items()
        }


def test_each_recording_is_judged_by_its_own_past_where_each_has_one():
    rows = {"train": {0: (0, 300), 1: (0, 300)}, "calibration": {0: (300, 400), 1: (300, 400)}}
    recordings = [plant(1000, seed=0), 1e3 * plant(1000, seed=1)]
    parts = Parts(recordings).of(**rows, test={0: (400, 1000), 1: (400, 1000)})
    assert len(groups_of(parts)) == 2
    alone = judged_alone(normal_of(parts).values(), recordings_in(parts["test"]))
    learned, calibration_sc = fit_process(normal_of(parts), alone)
    assert calibration_sc.shape == (200, 3)
    test_sc = learned.errors(parts["test"])
    assert test_sc.shape == (1200, 3)
    for half in (test_sc[:600], test_sc[600:]):
        assert 0.5 < half.mean() < 3


def test_one_regression_serves_where_a_recording_has_no_normal_rows():
    recordings = [plant(1000, seed=0), plant(1000, seed=1)]
    parts = Parts(recordings).of(train={0: (0, 500)}, calibration={0: (500, 1000)}, test={1: (0, 1000)})
    ((own_k2, of_group),) = groups_of(parts)
    assert own_k2.tolist() == [[0, 500], [500, 1000]]
    assert of_group(parts["test"].stretches).all()
    learned, _ = fit_process(normal_of(parts))
    assert learned.errors(parts["test"]).mean() == pytest.approx(1.0, rel=0.2)
