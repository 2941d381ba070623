"""What the dashboard shows of a monitor: its newest events and scores, from the first moment of a second process on."""

from __future__ import annotations

import json

import pytest

from core.errors import EXIT_OK
from inference.watch import live_document
from tests.inference.watch.following import lines_of, monitor_of, watch_once
from tests.support.small_workspace import install_page


def test_the_document_has_the_newest_events_and_scores(trained):
    install_page(trained)
    assert watch_once(trained, "--detector", "charts") == EXIT_OK
    path = trained / "training_dashboard/data/live/watch-patchtst.json"
    document = json.loads(path.read_text())
    scores, closed = lines_of(trained, "scores"), lines_of(trained, "events")
    closed = [report for report in closed if report["state"] == "closed"]
    assert document["state"] == "completed"
    assert document["events"] == closed[::-1]
    for file in document["files"]:
        mine = [line for line in scores if line["recording"] == file["recording"]]
        newest = {key: mine[-1][key] for key in ("recording", "time", "score", "alarm")}
        assert file == newest | {"rows": len(mine), "alarms": sum(line["alarm"] for line in mine)}


@pytest.mark.slow
def test_only_the_newest_are_kept_and_a_cut_line_is_left_out(trained, monkeypatch):
    install_page(trained)
    assert watch_once(trained, "--detector", "charts") == EXIT_OK
    events = trained / "artifacts/watch/patchtst_events.jsonl"
    newest = lines_of(trained, "events")[-1]["id"]
    with events.open("a") as file:
        file.write('{"id": "cut')
    monkeypatch.setattr(live_document, "MOST_EVENTS", 1)
    threshold = monitor_of(trained).detector.threshold.value
    document = live_document.LiveDocument(trained, "patchtst", threshold, events)
    document.refresh(ended=True)
    shown = json.loads((trained / "training_dashboard/data/live/watch-patchtst.json").read_text())
    assert [event["id"] for event in shown["events"]] == [newest]
