"""Links that a notebook makes to its mounted drive: their names stand for the drive folder everywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator

from migration import shell
from migration.facts import NotebookFacts
from migration.matching import Edit, Keeps, Match
from migration.rules.paths_text import find_paths
from migration.scanning import Command
from migration.source import CellSource

MAKES_LINK = re.compile(r"\bln\s")


def drive_links(source: CellSource, mounts: tuple[str, ...]) -> tuple[str, ...]:
    """Absolute names outside `/content` that the cell links to the mounted drive: `ln -s /content/gdrive/My\\ Drive/
    /mydrive` makes `/mydrive` another mount point."""
    if not MAKES_LINK.search(source.text):
        return ()
    return tuple(name for command in source.commands if (name := _linked(source.text, command, mounts)))


def links(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """The command that makes the link is left out where it is a line of its own."""
    for command in source.commands:
        name = _linked(source.text, command, facts.mounts)
        if not name or name not in facts.mounts:
            continue
        line = source.line_span(command.start, command.end)
        alone = source.text[line[0] : line[1]].strip() == source.text[command.start : command.end].strip()
        message = f"the mounted Drive is linked to {name}, a name outside the work folder"
        if alone and shell.is_simple(source.text[command.body : command.end]):
            note = f"# the drive folder is {facts.drive}: no link to it is needed"
            new = f"pass  {note}" if command.indent else note
            yield Match(command.start, command.end, message, (Edit(command.start, command.end, new),))
        else:
            action = "take this link out: its name is replaced by the drive folder everywhere"
            yield Match(command.start, command.end, message, action=action, keeps=Keeps.NEEDS_HUMAN)


def _linked(text: str, command: Command, mounts: tuple[str, ...]) -> str:
    """The name that an `ln -s` command gives to the mounted drive; "" for any other command."""
    if command.kind != "shell" or not MAKES_LINK.search(text, command.body, command.end):
        return ""
    for simple in shell.commands(text[command.body : command.end]):
        if shell.program(simple) != "ln":
            continue
        targets = [word.value for word in shell.arguments(simple) if not word.value.startswith("-")]
        if len(targets) != 2:
            continue
        spans = find_paths(targets[0], mounts)
        name = targets[1].rstrip("/")
        is_whole = bool(spans) and spans[0].folder == "drive" and not targets[0][spans[0].end :].strip("/")
        if is_whole and re.fullmatch(r"/[\w-]+", name) and name != "/content":
            return name
    return ""
