"""The figure that shows what a model sees and predicts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from core.config.schema import STREAMS
from inference.detector.stored import load_splits, open_model
from inference.masked_example import masked_example, plot_masked_example
from tests.inference.trained_workspace import configuration


@pytest.fixture(scope="module")
def opened(trained_once):
    def open_stream(stream):
        config, scoring = open_model(configuration(stream, trained_once), root=trained_once)
        return scoring, load_splits(config, scoring, ("validation",), root=trained_once).splits["validation"]

    return open_stream


@pytest.mark.parametrize("stream", STREAMS)
def test_the_share_of_masked_values_is_that_of_training(stream, opened):
    scoring, windows = opened(stream)
    example = masked_example(scoring, windows, 0)
    assert example.mask.mean() == pytest.approx(scoring.model.num_masked / scoring.model.unit_shape[-1])
    np.testing.assert_array_equal(np.isnan(example.predicted), ~example.mask)
    assert example.mse_c.shape == (len(scoring.channels),)


def test_process_sensors_are_in_the_units_of_the_file(opened):
    scoring, windows = opened("patchtst")
    example = masked_example(scoring, windows, 3)
    first = int(windows.starts_w[3])
    measured_tc = windows.series.values_nc[first : first + windows.window].numpy()
    np.testing.assert_allclose(example.measured, measured_tc, rtol=1e-4, atol=1e-4)


def test_the_prediction_depends_on_visible_values_only(opened):
    scoring, windows = opened("patchtst")
    before = masked_example(scoring, windows, 0)
    first = int(windows.starts_w[0])
    rows_tc = windows.series.values_nc[first : first + windows.window]
    hidden = torch.from_numpy(before.mask)
    original_tc = rows_tc.clone()
    rows_tc[hidden] += 5.0
    after = masked_example(scoring, windows, 0)
    rows_tc.copy_(original_tc)
    np.testing.assert_allclose(after.predicted, before.predicted, rtol=1e-5, atol=1e-6)
    assert (after.mse_c > before.mse_c).all()


@pytest.mark.parametrize(("stream", "units"), [("patchtst", {"time (s)"}), ("swinmae", {"time (s)", "frequency (Hz)"})])
def test_the_figure_has_units(stream, units, trained):
    figure = plot_masked_example(configuration(stream, trained), root=trained)
    labels = " ".join(text for axes in figure.axes for text in (axes.get_xlabel(), axes.get_ylabel()))
    assert all(unit in labels for unit in units)
    assert "\\" not in labels
