import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from core.cli import add_config_arguments, add_root_argument, root_of, run_command, run_name
from core.errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK, EXIT_RESUMABLE, EXIT_USAGE, UsageError
from core.signals import SignalStop
from tests.support import REPO_ROOT


def refuse(arguments: argparse.Namespace) -> int:
    raise ModuleNotFoundError("No module named 'torch'", name="torch")


def ask_for_the_root(arguments: argparse.Namespace) -> int:
    assert root_of(arguments).is_dir()
    return EXIT_OK


def test_a_package_that_is_missing_is_reported_with_the_command_that_installs_it(capsys):
    assert run_command(refuse, argparse.ArgumentParser(prog="odd"), []) == EXIT_FAILURE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("odd: ")
    assert "'torch'" in line
    assert "make setup" in line


def test_a_workspace_that_is_not_a_folder_is_a_usage_error(tmp_path, capsys):
    def run(folder: str) -> int:
        parser = argparse.ArgumentParser(prog="odd")
        add_root_argument(parser)
        return run_command(ask_for_the_root, parser, ["--repo-root", folder])

    assert run(str(tmp_path)) == EXIT_OK
    assert run(str(tmp_path / "nowhere")) == EXIT_USAGE
    assert f"odd: --repo-root {tmp_path / 'nowhere'} " in capsys.readouterr().err


@pytest.mark.parametrize("name", ["20261122-194731-a511cbb9", "new-pump-2", "a1", "v1.2+x"])
def test_a_run_has_a_name(name):
    assert run_name(name) == name


@pytest.mark.parametrize("name", ["../x", "/tmp/x", "a/b", "a\\b", "..", ".hidden", "", "two words", "a\n"])
def test_a_run_name_cannot_lead_to_another_folder(name):
    with pytest.raises(argparse.ArgumentTypeError):
        run_name(name)


@pytest.mark.parametrize("stop, code", [(KeyboardInterrupt(), EXIT_INTERRUPTED), (SignalStop(15), EXIT_RESUMABLE)])
def test_a_library_that_fails_while_it_is_interrupted_does_not_hide_the_signal(capsys, stop, code):
    def work(arguments: argparse.Namespace) -> int:
        try:
            raise stop
        finally:
            _ = None.flags  # as omegaconf does

    assert run_command(work, argparse.ArgumentParser(prog="landfall x"), []) == code
    last = capsys.readouterr().err.splitlines()[-1]
    assert "unexpected" not in last
    assert "AttributeError" in last


def test_an_empty_configuration_is_not_the_default(capsys):
    """`--config "$FILE"` with a variable that is not set would train another configuration."""
    parser = argparse.ArgumentParser()
    add_config_arguments(parser)
    assert run_command(lambda arguments: EXIT_OK, parser, ["--config", ""]) == EXIT_USAGE
    assert "--config is empty" in capsys.readouterr().err


def test_an_empty_path_is_not_the_current_folder(capsys):
    """`landfall import-artifacts "$FROM"` with a variable that is not set would import what is in this folder."""
    for words in ([""], ["--out", "", "x"], ["--repo-root=", "x"]):
        parser = argparse.ArgumentParser(prog="landfall x")
        parser.add_argument("source", type=Path)
        parser.add_argument("--out", type=Path, default=Path("data"))
        add_root_argument(parser)
        with pytest.raises(SystemExit) as stop:
            run_command(lambda arguments: EXIT_OK, parser, words)
        assert stop.value.code == EXIT_USAGE
        assert "is empty" in capsys.readouterr().err.splitlines()[-1]


def test_a_message_that_quotes_a_very_long_value_is_shortened(capsys):
    def command(arguments: argparse.Namespace) -> int:
        raise UsageError(f"the value {'9' * 100_000} is not valid", hint="write another")

    assert run_command(command, argparse.ArgumentParser(prog="landfall x"), []) == EXIT_USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert len(line) < 11_000
    assert line.endswith("is not valid — write another")


def test_an_interrupted_import_of_torch_logs_no_statistics():
    code = """
import argparse, logging
from core.cli import run_command
run_command(lambda arguments: 0, argparse.ArgumentParser(), [])
logging.getLogger("torch._subclasses.fake_tensor").info("cache statistics")
"""
    found = subprocess.run([sys.executable, "-c", code], cwd=REPO_ROOT, capture_output=True, text=True, check=True)
    assert found.stderr == ""
