"""Colab's folders in comments, in text cells, and in the text below a cell magic."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from migration.analysis.facts import NotebookFacts
from migration.colab.paths import find_paths, may_name_folder
from migration.notebook.findings import Keeps
from migration.notebook.texts import Edit
from migration.python.source import CellSource
from migration.python.strings import read_cell, read_strings
from migration.rules.paths_found import changed, kept
from migration.rules.paths_shell import command_edits
from migration.rules.paths_strings import Group, groups, rewritten
from migration.rules.rule import Match

_COMMAND = re.compile(r"(?:#[# \t]*|[ \t]*`*[ \t]*)(?P<command>[!%][ \t]*[A-Za-z/.][^\n`]*)")
# A command without its `!`, by its name and a path or an option after it: prose that begins with the name has words.
_UNMARKED_COMMAND = re.compile(
    r"#+[ \t]*(?P<command>(?:unzip|unrar|7z|tar|cp|mv|rm|mkdir|ls|ln|chmod|rsync|wget|curl)[ \t]+"
    r"(?:-{1,2}\w|[\"']?[\w.~*-]*/(?!content/?(?:[ \t]+[a-zA-Z]|$)))[^\n`]*)"
)
# An entry of a dictionary only in a comment: elsewhere it may be JSON.
_CODE_BEFORE = re.compile(r"[=(\[,+{]\s*$|^\s*#.*[\"']\s*:\s*$|(?P<alone>^\s*#[#\s]*$)")
_CODE_AFTER = re.compile(r"[\s,)\]}]*(?:#|$)")
_FORM = re.compile(r"#\s*(?:@|param:|type:|one of \[)")
_COLAB = re.compile(r"\bcolab(?:oratory)?\b(?!/|[ _]?notebooks)", re.IGNORECASE)
_MOUNT = re.compile(r"\bdrive\.(?:mount|flush_and_unmount)\(")
_LINK = re.compile(r"\]\([^)\s]*\)|<\w[^<>]*>|https?://[^\s)>\"'`]+")


def bodies(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """The folders below a cell magic, in a file or in a program, where nothing replaces variables."""
    magic = source.magic
    if magic is None or source.is_shell or (source.is_python and not source.is_program):
        return
    for span in find_paths(source.text[magic.body :], facts.mounts):
        yield kept(replace(span, start=magic.body + span.start, end=magic.body + span.end))


def comments(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """The comments of a Python cell that name a folder, and its docstrings and other strings that nothing uses."""
    if not source.is_python or source.is_program or not may_name_folder(source.masked, facts.mounts):
        return
    continues = False
    for start, end in read_cell(source)[1]:
        line = source.text[start:end]
        yield from _prose(source.text, start, end, facts, "a comment names {0}", continues=continues)
        continues = line.endswith("\\") and (continues or _COMMAND.match(line) is not None)
    for literal in (one for group in groups(source) if group.use == "text" for one in group.literals):
        for line in re.compile(r"[^\n]+").finditer(source.text, *literal.body):
            yield from _prose(source.text, *line.span(), facts, "a docstring or bare string names {0}")


def markdown(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """The lines of a text cell with a folder; URLs and the targets of links are not changed."""
    for line in re.finditer(r"[^\n]+", source.text):
        yield from _prose(source.text, *line.span(), facts, "the text names {0}")


def _prose(
    text: str, start: int, end: int, facts: NotebookFacts, message: str, *, continues: bool = False
) -> Iterator[Match]:
    """The positions of folders in one line of prose. Their names mean nothing where no cell defines them, or in a
    statement about Colab; a call that mounts the drive exists only there. `continues`: the line above is a command that
    continues in this one."""
    line = text[start:end]
    spans = find_paths(line, facts.mounts)
    if not spans:
        return
    if not {span.folder for span in spans} <= facts.folders or _COLAB.search(line) or _MOUNT.search(line):
        action = "reword the text if the reader needs the folder: nothing on this machine has this path"
        yield Match(start, end, message.format("a folder of Colab"), action=action, keeps=Keeps.EQUIVALENT)
        return
    links = [found.span() for found in _LINK.finditer(line)]
    code = [
        edit
        for edit in _code_edits(line, facts, continues=continues)
        if not any(low < edit.start < high for low, high in links)
    ]
    for edit in code:
        inside = [span for span in spans if edit.start <= span.start < edit.end]
        yield changed(Edit(start + edit.start, start + edit.end, edit.text), message, inside)
    for span in spans:
        if span.is_escaped or any(low <= span.start < high for low, high in links):
            continue
        if not any(edit.start <= span.start < edit.end for edit in code):
            name = facts.drive if span.folder == "drive" else facts.work
            yield changed(Edit(start + span.start, start + span.end, name), message, [span])


def _code_edits(line: str, facts: NotebookFacts, *, continues: bool) -> list[Edit]:
    """The edits of a command or of string literals that a line of prose shows."""
    if _FORM.match(line):
        return []
    found = _COMMAND.match(line)
    unmarked = None if found or continues else _UNMARKED_COMMAND.match(line)
    if found or unmarked or continues:
        inner = CellSource(found["command"] if found else f"!{unmarked['command'] if unmarked else line[1:]}")
        at = found.start("command") if found else unmarked.start("command") - 1 if unmarked else 0
        edits = [edit for command in inner.commands for edit in command_edits(inner, command, facts)]
        return [Edit(at + edit.start, at + edit.end, edit.text) for edit in sorted(edits)]
    edits = []
    for literal in read_strings(line.replace("#", " "))[0]:
        before = _CODE_BEFORE.search(line, 0, literal.start)
        # A text in quotes that begins a comment is code only if nothing follows.
        if not literal.depth and before and (before["alone"] is None or _CODE_AFTER.match(line, literal.end)):
            matches = rewritten(line, Group((literal,), "value"), facts)
            edits += [edit for match in matches for edit in match.edits]
    return edits
