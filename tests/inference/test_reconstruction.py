"""What a model expected: in the sensor's units, of the windows asked for, at the frequencies it was seen."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from core.config.schema import Scalogram as ScalogramSettings
from core.data.inputs import StandardisedScalogram
from core.data.scaling import Scaler
from core.data.scalogram import Scalogram
from inference.reconstruction import expected_levels, expected_rows
from tests.inference.test_part_scores import OthersModel, coupled, scoring_with, windows_over

RATE_HZ = 1000.0


class CountingModel(OthersModel):
    """Counts the windows it is shown."""

    def __init__(self):
        super().__init__()
        self.num_windows = 0

    def inpaint(self, x):
        self.num_windows += len(x)
        return super().inpaint(x)


class HalfModel(torch.nn.Module):
    """Expects half of every image."""

    def inpaint(self, image):
        return image / 2, (image / 2).square()


def test_rows_are_expected_in_their_own_units_from_the_windows_that_hold_them_alone():
    values = coupled(400, 0)
    scaler = Scaler("robust", tuple("abcdef"), (5.0,) * 6, (20.0,) * 6, 1e9, {})
    windows = windows_over([values], window=32, stride=8)
    windows = replace(windows, series=replace(windows.series, scaler=scaler))
    model = CountingModel()
    row_n = np.arange(200, 240)
    expected_nc = expected_rows(scoring_with(model, channels=6), windows, row_n, batch_size=3)
    others_nc = (values.sum(axis=1, keepdims=True) - values) / 5
    np.testing.assert_allclose(expected_nc, others_nc[row_n], rtol=1e-4, atol=1e-4)
    assert model.num_windows == (232 - 176) // 8 + 1


def test_a_row_no_window_reaches_has_no_expectation():
    windows = windows_over([coupled(64, 0), coupled(20, 1)], window=32, stride=32)
    expected_nc = expected_rows(scoring_with(OthersModel(), channels=6), windows, np.arange(60, 70), batch_size=8)
    assert np.isnan(expected_nc).all(axis=1).tolist() == [False] * 4 + [True] * 6


@pytest.mark.parametrize("frequency_hz", [31.0, 120.0])
@pytest.mark.parametrize("image_size", [32, 64])
def test_a_tone_stands_at_its_frequency_and_level(frequency_hz, image_size):
    time_t = np.arange(1024) / RATE_HZ
    values = np.repeat(0.1 * np.sin(2 * np.pi * frequency_hz * time_t)[:, None], 2, axis=1).astype(np.float32)
    windows = windows_over([values], window=1024, stride=1024)
    settings = ScalogramSettings(image_size=image_size, frequencies=64, frequency_min_hz=5.0)
    transform = StandardisedScalogram(Scalogram(settings), RATE_HZ, remove_mean=True, mean=1.5, deviation=0.5)
    scoring = replace(scoring_with(HalfModel(), stream="swinmae", channels=2), transform=transform)
    levels = expected_levels(scoring, windows, 0)
    assert levels.seen_ahw.shape == levels.expected_ahw.shape == (2, image_size, image_size)
    loudest = int(levels.seen_ahw[0].mean(axis=1).argmax())
    step = levels.edge_hz[1] / levels.edge_hz[0]
    assert levels.edge_hz[loudest] / step < frequency_hz < levels.edge_hz[loudest + 1] * step
    assert levels.seen_ahw[0, loudest, 8:-8].mean() == pytest.approx(-20, abs=1.5)
    # Half of a standardised image lies halfway between what was seen and the mean of training.
    np.testing.assert_allclose(levels.expected_ahw, (levels.seen_ahw + 20 * 1.5 - 60) / 2, atol=1e-4)
