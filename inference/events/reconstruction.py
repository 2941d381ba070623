"""The prediction of a model for a masked vibration window, in dB. The difference to the measurement explains a score.

Suffixes: b window of a batch, a axis of a vibration, h frequency, w time of an image.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from core.data.inputs import StandardisedScalogram
from core.data.scalogram import decibels, row_edges_hz
from core.data.windows import WindowSet
from inference.scoring import ScoringModel


@dataclass(frozen=True)
class Levels:
    """The scalogram of a vibration window. seen_ahw, expected_ahw: measured, and predicted while masked, float32
    (A, H, W), in dB; 0 dB is an amplitude of one standard deviation of the axis in the split `train`. NaN is missing.
    edge_hz: (H + 1,) edges of the rows, ascending.
    """

    seen_ahw: np.ndarray
    expected_ahw: np.ndarray
    edge_hz: np.ndarray


def expected_levels(scoring: ScoringModel, windows: WindowSet, index: int) -> Levels:
    """The levels of one window, for the axes of the sensor."""
    transform: StandardisedScalogram = scoring.transform
    image_bahw = transform(windows.batch(torch.tensor([index])).to(scoring.device))
    num_axes = windows.series.rows_nc.shape[1]
    seen_ahw, expected_ahw = (
        decibels(transform.decades(image)[0, :num_axes].cpu()).numpy()
        for image in (image_bahw, scoring.model.inpaint(image_bahw)[0])
    )
    edge_hz = row_edges_hz(transform.scalogram.settings, transform.sampling_rate_hz, seen_ahw.shape[1])
    return Levels(seen_ahw, expected_ahw, edge_hz)
