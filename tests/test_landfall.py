import pytest

import landfall


@pytest.mark.parametrize("argv", [[], ["-h"], ["--help"]])
def test_help_lists_every_command_with_what_it_does(argv, capsys):
    assert landfall.main(argv) == 0
    text = capsys.readouterr().out
    for name, command in landfall.COMMANDS.items():
        assert f"  {name} " in text
        assert command.summary in text


@pytest.mark.parametrize("argv", [["fly"], ["train"], ["train", "tides"]])
def test_an_unknown_command_is_a_usage_error(argv, capsys):
    assert landfall.main(argv) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"landfall: no command {' '.join(argv)!r}\n")
    assert "train patchtst" in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("name", landfall.COMMANDS)
def test_every_command_explains_itself(name, capsys):
    with pytest.raises(SystemExit) as caught:
        landfall.main([*name.split(), "--help"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("usage: ")


def test_arguments_after_the_command_reach_it(capsys):
    assert landfall.main(["train", "patchtst", "training.epochs=7", "--print-config"]) == 0
    assert "epochs: 7" in capsys.readouterr().out
