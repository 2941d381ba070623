"""One rule for the names of runs, in every command."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from pathlib import PurePosixPath

import pytest

from core.cli import run_name
from core.names import is_run_id, run_folder
from core.workspace import new_run_id
from pipelines.dashboard.runs import read_runs
from pipelines.import_artifacts import _target_of
from pipelines.problems import Problems
from pipelines.steps.records import unfinished_run

GOOD = ("pump+2", "Prüfstand-7", "20261121-083000-1f3a77c2", "v1.2", "_x", "試験", "a" * 100, "x_run.3")
BAD = ("", ".", "..", "../x", "/elsewhere", "a/b", "a\\b", "-x", ".hidden", "a b", "a\n", "a\x1b[2J", "a\u202eb", "C:x",
       "index", "last", "steps", "NUL", "con.txt", "x.", "a" * 101, "ü" * 60, "a\0b")  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_a_valid_name_is_accepted_everywhere(name, tmp_path):
    assert is_run_id(name)
    assert run_name(name) == name
    assert run_folder(tmp_path, name).parent == tmp_path
    (tmp_path / "runs/patchtst_ssl" / name).mkdir(parents=True)
    problems = Problems(tmp_path)
    runs = read_runs(tmp_path, tmp_path / "records", datetime.now(UTC), problems)
    assert [run.run_id for run in runs] == [name], "the dashboard shows it"
    place = _target_of(PurePosixPath(f"drive/patchtst_ssl/{name}/status.json"))
    assert place == (f"runs/patchtst_ssl/{name}/status.json", "patchtst"), "an import brings its log"


@pytest.mark.parametrize("name", BAD)
def test_an_invalid_name_is_rejected_everywhere(name, tmp_path):
    assert not is_run_id(name)
    with pytest.raises(argparse.ArgumentTypeError):
        run_name(name)
    with pytest.raises(ValueError):
        run_folder(tmp_path, name)


def test_names_made_by_landfall_are_valid():
    assert is_run_id(new_run_id())


@pytest.mark.parametrize("value", [None, 5, ["a"], "../x"])
def test_an_invalid_name_in_a_pipeline_record_is_ignored(value, tmp_path):
    (tmp_path / "artifacts/pipeline").mkdir(parents=True)
    (tmp_path / "artifacts/pipeline/last.json").write_text(json.dumps({"run_id": value, "state": "failed"}))
    assert unfinished_run(tmp_path) is None
