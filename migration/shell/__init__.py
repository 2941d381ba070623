"""Parses shell text like the shell, with the position of every word. There are two kinds of text: the body of a `!`
line (the default), which IPython passes to the shell after joining continued lines by spaces and expanding
`{expression}` and `$name`; and a script (`script=True`), such as the body of a `%%bash` cell or the argument of
`os.system`, which is passed to the shell unchanged. Nothing raises on any text: invalid text is parsed as far as
possible.

Layers, lowest first:

- `expressions`: `{expression}` in a `!` line
- `words`: words, redirections and simple commands
- `installs`: arguments of pip and of package managers
- `scanner`: scans shell text like a shell
"""

from __future__ import annotations

from functools import lru_cache

from migration.shell.scanner import scan
from migration.shell.words import Command, Redirection, Script, Word

__all__ = [
    "Command",
    "Redirection",
    "Script",
    "Word",
    "commands",
    "read",
]


def commands(text: str, offset: int = 0, *, script: bool = False) -> tuple[Command, ...]:
    """The simple commands of a shell text, also those inside `$(…)`, backticks and subshells; `offset` is added to
    every position."""
    return read(text, offset, script=script).commands


@lru_cache(maxsize=4096)  # many rules need it, and notebooks have many equal install lines
def read(text: str, offset: int = 0, *, script: bool = False) -> Script:
    """The parsed shell text; `offset` is added to positions."""
    return scan(text, offset, script=script)
