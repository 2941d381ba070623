"""The chaos tier: it repeats its cases, and finds what must not happen."""

import os
import random
import signal
import subprocess
import sys

import pytest

from tests.support import REPO_ROOT
from tests.support.small_workspace import build_small_workspace
from tools.soak import chaos
from tools.soak.chaos import Case, Result, draw_command


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_signal_is_not_sent_before_it_is_handled():
    code = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(75)); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code])
    chaos._wait_for_handlers(process)
    process.terminate()
    assert process.wait() == 75


def test_a_seed_draws_the_same_commands(tmp_path):
    def drawn(seed: int) -> list[list[str]]:
        rng = random.Random(f"{seed} 5")
        return [draw_command(rng, tmp_path) for _ in range(20)]

    assert drawn(1) == drawn(1) != drawn(2)


@pytest.mark.parametrize(
    "code, stderr_text, fault, is_allowed",
    [
        (0, "", "none", True),
        (2, "landfall score: x — do y\n", "none", True),
        (75, "", "terminate", True),
        (-15, "", "terminate", True),
        (-15, "", "none", False),
        (3, "", "none", False),
        (1, "landfall score: unexpected KeyError: 'x'\n", "none", False),
        (0, "Traceback (most recent call last)\n", "kill", False),
        (7, "landfall: x\n", "none", False),
    ],
)
def test_codes_and_messages_are_judged(code, stderr_text, fault, is_allowed):
    assert (list(chaos._message_violations(code, stderr_text, fault)) == []) is is_allowed


@pytest.fixture
def case(tmp_path) -> Case:
    case = Case(3, 4, tmp_path, tmp_path, Result(3))
    build_small_workspace(case.root)
    (case.outside / "tmp").mkdir(parents=True)
    (case.outside / "home").mkdir()
    return case


def test_damage_to_files_is_found(case):
    users = chaos._digests(case.root)
    assert list(case._file_violations(users, [], "none")) == []
    (case.root / "data/fdc/train_1.csv").write_text("other")
    (case.root / "artifacts").mkdir()
    (case.root / "artifacts/half.json").write_text('{"a": ')
    (case.root / "artifacts/.half.json.1.part").touch()
    (case.outside / "home/.notes").touch()
    (case.root / "checkpoints").mkdir()
    model = case.root / "checkpoints/patchtst_ssl.pt"
    found = "\n".join(case._file_violations(users, [model], "none"))
    for name in ("train_1.csv of the user was changed", "half.json", ".part", ".notes", "patchtst_ssl.pt was valid"):
        assert name in found


def test_a_violation_names_the_command_that_repeats_it(case, capsys):
    case._violated(["export"], "kill", "something")
    assert case.result.violations == ["python -m tools.soak.chaos --seed 3 --case 4: landfall export, kill: something"]
    assert "--case 4" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root on Linux ignores permissions")
def test_a_fork_and_its_processes_heed_permissions(tmp_path):
    program = (
        "import pathlib, subprocess, sys\nfrom tools.soak.forking import _heed_permissions\n_heed_permissions()\n"
        "code = subprocess.run(['touch', sys.argv[1]], stderr=subprocess.DEVNULL).returncode\n"
        "try:\n    pathlib.Path(sys.argv[1]).touch()\n"
        "except PermissionError:\n    sys.exit(10 + code)\n"
    )
    tmp_path.chmod(0o555)
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "x")], cwd=REPO_ROOT)
    tmp_path.chmod(0o755)
    assert done.returncode == 11


@pytest.mark.nightly
def test_random_commands_with_random_faults_leave_everything_in_order():
    result = chaos.chaos(1, seconds=600, commands=12)
    assert result.violations == []
    assert result.commands >= 12


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_commands_of_a_background_job_do_not_ignore_signals(number):
    before = signal.signal(number, signal.SIG_IGN)
    try:
        chaos._heed_all_signals()
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, before)
