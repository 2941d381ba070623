"""The picture of what a model expected: the right window, the worst channels, the axes the sensor has."""

import numpy as np
import pytest
import torch

from inference.reconstruction import plot_reconstruction, window_of
from tests.inference.test_part_scores import Loudness, OthersModel, coupled, scoring_with, windows_over


class EchoImages(torch.nn.Module):
    """Expects half of every image."""

    def inpaint(self, image):
        return image / 2, (image / 2).square()


def test_the_window_has_the_highest_score_in_its_middle(make_table):
    windows = windows_over([coupled(200, 0), coupled(200, 1)], window=32, stride=8)
    score = np.ones(200)
    score[100] = 9.0
    index = window_of(windows, make_table({"file_0": np.ones(200), "file_1": score}))
    start = int(windows.starts_w[index])
    assert windows.recording_of()[index] == 1
    assert abs(start - 200 + 16 - 100) <= 4


@pytest.mark.parametrize("row", [0, 199])
def test_a_score_at_an_edge_has_a_window_too(row, make_table):
    windows = windows_over([coupled(200, 0)], window=32, stride=8)
    score = np.ones(200)
    score[row] = 9.0
    start = int(windows.starts_w[window_of(windows, make_table({"file_0": score}))])
    assert start <= row < start + 32


def test_process_sensors_show_the_channels_predicted_worst_beside_what_was_seen():
    values = coupled(64, 0)
    values[20:40, 4] += 5.0
    windows = windows_over([values], window=64, stride=64)
    figure = plot_reconstruction(scoring_with(OthersModel(), channels=6), windows, 0)
    worst = figure.axes[0]
    assert worst.get_title(loc="left").startswith("c4, ")
    assert len(figure.axes) == 4
    seen, expected = (line.get_ydata() for line in worst.get_lines())
    np.testing.assert_allclose(seen, values[:, 4], rtol=1e-6)
    assert np.abs(expected[20:40] - seen[20:40]).mean() > 2.0


@pytest.mark.parametrize("axes", [1, 3])
def test_vibration_shows_image_reconstruction_and_error_of_each_axis(axes):
    windows = windows_over([coupled(64, 0, channels=axes)], window=64, stride=64)
    scoring = scoring_with(EchoImages(), stream="swinmae", channels=axes)
    figure = plot_reconstruction(scoring, windows, 0)
    assert len(figure.axes) == 3 * axes
    seen, expected, error = (np.asarray(panel.get_images()[0].get_array()) for panel in figure.axes[:3])
    image = Loudness()(windows.batch(torch.tensor([0])))[0, 0].numpy()
    np.testing.assert_allclose(seen, image)
    np.testing.assert_allclose(expected, image / 2)
    np.testing.assert_allclose(error, (image / 2) ** 2)
