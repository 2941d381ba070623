"""Colab's folders in shell text and in the arguments of magics: they become the exported variable of the same name.
IPython expands either all `$name` and `{expression}` of a line or none; because the Python variable and the environment
variable have the same value, the result is the same either way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from migration import shell
from migration.analysis.facts import NotebookFacts
from migration.colab.paths import PathSpan, find_paths, may_name_folder
from migration.notebook.texts import Edit, edited
from migration.python.scanning import Command
from migration.python.source import CellSource
from migration.rules.paths_found import changed, kept
from migration.rules.rule import Match

SHELL_MAGICS = frozenset(
    {"sx", "system", "shell", "sh", "bash", "pip", "conda", "mamba", "micromamba", "uv", "ls", "ll", "lf", "lk"}
    | {"ldir", "lx", "cat", "cp", "mv", "rm", "mkdir", "rmdir", "man", "less", "more"}
)
_REMOVES_QUOTES = SHELL_MAGICS | {"run", "save", "macro", "history", "hist", "notebook", "logstart", "prun", "timeit"}
_REMOVES_QUOTES |= {"writefile", "file", "script", "tensorboard", "alias"}
_RUNS_CODE = frozenset({"time", "timeit", "prun", "memit", "mprun", "lprun"})
_SAFE_IN_QUOTES = re.compile(r"[^'\"$`\\!{}]*")
_BRACES = re.compile(r"\{[^{}\n]*\}")
_FORMAT = re.compile(r"(?:[^\[:]|\[[^\]]*\])*:")
_ENVIRONMENT = re.compile(
    r"\$\{|\$(?:PATH|HOME|USER|PWD|TMPDIR|PYTHONPATH|LD_LIBRARY_PATH|LD_PRELOAD|LIBRARY_PATH|CPATH|CUDA_HOME)\b"
)

Place = tuple[PathSpan, Edit | None]
"""A folder in a text (positions of the cell), and the edit that replaces it; None if it needs manual changes."""


def commands(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """The shell and magic commands of a cell, its cell magic's arguments and its shell body, where they name a
    folder."""
    magic = source.magic
    if magic is not None and magic.argument.strip():
        end = magic.argument_start + len(magic.argument.rstrip())
        yield from _founds(_arguments(source.text, magic.argument_start, end, magic.name, facts))
    if source.is_shell and magic is not None:
        yield from script_places(source.text, magic.body, facts)
    for command in source.commands:
        yield from _founds(_command_places(source, command, facts))


def command_edits(source: CellSource, command: Command, facts: NotebookFacts) -> list[Edit]:
    """The edits that insert the variables in a command."""
    return [edit for _, edit in _command_places(source, command, facts) if edit is not None]


def script_places(text: str, start: int, facts: NotebookFacts) -> Iterator[Match]:
    """The folders named in the shell script `text[start:]`. In a here-document with a quoted delimiter variables are
    not expanded."""
    quoted = [
        found.body
        for command in shell.commands(text[start:], start, script=True)
        for found in command.redirections
        if found.body is not None and found.target is not None and re.search(r"['\"\\]", found.target.raw)
    ]
    places = _shell_places(text, start, len(text), facts, is_script=True)
    for span, edit in places:
        is_quoted = any(low <= span.start < high for low, high in quoted)
        yield from _founds([(span, None if is_quoted else edit)])


def _founds(places: list[Place]) -> Iterator[Match]:
    """One match per position."""
    for span, edit in places:
        if edit is None:
            yield kept(span)
        else:
            yield changed(edit, "a command names {0}", [span])


def _command_places(source: CellSource, command: Command, facts: NotebookFacts) -> list[Place]:
    text = source.text
    if command.kind == "shell":
        return _shell_places(text, command.body, command.end, facts)
    if command.kind == "help":  # a path alone in its line, which IPython reads as a call
        return _places(find_paths(text[command.start : command.end], facts.mounts), command.start, lambda span: None)
    if command.kind != "magic" or command.name in _RUNS_CODE:
        return []
    start = text.index(command.name, command.body) + len(command.name)
    if command.name in SHELL_MAGICS:
        return _shell_places(text, start, command.end, facts)
    start = command.body if command.name == "cd" else start  # a name is a folder if `cd` precedes it
    places = _arguments(text, start, command.end, command.name, facts)
    if command.name in ("env", "set_env") and _ENVIRONMENT.search(text, start, command.end):
        # There is no Python variable `PATH`, so IPython would expand no `$` of `%env A=/content/x:$PATH`.
        return [(span, None) for span, _ in places]
    return places


def _shell_places(text: str, start: int, end: int, facts: NotebookFacts, *, is_script: bool = False) -> list[Place]:
    """The folders named in the shell text `text[start:end]`, each with its variable, quoted as its position needs."""
    region = text[start:end]
    if not may_name_folder(region, facts.mounts):
        return []
    quotes = shell.read(region, script=is_script).quotes

    def replaced(span: PathSpan) -> Edit | None:
        if not is_script and _is_in_expression(region, span):
            return None
        return _variable(region, quotes, span, facts)

    spans = [span for span in find_paths(region, facts.mounts, quotes=quotes) if quotes[span.start] != "c"]
    return _places(spans, start, replaced)


def _places(spans: Sequence[PathSpan], start: int, replaced: Callable[[PathSpan], Edit | None]) -> list[Place]:
    """The places of the folders in a text that begins at `start` of the cell; one edit may replace several of them."""
    places: list[Place] = []
    done = 0
    for span in spans:
        if span.start < done:
            continue
        edit = replaced(span) if not span.is_escaped else None
        if edit is not None:
            done = edit.end
            edit = Edit(start + edit.start, start + edit.end, edit.text)
        places.append((replace(span, start=start + span.start, end=start + span.end), edit))
    return places


def _is_in_expression(region: str, span: PathSpan) -> bool:
    """Whether a path is in a string of an expression in braces, which IPython evaluates."""
    for found in _BRACES.finditer(region):
        if found.start() < span.start < found.end():
            inner = region[found.start() + 1 : span.start]
            # Text after a colon is not an expression: `{"path": "/content/x"}` is text, which IPython does not change.
            return re.search("['\"]", inner) is not None and _FORMAT.match(inner) is None
    return False


def _variable(region: str, quotes: str, span: PathSpan, facts: NotebookFacts) -> Edit:
    """Replaces a path in shell text: by `"$WORK_DIR"` outside quotes."""
    name = _name(span, facts)
    start, end = span.start, span.end
    if quotes[start] == "u":
        return Edit(start, end, f'"{name}"')
    if quotes[start] != "s":
        return Edit(start, end, name)
    opens = start > 0 and region[start - 1] == "'"
    close = region.find("'", end)
    if close < 0:
        return Edit(start, end, f"'\"{name}\"'")
    rest = region[end:close]
    if opens and _SAFE_IN_QUOTES.fullmatch(rest):
        inside = [other for other in find_paths(region, facts.mounts, quotes=quotes) if end <= other.start < close]
        others = [Edit(other.start - end, other.end - end, _name(other, facts)) for other in inside]
        return Edit(start - 1, close + 1, f'"{name}{edited(rest, others)}"')
    if opens:
        return Edit(start - 1, end, f'"{name}"\'')
    return Edit(start, end + 1, f'\'"{name}"') if close == end else Edit(start, end, f"'\"{name}\"'")


def _name(span: PathSpan, facts: NotebookFacts) -> str:
    return "$" + (facts.drive if span.folder == "drive" else facts.work)


def _arguments(text: str, start: int, end: int, name: str, facts: NotebookFacts) -> list[Place]:
    """The folders named in the arguments `text[start:end]` of a magic.

    Some magics split the line into words and remove quotes: there a folder with a space in its name must be quoted. For
    the others quotes are a part of the path. IPython replaces no `$name` inside single quotes, so these become double
    ones.
    """
    region = text[start:end]
    spans = find_paths(region, facts.mounts)
    if not spans:
        return []
    script = shell.read(region)
    words = [word for command in script.commands for word in (*command.assignments, *command.words)]

    def replaced(span: PathSpan) -> Edit:
        if script.quotes[span.start] == "u" and name in _REMOVES_QUOTES:
            word = next((word for word in words if word.start <= span.start < word.end), None)
            rest = region[span.end : word.end] if word and word.end >= span.end else ""
            if _SAFE_IN_QUOTES.fullmatch(rest) and not find_paths(rest, facts.mounts):
                return Edit(span.start, span.end + len(rest), f'"{_name(span, facts)}{rest}"')
        elif script.quotes[span.start] != "s":
            return Edit(span.start, span.end, _name(span, facts))
        return _variable(region, script.quotes, span, facts)

    return _places(spans, start, replaced)
