"""Redacts secrets in everything that is written: logs, run folders, printed configurations, executed notebooks.

Secrets are found by known value (values of variables with secret-like names, and those of `hide_values`), then by
pattern: keys of known forms (`core.secrets.finding`), passwords in addresses, and values assigned to names of secrets.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping
from copy import copy
from functools import lru_cache
from numbers import Number
from typing import Any

from core.secrets.finding import is_placeholder, masked
from core.secrets.literals import with_hidden_literals
from core.secrets.names import WORDS, has_secret_word, is_plural, is_short_secret

HIDDEN = "***"
# A traceback in a notebook has colour codes between the words.
_GAP = r"(?:\s|\x1b\[[\d;]*m)*"
_SCHEME = r"(?:bearer|basic|digest|negotiate)\s+"
# `: str | None` in `token: str | None = "x"`
_ANNOTATION = r"(?::\s*[A-Za-z_][\w.]*(?:\[[\w., |]*\])?(?:\s*\|\s*[\w.]+)*\s*)?"
# `token=x`, `"token": "x"` and `token: x9`; not `token: unknown key`, which is a sentence, nor `pwd==`, the end of a
# picture in base64, nor an expression such as `token=os.environ['X']`. It matches from the word on, which may be inside
# a name: a pattern that starts with the name takes a second for a picture in base64.
_ASSIGNED = re.compile(
    rf"(?P<name>(?:{WORDS})[\w-]*)(?P<sign>['\"]?\]?{_GAP}(?:{_ANNOTATION}=(?!=)|:|,(?={_GAP}['\"])){_GAP})"
    rf"(?:[rbuf]{{0,2}}(?P<quote>['\"])(?P<quoted>(?:\\.|(?!(?P=quote)).)*)"
    rf"|(?P<plain>(?:{_SCHEME})?[^\s'\",;}})\]=\\\x1b][^\s'\",;}})\]\\\x1b]*))",
    re.IGNORECASE,
)
# `api_keys = ['x', 'y']`
_LISTED = re.compile(rf"(?P<sign>s['\"]?\]?{_GAP}[=:]{_GAP})(?P<list>[\[({{][^\])}}]*)")
_LITERAL = re.compile(r"(['\"])(?:\\.|(?!\1).)*\1")
_TEXT_IN_CODE = re.compile(
    r"(?P<triple>\"{3}|'{3})(?:\\.|(?!(?P=triple)).)*(?P=triple)|(?P<single>['\"])(?:\\.|(?!(?P=single))[^\n])*(?P=single)"
    r"|(?P<line>(?m:^)[ \t]*(?:[\w, \t]+=[ \t]*)?[!%][^\n]*|\#[^\n]*)",
    re.DOTALL,
)
_EXPRESSION = re.compile(r"(?:[A-Za-z_][\w.]*)?[.(\[{]|(?:none|null|true|false)$|[$<*]", re.IGNORECASE)
# Not `Basic statistics` or `basic Configuration`: base64 of a name and a password has a digit, sign or another capital.
_BASIC = re.compile(r"(\b(?i:basic)\s+)(?=[\w+/]+[A-Z0-9+/=])[\w+/]{8,}={0,2}(?![\w-])")
# Also if a URL became a path, which has one slash instead of two.
_LINE = re.compile(r"[^\n\t]+")
_IN_ADDRESS = re.compile(r"(\b\w+:/{1,2}[^\s:/@]*:)(?![{$<])[^\s/@]+@")
# Shorter than `core.secrets.finding` requires: in a log, few other texts look like these.
_KNOWN = re.compile(r"\b(?:(?:sk|pk|ghp|gho|ghs|hf|glpat|xox[abp])[-_][\w-]{16,}|github_pat_\w{20,}|AKIA[0-9A-Z]{16})")
# Shorter values also occur within other words.
_SHORTEST_VALUE = 6
_SHORTEST_CREDENTIAL = 8
# Such a text is a picture or a page; an executed notebook is redacted after each cell, with the pictures of all others.
_LONG = 10_000
_given: set[str] = set()


def printable(text: str) -> str:
    """One line without effects on a terminal: control characters and overrides of the writing direction are escaped
    (`\\n`, `\\x1b`, `\\u202e`)."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def printable_lines(text: str) -> str:
    """`printable` for a text of several lines: line breaks and tabs are kept."""
    return _LINE.sub(lambda line: printable(line[0]), text)


def _escaped(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")


def redacted(value: Any, key: str = "") -> Any:
    """Plain values, with values under a secret-like key, or of a known form, replaced by `HIDDEN`."""
    if isinstance(value, Mapping):
        return {name: redacted(inner, str(name)) for name, inner in value.items()}
    if value is not None and not isinstance(value, bool) and has_secret_word(key):
        return HIDDEN
    if isinstance(value, list | tuple):
        return type(value)(redacted(inner, key if is_plural(key) else "") for inner in value)
    if isinstance(value, str):
        is_secret = is_short_secret(key, value) or (is_plural(key) and not is_placeholder(value))
        return HIDDEN if is_secret else redacted_text(value)
    return value


def redacted_text(text: str) -> str:
    """Text for people with the values of secrets hidden: `api_key=…`, `https://user:…@host`, keys of known forms."""
    text = _by_value(text)
    return _by_pattern(text) if len(text) < _LONG else _by_pattern_once(text)


def _by_pattern(text: str) -> str:
    text = masked(text, HIDDEN)
    text = _LISTED.sub(_all_hidden, _ASSIGNED.sub(_hidden, text))
    text = _BASIC.sub(rf"\1{HIDDEN}", text)
    text = _IN_ADDRESS.sub(rf"\1{HIDDEN}@", text)
    return _KNOWN.sub(HIDDEN, text)


_by_pattern_once = lru_cache(maxsize=32)(_by_pattern)


def redacted_code(code: str) -> str:
    """Like `redacted_text`, for the source of a cell: only in literals, comments and shell lines, or if the value or
    its form is known, so that valid code stays valid."""
    text = masked(_by_value(code), HIDDEN)
    literals = with_hidden_literals(text, HIDDEN)
    if literals is None:  # not Python, such as the cell of another magic
        literals = _ASSIGNED.sub(lambda found: _hidden(found) if found["quote"] else found[0], text)
    return _TEXT_IN_CODE.sub(lambda found: redacted_text(found[0]) if found["line"] else _in_literal(found), literals)


def hide_values(values: Iterable[str]) -> None:
    """From now on, these values are redacted everywhere."""
    _given.update(values)


def _in_literal(found: re.Match[str]) -> str:
    quote = found["triple"] or found["single"]
    return f"{quote}{redacted_text(found[0][len(quote) : -len(quote)])}{quote}"


def _all_hidden(found: re.Match[str]) -> str:
    if not is_plural(_before(found) + "s"):
        return found[0]
    return found["sign"] + _LITERAL.sub(rf"\g<1>{HIDDEN}\g<1>", found["list"])


def _by_value(text: str) -> str:
    named = (value for name, value in os.environ.items() if has_secret_word(name))
    values = {value for value in (*named, *_given) if _may_be_secret(value) and value in text}
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return text


def _may_be_secret(value: str) -> bool:
    """Whether a value can be a secret: folders and words such as `none` also occur under secret-like names."""
    return len(value) >= _SHORTEST_VALUE and not value.startswith(("/", "~")) and not is_placeholder(value)


def _hidden(found: re.Match[str]) -> str:
    """Hides the value if its name is that of a secret; other values stay."""
    name, value, plain = _before(found) + found["name"], found["quoted"], found["plain"]
    start = found.start("quoted" if plain is None else "plain") - found.start()
    if not has_secret_word(name) and not (plain is None and is_plural(name)):
        return found[0]
    if plain is None:
        return found[0][:start] + HIDDEN if value and value != HIDDEN else found[0]
    scheme = re.match(_SCHEME, plain, re.IGNORECASE)
    after_scheme = plain[scheme.end() :] if scheme else ""
    if "," in found["sign"] or _EXPRESSION.match(plain) or (":" in found["sign"] and _is_word(plain, after_scheme)):
        return found[0]
    return found[0][:start] + HIDDEN


def _before(found: re.Match[str]) -> str:
    """The part of a name before its secret-like word."""
    text, start = found.string, found.start()
    while start and (text[start - 1] in "-_" or text[start - 1].isalnum()):
        start -= 1
    return text[start : found.start()]


def _is_word(value: str, after_scheme: str) -> bool:
    """Whether a sentence follows, such as `token: unknown key`."""
    is_credential = len(after_scheme) >= _SHORTEST_CREDENTIAL or (after_scheme != "" and not after_scheme.islower())
    return not is_credential and not any(map(str.isdigit, value))


class RedactingFormatter(logging.Formatter):
    """Hides secrets and escapes control characters, in values also line breaks. `%(severity)s` in its format is the
    level of warnings and errors, such as `WARNING: `, and empty for lower levels."""

    def format(self, record: logging.LogRecord) -> str:
        record = copy(record)  # other handlers receive the same record
        # A line break in a name would forge a line of the log.
        if isinstance(record.args, tuple):
            record.args = tuple(each if isinstance(each, Number) else printable(str(each)) for each in record.args)
        record.severity = f"{record.levelname}: " if record.levelno >= logging.WARNING else ""
        return "\n".join(map(printable, redacted_text(super().format(record)).split("\n")))
