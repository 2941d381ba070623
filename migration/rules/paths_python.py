"""Colab's folders in Python: string literals become f-strings, comments and docstrings say the folders' names."""

from __future__ import annotations

import re
from collections.abc import Iterator

from migration import shell
from migration.cell.source import CellSource
from migration.cell.strings import FIELD, Literal, as_format, characters, read_strings
from migration.facts import NotebookFacts
from migration.matching import Edit
from migration.rules.paths_matches import Found, changed, kept
from migration.rules.paths_text import PathSpan, find_paths, may_name_folder
from migration.rules.paths_uses import Group, groups

_MAY_HOLD_CODE = re.compile(r"%(?:time|timeit|prun|memit|mprun|lprun)\b[ \t]*(?:-\S+[ \t]+)*")
_GENERATED = re.compile(r"cell_type|nbformat|new_code_cell")
_COMMAND_TEXT = re.compile(r"^[ \t]*[%!]", re.MULTILINE)


def strings(source: CellSource, facts: NotebookFacts) -> Iterator[Found]:
    """The string literals that name a folder, with the edits that put the variable there."""
    if may_name_folder(python_text(source), facts.mounts):
        for group in groups(source, read(source)[0]):
            yield from rewritten(source.text, group, facts)


def without_text(source: CellSource) -> str:
    """The cell with blanks in place of its commands, strings and comments."""
    code = python_text(source)
    literals, comments = read_strings(code)
    spans = sorted([(one.start, one.end) for one in literals if not one.depth] + comments)
    pieces, at = [], 0
    for start, end in spans:
        pieces += [code[at:start], _blank(code[start:end])]
        at = end
    return "".join([*pieces, code[at:]])


def expression(text: str, facts: NotebookFacts) -> str:
    """The Python expression of a shell line's `{…}` with the folders replaced; IPython allows no f-string there, so a
    path becomes a sum."""
    pieces, at = [], 0
    for literal in read_strings(text)[0]:
        chars = characters(text, literal)
        spans = find_paths("".join(char.value for char in chars), facts.mounts)
        first = spans[0] if spans else None
        if first is None or first.start != 0 or len(spans) > 1 or first.is_escaped or literal.prefix or literal.depth:
            continue
        name = facts.drive if first.folder == "drive" else facts.work
        start, end = chars[first.end - 1].end, literal.body[1]
        rest = f" + {literal.quote}{text[start:end]}{literal.quote}" if start < end else ""
        pieces += [text[at : literal.start], name + rest]
        at = literal.end
    return "".join([*pieces, text[at:]])


def read(source: CellSource) -> tuple[list[Literal], list[tuple[int, int]]]:
    """The literals and the spans of the comments of an IPython cell, in order."""
    return read_strings(python_text(source))


def python_text(source: CellSource) -> str:
    """The cell with blanks in place of its commands, save where a magic runs code."""
    text = source.text
    pieces, at = [_blank(text[: source.body])], source.body
    for command in source.commands:
        code = _MAY_HOLD_CODE.match(text, command.start, command.end)
        end = code.end() if code else command.end
        pieces += [text[at : command.start], _blank(text[command.start : end])]
        at = end
    return "".join([*pieces, text[at:]])


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text) if "\n" in text else " " * len(text)


def rewritten(text: str, group: Group, facts: NotebookFacts) -> Iterator[Found]:
    """The matches of one group of literals."""
    raw = "".join(text[literal.start : literal.end] for literal in group.literals)
    if "\\" not in raw and not may_name_folder(raw, facts.mounts):
        return
    chars = [(char, at) for at, literal in enumerate(group.literals) for char in characters(text, literal)]
    value = "".join(char.value for char, _ in chars)
    spans = find_paths(value, facts.mounts)
    if not spans:
        return
    generated = _GENERATED.search(text) is not None and _COMMAND_TEXT.search(value) is not None
    by_literal: dict[int, list[tuple[PathSpan, int, int]]] = {}
    for span in spans:
        first, last = chars[span.start], chars[span.end - 1]
        if span.is_escaped and group.use == "text":
            continue
        reason = _obstacle(group, span, value, generated) or ("appended" if first[1] != last[1] else "")
        if not reason and group.literals[first[1]].is_bytes and (len(group.literals) > 1 or "\\" in raw):
            reason = "bytes"
        if reason:
            yield kept(first[0].start, last[0].end, reason, drive=span.folder == "drive")
        else:
            by_literal.setdefault(first[1], []).append((span, first[0].start, last[0].end))
    quoting = _shell_quoting(value) if group.use == "shell" else ""
    for at, places in by_literal.items():
        literal = group.literals[at]
        new = _new_literal(text, literal, places, group, facts, quoting)
        edit = Edit(literal.start, literal.end, new)
        what = "a docstring or bare string names {0}" if group.use == "text" else "a string names {0}"
        yield changed(edit, what, [span for span, _, _ in places])


def _obstacle(group: Group, span: PathSpan, value: str, generated: bool) -> str:
    """Why a path is left as it is; "" where it is rewritten."""
    if span.is_escaped:
        return "escaped"
    if group.use in ("pattern", "annotation"):
        return group.use
    if group.use in ("route", "appended") and span.start == 0:
        return group.use
    if generated and group.use != "text":
        return "notebook"
    return ""


def _shell_quoting(value: str) -> str:
    """For each character of a command given to a shell how it is quoted."""
    return shell.read(value.replace(FIELD, "x"), script=True).quotes


def _new_literal(
    text: str,
    literal: Literal,
    places: list[tuple[PathSpan, int, int]],
    group: Group,
    facts: NotebookFacts,
    quoting: str,
) -> str:
    """The literal with the folders' variables in place of the paths."""
    names = {"drive": facts.drive, "work": facts.work}
    body_start, body_end = literal.body
    if group.use == "text":
        pieces, at = [], literal.start
        for span, start, end in places:
            pieces += [text[at:start], names[span.folder]]
            at = end
        return "".join([*pieces, text[at : literal.end]])
    before = " " if literal.start and re.match(r"\w", text[literal.start - 1]) else ""
    span, start, end = places[0]
    if (start, end) == (body_start, body_end) and len(group.literals) == 1 and not quoting:
        after = " " if re.match(r"\w", text[literal.end : literal.end + 1]) else ""
        return before + names[span.folder] + (".encode()" if literal.is_bytes else "") + after
    pieces, at = [], body_start
    for span, start, end in places:
        mark = ""
        if quoting and not literal.depth and quoting[span.start] == "u":
            mark = "'" if literal.quote[0] == '"' else '"'
        field = f"{mark}{{{names[span.folder]}}}{mark}"
        pieces += [_plain(text[at:start], literal), field]
        at = end
    pieces.append(_plain(text[at:body_end], literal))
    prefix = literal.prefix
    if not literal.is_format:
        prefix = ("r" if prefix == "r" else "R" if prefix == "R" else "r" * literal.is_raw) + "f"
    suffix = ".encode()" if literal.is_bytes else ""
    return f"{before}{prefix}{literal.quote}{''.join(pieces)}{literal.quote}{suffix}"


def _plain(part: str, literal: Literal) -> str:
    return part if literal.is_format else as_format(part, raw=literal.is_raw)
