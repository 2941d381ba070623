"""Found faults, false events, and the faults that events at random times would find."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from core.config.schema import Scoring
from inference.events.metrics import event_metrics, missed_faults

# One score apart is one event; an event may start two scores before its fault.
SETTINGS = Scoring(event_gap=1)


def metrics_of(table: pd.DataFrame, settings: Scoring = SETTINGS) -> dict[str, float]:
    return event_metrics(table, settings)


def at(length: int, *spans: tuple[int, int], value: float = 1) -> list[float]:
    """Zeros, but `value` from the first to the last line of each span."""
    values = np.zeros(length)
    for first, last in spans:
        values[first : last + 1] = value
    return values.tolist()


def test_fault_and_event_counts_equal_those_by_hand(make_table):
    """Faults: 10-14 found twice, 30-34 missed; in b 0-4 found. Events: 11 and 14 match, 20 does not; in b 2 does. The
    recording c has no labels."""
    table = make_table(
        {
            "a": at(40, (11, 11), (14, 14), (20, 21), value=2),
            "b": at(10, (2, 2), value=2),
            "c": at(10, (5, 5), value=2),
        },
        labels={"a": at(40, (10, 14), (30, 34)), "b": at(10, (0, 4))},
        step_seconds=36.0,
    )
    found = metrics_of(table)
    counts = ("faults_total", "faults_found", "false_events", "event_precision", "event_recall")
    assert [found[name] for name in counts] == [3, 2, 1, 3 / 4, 2 / 3]
    assert found["recorded_hours"] == pytest.approx(0.5)  # 50 labelled rows of 36 s
    assert found["false_events_per_hour"] == pytest.approx(2.0)
    assert found["event_delay_seconds"] == pytest.approx(1.5 * 36)  # one and two scores after the start
    missed = missed_faults(table, SETTINGS)
    assert missed[["recording", "start_seconds", "end_seconds"]].to_numpy().tolist() == [["a", 30 * 36.0, 34 * 36.0]]
    assert missed["start"][0] == table["time"][30]


@pytest.mark.parametrize(("start", "found", "false"), [(17, 0, 1), (18, 1, 0), (20, 1, 0), (24, 1, 0), (25, 0, 1)])
def test_an_event_is_matched_by_its_start(make_table, start, found, false):
    """At most event_gap + 1 = 2 scores before the fault of 20-24, and not after it."""
    table = make_table({"a": at(60, (start, 30), value=2)}, labels={"a": at(60, (20, 24))})
    metrics = metrics_of(table)
    assert (metrics["faults_found"], metrics["false_events"]) == (found, false)
    assert metrics["event_delay_seconds"] == pytest.approx(start - 20 if found else np.nan, nan_ok=True)


@pytest.mark.parametrize(("peak", "found", "false"), [(16, 0, 1), (18, 1, 0), (24, 1, 0), (27, 0, 1)])
def test_an_event_that_starts_earlier_is_matched_by_its_highest_score(make_table, peak, found, false):
    """Alarms from 10 on, the fault of 20-24; the event is one because no gap is longer than `event_gap`."""
    score = np.maximum(at(60, (10, 30), value=2), at(60, (peak, peak), value=9))
    metrics = metrics_of(make_table({"a": score.tolist()}, labels={"a": at(60, (20, 24))}))
    assert (metrics["faults_found"], metrics["false_events"]) == (found, false)
    assert metrics["event_delay_seconds"] == pytest.approx(-10 if found else np.nan, nan_ok=True)


def test_an_event_is_matched_to_the_fault_in_which_it_starts(make_table):
    score = np.maximum(at(60, (11, 45), value=2), at(60, (31, 31), value=9))
    table = make_table({"a": score.tolist()}, labels={"a": at(60, (10, 12), (30, 32))})
    assert missed_faults(table, SETTINGS)["start_seconds"].tolist() == [30.0]


def test_one_long_event_does_not_find_all_faults_it_covers(make_table):
    faults = [(10, 12), (20, 22), (30, 32), (40, 42)]
    for start, found, false in ((0, 0, 1), (11, 1, 0)):
        table = make_table({"a": at(60, (start, 55), value=2)}, labels={"a": at(60, *faults)})
        metrics = metrics_of(table)
        assert (metrics["faults_total"], metrics["faults_found"], metrics["false_events"]) == (4, found, false)


def test_a_fault_ends_with_its_recording_and_so_does_the_tolerance(make_table):
    """The event at the end of a starts one score before the fault of b, but in another recording."""
    table = make_table({"a": at(10, (9, 9), value=2), "b": at(10)}, labels={"a": at(10, (0, 2)), "b": at(10, (0, 3))})
    metrics = metrics_of(table)
    assert (metrics["faults_total"], metrics["faults_found"], metrics["false_events"]) == (2, 0, 1)
    both = make_table({"a": at(6), "b": at(6)}, labels={"a": at(6, (4, 5)), "b": at(6, (0, 1))})
    assert metrics_of(both)["faults_total"] == 2


def test_gaps_do_not_count_as_recorded_time(make_table):
    table = make_table({"a": at(10)}, labels={"a": at(10)}, step_seconds=360.0)
    table.loc[5:, "segment"] = 1
    table.loc[5:, "seconds"] += 86_400
    assert metrics_of(table)["recorded_hours"] == pytest.approx(1.0)


def test_figures_without_data_are_undefined(make_table):
    quiet = make_table({"a": [0, 0, 0]}, labels={"a": [0, 1, 0]})
    assert np.isnan(metrics_of(quiet)["event_precision"])
    assert metrics_of(quiet)["event_recall"] == 0
    no_fault = metrics_of(make_table({"a": [2, 0]}, labels={"a": [0, 0]}))
    assert np.isnan([no_fault["event_recall"], no_fault["event_recall_by_chance"]]).all()
    assert (no_fault["faults_total"], no_fault["false_events"]) == (0, 1)
    assert missed_faults(make_table({"a": [2, 0]}), SETTINGS).empty


# ---------------------------------------------------------------------------------------------------------- by chance
def test_chance_is_the_share_of_starts_that_match(make_table):
    """One event, one fault of 18 scores with 2 before it: 20 of 100 starts match."""
    table = make_table({"a": at(100, (50, 50), value=2)}, labels={"a": at(100, (40, 57))})
    metrics = metrics_of(table)
    assert metrics["event_recall"] == 1.0
    assert metrics["event_recall_by_chance"] == pytest.approx(0.2, abs=0.04)
    assert metrics["event_recall_by_chance_q95"] == 1.0
    assert metrics == metrics_of(table)  # seeded


def test_events_everywhere_are_no_better_than_chance(make_table):
    table = make_table(
        {"a": at(200, *((at, at) for at in range(0, 200, 4)), value=2)}, labels={"a": at(200, (40, 49), (120, 129))}
    )
    metrics = metrics_of(table)
    assert metrics["event_recall"] == metrics["event_recall_by_chance"] == 1.0
    assert metrics["false_events"] == 44
