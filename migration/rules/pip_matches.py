"""Common functions of the rules for pip: finding calls, and frequent edits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from migration import shell
from migration.notebook.findings import Keeps
from migration.notebook.texts import Edit
from migration.python.shell_texts import ShellText, shell_texts
from migration.python.source import CellSource, once_a_cell
from migration.rules.rule import Match
from migration.shell.installs import PipCall, pip_call


@once_a_cell
def pip_calls(source: CellSource) -> tuple[tuple[ShellText, PipCall], ...]:
    """Every pip command of the cell, with its text."""
    return tuple(
        (found, call)
        for found in shell_texts(source)
        for command in (() if found.is_colab_magic else found.commands)
        if (call := pip_call(command)) is not None
    )


def match(
    found: ShellText,
    call: PipCall,
    message: str,
    edits: Sequence[Edit | None] = (),
    *,
    action: str = "",
    keeps: Keeps | None = None,
) -> Iterator[Match]:
    """The match of a complete command, unless the string around it cannot contain the replacement."""
    whole = [edit for edit in edits if edit is not None]
    if len(whole) == len(edits):
        start, end = found.span(call.command)
        yield Match(start, end, message, tuple(whole), action, keeps)


def without(found: ShellText, word: shell.Word) -> Edit | None:
    """Removes a word with the blanks after it, or those before it at the end of a line."""
    after = re.compile(r"[ \t]+(?![ \t\\\n#]|$)").match(found.text, word.end)
    before = re.compile(r"[ \t]*$").search(found.text[: word.start])
    start = word.start if after or before is None else before.start()
    return found.edit(start, after.end() if after else word.end, "")
