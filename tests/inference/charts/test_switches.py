"""Which channels are scored where commands, valves and states are among them."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from inference.charts.process import fit_process
from inference.charts.switches import scored_channels
from tests.inference.charts.plants import Splits, plant, whole

ROWS = 3000


def switches(num_rows: int, number: int, seed: int) -> np.ndarray:
    """Commands of 0 and 1 that last for about 30 rows, float32 (N, number)."""
    changes = np.random.default_rng(seed).random((num_rows, number)) < 1 / 30
    return (changes.cumsum(axis=0) % 2).astype(np.float32)


def commanded(num_rows: int, seed: int) -> np.ndarray:
    """Three sensors, eight commands, and two commands that are never given: float32 (N, 13)."""
    return np.hstack([plant(num_rows, seed), switches(num_rows, 8, seed), np.zeros((num_rows, 2), np.float32)])


SENSORS, COMMANDS, UNUSED = slice(0, 3), slice(3, 11), slice(11, 13)


@pytest.mark.parametrize(
    "setting, commands, unused", [("on", True, True), ("off", False, False), ("auto", False, False)]
)
def test_sensors_are_scored_and_commands_as_configured(setting, commands, unused):
    values_nc = commanded(ROWS, 0)
    scored_c = scored_channels(values_nc, whole(values_nc), setting)
    assert scored_c[SENSORS].all()
    assert (scored_c[COMMANDS] == commands).all()
    assert (scored_c[UNUSED] == unused).all()


def test_a_few_switches_among_sensors_are_scored_and_so_is_a_constant_sensor():
    values_nc = np.hstack([plant(ROWS, 0), switches(ROWS, 1, 0), np.zeros((ROWS, 1), np.float32)])
    assert scored_channels(values_nc, whole(values_nc), "auto").all()
    assert scored_channels(values_nc, whole(values_nc), "off").tolist() == [True, True, True, False, True]


def test_all_channels_are_scored_if_all_are_switches():
    values_nc = switches(ROWS, 4, 0)
    assert scored_channels(values_nc, whole(values_nc), "auto").all()
    assert scored_channels(values_nc, whole(values_nc), "off").all()


def test_only_reference_rows_count_and_missing_values_do_not():
    values_nc = commanded(ROWS, 0)
    values_nc[::7] = np.nan
    values_nc[ROWS // 2 :, COMMANDS] = np.linspace(0, 1, ROWS - ROWS // 2)[:, np.newaxis]
    of_half = scored_channels(values_nc, np.array([[0, 700], [800, ROWS // 2]]), "auto")
    assert np.flatnonzero(of_half).tolist() == [0, 1, 2]
    assert scored_channels(values_nc, whole(values_nc), "auto").all()


def test_the_choice_is_logged(caplog):
    values_nc = commanded(ROWS, 0)
    with caplog.at_level(logging.INFO):
        scored_channels(values_nc, whole(values_nc), "auto")
    assert "3 of 13 channels are scored" in caplog.text


@pytest.mark.nightly
@pytest.mark.parametrize("context", ["off", "on"])
def test_a_fault_of_a_sensor_is_not_hidden_by_a_new_command(context):
    """A command that was never given is 100 deviations from its reference."""
    reference, new_nc = commanded(4000, 0), commanded(2000, 1)
    new_nc[500:1000, UNUSED] = 1.0
    new_nc[1500:, 1] += 3.0
    splits = Splits([reference, new_nc])
    normal, test = (splits.of(calibration=rows) for rows in ({0: (0, 4000)}, {1: (0, 2000)}))
    charts = [fit_process(normal, span=10, context=context, score_switches=each)[0] for each in ("auto", "on")]
    scored, plain = (each.errors(test["calibration"]) for each in charts)
    assert np.isnan(scored[:, 3:]).all()
    assert not np.isnan(plain).any()
    normal, command, fault = slice(0, 500), slice(520, 1000), slice(1520, 2000)
    mean_n = np.nanmean(scored, axis=1)
    assert mean_n[fault].mean() > 3 * mean_n[normal].mean()
    assert mean_n[command].mean() < 1.5 * mean_n[normal].mean()
    plain_n = plain.mean(axis=1)
    assert plain_n[command].mean() > 100 * plain_n[normal].mean()
