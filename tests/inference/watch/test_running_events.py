"""Events along scores are those of the complete table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config.schema import Scoring
from inference.charts import attribution
from inference.charts.cross_channel_regression import CrossChannelRegression
from inference.events.finding import LINES, find_events
from inference.watch.running_events import RunningEvents
from tests.inference.charts.plants import plant, whole
from tests.inference.conftest import make_score_table
from tests.support import most_nightly

NAMES = ("p", "q; r", "s", "t")
KEYS = ("recording", "scores", "alarms", "top_channels", "top_shares", "sentence")
FIGURES = ("start_seconds", "end_seconds", "duration_seconds", "peak_score", "severity")


def reports_of(
    table: pd.DataFrame, error_sc: np.ndarray, settings: Scoring, cuts: Sequence[int]
) -> list[dict[str, Any]]:
    """Reports along the scores of a table of one recording, in pieces, each by a new process."""
    threshold, segment_s, score_s = float(table["threshold"][0]), table["segment"].to_numpy(), table["score"].to_numpy()
    time_n = table["time"].to_numpy().astype("datetime64[ns]").astype(np.int64)
    ends = {*(np.flatnonzero(np.diff(segment_s)) + 1).tolist(), len(table)}
    running, reports = RunningEvents("day", NAMES, threshold, settings), []
    for first, stop in pairwise(sorted({0, *ends, *cuts})):
        state = running.state()
        running = RunningEvents("day", NAMES, threshold, settings)
        running.restore(state)
        piece = slice(first, stop)
        reports += running(score_s[piece], error_sc[piece], np.arange(first, stop), time_n[piece])
        if stop in ends:
            reports += running.end()
    return reports


@pytest.mark.parametrize("seed", most_nightly(range(12), but=2))
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
    table["segment"] = np.repeat([0, 1, 2], [300, 5, 595])
    expected = find_events(table, settings, channel_error_sc=error_sc, channels=NAMES)

    reports = reports_of(table, error_sc, settings, rng.integers(0, 900, 40).tolist())

    closed = [report for report in reports if report["state"] == "closed"]
    assert len(closed) == len(expected) > 5
    assert [report["id"] for report in reports if report["state"] == "open"] == [report["id"] for report in closed]
    for report, event in zip(closed, expected.to_dict("records"), strict=True):
        assert {key: report[key] for key in KEYS} == {key: event[key] for key in KEYS}
        np.testing.assert_allclose([report[key] for key in FIGURES], [event[key] for key in FIGURES], rtol=1e-6)
        assert [pd.Timestamp(report[key]) for key in ("start", "end", "peak_time")] == [
            event[key] for key in ("start", "end", "peak_time")
        ]


def test_an_event_in_pieces_is_attributed_as_a_whole():
    values_nc = plant(140, seed=1, num_channels=4)
    values_nc[40:100, 2] += 10.0
    reference_nc = plant(2000, seed=0, num_channels=4)
    regression, _, _ = CrossChannelRegression.fit(reference_nc, whole(reference_nc))
    (rows,) = regression.rows(values_nc, whole(values_nc))
    score_s = np.repeat([0.5, 3.0, 0.5], [40, 60, 40]).astype(np.float32)
    error_sc = np.square(regression.residual(rows))
    running = RunningEvents("day", NAMES, 1.4, Scoring(), regression=regression)
    reports = []
    for first in range(0, 140, 7):
        piece = slice(first, first + 7)
        state, running = running.state(), RunningEvents("day", NAMES, 1.4, Scoring(), regression=regression)
        running.restore(state)
        row_n = np.arange(first, first + 7)
        reports += running(score_s[piece], error_sc[piece], row_n, row_n * 10**9, rows.regressor_nf[piece])
    regressor_nf = rows.regressor_nf[40:100]
    expected = attribution.shares(regression, error_sc[40:100].mean(axis=0), regressor_nf.T @ regressor_nf, 3)
    assert [report["state"] for report in reports] == ["open", "closed"]
    assert {each["name"]: each["share"] for each in reports[1]["channels"]} == pytest.approx(
        {NAMES[channel]: share for channel, share in expected.items()}
    )
    assert reports[1]["channels"][0]["name"] == "s"


@pytest.mark.nightly
@given(st.data())
def test_batch_and_incremental_events_are_equal(data):
    """Exactly, for any scores, gaps, settings and pieces: the errors are eighths, so that their sums are exact."""
    size = data.draw(st.integers(1, 40), "size")
    scores = st.sampled_from([0.0, 0.4, 0.75, 0.95, 1.5, 3.0, np.nan])
    table = make_score_table({"day": data.draw(st.lists(scores, min_size=size, max_size=size), "scores")})
    table["segment"] = np.cumsum(data.draw(st.lists(st.sampled_from([0, 0, 0, 1]), min_size=size, max_size=size)))
    eighths = data.draw(st.lists(st.integers(-1, 30), min_size=4 * size, max_size=4 * size), "eighths")
    error_sc = np.where(np.array(eighths) < 0, np.nan, np.array(eighths) / 8).reshape(size, 4).astype(np.float32)
    settings = Scoring(
        event_gap=data.draw(st.integers(0, 4), "gap"),
        event_release=data.draw(st.sampled_from([0.3, 0.5, 0.9, 1.0]), "release"),
        event_min_length=data.draw(st.integers(1, 3), "fewest alarms"),
        event_min_seconds=data.draw(st.sampled_from([0.0, 2.0, 5.0]), "fewest seconds"),
    )
    expected = find_events(table, settings, channel_error_sc=error_sc, channels=NAMES)
    cuts = data.draw(st.lists(st.integers(0, size), max_size=6), "cuts")

    reports = reports_of(table, error_sc, settings, cuts)
    assert reports == reports_of(table, error_sc, settings, range(size)), "one row at a time"
    assert [report["state"] for report in reports] == ["open", "closed"] * len(expected)
    found = pd.DataFrame(reports[1::2], columns=["id", "state", *expected.columns])
    for name in ("start", "end", "peak_time"):
        found[name] = pd.to_datetime(found[name]).astype(expected[name].dtype)
    compared = expected.columns.drop(["event_id", "label_overlap", *LINES])
    assert found[compared].to_dict("records") == expected[compared].to_dict("records")
