"""Alarms become events: which are joined, which are dropped, and the content of an event."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config.schema import Scoring
from inference.events.finding import find_events
from tests.inference.conftest import make_score_table


def events_of(table: pd.DataFrame, **settings: float) -> pd.DataFrame:
    error_sc = table["score"].to_numpy()[:, None]
    return find_events(table, Scoring(**settings), channel_error_sc=error_sc, channels=["only"])


@pytest.mark.parametrize(
    ("gap", "minimum", "spans"),
    [
        (0, 1, [(1, 2), (4, 4), (7, 9)]),
        (1, 1, [(1, 4), (7, 9)]),
        (2, 1, [(1, 9)]),
        (0, 2, [(1, 2), (7, 9)]),
        (1, 4, []),
    ],
)
def test_near_events_are_joined_and_short_ones_dropped(make_table, gap, minimum, spans):
    table = make_table({"a": [0, 2, 2, 0, 2, 0, 0, 2, 2, 2, 0]})
    found = events_of(table, event_gap=gap, event_min_length=minimum)
    assert list(zip(found["start_seconds"], found["end_seconds"], strict=True)) == spans
    assert found["event_id"].tolist() == list(range(1, len(spans) + 1))


def test_events_end_with_their_recording(make_table):
    found = events_of(make_table({"a": [0, 2, 2], "b": [2, 0, 2]}), event_gap=1)
    assert found["recording"].tolist() == ["a", "b"]
    assert found["scores"].tolist() == [2, 3]
    assert found["alarms"].tolist() == [2, 2]


def test_events_end_with_their_segment(make_table):
    """The plant stood still for five days: two disturbances, not one of five days."""
    table = make_table({"a": [0, 2, 2, 2, 2, 0]})
    table["segment"] = [0, 0, 0, 1, 1, 1]
    table.loc[3:, "seconds"] += 5 * 86_400
    events = find_events(table, Scoring(), channel_error_sc=np.ones((6, 1)), channels=["only"])
    assert events["duration_seconds"].tolist() == [1.0, 1.0]


def test_semicolons_in_channel_names_are_escaped(make_table):
    table = make_table({"a": [0, 2, 2]})
    error_sc = np.tile([2.0, 1.0], (3, 1))
    (event,) = find_events(table, Scoring(), channel_error_sc=error_sc, channels=["zone 1; flow", "p"]).itertuples()
    assert event.top_channels == "zone 1, flow; p"
    assert "zone 1, flow (67 %), p (33 %)" in event.sentence


def test_an_event_reports_time_severity_and_channels(make_table):
    table = make_table({"a": [0, 3, 0.5, 7, 2, 0]}, labels={"a": [0, 0, 1, 1, 1, 1]}, step_seconds=2.5)
    error_sc = np.tile([[1.0, 5.0, np.nan, 3.0, 4.0]], (6, 1))
    found = find_events(table, Scoring(), channel_error_sc=error_sc, channels=["p", "q", "lost", "flow rate", "t"])
    event = found.iloc[0]
    assert len(found) == 1
    assert (event["start"], event["end"]) == (table["time"][1], table["time"][4])
    assert event["duration_seconds"] == 7.5
    assert (event["peak_score"], event["peak_time"]) == (7.0, table["time"][3])
    assert event["top_channels"] == "q; t; flow rate"
    assert event["top_shares"] == "38 %; 31 %; 23 %"
    assert event["severity"] == 7.0 / table["threshold"][3]
    facts = rf"7\.5 s .*{event['start']:%Y-%m-%d %H:%M:%S}.*7\.00 ×.*q \(38 %\), t \(31 %\), flow rate \(23 %\)"
    assert re.search(facts, event["sentence"])
    assert event["label_overlap"] == 0.75


def test_top_channels_are_averaged_over_the_event_only(make_table):
    table = make_table({"a": [0, 2, 2, 0, 0, 2]})
    error_sc = np.array([[9, 0], [1, 4], [3, 2], [9, 0], [9, 0], [5, 1]], dtype=np.float32)
    found = find_events(table, Scoring(), channel_error_sc=error_sc, channels=["p", "q"])
    assert found["top_channels"].tolist() == ["q; p", "p; q"]


def test_an_empty_event_table_has_the_same_columns(make_table):
    quiet, loud = events_of(make_table({"a": [0, 0]})), events_of(make_table({"a": [0, 2]}))
    assert len(quiet) == 0
    assert quiet.columns.tolist() == loud.columns.tolist()


def test_events_of_recordings_without_labels_or_time_stamps(make_table):
    found = events_of(make_table({"a": [np.nan, 2, np.nan, 2]}, stamped=False))
    assert found["start"].isna().all()
    assert found["label_overlap"].isna().all()
    assert found[["start_seconds", "end_seconds", "scores", "alarms"]].iloc[0].tolist() == [1, 3, 3, 2]


@pytest.mark.slow
def test_a_million_scores_are_grouped_like_a_plain_loop(make_table):
    rng = np.random.default_rng(0)
    score_s = (rng.random(1_000_000) < 0.02) * 2.0
    alarm_at = np.flatnonzero(score_s > 1)
    expected = 1 + int((np.diff(alarm_at) > 4).sum())
    assert len(events_of(make_table({"a": score_s}), event_gap=3)) == expected


@pytest.mark.parametrize(
    ("rows", "expected"),
    [(1, "a moment"), (60, "59 s"), (121, "2 min"), (3 * 3600 + 1, "3 h"), (3 * 86_400 + 1, "3 days")],
)
def test_the_length_of_an_event_is_reported_in_the_unit_that_fits(make_table, rows, expected):
    table = make_table({"a": [2] * min(rows, 121)}, step_seconds=1.0 if rows <= 121 else (rows - 1) / 120)
    assert events_of(table)["sentence"][0].startswith(f"{expected} from ")


# ----------------------------------------------------------------------------------------------------------- hysteresis
def test_an_event_continues_until_the_score_is_below_the_release(make_table):
    table = make_table({"a": [0.9, 2, 0.9, 0.8, 0.6, 0.9, 3, 0.2, 0.9]})
    for release, spans in ((1.0, [(1, 1), (6, 6)]), (0.85, [(1, 2), (6, 6)]), (0.7, [(1, 3), (6, 6)]), (0.5, [(1, 6)])):
        found = events_of(table, event_gap=0, event_release=release)
        assert list(zip(found["start_seconds"], found["end_seconds"], strict=True)) == spans
    assert found["alarms"].tolist() == [2]
    assert found["scores"].tolist() == [6]


def test_a_held_event_ends_with_its_recording_and_at_missing_scores(make_table):
    table = make_table({"a": [0, 2, 0.9], "b": [0.9, 0.9, 2, np.nan, 0.9]})
    found = events_of(table, event_gap=0, event_release=0.5)
    assert found[["recording", "start_seconds", "end_seconds"]].to_numpy().tolist() == [["a", 1, 2], ["b", 2, 2]]


def plain_loop(recordings: dict[str, list[float]], settings: Scoring) -> list[tuple[str, int, int]]:
    """Events of scores against a threshold of 1, one score at a time."""
    found = []
    for name, scores in recordings.items():
        held, on = [], False
        for at, score in enumerate(scores):
            on = score > 1 or (on and score > settings.event_release)
            held += [at] if on else []
        groups: list[list[int]] = []
        for at in held:
            if groups and at - groups[-1][-1] <= settings.event_gap + 1:
                groups[-1].append(at)
            else:
                groups.append([at])
        found += [
            (name, group[0], group[-1])
            for group in groups
            if sum(scores[at] > 1 for at in group) >= settings.event_min_length
            and group[-1] - group[0] >= settings.event_min_seconds
        ]
    return found


scores_of_a_recording = st.lists(st.sampled_from([0.0, 0.4, 0.75, 0.95, 1.5, 3.0]), min_size=1, max_size=30)


@given(
    st.lists(scores_of_a_recording, min_size=1, max_size=3),
    st.sampled_from([0.3, 0.5, 0.9, 1.0]),
    st.integers(0, 3),
    st.integers(1, 3),
    st.sampled_from([0.0, 2.0, 5.0]),
)
def test_events_equal_those_of_a_plain_loop(scores, release, gap, fewest, shortest):
    recordings = {f"r{number}": each for number, each in enumerate(scores)}
    settings = Scoring(event_release=release, event_gap=gap, event_min_length=fewest, event_min_seconds=shortest)
    table = make_score_table(recordings)
    found = find_events(table, settings, channel_error_sc=np.ones((len(table), 1)), channels=["only"])
    spans = zip(found["recording"], found["start_seconds"], found["end_seconds"], strict=True)
    assert list(spans) == plain_loop(recordings, settings)


def test_events_shorter_than_the_minimum_are_dropped(make_table):
    table = make_table({"a": [2, 0, 0, 2, 2, 2, 0, 0, 2, 2]}, step_seconds=10.0)
    assert len(events_of(table, event_gap=0)) == 3
    assert events_of(table, event_gap=0, event_min_seconds=10)["start_seconds"].tolist() == [30, 80]
    assert events_of(table, event_gap=0, event_min_seconds=10.1)["start_seconds"].tolist() == [30]
