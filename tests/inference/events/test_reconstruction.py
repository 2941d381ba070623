"""The prediction for a vibration window at its measured frequencies."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from core.config.schema import Scalogram as ScalogramSettings
from core.data.inputs import StandardisedScalogram
from core.data.scalogram import Scalogram
from inference.events.reconstruction import expected_levels
from tests.inference.simple_models import scoring_with, windows_over

RATE_HZ = 1000.0


class HalfModel(torch.nn.Module):
    """Predicts half of every image."""

    def inpaint(self, image):
        return image / 2, (image / 2).square()


@pytest.mark.parametrize("frequency_hz", [31.0, 120.0])
@pytest.mark.parametrize("image_size", [32, 64])
def test_a_tone_is_shown_at_its_frequency_and_level(frequency_hz, image_size):
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
