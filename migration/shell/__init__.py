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
    "arguments",
    "commands",
    "has_braces",
    "is_simple",
    "program",
    "program_index",
    "quote_context",
    "read",
]


def commands(text: str, offset: int = 0, *, script: bool = False) -> tuple[Command, ...]:
    """The simple commands of a shell text, also those inside `$(…)`, backticks and subshells; `offset` is added to
    every position."""
    return read(text, offset, script=script).commands


@lru_cache(maxsize=256)
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


_WRAPPERS: dict[str, frozenset[str]] = {
    "sudo": frozenset({"-u", "-g", "-h", "-p", "-C", "-r", "-t", "-T", "-U", "--user", "--group"}),
    "env": frozenset({"-u", "-C", "-S", "--unset", "--chdir"}),
    "time": frozenset({"-f", "-o"}),
    "nice": frozenset({"-n"}),
    "ionice": frozenset({"-c", "-n"}),
    "timeout": frozenset({"-k", "-s"}),
    "stdbuf": frozenset({"-i", "-o", "-e"}),
    "nohup": frozenset(),
    "setsid": frozenset(),
    "exec": frozenset({"-a"}),
    "command": frozenset(),
    "builtin": frozenset(),
}
"""Programs that run the program named by their arguments, with those of their options that take a value."""


def program_index(command: Command) -> int:
    """Which word of a command is its program, past `sudo`, `env`, `time`, `nohup` and the like with their options;
    the number of words where there is none."""
    words = command.words
    at = 0
    while at < len(words) and (wrapper := _basename(words[at])) in _WRAPPERS:
        at += 1
        while at < len(words):
            value = words[at].value
            if value.startswith("-") and value != "-":
                at += 2 if value in _WRAPPERS[wrapper] else 1
            elif wrapper in ("env", "sudo") and re.match(r"[A-Za-z_]\w*=", value):
                at += 1
            else:
                break
        if wrapper == "timeout":
            at += 1
    return min(at, len(words))


def program(command: Command) -> str:
    """The name of the program a command runs, without its folder; "" where it has none."""
    at = program_index(command)
    return _basename(command.words[at]) if at < len(command.words) else ""


def arguments(command: Command) -> tuple[Word, ...]:
    """The words after the program."""
    return command.words[program_index(command) + 1 :]


def is_simple(text: str, *, script: bool = False) -> bool:
    """Whether the text is one simple command and nothing else: no separator, no block, no comment (redirections may
    be)."""
    found = read(text, script=script)
    return len(found.commands) == 1 and not found.blocks and not found.comments and not found.commands[0].after.strip()


def _basename(word: Word) -> str:
    if "/" not in word.value:
        return word.value
    return word.value if re.search(r"[{(]", word.value) else word.value.rsplit("/", 1)[-1]
