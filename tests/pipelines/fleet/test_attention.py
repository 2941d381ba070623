"""Which machines need attention, and in which order."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict

import pytest

from core.page import STATE
from inference.calibrated_threshold import CalibratedThreshold
from inference.false_alarms import FalseAlarms
from pipelines.dashboard.fleet_documents import FILE, FleetState
from pipelines.fleet.attention import fleet_state
from pipelines.fleet.command import main
from pipelines.fleet.jobs import Outcome
from pipelines.fleet.machines import Fleet, Machine, workspace_of
from tests.support.small_workspace import install_page

NOW = time.time()
EXPECTED = FalseAlarms(rate=0.01, low=0.005, high=0.015, scores=1000, bursts=4)
THRESHOLD = asdict(CalibratedThreshold(1.0, 0.01, None, 1000, None, EXPECTED))


def machine(name):
    return Machine(id=name, stream="patchtst", data=".")


def exported(root, name, *, severities=(), acknowledged=0, departure="", age_hours=1.0, newest_at=None, since=None):
    """A machine that was scored a minute ago, with a file of some age. newest_at: its newest time stamp.
    since: since when its model is in use."""
    workspace = workspace_of(machine(name), root)
    data = workspace / "data/test_1.csv"
    data.parent.mkdir(parents=True)
    data.touch()
    os.utime(data, (NOW - 3600 * age_hours,) * 2)
    Outcome(name, "score", "completed", test_files=("data/test_*",)).write(workspace)
    events = [
        {"id": number, "recording": "r", "severity": severity, "annotation": None}
        for number, severity in enumerate(severities)
    ]
    for event in events[:acknowledged]:
        event["annotation"] = {"recording": "r", "start_seconds": 0, "end_seconds": 1, "acknowledged": True}
    threshold = {**THRESHOLD, "departure": departure}
    stream = {
        "title": "", "subject": "", "state": "completed", "light": {"state": "no event", "detail": ""},
        "scores": {"scored_at": NOW - 60, "newest_at": newest_at, "events": len(events), "threshold": threshold},
        "checkpoint": {"path": "model.pt", "present": True, "since": since} if since else None,
        "detections": {"total": len(events), "acknowledged": acknowledged, "events": events},
    }  # fmt: skip
    state = {
        "generated_at": NOW, "verdict": {"state": "done", "title": "", "detail": ""}, "pipeline": [],
        "streams": {"patchtst": stream}, "runs": {},
    }  # fmt: skip
    (workspace / STATE).parent.mkdir(parents=True)
    (workspace / STATE).write_text(json.dumps(state))


@pytest.fixture
def plant(workspace):
    exported(workspace, "fine")
    exported(workspace, "seen", severities=[9.0], acknowledged=1)
    exported(workspace, "small", severities=[2.0])
    exported(workspace, "large", severities=[9.0, 5.0, 3.0], acknowledged=1)
    exported(workspace, "drifting", departure="the level rose")
    exported(workspace, "silent", age_hours=50)
    exported(workspace, "copied", newest_at=NOW - 3600 * 29 * 24)
    exported(workspace, "ahead", newest_at=NOW + 3600)  # local time
    exported(workspace, "failing")
    Outcome("failing", "train", "failed", "no rows", 3).write(workspace_of(machine("failing"), workspace))
    return workspace


def test_machines_are_ranked_by_what_needs_attention(plant):
    names = ("fine", "silent", "failing", "new", "small", "large", "drifting", "seen", "copied", "ahead")
    fleet = Fleet(tuple(map(machine, names)), 24.0)
    state = fleet_state(fleet, plant, fleet.machines)
    assert [(row.id, row.state) for row in state.machines] == [
        ("large", "open events"), ("small", "open events"), ("drifting", "drift"), ("copied", "stale"),
        ("silent", "stale"), ("failing", "failed"), ("new", "no model"), ("ahead", "no event"),
        ("fine", "no event"), ("seen", "no event"),
    ]  # fmt: skip
    rows = {row.id: row for row in state.machines}
    assert (rows["large"].open_events, rows["large"].severity) == (2, 5.0)
    assert rows["failing"].failed[0].reason == "no rows"
    assert rows["copied"].attention == ["no new data for 29 days"]
    assert rows["silent"].attention == ["no new data for 2.1 days"]
    assert (rows["new"].page, rows["fine"].page) == (None, "machines/fine/")


@pytest.mark.parametrize(
    ("command", "trained", "later", "is_shown"),
    [
        ("train", -1800, "score", True),
        ("train", 1800, "score", False),  # trained again by hand
        ("quality", None, "score", False),
        ("quality", None, None, True),
        ("score", None, "quality", True),
    ],
)
def test_a_failure_is_shown_until_it_is_corrected(workspace, command, trained, later, is_shown):
    """trained: seconds from the failure."""
    exported(workspace, "press", since=None if trained is None else NOW + trained)
    folder = workspace_of(machine("press"), workspace)
    for file in (folder / "artifacts/fleet").iterdir():
        file.unlink()
    Outcome("press", command, "failed", "no rows", 3).write(folder)
    if later:
        Outcome("press", later, "completed", at="2999-01-01T00:00:00+00:00").write(folder)
    (row,) = fleet_state(Fleet((machine("press"),), 24.0), workspace, [machine("press")]).machines
    assert bool(row.failed) == is_shown


def test_the_report_writes_the_document_of_the_dashboard(plant, capsys):
    install_page(plant)
    (plant / "configs/plant.csv").write_text("id,stream,data\nfine,patchtst,.\nlarge,patchtst,.\n")
    assert main(["report", "--fleet", "configs/plant.csv", "--json", "--repo-root", str(plant)]) == 0
    printed = FleetState.model_validate_json(capsys.readouterr().out)
    data = plant / "training_dashboard/data"
    assert FleetState.model_validate_json((data / FILE).read_text()) == printed
    assert [row.id for row in printed.machines] == ["large", "fine"]
    assert json.loads((data / "dashboard-state.json").read_text())["fleet"] == FILE
    assert main(["report", "--fleet", "configs/plant.csv", "--repo-root", str(plant)]) == 0
    assert "1 open events, 1 no event" in capsys.readouterr().out
