"""The proof on a GPU, on its stand-in: sections, report, resumption, and sections that fail in every way."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from core.errors import EXIT_FAILURE, EXIT_OK, EXIT_RESUMABLE
from core.runlog import read_metrics
from tests.support import REPO_ROOT
from tests.support.waiting import is_gone, until
from tests.tools.cuda_sections import SECTIONS
from tools.prove_cuda import sections
from tools.prove_cuda.__main__ import Proof
from tools.prove_cuda.rows import Where
from tools.prove_cuda.sections import Sampled

BY_NAME = {section.name: section for section in SECTIONS}


def proof_of(out: Path, *names: str) -> Proof:
    return Proof([BY_NAME[name] for name in names or BY_NAME if names or name != "no_device"], "cpu", out)


def report(out: Path) -> dict[str, dict]:
    return {section["section"]: section for section in json.loads((out / "report.json").read_text())["sections"]}


# ------------------------------------------------------------------------------------------------------------- running
@pytest.mark.nightly
def test_sections_that_fail_in_every_way_leave_the_others_and_the_report(tmp_path):
    chosen = [section for section in SECTIONS if section.name not in ("no_device", "hangs")]
    # Long enough to start on a busy machine, and to be ended long before it would end by itself.
    proof = Proof([*chosen, replace(BY_NAME["hangs"], limit_s=10.0)], "cpu", tmp_path)
    assert proof.run(proof.order(), 600) == EXIT_FAILURE
    found = report(tmp_path)
    assert {name: section["status"] for name, section in found.items()} == {
        "passes": "passed", "skips": "skipped", "fails": "failed", "crashes": "failed", "hangs": "timed out",
        "repaired": "failed", "finds_nothing": "failed",
    }  # fmt: skip
    assert found["passes"]["reason"] == "1 of 2 skipped"
    assert "x | y" in found["skips"]["reason"]
    assert "1 is not 2" in found["fails"]["reason"]
    assert found["fails"]["rows"][-1]["reason"] == "no such number", "the error of the section is a finding"
    assert "SIGSEGV" in found["crashes"]["reason"]
    assert found["crashes"]["rows"][0]["facts"] == {"figure": 2.0}, "what it found before is kept"
    assert "the last words" in found["crashes"]["log"]
    assert found["hangs"]["rows"][0]["name"] == "a"
    assert found["hangs"]["seconds"] < 150
    child = int((tmp_path / "child").read_text())
    until(lambda: is_gone(child))  # what it started ends with it


def test_the_report_shows_results_reasons_and_last_lines(tmp_path):
    proof = proof_of(tmp_path, "passes", "skips", "crashes")
    proof.run(proof.order(), 600)
    text = (tmp_path / "report.md").read_text()
    assert "no proof about CUDA" in text
    assert "| passes | passed |" in text
    assert "| a | passed | seconds 1.5 |" in text
    assert "| b | skipped | no peer |" in text
    assert "the package x \\| y is not installed" in text
    assert "```\nthe last words\n```" in text


def test_there_is_a_report_before_the_first_section_ends(tmp_path):
    proof_of(tmp_path).report()
    assert {section["status"] for section in report(tmp_path).values()} == {"not run"}


@pytest.mark.slow
def test_the_same_command_continues_with_what_has_no_result_then_with_what_failed(tmp_path):
    first = proof_of(tmp_path, "passes", "repaired")
    assert first.run(first.order(), 600) == EXIT_FAILURE
    second = proof_of(tmp_path, "passes", "repaired", "skips")
    assert [section.name for section in second.order()] == ["skips", "repaired"]
    (tmp_path / "repaired").touch()
    assert second.run(second.order(), 600) == EXIT_OK
    assert (tmp_path / "passed").read_text() == "once\n", "what passed is not repeated"
    assert report(tmp_path)["repaired"]["status"] == "passed"
    third = proof_of(tmp_path, "passes", "repaired", "skips")
    assert third.order() == []
    assert [section.name for section in third.order(["pass"], again=True)] == ["passes"]


def test_without_a_device_the_other_sections_wait_for_one(tmp_path):
    proof = proof_of(tmp_path, "no_device", "passes")
    assert proof.run(proof.order(), 600) == EXIT_FAILURE
    found = report(tmp_path)
    assert [found[name]["status"] for name in ("no_device", "passes")] == ["failed", "not run"]
    assert "no cuda device" in (tmp_path / "report.md").read_text()
    (tmp_path / "repaired").touch()
    again = proof_of(tmp_path, "no_device", "passes")
    assert again.run(again.order(), 600) == EXIT_OK
    assert {section["status"] for section in report(tmp_path).values()} == {"passed"}


@pytest.mark.nightly
def test_tests_of_an_absent_device_fail(tmp_path, monkeypatch):
    """A skipped section would count as done."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    rows = list(sections.tests(Where("cuda", tmp_path), "test_processes.py"))
    assert rows
    assert {row.status for row in rows} == {"failed"}
    assert all("no cuda device" in row.reason for row in rows)


def test_a_result_of_another_device_does_not_count(tmp_path):
    proof = proof_of(tmp_path, "passes")
    proof.run(proof.order(), 600)
    assert len(Proof([BY_NAME["passes"]], "cuda", tmp_path).order()) == 1


def test_a_damaged_result_is_measured_again(tmp_path):
    proof = proof_of(tmp_path, "passes")
    proof.run(proof.order(), 600)
    (tmp_path / "sections/passes.json").write_text('{"device": "cpu"')
    assert len(proof_of(tmp_path, "passes").order()) == 1


@pytest.mark.slow
def test_a_section_without_time_is_left_to_the_next_call(tmp_path):
    """One of 60 seconds is not started with 20 left; one of two seconds is."""
    proof = proof_of(tmp_path, "passes", "hangs")
    assert proof.run(proof.order(), 20) == EXIT_RESUMABLE
    assert {name: section["status"] for name, section in report(tmp_path).items()} == {
        "passes": "not run", "hangs": "timed out",
    }  # fmt: skip


COMMAND = """
import sys
from dataclasses import replace
from pathlib import Path
from tests.tools.cuda_sections import SECTIONS
from tools.prove_cuda import __main__ as command
chosen = [section for section in SECTIONS if section.name in ("passes", "hangs")]
command.SECTIONS = [replace(section, limit_s=600.0) for section in chosen]
sys.exit(command.main(["--device", "cpu", "--out", sys.argv[1]]))
"""


def test_a_killed_command_keeps_what_was_done(tmp_path):
    """Killed while its second section runs."""
    with subprocess.Popen([sys.executable, "-c", COMMAND, str(tmp_path)], cwd=REPO_ROOT, stderr=-3) as command:
        until((tmp_path / "child").exists)
        group = psutil.Process(command.pid).children(recursive=True)
        command.send_signal(signal.SIGKILL)
        for process in group:
            process.kill()
    assert {name: section["status"] for name, section in report(tmp_path).items()} == {
        "passes": "passed", "hangs": "not run",
    }  # fmt: skip
    assert [section.name for section in proof_of(tmp_path, "passes", "hangs").order()] == ["hangs"]


def test_sections_have_names_and_limits_of_their_own():
    limits = [section.limit_s for section in sections.SECTIONS]
    assert len({section.name for section in sections.SECTIONS}) == len(limits)
    assert max(limits) <= 150, "one that hangs leaves time to most others"


def test_importing_the_command_imports_no_torch():
    """Where torch is broken, the report says so."""
    program = "import sys, tools.prove_cuda.__main__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=REPO_ROOT).returncode == 0


@pytest.mark.parametrize(
    ("gpu_mb", "windows", "images"), [(79_000, 512, 64), (23_000, 128, 8), (15_000, 64, 4), (4_000, 1, 1)]
)
def test_all_implementations_fit_into_the_memory_of_the_gpu(gpu_mb, windows, images):
    """An H100 has the sizes that are reported; a smaller GPU gets smaller steps instead of errors."""
    from tools.prove_cuda.speed import fitting_batch

    assert fitting_batch(512, 12, gpu_mb, "patchtst") == windows
    assert fitting_batch(64, 5, gpu_mb, "base") == images


# -------------------------------------------------------------------------------------------------------------- energy
def test_energy_is_interpolated_between_readings():
    sampled = Sampled(lambda: None)
    sampled._readings = [(10.0, 100.0), (11.0, 150.0), (12.0, 350.0)]
    assert sampled.between(10.5, 11.5) == pytest.approx(125.0)


def test_without_a_counter_energy_is_skipped(tmp_path):
    (row,) = sections.energy(Where("cpu", tmp_path), lambda: None)
    assert row.status == "skipped"


# --------------------------------------------------------------------------------------------------- the real sections
@pytest.fixture(scope="module")
def stand_in(tmp_path_factory) -> Path:
    """The folder of a stand-in run of all sections but those of the main job and those that are like others."""
    out = tmp_path_factory.mktemp("proof")
    left_out = ("main-job", "energy", "speed-swinmae-base", "speed-swinmae-shallow")
    # The limits are those of a machine with a GPU. A busy CPU needs longer, and the test is not about time.
    chosen = [replace(each, limit_s=8 * each.limit_s) for each in sections.SECTIONS if each.name not in left_out]
    proof = Proof(chosen, "cpu", out)
    assert proof.run(proof.order(), 8 * 480) == EXIT_OK, (out / "report.md").read_text()
    return out


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_the_stand_in_runs_the_sections(stand_in):
    found = report(stand_in)
    assert {section["status"] for section in found.values()} == {"passed"}
    tests = [row for name in found if name.startswith("tests-") for row in found[name]["rows"]]
    assert len(tests) > 20
    assert {row["status"] for row in tests} == {"passed", "skipped"}
    assert all("CUDA" in row["reason"] for row in tests if row["status"] == "skipped")
    assert any("gradients differ by" in row["facts"] for row in tests)
    speed = {row["name"]: row for row in found["speed-patchtst"]["rows"]}
    assert speed["Landfall, compiled"]["facts"]["windows/s"] > 0
    assert speed["Landfall : transformers, eager"]["facts"]["times as fast"] > 0
    assert speed["official, eager"]["status"] == "skipped"
    assert speed["cost of determinism"]["facts"]["times the seconds"] > 0


@pytest.mark.nightly
def test_the_stand_in_runs_the_main_job_and_measures_its_energy(tmp_path):
    """With the time as counter: one joule a second."""
    where = Where("cpu", tmp_path)
    rows = list(sections.main_job(where))
    assert [row.status for row in rows] == ["passed"] * 4, rows
    rows = list(sections.energy(where, time.monotonic))
    assert [row.name for row in rows] == ["patchtst", "swinmae"]
    for row in rows:
        assert row.status == "measured"
        assert row.facts["watts"] == pytest.approx(1.0, rel=0.1)
    (folder, _) = sorted((tmp_path / "workspace/runs/patchtst_ssl").iterdir(), key=lambda f: "energy" not in f.name)
    assert any(record["kind"] == "epoch" for record in read_metrics(folder / "metrics.jsonl"))
