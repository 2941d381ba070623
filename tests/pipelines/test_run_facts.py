"""Stored facts about a run: detection figures, tags and a note; in the list of runs and on the dashboard."""

from __future__ import annotations

import errno
import json
import logging
from pathlib import Path

import pytest

from core.config.compose import load_config
from core.errors import EXIT_OK, EXIT_USAGE
from core.run_facts import DETECTION, NOTES, read_notes, record_detection
from inference.run_scoring_example import read_summary
from pipelines import list_runs, tag_run
from pipelines.export_training_dashboard_state import export_state
from tests.support.small_workspace import CONFIGS, RUN_ID

SUMMARY = dict.fromkeys(("scored_at", "scores", "recordings", "alarms", "events")) | {"threshold": {"value": 1.0}}


def folder_of(root: Path) -> Path:
    return root / "runs/patchtst_ssl" / RUN_ID


def index_of(root: Path) -> dict:
    export_state(root)
    (run,) = json.loads((root / "training_dashboard/data/runs/index.json").read_text())["runs"]
    return run


def test_a_scoring_stores_its_figures_with_its_run(copied):
    summary = read_summary(load_config(CONFIGS["patchtst"], root=copied).config, root=copied)
    kept = json.loads((folder_of(copied) / DETECTION).read_text(encoding="utf-8"))
    assert kept["events"] == summary["events"]
    assert kept["auroc"] == summary["detection"]["auroc"]
    assert kept["faults_total"] == summary["detection"]["faults_total"]
    assert kept["data"] == summary["made_of"]["data"]["content of data.splits.test"]
    run = index_of(copied)
    assert run["streams"]["patchtst"]["detection"]["events"] == summary["events"]
    assert run["streams"]["patchtst"]["detection"]["auroc"] == summary["detection"]["auroc"]


def test_figures_of_a_removed_run_are_not_stored(tmp_path):
    record_detection(tmp_path / "gone", SUMMARY)
    assert not (tmp_path / "gone").exists()


def test_a_closed_folder_of_runs_does_not_end_a_scoring(tmp_path, monkeypatch, caplog):
    def closed(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    caplog.set_level(logging.INFO)
    monkeypatch.setattr(Path, "is_dir", closed)
    record_detection(tmp_path / "closed", SUMMARY)
    assert "the detection figures of closed are not stored" in caplog.text


def test_tags_and_a_note_are_listed_and_exported(copied, capsys):
    arguments = ["--repo-root", str(copied)]
    assert tag_run.main([RUN_ID, "pump-7", "baseline", "--note", "before the overhaul", *arguments]) == EXIT_OK
    assert tag_run.main([RUN_ID, "good", "--remove", "baseline", "--stream", "patchtst", *arguments]) == EXIT_OK
    capsys.readouterr()
    assert list_runs.main(["--json", *arguments]) == EXIT_OK
    runs = {run["stream"]: run for run in json.loads(capsys.readouterr().out)}
    assert runs["patchtst"]["tags"] == ["pump-7", "good"]
    assert runs["swinmae"]["tags"] == ["pump-7", "baseline"]
    assert runs["patchtst"]["note"] == "before the overhaul"
    assert list_runs.main(arguments) == EXIT_OK
    assert "pump-7 good (before the overhaul)" in capsys.readouterr().out
    assert index_of(copied)["streams"]["patchtst"]["notes"]["tags"] == ["pump-7", "good"]


def test_runs_that_were_killed_or_cannot_be_read_are_listed_as_on_the_dashboard(copied, capsys):
    """The file of a run whose process was killed still says `running`."""
    path = folder_of(copied) / "status.json"
    status = json.loads(path.read_text(encoding="utf-8"))

    def listed() -> dict:
        assert list_runs.main(["--json", "--stream", status["stream"], "--repo-root", str(copied)]) == EXIT_OK
        return json.loads(capsys.readouterr().out)[0]

    killed = {**status, "state": "running", "owner": "", "updated_at": "2020-01-01T00:00:00+00:00"}
    path.write_text(json.dumps(killed), encoding="utf-8")
    assert listed()["state"] == "stopped" == index_of(copied)["streams"][status["stream"]]["state"]
    path.write_text("{", encoding="utf-8")
    assert listed()["state"] == "unreadable" == index_of(copied)["streams"][status["stream"]]["state"]
    assert list_runs.main(["--repo-root", str(copied)]) == EXIT_OK
    assert "unreadable" in capsys.readouterr().out


def test_only_existing_runs_can_be_tagged(copied, capsys):
    assert tag_run.main(["no-such-run", "good", "--repo-root", str(copied)]) == EXIT_USAGE
    assert "no-such-run" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "[]", '{"tags": 3}', '{"tags": [1], "note": null}'])
def test_damaged_notes_are_read_as_far_as_possible(tmp_path, text):
    (tmp_path / NOTES).write_text(text, encoding="utf-8")
    found = read_notes(tmp_path)
    assert found["note"] == ""
    assert all(isinstance(tag, str) for tag in found["tags"])
