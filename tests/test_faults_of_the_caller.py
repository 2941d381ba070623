"""Faults of the caller (streams, folders, permissions) never end a command with a traceback."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from core.errors import EXIT_DATA, EXIT_OK, EXIT_OUTPUT, EXIT_USAGE
from pipelines import list_runs
from tests.support import REPO_ROOT, most_nightly

# Each test starts commands.
pytestmark = pytest.mark.slow

TRAIN = "trainers.train_patchtst_ssl"
PYTHON = shlex.quote(sys.executable)
_UNPRIVILEGED = "-dac_override,-dac_read_search"


def ended(words: str, *, redirect: str = "", cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A command in a shell, without the privilege of root to ignore permissions."""
    command = f"{PYTHON} -m {words} {redirect}"
    environment = {**os.environ, "PYTHONPATH": str(REPO_ROOT)}
    program = ["bash", "-c", command]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root without setpriv: nothing is forbidden")
        program = ["setpriv", f"--inh-caps={_UNPRIVILEGED}", f"--bounding-set={_UNPRIVILEGED}", *program]
    return subprocess.run(program, cwd=cwd or REPO_ROOT, env=environment, capture_output=True, text=True, check=False)


def check(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The last line of stderr."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "unexpected" not in done.stderr
    return (done.stderr.splitlines() or [""])[-1]


@pytest.mark.parametrize(
    "redirect, code",
    most_nightly(
        [
            (">&- 2>&-", EXIT_OK),
            (">/dev/full", EXIT_OUTPUT),
            (">&-", EXIT_OK),
            ("2>&-", EXIT_OK),
            ("2>/dev/full", EXIT_OK),
        ],
        but=2,
    ),
)
def test_closed_or_full_streams_are_handled(workspace, redirect, code):
    check(ended(f"{TRAIN} --print-config --repo-root {workspace}", redirect=redirect), code)


def test_a_removed_current_folder_is_reported(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    words = f"{TRAIN} --print-config"
    assert ended(words, cwd=gone).returncode == EXIT_USAGE
    for command in (words, "landfall check", "landfall devices", "landfall migrate a.ipynb", "landfall init x"):
        gone.mkdir(exist_ok=True)
        removed = subprocess.run(
            ["bash", "-c", f"cd {gone} && rmdir {gone} && {PYTHON} -m {command}"],
            env={**os.environ, "PYTHONPATH": str(REPO_ROOT)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert "was removed" in check(removed, EXIT_USAGE)


@pytest.mark.parametrize("words", most_nightly(["landfall", "landfall --help", "landfall --version"], but=1))
@pytest.mark.parametrize("redirect, code", [(">&-", EXIT_OK), (">/dev/full", EXIT_OUTPUT), ("| true", EXIT_OK)])
def test_the_overview_handles_closed_or_full_streams(words, redirect, code):
    check(ended(words, redirect=redirect), code)


def test_data_that_is_not_ready_ends_with_one_line(workspace):
    file = workspace / "pump.csv"
    file.write_text("timestamp,a\n")
    done = ended(f"landfall check {file} --no-time --stream patchtst --repo-root {workspace}")
    assert "pump.csv" in check(done, EXIT_DATA)
    assert "✗" in done.stdout


@pytest.mark.nightly
@pytest.mark.parametrize("closed", most_nightly(["runs/patchtst_ssl", "runs"], but=1))
def test_a_folder_of_runs_without_permission_is_reported(workspace, closed):
    (workspace / "runs/patchtst_ssl").mkdir(parents=True)
    folder = workspace / closed
    folder.chmod(0)
    try:
        of_stream = f"--repo-root {workspace}"
        assert "patchtst_ssl" in check(ended(f"landfall runs --stream patchtst {of_stream}"), EXIT_USAGE)
        assert "_ssl: cannot be read" in check(ended(f"landfall export {of_stream}"), EXIT_OK)
    finally:
        folder.chmod(0o755)


@pytest.mark.nightly
def test_reports_without_permission_are_left_out_of_the_export_with_a_warning(workspace):
    folder = workspace / "artifacts/dqvl/fdc"
    folder.mkdir(parents=True)
    folder.chmod(0)
    try:
        assert "dqvl/fdc" in check(ended(f"landfall export --repo-root {workspace}"), EXIT_OK)
    finally:
        folder.chmod(0o755)


@pytest.mark.nightly
def test_a_run_without_permission_is_left_out_with_a_warning(workspace):
    log_dir = workspace / "runs/patchtst_ssl"
    for name in ("open", "closed"):
        (log_dir / name).mkdir(parents=True)
        (log_dir / name / "status.json").write_text('{"state": "completed"}')
    (log_dir / "closed").chmod(0)
    try:
        listed = ended(f"landfall runs --stream patchtst --repo-root {workspace}")
        check(listed, EXIT_OK)
        assert "patchtst_ssl/closed" in listed.stderr
        assert "open" in listed.stdout
        exported = ended(f"landfall export --repo-root {workspace}")
        check(exported, EXIT_OK)
        assert "patchtst_ssl/closed" in exported.stderr
    finally:
        (log_dir / "closed").chmod(0o755)


@pytest.mark.parametrize("status", [{"best": [1]}, {"best": {"val_loss": "x", "skill": []}}, {"epoch": {}}])
def test_any_status_of_a_run_is_listed(workspace, capsys, status):
    folder = workspace / "runs/patchtst_ssl/imported"
    folder.mkdir(parents=True)
    (folder / "status.json").write_text(json.dumps(status))
    (folder / "detection.json").write_text('{"events": [], "faults_total": 3, "auroc": "high"}')
    assert list_runs.main(["--stream", "patchtst", "--repo-root", str(workspace)]) == EXIT_OK
    assert "imported" in capsys.readouterr().out


def test_a_copy_of_a_run_by_hand_is_left_out_with_a_warning(workspace, capsys, caplog):
    """A file manager names it `first copy`."""
    for name in ("first", "first copy"):
        folder = workspace / f"runs/patchtst_ssl/{name}"
        folder.mkdir(parents=True)
        (folder / "status.json").write_text('{"state": "completed"}')
    assert list_runs.main(["--stream", "patchtst", "--json", "--repo-root", str(workspace)]) == EXIT_OK
    assert [run["run_id"] for run in json.loads(capsys.readouterr().out)] == ["first"]
    assert "first copy" in caplog.text


@pytest.mark.nightly
def test_an_empty_resume_argument_is_reported(workspace):
    assert "training.resume: is empty" in check(ended(f"{TRAIN} --resume '' --repo-root {workspace}"), EXIT_USAGE)
    assert "it's.pt" in check(ended(f'{TRAIN} --resume "it\'s.pt" --repo-root {workspace}'), EXIT_OUTPUT)


@pytest.mark.parametrize(
    "path, module, arguments, code",
    [
        ("configs/patchtst_ssl_local.yaml", TRAIN, "", EXIT_USAGE),
        ("data/fdc", "pipelines.check_data_quality", "--config configs/patchtst_ssl_local.yaml", EXIT_DATA),
        *(
            pytest.param(
                path, "inference.run_scoring_example", "--stream patchtst", EXIT_OUTPUT, marks=pytest.mark.nightly
            )
            for path in ("checkpoints/patchtst_ssl.json", "checkpoints")
        ),
    ],
)
def test_unreadable_files_are_named(workspace, path, module, arguments, code):
    place = workspace / path
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch() if place.suffix else place.mkdir()
        if place.parent.name == "checkpoints":
            place.with_suffix(".pt").touch()
    place.chmod(0)
    try:
        last = check(ended(f"{module} {arguments} --repo-root {workspace}"), code)
    finally:
        place.chmod(0o755)
    assert place.name in last
    assert "ermission" in last


@pytest.mark.nightly
def test_a_broken_link_among_the_data_is_named(workspace):
    folder = workspace / "data/fdc"
    folder.mkdir(parents=True)
    (folder / "train_1.csv").symlink_to("missing.csv")
    words = f"pipelines.check_data_quality --config configs/patchtst_ssl_local.yaml --repo-root {workspace}"
    assert "train_1.csv" in check(ended(words), EXIT_DATA)


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_a_name_that_is_not_utf8_is_reported(workspace):
    folder = workspace / "data/fdc"
    folder.mkdir(parents=True)
    Path(os.fsdecode(os.fsencode(folder) + b"/train_\xff.csv")).write_text("timestamp,a\n1,2\n")
    words = f"pipelines.check_data_quality --config configs/patchtst_ssl_local.yaml --repo-root {workspace}"
    for command in (words, f"landfall train patchtst --repo-root {workspace}"):
        assert "not UTF-8" in check(ended(command), EXIT_DATA)


@pytest.mark.parametrize("status", ['{"state": "running", "owner": -1, "updated_at": "2026-01-01T00:00:00Z"}',
                                    '{"state": "completed", "epochs": -5}', '{"state": "running", "epoch": 1e400}',
                                    "[" * 100_000, '{"epoch": ' + "9" * 100_000 + "}", "null"])  # fmt: skip
def test_a_damaged_run_status_does_not_stop_an_export(workspace, status):
    from pipelines.export_training_dashboard_state import export_state

    folder = workspace / "runs/patchtst_ssl/run-1"
    folder.mkdir(parents=True)
    (folder / "status.json").write_text(status)
    state = export_state(workspace)
    assert state.streams["patchtst"].state in ("unreadable", "stopped")
