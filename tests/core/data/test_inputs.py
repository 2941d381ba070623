"""The standardised scalogram and the mean training input: from training windows only, stored without loss."""

from pathlib import Path

import numpy as np
import pytest
import torch

from core import checkpoint
from core.config.compose import load_config, local_config_file
from core.config.schema import Scalogram as ScalogramSettings
from core.data.inputs import SMALLEST_DEVIATION, Identity, Inputs, StandardisedScalogram, mean_input
from core.data.scalogram import Scalogram
from core.data.windows import Series, WindowSet
from core.models.factory import build_model

RATE_HZ = 1000.0
SETTINGS = ScalogramSettings(frequencies=16, frequency_min_hz=20.0, image_size=32)


def windows_of(values_ta: np.ndarray, *, window=128, stride=64) -> WindowSet:
    starts = np.arange(0, len(values_ta) - window + 1, stride)
    return WindowSet(Series.of([], values_ta.astype(np.float32)), starts, window)


def vibration(axes=3, seed=0, rows=4000) -> np.ndarray:
    """Noise and a tone: frequency rows differ in level and spread."""
    tone_t1 = np.sin(np.arange(rows) * 0.3)[:, None]
    return tone_t1 + 0.1 * np.random.default_rng(seed).normal(size=(rows, axes)) * np.array([1.0, 0.1, 10.0])[:axes]


def fitted(windows: WindowSet) -> StandardisedScalogram:
    return StandardisedScalogram.fit(Scalogram(SETTINGS), RATE_HZ, windows, remove_mean=True)


def test_every_row_of_every_axis_is_standardised():
    windows = windows_of(vibration())
    indices = torch.arange(len(windows)).split(32)
    images = torch.cat([fitted(windows)(windows.batch(index_b)) for index_b in indices])
    torch.testing.assert_close(images.mean(dim=(0, 3)), torch.zeros(3, 32), atol=1e-4, rtol=0)
    deviation = images.std(dim=(0, 3))
    assert ((deviation < 1.01) & (deviation > 0)).all()
    assert (deviation > 0.99).float().mean() > 0.5  # the others rest on the smallest deviation


def test_a_row_that_never_changes_does_not_explode():
    transform = fitted(windows_of(np.zeros((2000, 3))))
    assert (transform.deviation == np.float32(SMALLEST_DEVIATION)).all()


def test_missing_axes_of_a_sensor_stay_missing():
    windows = windows_of(vibration(axes=1))
    images = fitted(windows)(windows.batch(torch.arange(3)))
    assert not images[:, 0].isnan().any()
    assert images[:, 1:].isnan().all()


def test_images_from_a_checkpoint_are_bit_identical(tmp_path):
    windows = windows_of(vibration())
    transform = fitted(windows)
    checkpoint.save(tmp_path / "m.pt", {"transform": transform.to_dict()}, description={})
    stored = checkpoint.load(tmp_path / "m.pt")["transform"]
    again = StandardisedScalogram(Scalogram(SETTINGS), RATE_HZ, remove_mean=True, **stored)
    batch = windows.batch(torch.arange(5))
    assert torch.equal(again(batch), transform(batch))
    torch.testing.assert_close(again.decades(again(batch)), transform.scalogram(batch - batch.mean(1, True), RATE_HZ))


def test_a_separate_level_is_that_of_the_image_and_nothing_is_lost():
    settings = SETTINGS.model_copy(update={"level": "separate", "envelope": True})
    windows = windows_of(vibration(axes=2))
    transform = StandardisedScalogram.fit(Scalogram(settings), RATE_HZ, windows, remove_mean=True)
    batch = windows.batch(torch.arange(4))
    batch[1, :32, 0] = torch.nan
    x = transform(batch)
    assert x.shape == (4, 6, 33, 32)
    assert x[:, [2, 5]].isnan().all()
    assert x[1, 0, :32, :8].isnan().all()
    assert not x[:, [0, 1, 3, 4], 32].isnan().any()  # the level is known where a column is missing
    image = transform.scalogram(batch - batch.nanmean(1, keepdim=True), RATE_HZ)
    torch.testing.assert_close(transform.decades(x), image, equal_nan=True)
    levels = x[:, :, 32:] * transform.deviation[:, 32:] + transform.mean[:, 32:]
    torch.testing.assert_close(levels, image.nanmean((2, 3), True).expand_as(levels), equal_nan=True)
    # The level is ten times as high, one decade; the shape of the image is the same.
    louder = transform(10 * batch[2:3])
    assert (louder - x[2:3])[:, 0, :32].abs().quantile(0.95) < 0.15  # the rest is near the floor
    decades = (louder - x[2:3])[:, 0, 32] * transform.deviation[0, 32]
    assert decades.mean() == pytest.approx(1.0, abs=0.05)


def test_mean_input_is_the_mean_of_what_is_observed():
    values = vibration(rows=640)
    values[:128, 1] = np.nan
    windows = windows_of(values, stride=128)
    mean_tc = mean_input(Inputs(windows, Identity(), torch.device("cpu")))
    expected = np.nanmean(values.astype(np.float32).reshape(5, 128, 3), axis=0)
    torch.testing.assert_close(mean_tc, torch.from_numpy(expected))


def test_the_mean_input_of_one_axis_has_missing_planes_for_the_others():
    windows = windows_of(vibration(axes=1))
    mean = mean_input(Inputs(windows, fitted(windows), torch.device("cpu")))
    assert mean.isnan().flatten(1).all(1).tolist() == [False, True, True]


@pytest.mark.slow
def test_the_published_size_takes_the_standardised_images():
    config = load_config(
        local_config_file("swinmae"),
        ["model.size=custom", "hardware/sizes/swinmae=full", "scalogram.frequency_min_hz=10"],
        root=Path(),
        environment={},
    ).config
    windows = windows_of(vibration(rows=1500), window=448, stride=448)
    transform = StandardisedScalogram.fit(Scalogram(config.scalogram), RATE_HZ, windows, remove_mean=True)
    inputs = Inputs(windows, transform, torch.device("cpu"))
    model = build_model(config, num_channels=3)
    output = model.eval()(inputs.batch(torch.arange(1)), generator=torch.Generator().manual_seed(0))
    assert transform.mean.shape == transform.deviation.shape == (3, 224, 1)
    assert output.reconstruction.shape == (1, *mean_input(inputs).shape)
    assert output.loss.isfinite()
