"""Scans shell text from left to right, like a shell; use it through `migration.shell`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from migration.shell.expressions import end_of_expression
from migration.shell.words import Command, Redirection, Script, Word

MAX_DEPTH = 40
"""Maximum depth of nested subshells and substitutions."""

_OPENERS = frozenset({"if", "then", "elif", "else", "while", "until", "do", "!", "{"})
_CLOSERS = frozenset({"fi", "done", "esac", "}"})
_HEADS = frozenset({"for", "select", "case", "function"})
_BLANK = re.compile(r"(?:[ \t\r\f\v]|\\\r?\n)+")
_PLAIN = re.compile(r"[^ \t\r\f\v\n\\'\"`${}()<>|&;]+")
_DOUBLE_PLAIN = re.compile(r"[^\"\\$`{]+")
_OPERATOR = re.compile(r"\n|&&|\|\||\|&|;;|[;|]|&(?!>)")
_REDIRECTION = re.compile(r"(\d*)(&>>|&>|<<<|<<-|<<|<>|<&|>>|>&|>\||[<>](?!\())")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^]]*\])?\+?=")
_NAME = re.compile(r"\{(?:[^{}\n]*)\}|[A-Za-z_]\w*|[0-9@*#?$!-]")
_BRACE_EXPANSION = re.compile(r"\{[^{}\s]*(?:,|\.\.)[^{}\s]*\}")


def scan(text: str, offset: int, *, script: bool) -> Script:
    """The parsed shell text; `offset` is added to positions."""
    scanner = _Scanner(text, offset, script)
    while scanner.at < len(text):
        scanner.read_list("", "")
        scanner.at += 1
    scanner.read_heredocs()
    return Script(
        commands=tuple(sorted(map(scanner.with_bodies, scanner.commands), key=lambda command: command.start)),
        comments=tuple(scanner.comments),
        quotes="".join(scanner.quotes),
        blocks=scanner.blocks,
    )


@dataclass
class _Parts:
    """A command while it is being read."""

    before: str = ""
    words: list[Word] = field(default_factory=list)
    assignments: list[Word] = field(default_factory=list)
    redirections: list[Redirection] = field(default_factory=list)


class _Scanner:
    """Reads a text from left to right; `at` is the next character."""

    def __init__(self, text: str, offset: int, script: bool):
        self.text = text
        self.offset = offset
        self.script = script
        self.at = 0
        self.closers: list[str] = []
        self.quotes = ["u"] * len(text)
        self.commands: list[Command] = []
        self.comments: list[tuple[int, int]] = []
        self.pending: list[Redirection] = []
        self.bodies: dict[int, tuple[int, int]] = {}
        self.blocks = False

    def read_list(self, opener: str, closer: str) -> None:
        """Reads commands up to `closer`, which is left unread, or to the end of the text."""
        self.closers.append(closer)
        parts = _Parts(before=opener)
        cases = 0
        while self.at < len(self.text):
            if blank := _BLANK.match(self.text, self.at):
                self.at = blank.end()
                continue
            char = self.text[self.at]
            if char == closer:
                break
            if char == "#":
                self._comment()
            elif operator := _OPERATOR.match(self.text, self.at):
                self.at = operator.end()
                parts = self._finish(parts, operator[0])
                if operator[0] == "\n":
                    self.read_heredocs()
            elif char == "(":
                parts = self._parenthesis(parts)
            elif char == ")":
                # The end of a pattern of `case`, or an unmatched bracket.
                self.at += 1
                parts = _Parts(before=")") if cases > 0 else self._finish(parts, ")")
            elif redirection := _REDIRECTION.match(self.text, self.at):
                self._redirection(parts, redirection)
            else:
                cases += self._word_of_command(parts)
                head = [word.raw for word in parts.words[:4]]
                if (head[:1] == ["case"] and head[2:] == ["in"]) or (head[:1] == ["function"] and len(head) == 2):
                    parts = self._finish(parts, ";")
        self._finish(parts, closer)
        self.closers.pop()

    def read_heredocs(self) -> None:
        """Reads the lines of the here-documents of the line before."""
        self.at = min(self.at, len(self.text))
        for index, found in enumerate(self.pending):
            if index and self.text.startswith("\n", self.at):
                self.at += 1
            indent = r"\t*" if found.operator == "<<-" else ""
            delimiter = re.escape(found.target.value if found.target else "")
            end = re.compile(rf"^{indent}{delimiter}[ \t\r]*$", re.MULTILINE).search(self.text, self.at)
            stop = end.start() if end else len(self.text)
            self._mark(self.at, stop, "h")
            self.bodies[found.start] = (self.at + self.offset, stop + self.offset)
            self.at = end.end() if end else len(self.text)
        self.pending = []

    def with_bodies(self, command: Command) -> Command:
        """The command with the spans of its here-documents, which are read after it."""
        if not any(found.start in self.bodies for found in command.redirections):
            return command
        redirections = (replace(found, body=self.bodies.get(found.start)) for found in command.redirections)
        return replace(command, redirections=tuple(redirections))

    def _finish(self, parts: _Parts, after: str) -> _Parts:
        """Ends a command at a separator, and returns the next one."""
        pieces = [*parts.assignments, *parts.words, *parts.redirections]
        if pieces:
            self.commands.append(
                Command(
                    start=min(piece.start for piece in pieces),
                    end=max(piece.end for piece in pieces),
                    words=tuple(parts.words),
                    assignments=tuple(parts.assignments),
                    redirections=tuple(parts.redirections),
                    before=parts.before,
                    after=after,
                    depth=len(self.closers) - 1,
                )
            )
        return _Parts(before=after)

    def _comment(self) -> None:
        """IPython joins a continued line before the shell reads it, so a comment hides the rest of the line."""
        end = re.compile(r"\n" if self.script else r"(?<!\\)(?<!\\\r)\n").search(self.text, self.at)
        stop = end.start() if end else len(self.text)
        self.comments.append((self.at + self.offset, stop + self.offset))
        self._mark(self.at, stop, "c")
        self.at = stop

    def _parenthesis(self, parts: _Parts) -> _Parts:
        """A subshell, the `()` of a function, or arithmetic in `((…))`."""
        self.blocks = True
        if self.text.startswith("((", self.at):
            end = self.text.find("))", self.at)
            self.at = len(self.text) if end < 0 else end + 2
            return parts
        empty = re.compile(r"\([ \t]*\)").match(self.text, self.at)
        if empty and len(parts.words) == 1:
            self.at = empty.end()
            return _Parts(before=";")
        self.at += 1
        if len(self.closers) > MAX_DEPTH:
            return parts
        next_parts = self._finish(parts, "(") if parts.words else parts
        self.read_list("(", ")")
        self.at += 1
        return replace(next_parts, before=")")

    def _redirection(self, parts: _Parts, found: re.Match[str]) -> None:
        start = self.at
        self.at = found.end()
        if blank := re.compile(r"[ \t]+").match(self.text, self.at):
            self.at = blank.end()
        stops = self.at >= len(self.text) or self.text[self.at] in "\r\n;|&()<>"
        end, target = found.end(), None
        if not stops:
            target = self._word()
            end = self.at
        redirection = Redirection(start + self.offset, end + self.offset, found[2], target, found[1])
        parts.redirections.append(redirection)
        if found[2] in ("<<", "<<-") and target is not None and self.script:
            self.pending.append(redirection)

    def _word_of_command(self, parts: _Parts) -> int:
        """Adds a word to a command. Returns 1 if it begins a `case`, -1 if it ends one, else 0."""
        word = self._word()
        if parts.words:
            parts.words.append(word)
            return 0
        if not parts.assignments and word.raw in _OPENERS | _CLOSERS:
            self.blocks = True
            return -1 if word.raw == "esac" else 0
        assignment = _ASSIGNMENT.match(word.raw)
        if assignment and set(word.quotes[: assignment.end()]) == {"u"}:
            parts.assignments.append(word)
            return 0
        parts.words.append(word)
        if word.raw in _HEADS:
            self.blocks = True
        elif word.raw == "[[" and (end := self.text.find("]]", self.at)) >= 0:
            parts.words.append(self._span(self.at, end + 2))
            self.at = end + 2
        return 1 if word.raw == "case" else 0

    def _word(self) -> Word:
        start = self.at
        values: list[str] = []
        literal = True
        while self.at < len(self.text):
            char = self.text[self.at]
            value, is_literal = None, True
            if plain := _PLAIN.match(self.text, self.at):
                self.at = plain.end()
                value = plain[0]
                is_literal = not re.search(r"[*?]", value) and not (value[0] == "~" and plain.start() == start)
            elif char == "\\":
                value = self._escape()
            elif char == "'":
                value, is_literal = self._single(self.at)
            elif char == '"':
                value, is_literal = self._double()
            elif char == "$":
                value, is_literal = self._dollar("u"), False
            elif char == "`" and self.closers[-1:] != ["`"]:
                value, is_literal = self._substitution("`", "`", "u"), False
            elif char in "{}":
                value, is_literal = self._brace("u")
            elif char == "(" and _ASSIGNMENT.fullmatch(self.text, start, self.at):
                end = self.text.find(")", self.at)
                stop = len(self.text) if end < 0 else end + 1
                value, is_literal, self.at = self.text[self.at : stop], False, stop
            elif char in "<>" and self.text.startswith("(", self.at + 1):
                value, is_literal = self._substitution(char + "(", ")", "u"), False
            if value is None:
                break
            values.append(value)
            literal = literal and is_literal
        if self.at == start:
            self.at += 1
            values.append(self.text[start])
        return self._span(start, self.at, "".join(values), literal)

    def _span(self, start: int, end: int, value: str | None = None, literal: bool = False) -> Word:
        raw = self.text[start:end]
        quotes = "".join(self.quotes[start:end])
        return Word(start + self.offset, end + self.offset, raw, raw if value is None else value, quotes, literal)

    def _escape(self) -> str | None:
        """A backslash outside quotes; None if it continues the line of a `!` command, which ends the word."""
        line_break = re.compile(r"\\\r?\n").match(self.text, self.at)
        if line_break:
            if not self.script:
                return None
            self.at = line_break.end()
            return ""
        value = self.text[self.at + 1 : self.at + 2] or "\\"
        self.at = min(self.at + 2, len(self.text))
        return value

    def _single(self, start: int) -> tuple[str, bool]:
        """A single-quoted piece from `start`, where `at` is its opening quote."""
        self.at += 1
        opening, literal = self.at, True
        while self.at < len(self.text) and self.text[self.at] != "'":
            if self.text[self.at] in "{}":
                literal = self._brace("s")[1] and literal
            else:
                self.at += 1
        value = self._joined(self.text[opening : self.at])
        self.at = min(self.at + 1, len(self.text))
        self._mark(start, self.at, "s")
        return value, literal

    def _double(self) -> tuple[str, bool]:
        values: list[str] = []
        literal = True
        self._mark(self.at, self.at + 1, "d")
        self.at += 1
        while self.at < len(self.text) and self.text[self.at] != '"':
            start, char, value = self.at, self.text[self.at], ""
            if plain := _DOUBLE_PLAIN.match(self.text, start):
                self.at, value = plain.end(), plain[0]
            elif char == "\\":
                follower = self.text[start + 1 : start + 2]
                self.at = min(start + 2, len(self.text))
                line_break = "" if self.script else " "
                value = (
                    line_break
                    if follower == "\n"
                    else follower
                    if follower and follower in '$`"\\'
                    else char + follower
                )
            elif char == "{":
                value, is_literal = self._brace("d")
                literal = literal and is_literal
            elif char == "$":
                value, literal = self._dollar("d"), False
                start = self.at
            else:
                value, literal = self._substitution("`", "`", "d"), False
                start = self.at
            self._mark(start, self.at, "d")
            values.append(value)
        self._mark(self.at, self.at + 1, "d")
        self.at = min(self.at + 1, len(self.text))
        return "".join(values), literal

    def _joined(self, quoted: str) -> str:
        """IPython joins a continued line by a space, inside quotes too."""
        return quoted if self.script else re.sub(r"\\\r?\n", " ", quoted)

    def _dollar(self, code: str) -> str:
        """`$name`, `${…}`, `$(…)`, `$((…))`, `$'…'` or a single `$`."""
        start, text = self.at, self.text
        if text.startswith("$((", start) and (end := text.find("))", start)) >= 0:
            self.at = end + 2
        elif text.startswith("$(", start):
            return self._substitution("$(", ")", code)
        elif text.startswith("$'", start) and code == "u":
            self.at += 1
            return self._single(start)[0]
        elif name := _NAME.match(text, start + 1):
            self.at = name.end()
        else:
            self.at += 1
        self._mark(start, self.at, code)
        return text[start : self.at]

    def _substitution(self, opener: str, closer: str, code: str) -> str:
        start = self.at
        self.at += len(opener)
        self._mark(start, self.at, code)
        if len(self.closers) <= MAX_DEPTH:
            self.read_list(opener, closer)
            self._mark(self.at, self.at + 1, code)
            self.at = min(self.at + 1, len(self.text))
        return self.text[start : self.at]

    def _brace(self, code: str) -> tuple[str, bool]:
        """Reads a brace: a complete expression that IPython replaces, or one character of an expansion or of plain
        text."""
        start = self.at
        if self.script:
            self.at += 1
            return self.text[start], not (code == "u" and _BRACE_EXPANSION.match(self.text, start))
        if self.text.startswith(("{{", "}}"), start):
            self.at += 2
            return self.text[start : self.at], True
        end = end_of_expression(self.text, start)
        self.at = end or start + 1
        return self.text[start : self.at], end is None

    def _mark(self, start: int, end: int, code: str) -> None:
        end = min(end, len(self.text))
        self.quotes[start:end] = code * (end - start)
