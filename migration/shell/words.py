"""Parts of shell text: words, redirections and simple commands, each with its position."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from migration.notebook.texts import FIELD

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

_OF_SYSTEM = re.compile(r"/(?:usr/(?:local/)?)?s?bin/[^/]*$")
_EXPANDED = re.compile(r"[$`{}?]|^~|[<>]\(")

_RECURSIVE = re.compile(r"-\w*[rR]|--recursive$")
_KEPT = re.compile(r"-.*|(?:\.{1,2}/?)?")


@dataclass(frozen=True)
class Word:
    """One word of a command, `start:end` in the text (plus the offset it was read with).

    `value` is the word without its quotes and escapes; `quotes` holds for each character of `raw` its context (`u`
    unquoted, `s` single, `d` double, `h` here-document, `c` comment; quotation marks count as quoted). `is_literal`:
    the program receives `value`, because neither the shell nor IPython expands anything in it (a `[` counts as plain
    text).
    """

    start: int
    end: int
    raw: str
    value: str
    quotes: str
    is_literal: bool


@dataclass(frozen=True)
class Redirection:
    """`2>file`, `<<EOF`, …: its operator without the number, and its target (None if the text ends before one).

    `body` is the span of a here-document's lines.
    """

    start: int
    end: int
    operator: str
    target: Word | None = None
    number: str = ""
    body: tuple[int, int] | None = None


@dataclass(frozen=True)
class Command:
    """One simple command, `start:end` from its first assignment, word or redirection to the last.

    `words` are the program and its arguments, `assignments` the `NAME=value` before it. `before` and `after` are the
    separators around it (`&&`, `||`, `;`, `|`, `&`, a newline, `(`, `)`, `$(`, a backtick; "" at the ends of the
    text). `depth` counts the subshells and substitutions around it.
    """

    start: int
    end: int
    words: tuple[Word, ...]
    assignments: tuple[Word, ...] = ()
    redirections: tuple[Redirection, ...] = ()
    before: str = ""
    after: str = ""
    depth: int = 0

    @cached_property  # used by every rule about shell lines
    def program_at(self) -> int:
        """Index of the word that is the program, after `sudo`, `env`, `time`, `nohup` and similar programs with their
        options; the number of words if there is none."""
        words = self.words
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

    @cached_property
    def program(self) -> str:
        """The name of the program, without its folder; "" if there is none."""
        return _basename(self.words[self.program_at]) if self.program_at < len(self.words) else ""

    @property
    def is_of_other_environment(self) -> bool:
        """Whether the program is in a folder of its own, which the kernel does not use: `env/bin/pip`. uv installs into
        the kernel's environment from any folder, and `{sys.prefix}` is the folder of the kernel."""
        value = self.words[self.program_at].value if self.program_at < len(self.words) else ""
        is_own = "/" in value and not _OF_SYSTEM.match(value)
        return is_own and not value.endswith("/uv") and not value.startswith("{sys.")

    @property
    def arguments(self) -> tuple[Word, ...]:
        """The words after the program."""
        return self.words[self.program_at + 1 :]

    @property
    def deleted(self) -> tuple[str, ...]:
        """The arguments of `rm -r`, which refuses to delete `.` and `..`."""
        values = [word.value for word in self.arguments]
        if self.program != "rm" or not any(_RECURSIVE.match(value) for value in values):
            return ()
        return tuple(value for value in values if not _KEPT.fullmatch(value))


@dataclass(frozen=True)
class Script:
    """A parsed text: its simple commands in the order of their start, its comments, and the context of each character.

    `blocks`: there is more than simple commands and separators: loops, conditions, groups, functions.
    """

    commands: tuple[Command, ...]
    comments: tuple[tuple[int, int], ...]
    quotes: str
    blocks: bool = False


def _basename(word: Word) -> str:
    if "/" not in word.value:
        return word.value
    return word.value if re.search(r"[{(]", word.value) else word.value.rsplit("/", 1)[-1]


def is_option(word: Word) -> bool:
    """Whether the word is an option, also one that a Python expression chooses: `{"-q" if quiet else ""}`."""
    return re.match(r"-|\{\s*[\"']-", word.value) is not None


def is_known(word: Word) -> bool:
    """Whether the program receives the word unchanged: the shell, IPython and Python expand nothing in it. A `*` in a
    version is not expanded, because no file has such a name."""
    return FIELD not in word.value and (word.is_literal or not _EXPANDED.search(word.raw))
