"""Conditions before shell commands, so that a command runs only if its result does not exist yet."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from migration import shell
from migration.notebook.texts import Edit
from migration.python.shell_texts import ShellText, shell_texts
from migration.python.source import CellSource, once_a_cell
from migration.python.statements import place_of

_SYSTEM_CALLS = frozenset({"os.system", "get_ipython().system"})
_LOOPS = ast.For | ast.AsyncFor | ast.While | ast.FunctionDef | ast.AsyncFunctionDef
_ASKS_FOR_FILES = re.compile(r"\b(?:l?exists|is_?file|is_?dir|listdir|glob|iterdir)\b")
_SUBSTITUTION = re.compile(r"\$\(|`|[<>]\(")


@once_a_cell
def run_texts(source: CellSource) -> tuple[tuple[ShellText, str], ...]:
    """The shell texts of a cell whose exit status is not used, each with how it is run: `!`, `%%` (a script), or the
    function of a call that is a statement."""
    return tuple(_run_texts(source))


def _run_texts(source: CellSource) -> Iterator[tuple[ShellText, str]]:
    for text in shell_texts(source):
        if text.magic or text.automagic:
            continue
        if text.literal is None:
            yield text, "%%" if text.command is None else "!"
        elif (function := _system_call(source, text)) is not None:
            yield text, function


def statement_span(source: CellSource, text: ShellText) -> tuple[int, int]:
    """The span of the command that runs the text: the `!` line, the statement of a call, the script."""
    if text.command is not None:
        return text.command.start, text.command.end
    place = place_of(source, text.start) if text.literal is not None else None
    return source.span(place.statement) if place is not None else (text.start, text.end)


def _system_call(source: CellSource, text: ShellText) -> str | None:
    place = place_of(source, text.start)
    call = place.statement.value if place is not None and isinstance(place.statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not call.args or source.span(call.args[0])[1] < text.end:
        return None
    function = source.segment(call.func)
    return function if function in _SYSTEM_CALLS else None


def pipeline(commands: Sequence[shell.Command], command: shell.Command) -> tuple[shell.Command, ...] | None:
    """The commands joined by pipes with this one, from the first to the last; None if they cannot be found."""
    level = [other for other in commands if other.depth == command.depth]
    first = last = level.index(command)
    while level[first].before in ("|", "|&"):
        first -= 1
        if first < 0 or level[first].after not in ("|", "|&"):
            return None
    while level[last].after in ("|", "|&"):
        last += 1
        if last == len(level) or level[last].before not in ("|", "|&"):
            return None
    return tuple(level[first : last + 1])


def guard(text: ShellText, command: shell.Command, test: str) -> tuple[Edit, ...]:
    """Edits that run a command, with its pipeline, only if `test` fails; none if that would change a list. A subshell
    groups the two inside `&&` lists, never braces, which IPython reads as an expression.
    """
    joined = pipeline(text.commands, command)
    if joined is None or (command.depth and _SUBSTITUTION.search(text.text)):
        return ()
    around = (joined[0].before, joined[-1].after)
    # A list that continues after a failure (`clone || pull`) already is a condition.
    if "||" in around or "!" in joined[0].keywords or any(map(_has_heredoc, joined)):
        return ()
    start, end = joined[0].start, max(part.end for part in joined)
    if "&&" in around:
        return edits(text, (start, start, f"({test} || "), (end, end, ")"))
    return edits(text, (start, start, f"{test} || "))


def edits(text: ShellText, *changes: tuple[int, int, str]) -> tuple[Edit, ...]:
    """Edits of the cell that replace spans of a shell text; none if one of them cannot be written there."""
    found = [text.edit(start, end, new) for start, end, new in changes]
    return tuple(edit for edit in found if edit is not None) if None not in found else ()


def _has_heredoc(command: shell.Command) -> bool:
    return any(found.operator in ("<<", "<<-") for found in command.redirections)


def has_blocks(text: ShellText) -> bool:
    """Whether there are loops, conditions or groups in the text."""
    return shell.read(text.text, script=text.script).blocks


def is_repeated(source: CellSource, text: ShellText) -> bool:
    """Whether the text may run several times in one run of the cell: in a loop or function, or if unknown."""
    if has_blocks(text):
        return True
    if text.command is None and text.literal is None:
        return False
    start, _ = statement_span(source, text)
    if source.tree is None:
        return start != source.line_span(start, start)[0]
    place = place_of(source, start)
    return place is not None and any(isinstance(node, _LOOPS) for node in place.around)


def is_conditional_on_files(source: CellSource, text: ShellText) -> bool:
    """Whether Python already tests for a file or folder before it runs the text."""
    if not _ASKS_FOR_FILES.search(source.text):
        return False
    place = place_of(source, statement_span(source, text)[0])
    if place is None:
        return False
    tests = (source.segment(node.test) for node in place.around if isinstance(node, ast.If | ast.While))
    return any(_ASKS_FOR_FILES.search(test) for test in tests)
