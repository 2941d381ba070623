"""Scoring of the trained workspace, and its detector."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from core.checkpoint import detector_path
from inference.detector.detector import Detector
from inference.detector.split_scores import SplitScores
from inference.detector.stored import detector_and_data, open_model
from inference.model_errors import model_errors
from tests.inference.trained_workspace import configuration


class Scored(NamedTuple):
    detector: Detector
    scores: SplitScores


def score(root: Path, stream: str, *overrides: str) -> Scored:
    """Like `landfall score`, without its files."""
    config, scoring = open_model(configuration(stream, root, *overrides), root=root)
    detector, data = detector_and_data(config, scoring, root=root)
    windows = data.splits["test"]
    return Scored(detector, detector.score(model_errors(config, scoring, windows, "test"), windows))


def file_of(root: Path, stream: str) -> Path:
    return detector_path(root / f"checkpoints/{stream}_ssl.pt")


def assert_same(one: Scored, other: Scored) -> None:
    """Bit-identical."""
    np.testing.assert_array_equal(one.scores.score_s, other.scores.score_s)
    np.testing.assert_array_equal(one.scores.channel_error_sc, other.scores.channel_error_sc)
    assert one.detector.threshold == other.detector.threshold
