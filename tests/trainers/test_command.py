import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from core import checkpoint
from core.config.compose import local_config_file
from tests.support import REPO_ROOT
from tests.trainers.conftest import TINY
from trainers import train_patchtst_ssl, train_swinmae_ssl
from trainers.command import next_command


def complaint(capsys, argv: list[str], *, main=train_patchtst_ssl.main) -> tuple[int, str]:
    """Exit code and the one line on stderr; stdout is empty."""
    code = main(argv)
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return code, line


def test_a_missing_configuration_file_is_reported(workspace):
    command = [sys.executable, "-m", "trainers.train_patchtst_ssl", "--repo-root", str(workspace)]
    result = subprocess.run([*command, "--config", "configs/nope.yaml"], cwd=REPO_ROOT, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert re.match(r"landfall train patchtst: .*configs/nope\.yaml does not exist", line)


def test_unknown_keys_are_reported_in_one_line(plant, capsys):
    code, line = complaint(capsys, ["--repo-root", str(plant), "training.epoch=1", "model.heads=2"])
    assert code == 2
    assert re.search(r"training\.epoch: .*\bepochs\?", line)
    assert "model.heads: unknown key" in line


@pytest.mark.parametrize(
    "words, key, value",
    [
        (["--device", "cpu"], ("device", "prefer"), "cpu"),
        (["--device", "cuda"], ("device", "prefer"), "gpu"),
        (["--device", "auto", "device.prefer=cpu"], ("device", "prefer"), "auto"),
        (["--batch-size", "5"], ("training", "batch_size"), 5),
        (["--resume", "never"], ("training", "resume"), "never"),
        (["--allow-changes"], ("training", "allow_changes"), True),
    ],
)
def test_an_option_sets_its_key(workspace, capsys, monkeypatch, words, key, value):
    monkeypatch.setenv("COMPUTE_PREFER", "tpu")
    assert train_patchtst_ssl.main(["--repo-root", str(workspace), "--print-config", *words]) == 0
    section, name = key
    assert yaml.safe_load(capsys.readouterr().out)[section][name] == value


@pytest.mark.parametrize(
    ("config", "overrides", "is_promoted", "expected"),
    [
        (None, ["training.epochs=2"], True, "landfall score --stream swinmae"),
        (None, ["data.sampling_rate_hz=8000"], True, "landfall score --stream swinmae data.sampling_rate_hz=8000"),
        ("configs/fan.yaml", [], True, "landfall score --config configs/fan.yaml"),
        (None, ["data.sampling_rate_hz=8000"], False, "landfall runs"),
    ],
)
def test_the_next_command_can_read_the_same_data(config, overrides, is_promoted, expected):
    arguments = argparse.Namespace(config=config, overrides=overrides, repo_root=None)
    assert next_command(arguments, "swinmae", is_promoted=is_promoted) == expected
    arguments.repo_root = Path("line 2")
    assert "--repo-root 'line 2'" in next_command(arguments, "swinmae", is_promoted=is_promoted)


def test_an_unknown_device_is_refused_with_the_known_ones(workspace, capsys):
    with pytest.raises(SystemExit) as caught:
        train_patchtst_ssl.main(["--repo-root", str(workspace), "--device", "abacus"])
    assert caught.value.code == 2
    assert "mps" in capsys.readouterr().err


def test_the_name_of_a_device_is_no_number_of_devices(workspace, capsys):
    code, line = complaint(capsys, ["--repo-root", str(workspace), "devices=cpu"])
    assert code == 2
    assert "device.prefer=cpu" in line


@pytest.mark.parametrize(
    "main, stream, other",
    [(train_patchtst_ssl.main, "patchtst", "swinmae"), (train_swinmae_ssl.main, "swinmae", "patchtst")],
)
def test_a_configuration_of_the_other_stream_is_rejected(plant, capsys, main, stream, other):
    argv = ["--repo-root", str(plant), "--config", local_config_file(other)]
    code, line = complaint(capsys, argv, main=main)
    assert code == 2
    assert f"is for the stream {other}, not {stream} — pass a {stream} configuration" in line


def test_an_empty_glob_is_reported(plant, capsys):
    argv = ["--repo-root", str(plant), *TINY, "data.splits.train.files=[data/fdc/nothing_*]"]
    code, line = complaint(capsys, argv)
    assert code == 3
    assert "data/fdc has no sensor file nothing_*" in line


def test_a_damaged_checkpoint_on_resume_is_rejected(plant, capsys):
    last = plant / "checkpoints/patchtst_ssl.last.pt"
    checkpoint.save(last, {"model": {}}, description={"run_id": "run-1"})
    last.write_bytes(last.read_bytes()[:50])
    code, line = complaint(capsys, ["--repo-root", str(plant), *TINY, "--resume", "auto"])
    assert code == 4
    assert "patchtst_ssl.last.pt: is damaged" in line


def test_a_missing_checkpoint_on_resume_is_reported(plant, capsys):
    code, line = complaint(capsys, ["--repo-root", str(plant), *TINY, "--resume", "checkpoints/nope.pt"])
    assert code == 4
    assert "nope.pt: does not exist — set training.resume to auto or never" in line


def test_an_unknown_option_is_a_usage_error(capsys):
    with pytest.raises(SystemExit) as caught:
        train_patchtst_ssl.main(["--epochs", "3"])
    assert caught.value.code == 2
    assert "--epochs" in capsys.readouterr().err


def test_a_folder_outside_of_a_workspace_is_rejected(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, line = complaint(capsys, [])
    assert code == 2
    assert "Landfall workspace" in line


def test_success_is_json_on_stdout(plant, capsys):
    code = train_patchtst_ssl.main(["--repo-root", str(plant), "--run-id", "run-1", *TINY, "training.epochs=1"])
    result = json.loads(capsys.readouterr().out)
    assert code == 0
    assert (result["run_id"], result["epochs"], result["best_epoch"]) == ("run-1", 1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_closes_early_does_not_cause_a_failure(unbuffered):
    command = [sys.executable, "-m", "trainers.train_patchtst_ssl", "--print-config"]
    options = {"cwd": REPO_ROOT, "env": {**os.environ, "PYTHONUNBUFFERED": unbuffered}}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as process:
        process.stdout.close()
        errors = process.stderr.read()
    assert (process.returncode, errors) == (0, b"")
