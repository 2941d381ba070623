"""Colab's folders in comments, in text cells, and in the text below a cell magic."""

from __future__ import annotations

import re
from collections.abc import Iterator

from migration.analysis.facts import NotebookFacts
from migration.colab.paths import find_paths, may_name_folder
from migration.notebook.texts import Edit
from migration.python.source import CellSource
from migration.python.strings import read_strings
from migration.rules.paths_found import Found, changed, kept
from migration.rules.paths_shell import command_edits
from migration.rules.paths_strings import Group, read, rewritten

_COMMAND = re.compile(r"(?:#+[ \t]*|[ \t]*`*[ \t]*)(?P<command>[!%][ \t]*[A-Za-z/.][^\n`]*)")
_CODE_BEFORE = re.compile(r"[=(\[,+{]\s*$")
_FORM = re.compile(r"#\s*(?:@|param:|type:)")
_LINK = re.compile(r"\]\([^)\s]*\)|\b(?:href|src)\s*=\s*[\"'][^\"']*[\"']|https?://[^\s)>\"'`]+")


def bodies(source: CellSource, facts: NotebookFacts) -> Iterator[Found]:
    """The folders below a cell magic, in a file or in a program: nothing replaces variables there."""
    if source.magic is None or source.is_shell or (source.is_python and not source.is_program):
        return
    start = source.magic.body
    for span in find_paths(source.text[start:], facts.mounts):
        yield kept(start + span.start, start + span.end, "body", drive=span.folder == "drive")


def comments(source: CellSource, facts: NotebookFacts) -> Iterator[Found]:
    """The comments of a Python cell that name a folder."""
    if source.is_python and not source.is_program and may_name_folder(source.masked, facts.mounts):
        for start, end in read(source)[1]:
            yield from _prose(source.text, start, end, facts, "a comment names {0}")


def markdown(source: CellSource, facts: NotebookFacts) -> Iterator[Found]:
    """The lines of a text cell with a folder; URLs and the targets of links are not changed."""
    for line in re.finditer(r"[^\n]+", source.text):
        yield from _prose(source.text, *line.span(), facts, "the text names {0}")


def _prose(text: str, start: int, end: int, facts: NotebookFacts, message: str) -> Iterator[Found]:
    """The positions of folders in one line of prose."""
    line = text[start:end]
    spans = find_paths(line, facts.mounts)
    if not spans:
        return
    links = [found.span() for found in _LINK.finditer(line)]
    code = _code_edits(line, facts)
    for edit in code:
        inside = [span for span in spans if edit.start <= span.start < edit.end]
        yield changed(Edit(start + edit.start, start + edit.end, edit.text), message, inside)
    for span in spans:
        if span.is_escaped or any(low <= span.start < high for low, high in links):
            continue
        if not any(edit.start <= span.start < edit.end for edit in code):
            name = facts.drive if span.folder == "drive" else facts.work
            yield changed(Edit(start + span.start, start + span.end, name), message, [span])


def _code_edits(line: str, facts: NotebookFacts) -> list[Edit]:
    """The edits of a command or of string literals that a line of prose shows."""
    if _FORM.match(line):
        return []
    if found := _COMMAND.match(line):
        inner = CellSource(found["command"])
        at = found.start("command")
        edits = [edit for command in inner.commands for edit in command_edits(inner, command, facts)]
        return [Edit(at + edit.start, at + edit.end, edit.text) for edit in sorted(edits)]
    edits = []
    for literal in read_strings(line.replace("#", " "))[0]:
        if not literal.depth and _CODE_BEFORE.search(line, 0, literal.start):
            matches = rewritten(line, Group((literal,), "value"), facts)
            edits += [edit for match in matches for edit in match.match.edits]
    return edits
