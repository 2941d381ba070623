r"""Positions of the string literals and comments in Python text, and the value of each character of a literal.
`tokenize` reads an f-string as one token up to Python 3.11 and as several from 3.12 on, and fails on text that is not
Python. This scanner finds the same literals in every version, including those inside the expressions of an f-string,
and continues after text that it cannot parse.
"""

from __future__ import annotations

import ast
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from migration import shell
from migration.notebook.texts import FIELD, Edit, edited
from migration.python.source import CellSource, once_a_cell

_START = re.compile(r"#[^\n]*|(?:(?<!\w)(?:[rR][bBfF]?|[bBfF][rR]?|[uU]))?(?:\"\"\"|'''|\"|')")
# Loops of which each step begins with a backslash or a quotation mark: their time is linear without possessive
# quantifiers, which are wrong in Python 3.11.0 to 3.11.4 (python/cpython#106052).
_CLOSE = {
    "'": re.compile(r"[^\\'\n]*(?:\\.[^\\'\n]*)*'", re.DOTALL),
    '"': re.compile(r'[^\\"\n]*(?:\\.[^\\"\n]*)*"', re.DOTALL),
    "'''": re.compile(r"[^\\']*(?:(?:\\.|'(?!''))[^\\']*)*'''", re.DOTALL),
    '"""': re.compile(r'[^\\"]*(?:(?:\\.|"(?!""))[^\\"]*)*"""', re.DOTALL),
}
_ESCAPE = re.compile(
    r"\\(?:N\{(?P<name>[^}\n]*)\}|x(?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})"
    r"|(?P<octal>[0-7]{1,3})|(?P<line>\n)|(?P<char>.))",
    re.DOTALL,
)
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_EXPRESSION = re.compile(r"[\[({})\]:]|(?:(?<!\w)[rRbBfFuU]{1,2})?(?:\"\"\"|'''|\"|')")
_MAX_DEPTH = 20

# Cell magics, except those of a shell, in whose body `#` begins a comment; in others (files, HTML) it is content.
_HASH_COMMENTS = frozenset(
    {"script", "python", "python2", "python3", "pypy", "timeit", "prun", "R", "ruby", "perl", "cython", "octave"}
)


@dataclass(frozen=True)
class Literal:
    """One string literal, `start:end` with prefix and quotes.

    `fields` are the replacement fields of an f-string, with their braces; `depth` counts the f-strings around it.
    """

    start: int
    end: int
    prefix: str
    quote: str
    fields: tuple[tuple[int, int], ...] = ()
    depth: int = 0

    @property
    def body(self) -> tuple[int, int]:
        """The span between the quotes."""
        return self.start + len(self.prefix) + len(self.quote), self.end - len(self.quote)

    @property
    def is_format(self) -> bool:
        return "f" in self.prefix.lower()

    @property
    def is_raw(self) -> bool:
        return "r" in self.prefix.lower()

    @property
    def is_bytes(self) -> bool:
        return "b" in self.prefix.lower()


class Char(NamedTuple):
    """A character of a literal's value, and its source (two characters for `\\n`, a complete field)."""

    value: str
    start: int
    end: int


def read_strings(text: str, start: int = 0, end: int | None = None) -> tuple[list[Literal], list[tuple[int, int]]]:
    """The literals and the spans of the comments in `text[start:end]`, in order; an f-string before those inside it."""
    stop = len(text) if end is None else end
    literals: list[Literal] = []
    comments: list[tuple[int, int]] = []
    _read(text, start, stop, 0, literals, comments)
    return literals, comments


def characters(text: str, literal: Literal) -> list[Char]:
    """The value of a literal, character by character; a replacement field is the single character `FIELD`."""
    at, stop = literal.body
    fields = dict(literal.fields)
    found: list[Char] = []
    while at < stop:
        char = text[at]
        if at in fields:
            found.append(Char(FIELD, at, fields[at]))
            at = fields[at]
        elif char == "\\" and not literal.is_raw and (escape := _ESCAPE.match(text, at, stop)):
            found += _unescaped(escape)
            at = escape.end()
        elif literal.is_format and char in "{}":
            found.append(Char(char, at, min(at + 2, stop)))
            at += 2
        else:
            found.append(Char(char, at, at + 1))
            at += 1
    return found


def as_format(body: str, *, raw: bool) -> str:
    """Text between the quotes of a plain literal as an f-string must have it: the braces doubled (but not those of
    `\\N{…}`)."""
    pattern = r"[{}]" if raw else r"\\N\{[^}\n]*\}|\\[^{}]|[{}]"
    return re.sub(pattern, lambda found: found[0] * 2 if found[0] in "{}" else found[0], body, flags=re.DOTALL)


def _read(text: str, at: int, stop: int, depth: int, literals: list[Literal], comments: list[tuple[int, int]]) -> None:
    while found := _START.search(text, at, stop):
        if found[0][0] == "#":
            # Inside a replacement field it is part of a format: `{x:#x}`.
            at = found.start() + 1 if depth else found.end()
            comments += [] if depth else [found.span()]
            continue
        literal = _literal(text, found, stop, depth)
        if literal is None:
            # Not closed: not a string, but for example an apostrophe in prose. Only the quotation mark is skipped.
            at = found.end()
            continue
        literals.append(literal)
        if depth < _MAX_DEPTH:
            for start, end in literal.fields:
                _read(text, start + 1, end - 1, depth + 1, literals, comments)
        at = literal.end


def _literal(text: str, found: re.Match[str], stop: int, depth: int) -> Literal | None:
    prefix = found[0].rstrip("'\"")
    quote = found[0][len(prefix) :]
    if "f" in prefix.lower() and depth < _MAX_DEPTH:
        formatted = _format_literal(text, found, prefix, quote, stop, depth)
        if formatted is not None:
            return formatted
    close = _CLOSE[quote].match(text, found.end(), stop)
    if close is None:
        return None
    return Literal(found.start(), close.end(), prefix, quote, (), depth)


def _format_literal(text: str, found: re.Match[str], prefix: str, quote: str, stop: int, depth: int) -> Literal | None:
    """An f-string with its fields; None if its braces are not balanced."""
    at, raw = found.end(), "r" in prefix.lower()
    fields: list[tuple[int, int]] = []
    while at < stop:
        char = text[at]
        if text.startswith(quote, at):
            return Literal(found.start(), at + len(quote), prefix, quote, tuple(fields), depth)
        if char == "\n" and len(quote) == 1:
            return None
        if char == "\\" and text.startswith("\\N{", at) and not raw:
            at = text.find("}", at, stop) + 1 or stop
        elif char == "\\":
            at += 1 if text[at + 1 : at + 2] in ("{", "}") else 2
        elif text.startswith(("{{", "}}"), at):
            at += 2
        elif char == "{":
            end = _end_of_field(text, at, stop, depth)
            if end is None:
                return None
            fields.append((at, end))
            at = end
        else:
            at += 1
    return None


def _end_of_field(text: str, start: int, stop: int, depth: int) -> int | None:
    """The end of the replacement field that begins at `start`, after nested brackets, strings and format fields."""
    at, brackets = start + 1, 0
    while found := _EXPRESSION.search(text, at, stop):
        at, mark = found.end(), found[0]
        if mark[-1] in "'\"":
            literal = _literal(text, found, stop, depth + 1)
            if literal is None:
                return None
            at = literal.end
        elif mark in "([{":
            brackets += 1
        elif mark == "}" and brackets == 0:
            return at
        elif mark in ")]}":
            brackets -= 1
        elif mark == ":" and brackets == 0:
            return _end_of_format(text, at, stop, depth)
    return None


def _end_of_format(text: str, at: int, stop: int, depth: int) -> int | None:
    """The end of a field whose format specification begins at `at`."""
    while at < stop and text[at] not in "'\"\n":
        if text[at] == "}":
            return at + 1
        if text[at] == "{":
            end = _end_of_field(text, at, stop, depth + 1) if depth < _MAX_DEPTH else None
            if end is None:
                return None
            at = end
        else:
            at += 1
    return None


def _unescaped(escape: re.Match[str]) -> list[Char]:
    start, end = escape.span()
    if escape["line"]:
        return []
    if escape["char"] is not None:
        simple = _SIMPLE.get(escape["char"])
        if simple is None:
            return [Char("\\", start, start + 1), Char(escape["char"], start + 1, end)]
        return [Char(simple, start, end)]
    if escape["name"] is not None:
        try:
            return [Char(unicodedata.lookup(escape["name"]), start, end)]
        except KeyError:
            return [Char("?", start, end)]
    code = int(escape["octal"], 8) if escape["octal"] else int(escape["x"] or escape["u"] or escape["U"], 16)
    return [Char(chr(code) if code <= 0x10FFFF else "?", start, end)]


@once_a_cell
def read_cell(source: CellSource) -> tuple[list[Literal], list[tuple[int, int]]]:
    """The literals and the spans of the comments of an IPython cell, in order."""
    return read_strings(source.masked, source.body)


@once_a_cell
def comments(source: CellSource) -> tuple[tuple[int, int], ...]:
    """The spans of a cell's `#` comments, up to the end of their lines."""
    return tuple(_comments(source))


def outside_comments(source: CellSource, pattern: re.Pattern[str]) -> list[re.Match[str]]:
    """The matches of a pattern in a cell that do not begin inside a comment."""
    found = list(pattern.finditer(source.text))
    may_be_inside = any("#" in source.text[source.text.rfind("\n", 0, m.start()) + 1 : m.start() + 1] for m in found)
    spans = comments(source) if may_be_inside else ()
    return [match for match in found if not any(start <= match.start() < end for start, end in spans)]


def without_comments(source: CellSource) -> str:
    """The text of a cell without its `#` comments."""
    return edited(source.text, [Edit(start, end, "") for start, end in comments(source)])


@once_a_cell
def only_code(source: CellSource) -> str:
    """The text of a cell without its comments, and without strings that are statements: documentation, and code that is
    commented out."""
    nodes = source.nodes if '"""' in source.text or "'''" in source.text else []
    texts = [
        source.span(node)
        for node in nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    return edited(source.text, [Edit(start, end, "") for start, end in (*comments(source), *texts)])


def _comments(source: CellSource) -> Iterator[tuple[int, int]]:
    magic = source.magic
    if magic is not None:
        yield from _whole_lines(source.text, 0, magic.start)
    if source.is_shell:
        yield from shell.read(source.text[source.body :], source.body, script=True).comments
    elif source.is_python:
        yield from read_cell(source)[1]
    elif magic is not None and magic.name in _HASH_COMMENTS:
        yield from _whole_lines(source.text, magic.body, len(source.text))


def _whole_lines(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Lines with only a comment; lines after an odd number of triple quotes may be text and are omitted."""
    for match in re.compile(r"^[ \t]*(#[^\n]*)", re.MULTILINE).finditer(text, start, end):
        if not any(text.count(quotes, start, match.start()) % 2 for quotes in ('"""', "'''")):
            yield match.span(1)
