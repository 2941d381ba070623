"""Links that a notebook makes to its mounted drive: their names stand for the drive folder everywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator

from migration import shell
from migration.cell.scanning import Command
from migration.cell.source import CellSource
from migration.facts import NotebookFacts
from migration.matching import Edit, Match
from migration.rules.paths_text import find_paths

MAKES_LINK = re.compile(r"ln(?<=\bln)\s")


def drive_links(source: CellSource, mounts: tuple[str, ...]) -> tuple[str, ...]:
    """Absolute names outside `/content` that the cell links to the mounted drive: `ln -s /content/gdrive/My\\ Drive/
    /mydrive` makes `/mydrive` another mount point."""
    if "ln" not in source.text or not MAKES_LINK.search(source.text):
        return ()
    return tuple(name for command in source.commands for name, _ in _made(source.text, command, mounts))


def links(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """The command that makes a link is left out: the name it gives is replaced by the drive folder everywhere."""
    for command in source.commands:
        for name, simple in _made(source.text, command, facts.mounts):
            if name not in facts.mounts:
                continue
            message = f"the mounted Drive is linked to {name}, a name outside the work folder"
            edit = Edit(simple.start, simple.end, "true")
            line = source.line_span(command.start, command.end)
            alone = source.text[line[0] : line[1]].strip() == source.text[command.start : command.end].strip()
            if alone and shell.is_simple(source.text[command.body : command.end]):
                note = f"# the drive folder is {facts.drive}: no link to it is needed"
                edit = Edit(command.start, command.end, f"pass  {note}" if command.indent else note)
            yield Match(simple.start, simple.end, message, (edit,))


def _made(text: str, command: Command, mounts: tuple[str, ...]) -> Iterator[tuple[str, shell.Command]]:
    """The names that a cell's command gives to the mounted drive, with the simple commands `ln -s` that do it."""
    if command.kind != "shell" or not MAKES_LINK.search(text, command.body, command.end):
        return
    for simple in shell.commands(text[command.body : command.end], command.body):
        targets = [word.value for word in simple.arguments if not word.value.startswith("-")]
        if simple.program != "ln" or len(targets) != 2:
            continue
        spans = find_paths(targets[0], mounts)
        name = targets[1].rstrip("/")
        is_whole = bool(spans) and spans[0].folder == "drive" and not targets[0][spans[0].end :].strip("/")
        if is_whole and re.fullmatch(r"/[\w-]+", name) and name != "/content":
            yield name, simple
