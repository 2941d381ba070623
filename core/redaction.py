"""Keeps secrets out of what is written down: logs, run folders, printed configurations."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"
_WORDS = (
    r"token|secret|passw(?:or)?d|pwd|passphrase|api[_-]?key|access[_-]?key|private[_-]?key|credentials?|authorization"
)
_KEY = re.compile(rf"(?:^|[^a-z])(?:{_WORDS})(?:$|[^a-z])", re.IGNORECASE)
# A traceback in a notebook has its colours between the words.
_GAP = r"(?:\s|\x1b\[[\d;]*m)*"
_SCHEME = r"(?:bearer|basic)\s+"
# `token=x`, `"token": "x"` and `token: x9`; not `token: unknown key`, which is a sentence about it, nor the end of a
# picture in base64, `pwd==`.
_ASSIGNED = re.compile(
    rf"((?:{_WORDS})[\w-]*(?:{_GAP}={_GAP}['\"]?|['\"]?{_GAP}:{_GAP}(?:['\"]|(?=(?:{_SCHEME})?\S*\d))))"
    rf"(?:{_SCHEME})?=*[^\s'\",;}})=\x1b][^\s'\",;}})\x1b]*",
    re.IGNORECASE,
)
# Also where an address became a path, which has one slash for two.
_IN_ADDRESS = re.compile(r"(\b\w+:/{1,2}[^\s:/@]*:)[^\s/@]+@")
# The forms in which large services hand out keys.
_KNOWN = re.compile(r"\b(?:(?:sk|pk|ghp|gho|ghs|hf|glpat|xox[abp])[-_][\w-]{16,}|github_pat_\w{20,}|AKIA[0-9A-Z]{16})")


def printable(text: str) -> str:
    """One line that commands no terminal and reads in one direction: control characters and overrides of the writing
    direction are spelled out (`\\n`, `\\x1b`, `\\u202e`)."""
    return text if text.isprintable() else "".join(map(_spelled, text))


def _spelled(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")


def is_secret(key: str) -> bool:
    """Whether a key is named like a token or password."""
    return _KEY.search(key) is not None


def redacted(value: Any, key: str = "") -> Any:
    """Plain values with what stands under a secret's name, or looks like one, replaced by `HIDDEN`."""
    if isinstance(value, Mapping):
        return {name: redacted(inner, str(name)) for name, inner in value.items()}
    if value is not None and not isinstance(value, bool) and is_secret(key):
        return HIDDEN
    if isinstance(value, list | tuple):
        return type(value)(redacted(inner) for inner in value)
    return redacted_text(value) if isinstance(value, str) else value


def redacted_text(text: str) -> str:
    """A line for people with the values of secrets hidden: `api_key=…`, `https://user:…@host`, keys of known forms."""
    text = _ASSIGNED.sub(rf"\1{HIDDEN}", text)
    text = _IN_ADDRESS.sub(rf"\1{HIDDEN}@", text)
    return _KNOWN.sub(HIDDEN, text)


class RedactingFormatter(logging.Formatter):
    """Hides secrets. `%(severity)s` in its format stands for the level of warnings and errors, `WARNING: `, and for
    nothing below."""

    def format(self, record: logging.LogRecord) -> str:
        record.severity = f"{record.levelname}: " if record.levelno >= logging.WARNING else ""
        return redacted_text(super().format(record))
