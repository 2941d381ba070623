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
    repository, folder = tmp_path / "repository", tmp_path / "row"
    (repository / "core").mkdir(parents=True)
    folder.mkdir()
    for name in ("core/tracked.py", "untracked.py"):
        (repository / name).touch()
    for words in (("init", "--quiet"), ("add", "core")):
        subprocess.run(("git", *words), cwd=repository, check=True)
    monkeypatch.setattr(matrix, "CODE_ROOT", repository)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    result = matrix.run(Row("x"), folder)
    assert not result.passed
    assert result.failed == ["no output"]
    assert [path.name for path in folder.rglob("*.py")] == ["tracked.py"]


def test_a_failed_test_is_named(tmp_path):
    log = tmp_path / "matrix.log"
    log.write_text("FAILED tests/test_x.py::test_y - assert 1 == 2\n!!!! stopping after 1 failures !!!!\n")
    assert matrix._last_line(log) == "FAILED tests/test_x.py::test_y - assert 1 == 2"


def test_a_run_without_failed_checks_fails_if_it_misses_a_goal():
    good = {"skill": 0.7, "faults_found": 8, "faults_total": 8, "false_events": 0, "false_events_per_hour": 0.0}
    assert matrix.missed_goals({"patchtst": good, "swinmae": good}) == []
    bad = {"skill": 0.2, "faults_found": 7, "faults_total": 8, "false_events": 1, "false_events_per_hour": 48.0}
    assert matrix.missed_goals({"patchtst": good, "swinmae": bad}) == [
        "swinmae: skill 0.200 of 0.25", "swinmae: 7 of 8 faults", "swinmae: 1 false event",
    ]  # fmt: skip


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
