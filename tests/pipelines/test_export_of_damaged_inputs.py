"""No damaged input stops the dashboard export; each is named."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pipelines.export_training_dashboard_state import export_state
from tests.dashboard.builders import SECOND, build_workspace, write, write_run
from tests.dashboard.documents import load, validate
from tests.pipelines.more_inputs import RECORDING, write_devices, write_event, write_migration, write_score_table


@pytest.fixture
def workspace(tmp_path):
    build_workspace(tmp_path)
    write_score_table(tmp_path, "patchtst", {RECORDING: np.ones(60)})
    write_event(tmp_path, "patchtst", 7)
    write_devices(tmp_path)
    write_migration(tmp_path)
    return tmp_path


DAMAGE = {
    "runs/patchtst_ssl/{run}/status.json": "status",
    "runs/patchtst_ssl/{run}/metrics.jsonl": "metrics",
    "runs/patchtst_ssl/{run}/config.yaml": "config",
    "runs/patchtst_ssl/{run}/environment.json": "environment",
    "checkpoints/patchtst_ssl.json": "sidecar",
    "artifacts/dqvl/fdc/lot_00.parquet.json": "quality",
    "artifacts/scores/patchtst_summary.json": "scores",
    "artifacts/scores/patchtst_events.json": "events",
    "artifacts/scores/patchtst_scores.parquet": "score table",
    "artifacts/scores/patchtst_events/7.json": "event",
    "artifacts/devices.json": "devices",
    "artifacts/migration/plant.ipynb.json": "migration",
    "artifacts/validation_report.json": "checklist",
}
CONTENTS = {
    "empty": b"",
    "torn": b'{"schema_version": 1, "sta',
    "binary": b"\xff\xfe\x00\x80 \x00",
    "list": b"[1, 2]",
    "deep": b"[" * 100_000,
    "types": b'{"state": 3, "file_id": [], "items": "x", "run_id": {}, "scores": "y", "tier": []}',
}


def test_folders_without_permission_do_not_stop_the_export(workspace, monkeypatch):
    """Data and executed notebooks of another user; the tests may run as root, who may read everything."""
    is_file = Path.is_file

    def of_user(path: Path) -> bool:
        if path.is_relative_to(workspace / "data") or "notebooks" in path.parts:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", of_user)
    assert export_state(workspace).streams["patchtst"].quality.files > 0


def test_a_time_before_the_first_year_does_not_stop_the_export(workspace):
    status = workspace / f"runs/patchtst_ssl/{SECOND}/status.json"
    status.write_text('{"state": "running", "started_at": "0001-01-01T00:00:00+14:00"}')
    problems = export_state(workspace).problems
    assert [problem.path for problem in problems] == [f"runs/patchtst_ssl/{SECOND}/status.json"]


@pytest.mark.parametrize("content", CONTENTS)
def test_no_damaged_input_stops_the_export(workspace, content):
    for path in DAMAGE:
        (workspace / path.format(run=SECOND)).write_bytes(CONTENTS[content])
    state = export_state(workspace)
    validate(load(workspace, "dashboard-state.json"), "dashboard-state")
    assert len(state.problems) >= 8
    assert state.streams["patchtst"].state == "unreadable"
    assert state.streams["swinmae"].state == "failed"


@pytest.mark.parametrize("path", DAMAGE, ids=DAMAGE.values())
def test_an_input_that_is_a_folder_is_a_named_problem(workspace, path):
    target = workspace / path.format(run=SECOND)
    target.unlink()
    target.mkdir()
    assert path.format(run=SECOND) in {problem.path for problem in export_state(workspace).problems}


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"score": [1.0]}),
        pd.DataFrame({name: ["text"] for name in ("recording", "time", "seconds", "score", "threshold", "label")}),
        pd.DataFrame({name: [] for name in ("recording", "time", "seconds", "score", "threshold", "label")}),
    ],
    ids=["columns", "types", "empty"],
)
def test_an_invalid_score_table_is_a_problem_without_series(workspace, table):
    path = workspace / "artifacts/scores/patchtst_scores.parquet"
    table.to_parquet(path)
    state = export_state(workspace)
    assert state.streams["patchtst"].series is None
    assert [problem.path for problem in state.problems] == ["artifacts/scores/patchtst_scores.parquet"]


def test_a_run_without_status_is_shown_from_its_metrics(workspace):
    (workspace / f"runs/patchtst_ssl/{SECOND}/status.json").unlink()
    stream = export_state(workspace).streams["patchtst"]
    assert (stream.state, stream.reason, stream.epoch) == ("unreadable", "status.json is missing", 12)
    assert stream.best.epoch == 11
    assert stream.run_id == SECOND


def test_damage_inside_the_metrics_is_counted_and_shown_again_from_the_record(workspace):
    metrics = workspace / f"runs/patchtst_ssl/{SECOND}/metrics.jsonl"
    metrics.write_bytes(b'{"kind": "ep\n[]\n' + metrics.read_bytes())
    expected = "2 unreadable lines skipped, the first is line 1"
    assert [problem.message for problem in export_state(workspace).problems] == [expected]
    assert [problem.message for problem in export_state(workspace).problems] == [expected]


@pytest.mark.parametrize(
    "event",
    [
        {},
        [],
        {"event_id": 1, "severity": None},
        {"event_id": 1, "severity": 2.0, "channels": [{"name": "a", "share": "x"}]},
    ],
)
def test_a_damaged_list_of_events_leaves_the_rest_of_the_scoring(workspace, event):
    write(workspace / "artifacts/scores/patchtst_events.json", [event])
    state = export_state(workspace)
    stream = state.streams["patchtst"]
    assert (stream.scores.alarms, stream.detections.total, stream.detections.events) == (93, 7, [])
    assert [problem.path for problem in state.problems] == ["artifacts/scores/patchtst_events.json"]


def test_odd_yaml_values_are_written_as_text(workspace):
    write(workspace / f"runs/patchtst_ssl/{SECOND}/config.yaml", "when: 2026-11-21\n1: .inf\nraw: !!binary aGk=\n")
    export_state(workspace)
    config = load(workspace, f"runs/{SECOND}.json")["streams"]["patchtst"]["config"]
    assert config == {"when": "2026-11-21", "1": None, "raw": "b'hi'"}


@pytest.mark.slow
def test_a_lone_surrogate_is_written_as_a_question_mark(workspace):
    half = "\\ud800"
    folder = workspace / f"runs/patchtst_ssl/{SECOND}"
    status = f'"schema_version": 1, "stream": "patchtst", "run_id": "{SECOND}", "state": "failed", "reason": "{half}"'
    write(folder / "status.json", f"{{{status}}}")
    write(folder / "environment.json", f'{{"python": "{half}", "packages": {{"{half}": "{half}"}}}}')
    write(folder / "config.yaml", f'"{half}": "{half}"')
    write(workspace / "artifacts/dqvl/fdc/half.json", f'{{"file_id": "{half}", "decision": "keep"}}')
    write(workspace / "checkpoints/patchtst_ssl.json", f'{{"run_id": "{half}"}}')
    os.mkdir(os.fsencode(workspace / "runs/patchtst_ssl") + b"/\xff")  # noqa: PTH102
    state = export_state(workspace)
    assert state.streams["patchtst"].reason == "?"
    assert state.streams["patchtst"].checkpoint is None  # its run has no valid name
    assert "runs/patchtst_ssl/?" in [problem.path for problem in state.problems]


def test_a_folder_without_a_run_id_is_ignored(workspace):
    write_run(workspace, "patchtst", "index")
    state = export_state(workspace)
    assert state.streams["patchtst"].run_id == SECOND
    assert [problem.path for problem in state.problems] == ["runs/patchtst_ssl/index"]
