"""What shell text consists of: words, redirections and simple commands, each with its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Context = Literal["unquoted", "single", "double", "heredoc", "comment"]

CONTEXTS: dict[str, Context] = {"u": "unquoted", "s": "single", "d": "double", "h": "heredoc", "c": "comment"}


@dataclass(frozen=True)
class Word:
    """One word of a command, `start:end` in the text (plus the offset it was read with).

    `value` is the word without its quotes and escapes; `quotes` holds for each character of `raw` its context (`u`
    unquoted, `s` single, `d` double; the quotation marks belong to what they enclose). `is_literal` says that `value`
    is what the program receives: nothing in it is expanded by the shell or by IPython (a `[` is taken as written).
    """

    start: int
    end: int
    raw: str
    value: str
    quotes: str
    is_literal: bool

    def context(self, position: int) -> Context:
        """How the character at a position of the text is quoted."""
        return CONTEXTS[self.quotes[position - self.start]]


@dataclass(frozen=True)
class Redirection:
    """`2>file`, `<<EOF`, …: its operator without the number, and its target (None where the text ends before one).

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
    text). `keywords` are the reserved words right before it (`if`, `!`, `do`, …); `depth` counts the subshells and
    substitutions around it.
    """

    start: int
    end: int
    words: tuple[Word, ...]
    assignments: tuple[Word, ...] = ()
    redirections: tuple[Redirection, ...] = ()
    before: str = ""
    after: str = ""
    keywords: tuple[str, ...] = ()
    depth: int = 0


@dataclass(frozen=True)
class Script:
    """A text as read: its simple commands in order of their beginning, its comments, and each character's context.

    `blocks` says that there is more than simple commands and separators: loops, conditions, groups, functions.
    """

    commands: tuple[Command, ...]
    comments: tuple[tuple[int, int], ...]
    quotes: str
    blocks: bool = False
