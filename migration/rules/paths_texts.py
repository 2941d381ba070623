"""Colab's folders in comments, in text cells, and in the text below a cell magic."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from migration import shell
from migration.analysis.facts import NotebookFacts
from migration.colab.paths import find_paths, may_name_folder
from migration.notebook.findings import Keeps
from migration.notebook.texts import Edit
from migration.python.shell_texts import shell_texts
from migration.python.source import CellSource
from migration.python.strings import read_cell, read_strings
from migration.rules.paths_found import changed, kept
from migration.rules.paths_shell import command_edits
from migration.rules.paths_strings import Group, groups, rewritten
from migration.rules.rule import Match

_COMMAND = re.compile(r"#[# \t]*(?P<command>[!%][ \t]*[A-Za-z/.][^\n`]*)")
# A command without its `!`, by its name and a path or an option after it: prose that begins with the name has words.
_UNMARKED_COMMAND = re.compile(
    r"#+[ \t]*(?P<command>(?:unzip|unrar|7z|tar|cp|mv|rm|mkdir|ls|ln|chmod|rsync|wget|curl)[ \t]+"
    r"(?:-{1,2}\w|[\"']?[\w.~*-]*/(?!content/?(?:[ \t]+[a-zA-Z]|$)))[^\n`]*)"
)
# An entry of a dictionary only in a comment: elsewhere it may be JSON.
_CODE_BEFORE = re.compile(r"(?:[=(\[+{]|(?<!e\.g\.)(?<!i\.e\.),)\s*$|^\s*#.*[\"']\s*:\s*$|(?P<alone>^\s*#[#\s]*$)")
_CODE_AFTER = re.compile(r"[\s,)\]}]*(?:#|$)")
_FORM = re.compile(r"#\s*(?:@|param:|type:|one of \[)")
_ONLY_COLAB = re.compile(r"\bdrive\.(?:mount|flush_and_unmount)\(|\brm\b.*\bsample_data\b")


def bodies(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """The folders below a cell magic, in a file or in a program, where nothing replaces variables."""
    magic = source.magic
    if magic is None or source.is_shell or (source.is_python and not source.is_program):
        return
    for span in find_paths(source.text[magic.body :], facts.mounts):
        yield kept(replace(span, start=magic.body + span.start, end=magic.body + span.end))


def comments(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """The comments of a cell that name a folder, and docstrings and other strings that nothing uses."""
    if source.is_program or not may_name_folder(source.text, facts.mounts):
        return
    for text in shell_texts(source):
        for low, high in shell.read(text.text, script=text.script).comments if text.literal is None else ():
            yield from _comment(source.text, text.at(low), text.at(high), facts, is_shell=True)
    if not source.is_python:
        return
    continues = False
    for start, end in read_cell(source)[1]:
        line = source.text[start:end]
        yield from _comment(source.text, start, end, facts, continues=continues)
        continues = line.endswith("\\") and (continues or _COMMAND.match(line) is not None)
    for literal in (one for group in groups(source) if group.use == "text" for one in group.literals):
        for line in re.compile(r"[^\n]+").finditer(source.text, *literal.body):
            if find_paths(line[0], facts.mounts):
                yield _named(*line.span(), facts, "a docstring or bare string names a folder of Colab")


def markdown(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """The lines of a text cell that name a folder."""
    if not may_name_folder(source.text, facts.mounts):
        return
    for line in re.finditer(r"[^\n]+", source.text):
        if find_paths(line[0], facts.mounts):
            yield _named(*line.span(), facts, "the text names a folder of Colab")


def _comment(
    text: str, start: int, end: int, facts: NotebookFacts, *, continues: bool = False, is_shell: bool = False
) -> Iterator[Match]:
    """The positions of folders in one line of a comment: code that is commented out is changed, its prose is not. Their
    names mean nothing where no cell defines them; a mount of the drive and the folder of samples exist only on Colab.
    `continues`: the line above is a command that continues in this one."""
    line = text[start:end]
    spans = find_paths(line, facts.mounts)
    if not spans:
        return
    is_defined = {span.folder for span in spans} <= facts.folders and not _ONLY_COLAB.search(line)
    edits = _code_edits(line, facts, continues=continues, is_shell=is_shell) if is_defined else []
    for edit in edits:
        inside = [span for span in spans if edit.start <= span.start < edit.end]
        yield changed(Edit(start + edit.start, start + edit.end, edit.text), "a comment names {0}", inside)
    if not edits:
        yield _named(start, end, facts, "a comment names a folder of Colab")


def _named(start: int, end: int, facts: NotebookFacts, message: str) -> Match:
    """A text that names a folder."""
    names = {"work": facts.work, "drive": facts.drive}
    used = " and ".join(name for folder, name in names.items() if folder in facts.folders)
    where = f"the code uses {used} instead" if used else "nothing on this machine has this path"
    action = f"reword the text if the reader needs the folder: {where}"
    return Match(start, end, message, action=action, keeps=Keeps.EQUIVALENT)


def _code_edits(line: str, facts: NotebookFacts, *, continues: bool, is_shell: bool) -> list[Edit]:
    """The edits of a command or of Python's string literals that are commented out."""
    if _FORM.match(line):
        return []
    found = _COMMAND.match(line) if not is_shell else None  # `#!/bin/sh` is none
    unmarked = None if found or continues else _UNMARKED_COMMAND.match(line)
    if found or unmarked or continues:
        inner = CellSource(found["command"] if found else f"!{unmarked['command'] if unmarked else line[1:]}")
        at = found.start("command") if found else unmarked.start("command") - 1 if unmarked else 0
        edits = [edit for command in inner.commands for edit in command_edits(inner, command, facts)]
        return [Edit(at + edit.start, at + edit.end, edit.text) for edit in sorted(edits)]
    edits = []
    for literal in read_strings(line.replace("#", " "))[0] if not is_shell else ():
        before = _CODE_BEFORE.search(line, 0, literal.start)
        # A text in quotes that begins a comment is code only if nothing follows.
        if not literal.depth and before and (before["alone"] is None or _CODE_AFTER.match(line, literal.end)):
            matches = rewritten(line, Group((literal,), "value"), facts)
            edits += [edit for match in matches for edit in match.edits]
    return edits
