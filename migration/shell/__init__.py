"""Reads shell text as the shell does, and keeps where every word stands.

Two kinds of text: the body of a `!` line (the default), which IPython hands to the shell after it has joined continued
lines by spaces and put values in place of `{expression}` and `$name`; and a script (`script=True`), such as the body
of a `%%bash` cell or the string given to `os.system`, which goes to the shell as it is. Nothing here raises on any
text: what no shell would accept is read as far as it makes sense.
"""

from __future__ import annotations

import re
from functools import lru_cache

from migration.shell.scanner import scan
from migration.shell.words import CONTEXTS, Command, Context, Redirection, Script, Word

__all__ = [
    "Command",
    "Context",
    "Redirection",
    "Script",
    "Word",
    "commands",
    "has_braces",
    "is_simple",
    "quote_context",
    "read",
]


def commands(text: str, offset: int = 0, *, script: bool = False) -> tuple[Command, ...]:
    """The simple commands of a shell text, also those inside `$(…)`, backticks and subshells; `offset` is added to
    every position."""
    return read(text, offset, script=script).commands


@lru_cache(maxsize=4096)  # many rules ask, and notebooks share most of their install lines
def read(text: str, offset: int = 0, *, script: bool = False) -> Script:
    """Everything known of a shell text; positions have `offset` added."""
    return scan(text, offset, script=script)


def quote_context(text: str, position: int, *, script: bool = False) -> Context:
    """How the character at `position` of a shell text is quoted; past the end, as unquoted."""
    quotes = read(text, script=script).quotes
    return CONTEXTS[quotes[position]] if 0 <= position < len(quotes) else "unquoted"


def has_braces(text: str) -> bool:
    """Whether a `!` line holds a brace, which IPython reads as an expression (`{{` and `}}` stand for one brace)."""
    return bool(re.search(r"[{}]", text.replace("{{", "").replace("}}", "")))


def is_simple(text: str, *, script: bool = False) -> bool:
    """Whether the text is one simple command and nothing else: no separator, no block, no comment (redirections may
    be)."""
    found = read(text, script=script)
    return len(found.commands) == 1 and not found.blocks and not found.comments and not found.commands[0].after.strip()
