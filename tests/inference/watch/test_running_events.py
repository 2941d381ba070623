"""Events along scores are those of the complete table."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from core.config.schema import Scoring
from inference.events import find_events
from inference.watch.running_events import RunningEvents
from tests.inference.conftest import make_score_table

NAMES = ("p", "q; r", "s", "t")
KEYS = ("recording", "scores", "alarms", "top_channels", "top_shares", "sentence")
FIGURES = ("start_seconds", "end_seconds", "duration_seconds", "peak_score", "severity")


@pytest.mark.parametrize("seed", range(12))
def test_events_of_pieces_are_those_of_the_complete_table(seed):
    rng = np.random.default_rng(seed)
    settings = Scoring(
        event_gap=int(rng.integers(0, 6)), event_release=float(rng.choice([1.0, 0.7, 0.3])),
        event_min_length=int(rng.integers(1, 4)), event_min_seconds=float(rng.choice([0.0, 3.0])),
    )  # fmt: skip
    score_s = np.convolve(rng.exponential(size=900), [0.6, 0.3, 0.1], "same").astype(np.float32)
    score_s[rng.random(900) < 0.03] = np.nan
    error_sc = rng.exponential(size=(900, 4)).astype(np.float32)
    error_sc[rng.random((900, 4)) < 0.1] = np.nan
    table = make_score_table({"day": score_s}, threshold=1.4)
    table["stretch"] = np.repeat([0, 1, 2], [300, 5, 595])
    expected = find_events(table, settings, channel_error_sc=error_sc, channels=NAMES)

    time_n = table["time"].to_numpy().astype("datetime64[ns]").astype(np.int64)
    running, reports = RunningEvents("day", NAMES, 1.4, settings), []
    cuts = np.unique([0, 300, 305, 900, *rng.integers(0, 900, 40)])
    for first, stop in pairwise(cuts):
        state = running.state()
        running = RunningEvents("day", NAMES, 1.4, settings)  # of a new process
        running.restore(state)
        piece = slice(first, stop)
        reports += running(score_s[piece], error_sc[piece], np.arange(first, stop), time_n[piece])
        if stop in (300, 305, 900):
            reports += running.end()

    closed = [report for report in reports if report["state"] == "closed"]
    assert len(closed) == len(expected) > 5
    assert [report["id"] for report in reports if report["state"] == "open"] == [report["id"] for report in closed]
    for report, event in zip(closed, expected.to_dict("records"), strict=True):
        assert {key: report[key] for key in KEYS} == {key: event[key] for key in KEYS}
        np.testing.assert_allclose([report[key] for key in FIGURES], [event[key] for key in FIGURES], rtol=1e-6)
        assert [pd.Timestamp(report[key]) for key in ("start", "end", "peak_time")] == [
            event[key] for key in ("start", "end", "peak_time")
        ]
