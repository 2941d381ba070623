"""`docs/commands.md`, generated from `--help` of every command: `python -m tools.command_reference --write`."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from unittest.mock import patch

import landfall
from core.cli import run_page_command

FILE = "docs/commands.md"

_INTRODUCTION = """\
# Commands

Generated from `--help` of each command by `python -m tools.command_reference --write`; edit the help texts in the code.

The `landfall` command is in `.venv/bin`. Each command is also a module, for example
`python -m trainers.train_patchtst_ssl`. [Exit codes](exit-codes.md) are the same for all commands.
[Configuration](configuration.md) lists the keys for `KEY=VALUE`.
"""
_WIDTH = "100"


def help_of(name: str) -> str:
    """The output of `landfall NAME --help`."""
    printed = io.StringIO()
    with patch.dict(os.environ, {"COLUMNS": _WIDTH}), redirect_stdout(printed):
        try:
            landfall.main([*name.split(), "--help"])
        except SystemExit as ended:
            if ended.code:
                raise
    return "\n".join(line.rstrip() for line in printed.getvalue().strip().splitlines())


def reference() -> str:
    """The complete page."""
    sections = [_INTRODUCTION]
    for name, command in landfall.COMMANDS.items():
        sections.append(f"## landfall {name}\n\nModule `{command.module}`.\n\n```text\n{help_of(name)}\n```\n")
    return "\n".join(sections)


def main(argv: Sequence[str] | None = None) -> int:
    return run_page_command(FILE, reference, description="Prints the reference of all commands.", argv=argv)


if __name__ == "__main__":
    sys.exit(main())
