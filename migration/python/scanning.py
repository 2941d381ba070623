"""Finds the IPython commands of a cell: `!shell`, `%magic`, `x = !shell`, `x = %magic`, `name?`.

IPython tokenises a cell, transforms the first command and tokenises the complete cell again, once per command. One
regular expression for strings, brackets and comments finds the same positions a hundred times faster; in uncertain
cases (an unclosed quotation mark, a question mark) IPython's own transformers decide.
"""

from __future__ import annotations

import ast
import re
import warnings
from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal

CommandKind = Literal["shell", "magic", "help"]

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_MAYBE_COMMAND = re.compile(r"^[ \t\f]*[!%?,;/]|=[ \t]*[!%]|\?[ \t]*$", re.MULTILINE)
# A magic whose argument is code.
_CODE_ARGUMENT = re.compile(r"%(?:time|timeit|prun|memit|mprun|lprun)[ \t]+(?!-)")
# Tokens that affect where a logical line ends, and tokens that may begin a command inside one.
_TOKEN = re.compile(
    r"(?P<skip>#[^\n]*"
    r'|"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""'
    r"|'{3}[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'{3}"
    r'|"(?!"")[^"\\\n]*(?:\\.[^"\\\n]*)*"'
    r"|'(?!'')[^'\\\n]*(?:\\.[^'\\\n]*)*'"
    r"|\\\n|[=!<>:+\-*/%&|^@]=)"
    r"|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<line>\n)"
    r"|(?P<assign>=[ \t]*(?P<command>!|%[ \t]*[A-Za-z_])?(?P<continued>\\\n)?)"
    r"|(?P<unsure>[\"'?])",
    re.DOTALL,
)
_QUESTION = re.compile(r"[^\n]*\?[ \t]*(?:\n|$)")
_ESCAPE = re.compile(r"[ \t\f]*(?:!(?!=)|%(?!=)|[?,;]|/(?![/=]))")


@dataclass(frozen=True)
class Command:
    """One shell or magic command: `!cmd`, `!!cmd`, `%magic args`, `x = !cmd`, `x = %magic`, `name?`.

    `start:end` spans it in the cell, from its escape character to the last character before the line's end, over all
    continued lines. `body` is where the command's text begins, after the escape. `name` is the magic's name, empty for
    a shell command. `target` is the text left of the `=` of an assignment.
    """

    kind: CommandKind
    start: int
    end: int
    body: int
    indent: str
    name: str = ""
    target: str = ""


class _UnsureError(Exception):
    """The result is uncertain; IPython must decide."""


def find_commands(text: str, body: int = 0) -> tuple[list[Command], str]:
    """The commands of a cell after its offset `body`, and the text after `body` with placeholders of the same length
    instead of them. As in IPython the text after a command is scanned independently, so a quotation mark inside a shell
    line does not affect later lines.
    """
    rest = text[body:]
    if not _MAYBE_COMMAND.search(rest):
        return [], rest
    lines = _LINE.findall(rest)
    starts = [body]
    for line in lines:
        starts.append(starts[-1] + len(line))
    commands: list[Command] = []
    at = 0
    while at < len(lines):
        found = _next(text, lines, starts, at)
        if found is None:
            break
        row, column, help_row = found
        last = help_row if help_row is not None else _end_of_continued(lines, row)
        command = _command(lines, starts, row, column, last, is_help=help_row is not None)
        lines[row : last + 1] = _placeholder(lines, row, column, last, command)
        commands.append(command)
        at = last + 1
    return commands, "".join(lines)


# Row and column of a command, and for `name?` the row of the question mark.
Place = tuple[int, int, int | None]


def _next(text: str, lines: list[str], starts: list[int], at: int) -> Place | None:
    """The first command from row `at` on, where a logical line begins."""
    try:
        offset = _offset_of_next(text, starts[at])
    except _UnsureError:
        return _ask_ipython(lines, at)
    if offset is None:
        return None
    row = bisect_right(starts, offset) - 1
    return row, offset - starts[row], None


def _offset_of_next(text: str, start: int) -> int | None:
    """Offset of the escape character of the first command from `start` on, where a logical line begins."""
    if (escaped := _escaped(text, start)) is not None:
        return escaped
    depth, assigned = 0, False
    for token in _TOKEN.finditer(text, start):
        kind = token.lastgroup
        if kind == "skip":
            continue
        if kind == "open":
            depth += 1
        elif kind == "close":
            depth -= 1
            if depth < 0:
                raise _UnsureError
        elif kind == "unsure":
            raise _UnsureError
        elif depth == 0 and kind == "line":
            assigned = False
            if (escaped := _escaped(text, token.end())) is not None:
                return escaped
        elif depth == 0 and not assigned and kind != "line":
            if token["continued"] and not token["command"]:
                raise _UnsureError
            if token["command"]:
                return token.start("command")
            assigned = True
    return None


def _escaped(text: str, start: int) -> int | None:
    """Offset of the escape character with which a line begins; `%magic?` is a question about the magic."""
    found = _ESCAPE.match(text, start)
    if found is None:
        return None
    if _QUESTION.match(text, start):
        raise _UnsureError
    return found.end() - len(found[0].lstrip(" \t\f"))


def _ask_ipython(lines: list[str], at: int) -> Place | None:
    """The first command that IPython's transformers find from row `at` on."""
    from IPython.core import inputtransformer2 as ipython

    rest = lines[at:]
    if not _MAYBE_COMMAND.search("".join(rest)):
        return None
    if not rest[-1].endswith("\n"):
        rest[-1] += "\n"
    before = 0
    try:
        tokens = ipython.make_tokens_by_line(rest)
    except (SyntaxError, IndentationError):
        # The rest has a smaller indentation that depends on earlier lines: scan it together with them.
        before = at
        try:
            tokens = ipython.make_tokens_by_line([*lines[:at], *rest])
        except (SyntaxError, IndentationError):
            return None
    try:
        found = [
            transformer
            for kind in (ipython.MagicAssign, ipython.SystemAssign, ipython.EscapedCommand, ipython.HelpEnd)
            if (transformer := kind.find(tokens)) is not None
        ]
    except IndexError:  # raised by IPython if a text ends inside a string after `=%`
        return None
    if not found:
        return None
    first = min(found, key=ipython.TokenTransformBase.sortby)
    row = first.start_line - before + at
    if row < at:
        return None
    is_help = isinstance(first, ipython.HelpEnd)
    return row, first.start_col, (first.q_line - before + at) if is_help else None


def _end_of_continued(lines: list[str], row: int) -> int:
    """The last row of a command continued by backslashes; IPython's rule."""
    while lines[row].endswith("\\\n") and row + 1 < len(lines):
        row += 1
    return row


def _command(lines: list[str], starts: list[int], row: int, column: int, last: int, *, is_help: bool) -> Command:
    head = lines[row][:column]
    text = lines[row][column:]
    escape = 2 if text.startswith(("!!", "%%")) else 1
    start, end = starts[row] + column, starts[last] + len(lines[last].rstrip("\n"))
    indent = head[: len(head) - len(head.lstrip(" \t"))]
    target = head.rstrip().removesuffix("=").strip()
    if is_help or text[0] in "?,;/":
        return Command("help", start, end, start + (0 if is_help else 1), indent, target=target)
    if text[0] == "!":
        return Command("shell", start, end, start + escape, indent, target=target)
    name = re.match(r"%%?[ \t]*([^\s]*)", text)
    return Command("magic", start, end, start + 1, indent, name=name[1] if name else "", target=target)


def _placeholder(lines: list[str], row: int, column: int, last: int, command: Command) -> list[str]:
    """Replacement lines of the same lengths for a command: a constant, or the code if a magic runs code."""
    first, *others = (" " * len(line.rstrip("\n")) + "\n" * line.endswith("\n") for line in lines[row : last + 1])
    value = "0"
    if command.kind == "magic" and not command.target and not others:
        runs_code = _CODE_ARGUMENT.match(lines[row], column)
        if runs_code and _parses(code := lines[row][runs_code.end() :].rstrip("\n")):
            value = "0;".ljust(runs_code.end() - column) + code
    return [lines[row][:column] + value + first[column + len(value) :], *others]


def parse(text: str) -> ast.Module:
    """The tree of a cell's Python; top-level `await` is allowed. Raises SyntaxError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compile(text, "<cell>", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def _parses(code: str) -> bool:
    try:
        parse(code)
    except (SyntaxError, ValueError):
        return False
    return True
