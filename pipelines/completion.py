"""Shell completion of commands, streams and options: `landfall completion bash|zsh|fish` prints a script.

The options are those of each command's help, at the time the script is printed.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from importlib import import_module

from core.cli import run_command
from core.config.schema import STREAMS
from core.errors import EXIT_OK

_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
_BASH = """\
_landfall() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
  local command=${{COMP_WORDS[1]}}
  [ "$before" = --stream ] && {{ COMPREPLY=($(compgen -W "{streams}" -- "$word")); return; }}
  if [ "$COMP_CWORD" = 1 ]; then COMPREPLY=($(compgen -W "{commands}" -- "$word")); return; fi
  local words=
  case $command in
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word") $(compgen -f -- "$word"))
}}
complete -o filenames -F _landfall landfall
"""
_ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="landfall completion",
        description="Prints a script that completes commands, streams and options.",
        epilog='bash and zsh: eval "$(landfall completion bash)"; fish: landfall completion fish | source',
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))

    def command(arguments: argparse.Namespace) -> int:
        sys.stdout.write(script_for(arguments.shell, command_options()))
        return EXIT_OK

    return run_command(command, parser, argv)


def command_options() -> dict[str, list[str]]:
    """The long options of each command, as its help lists them."""
    from landfall import COMMANDS

    found = {}
    for name, command in COMMANDS.items():
        printed = io.StringIO()
        ignored = suppress(SystemExit, ModuleNotFoundError)
        with redirect_stdout(printed), redirect_stderr(io.StringIO()), ignored:
            import_module(command.module).main(["--help"])
        found[name] = sorted(set(_OPTION.findall(printed.getvalue())))
    return found


def script_for(shell: str, options: Mapping[str, Sequence[str]]) -> str:
    """The script for a shell. options: the options of each command; the name of a command may have two words."""
    words: dict[str, list[str]] = {}
    for name, found in options.items():
        first, _, second = name.partition(" ")
        words.setdefault(first, [])
        words[first] += [each for each in ([second] if second else []) + list(found) if each not in words[first]]
    if shell == "fish":
        return "\n".join(_fish(words)) + "\n"
    cases = "\n".join(f'    {name}) words="{" ".join(found)}" ;;' for name, found in words.items())
    text = _BASH.format(streams=" ".join(STREAMS), commands=" ".join([*words, "--help", "--version"]), cases=cases)
    return text if shell == "bash" else _ZSH + text


def _fish(words: Mapping[str, Sequence[str]]) -> list[str]:
    lines = [f"complete -c landfall -n __fish_use_subcommand -f -a '{' '.join(words)}'"]
    for name, found in words.items():
        seen = f"-n '__fish_seen_subcommand_from {name}'"
        for word in found:
            if word == "--stream":
                lines.append(f"complete -c landfall {seen} -x -l stream -a '{' '.join(STREAMS)}'")
            elif word.startswith("--"):
                lines.append(f"complete -c landfall {seen} -l {word[2:]}")
            else:
                lines.append(f"complete -c landfall {seen} -a {word}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
