"""Scores of a hand-made table, with the events found in it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from core.config.schema import Scoring
from inference.detector.split_scores import SplitScores
from inference.events.finding import find_events
from inference.events.views import ScoredSplit
from inference.model_errors import split_errors
from tests.inference.simple_models import OthersModel, coupled, scoring_with, windows_over


def scored_over(table: pd.DataFrame, window: int = 16) -> tuple[ScoredSplit, pd.DataFrame]:
    """A recording of two segments; channel 2 deviates."""
    rows = len(table)
    windows = windows_over([coupled(rows, 0)], window=window, stride=4, segments=[(0, 60), (60, rows)])
    error_sc = np.ones((rows, 6), dtype=np.float32)
    error_sc[:, 2] = table["score"] * 6
    events = find_events(table, Scoring(), channel_error_sc=error_sc, channels=[f"c{number}" for number in range(6)])
    splits = SplitScores(table["score"].to_numpy(), error_sc, np.full(rows, 2), np.arange(rows), 1)
    scoring = scoring_with(OthersModel(), channels=6)
    expected_sc = split_errors(scoring, windows, batch_size=64, keep_expected=True).expected_sc
    return ScoredSplit(scoring, windows, splits, table, expected_sc), events
