import subprocess
import sys

import pytest

import landfall
from core.config.schema import STREAMS
from core.errors import EXIT_FAILURE
from pipelines import completion


@pytest.mark.parametrize("argv", [[], ["-h"], ["--help"]])
def test_help_lists_every_command_with_what_it_does(argv, capsys):
    assert landfall.main(argv) == 0
    text = capsys.readouterr().out
    for name, command in landfall.COMMANDS.items():
        assert f"  {name} " in text
        assert command.summary in text


@pytest.mark.parametrize("argv", [["fly"], ["train", "tides"]])
def test_an_unknown_command_is_a_usage_error(argv, capsys):
    assert landfall.main(argv) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"landfall: no command {' '.join(argv)!r}")
    assert "train patchtst" in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("name", landfall.COMMANDS)
def test_every_command_has_help(name, capsys):
    with pytest.raises(SystemExit) as caught:
        landfall.main([*name.split(), "--help"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("usage: ")


def test_arguments_after_the_command_reach_it(capsys):
    assert landfall.main(["train", "patchtst", "training.epochs=7", "--print-config"]) == 0
    assert "epochs: 7" in capsys.readouterr().out


@pytest.mark.parametrize(
    "argv, meant",
    [
        (["scroe"], "score"),
        (["pipelien"], "pipeline"),
        (["train", "patchst"], "train patchtst"),
        (["trian", "swinmae"], "train swinmae"),
        (["trian"], "train patchtst or train swinmae"),
        (["xyz"], None),
    ],
)
def test_a_similar_command_is_suggested(argv, meant, capsys):
    assert landfall.main(argv) == 2
    first = capsys.readouterr().err.splitlines()[0]
    assert ("did you mean" in first) == (meant is not None)
    assert (meant or "") in first


@pytest.mark.parametrize("name", ["score", "train patchtst", "devices"])
def test_a_library_that_is_not_installed_is_named_in_one_line(name):
    """Without the environment of the workspace; `-S` hides the installed packages."""
    done = subprocess.run([sys.executable, "-S", "-m", "landfall", *name.split()], capture_output=True, text=True)
    assert done.returncode == EXIT_FAILURE
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"landfall {name}: ")
    assert "make setup" in line


def test_training_without_a_stream_lists_the_streams(capsys):
    assert landfall.main(["train", "--help"]) == 0
    assert "train patchtst" in capsys.readouterr().out
    assert landfall.main(["train"]) == 2
    printed = capsys.readouterr().err
    assert all(stream in printed for stream in STREAMS)
    assert len(printed.splitlines()) == 1


def test_bash_completes_commands_streams_and_options():
    script = completion.script_for("bash", completion.command_options())

    def completed(*words: str) -> set[str]:
        listed = " ".join(f"'{word}'" for word in ("landfall", *words))
        call = f"COMP_WORDS=({listed}); COMP_CWORD={len(words)}; _landfall; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        ended = subprocess.run(["bash", "-c", script + call], capture_output=True, text=True, check=True)
        return set(ended.stdout.split())

    assert completed("sc") == {"score"}
    assert completed("score", "--stream", "") == set(STREAMS)
    assert "--until-done" in completed("train", "--un")
    assert {"patchtst"} <= completed("train", "pa")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_every_shell_gets_every_command(shell):
    script = completion.script_for(shell, {"train patchtst": ["--resume"], "score": ["--stream"]})
    assert all(word in script for word in ("train", "patchtst", "resume", "score", "swinmae"))
