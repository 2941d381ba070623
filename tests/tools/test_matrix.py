"""The matrix of runs: its rows, rows that this machine cannot run, and the table of results."""

import subprocess
import sys

from tests.support import REPO_ROOT
from tools import matrix
from tools.matrix import Result, Row


def test_every_row_has_its_own_name_and_seeds_vary():
    rows = list(matrix.rows())
    assert len({row.name for row in rows}) == len(rows)
    assert sum(row.name.startswith("seed-") for row in rows) == 10
    assert {row.job for row in rows} == {"validate", "tests"}


def test_rows_that_cannot_run_here_have_a_reason(monkeypatch):
    monkeypatch.setattr(matrix, "cpu_flags", lambda: {"avx2"})
    assert "AVX-512" in matrix.unavailable(Row("x", environment={"ATEN_CPU_CAPABILITY": "avx512"}))
    assert "python9.9" in matrix.unavailable(Row("x", python="python9.9"))
    assert matrix.unavailable(Row("x", environment=matrix.AVX2)) is None


def test_a_row_runs_in_a_copy_and_a_failure_is_named(tmp_path, monkeypatch):
    """With an interpreter that fails: nothing is trained."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    result = matrix.run(Row("x"), tmp_path)
    assert not result.passed
    assert result.failed == ["no output"]
    assert (tmp_path / "pipelines/sample_data/command.py").is_file()


def test_the_table_shows_passes_failures_and_rows_left_out():
    results = [
        Result("a", True, 1.0, [], {"patchtst": {"skill": 0.8123, "faults_found": 12}}),
        Result("b", False, 2.0, ["V-03.scaler.patchtst"], {}),
    ]
    table = matrix.as_markdown(results, {"c": "python3.13 is not installed"})
    assert "| a | pass | 1 | 0.812 |" in table
    assert "| b | FAIL: V-03.scaler.patchtst | 2 |" in table
    assert "| c | not run: python3.13 is not installed |" in table


def test_found_faults_are_shown_with_chance_and_false_events():
    figures = {"faults_found": 9, "faults_total": 12, "event_recall_by_chance": 0.25, "false_events_per_hour": 1.5}
    lines = matrix.as_markdown([Result("a", True, 1.0, [], {"patchtst": figures})], {}).splitlines()
    cells = dict(zip(lines[2].split(" | "), lines[4].split(" | "), strict=True))
    assert {name: cells[f"patchtst {name}"] for name in figures} == {
        "faults_found": "9", "faults_total": "12", "event_recall_by_chance": "0.250", "false_events_per_hour": "1.500",
    }  # fmt: skip


def test_the_command_lists_its_rows():
    command = [sys.executable, "-m", "tools.matrix", "--list", "--only", "data-seed"]
    listed = subprocess.run(command, cwd=REPO_ROOT, capture_output=True, text=True, check=True).stdout
    assert len(listed.splitlines()) == 10
