"""The final report of a run, from a hand-made scoring summary."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.checklist import Checklist
from pipelines.run_summary import summary_text

DETECTION = {
    "auroc": 0.93, "faults_total": 12, "faults_found": 9, "event_recall_by_chance": 0.25,
    "event_recall_by_chance_q95": 0.5, "false_events": 6, "recorded_hours": 4.0, "false_events_per_hour": 1.5,
}  # fmt: skip
MISSED = [
    {"recording": "data/fdc/test_1.csv", "fault": "leak", "start": "2026-01-09T06:10:00", "start_seconds": 600.0},
    {"recording": "data/fdc/test_2.csv", "fault": None, "start": None, "start_seconds": 90.0},
    {"recording": "data/fdc/test_3.csv", "fault": "drift", "start": None, "start_seconds": 1.5},
    {"recording": "data/fdc/test_4.csv", "fault": "spike", "start": None, "start_seconds": 2.5},
]


@pytest.fixture
def lines_of(tmp_path: Path):
    def lines(detection: dict | None, missed: list = MISSED) -> list[str]:
        summary = {"run_id": "run-1", "events": 15, "recordings": 3, "detection": detection, "missed_faults": missed}
        report = Checklist.of([])
        return summary_text({"patchtst": summary}, report, tmp_path).partition("Checklist")[0].split("\n")

    return lines


def test_faults_found_missed_and_false_events_are_counted(lines_of):
    text = "\n".join(lines_of(DETECTION))
    for words in (
        "9 of 12",
        "chance 3.0",
        "at most 6",
        "6 in 4.0 recorded hours",
        "1.5 per hour",
        "0.930 (chance is 0.5)",
    ):
        assert words in text
    assert "near chance" not in text


@pytest.mark.parametrize(
    ("hours", "false_events", "words"),
    [
        (1234.5, 1, "1 in 1,234.5 recorded hours, less than 0.001 per hour"),
        (0.01, 14, "14 in 0.6 recorded minutes, 1,400"),
    ],
)
def test_rates_are_never_written_with_an_exponent(lines_of, hours, false_events, words):
    rate = {"recorded_hours": hours, "false_events": false_events, "false_events_per_hour": false_events / hours}
    assert words in "\n".join(lines_of(DETECTION | rate))


def test_missed_faults_are_named_if_known(lines_of):
    (line,) = (line for line in lines_of(DETECTION) if "missed" in line)
    assert "leak, test_1.csv from 2026-01-09 06:10:00" in line
    assert "; test_2.csv from second 90.0;" in line
    assert "spike" not in line
    assert line.endswith("and 1 more")
    assert not [line for line in lines_of(DETECTION, missed=[]) if "missed" in line]


@pytest.mark.parametrize(("auroc", "warned"), [(0.599, True), (0.6, False), (0.45, True)])
def test_scores_near_chance_are_reported(lines_of, auroc, warned):
    (line,) = (line for line in lines_of(DETECTION | {"auroc": auroc}) if "AUROC" in line)
    assert ("near chance" in line) == warned


def test_detection_is_not_evaluated_without_labels(lines_of):
    text = "\n".join(lines_of(None, missed=[]))
    assert "15 events in 3 recordings" in text
    assert "no labels" in text


def test_a_test_without_faults_has_only_false_events(lines_of):
    undefined = {"faults_total": 0, "faults_found": 0, "auroc": None, "event_recall_by_chance": None}
    text = "\n".join(lines_of(DETECTION | undefined, missed=[]))
    assert "6 in 4.0 recorded hours" in text
    assert "faults found" not in text
