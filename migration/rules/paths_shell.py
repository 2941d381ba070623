"""Colab's folders in shell text and in the arguments of magics: they become the exported variable of the same name.
IPython expands either all `$name` and `{expression}` of a line or none; because the Python variable and the environment
variable have the same value, the result is the same either way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from migration import shell
from migration.analysis.facts import NotebookFacts
from migration.colab.paths import PathSpan, find_paths, may_name_folder
from migration.notebook.texts import Edit
from migration.python.scanning import Command
from migration.python.source import CellSource
from migration.python.strings import as_format
from migration.rules.paths_found import Found, changed, kept
from migration.rules.paths_strings import expression, without_text

SHELL_MAGICS = frozenset(
    {"sx", "system", "shell", "sh", "bash", "pip", "conda", "mamba", "micromamba", "uv", "ls", "ll", "lf", "lk"}
    | {"ldir", "lx", "cat", "cp", "mv", "rm", "mkdir", "rmdir", "man", "less", "more"}
)
_WHOLE_ARGUMENT = frozenset({"cd", "pushd", "env", "set_env", "load", "loadpy", "pycat", "edit", "writetemplate"})
_RUNS_CODE = frozenset({"time", "timeit", "prun", "memit", "mprun", "lprun"})
_SAFE_IN_QUOTES = re.compile(r"[^'\"$`\\!{}]*")
_BRACES = re.compile(r"\{[^{}\n]*\}")
_FORMAT = re.compile(r"(?:[^\[:]|\[[^\]]*\])*:")
_ENVIRONMENT = re.compile(
    r"\$\{|\$(?:PATH|HOME|USER|PWD|TMPDIR|PYTHONPATH|LD_LIBRARY_PATH|LD_PRELOAD|LIBRARY_PATH|CPATH|CUDA_HOME)\b"
)
_LINE_OF_COMMAND = re.compile(r"[ \t]*(cd|ls|cat|cp|mv|rm|mkdir|pip|wget|curl|git|unzip|tar|python3?)[ \t]+\S")

Place = tuple[PathSpan, Edit | None]
"""A folder in a text (positions of the cell), and the edit that replaces it; None if it needs manual changes."""


def commands(source: CellSource, facts: NotebookFacts) -> Iterator[Found]:
    """The shell and magic commands of a cell, its cell magic's arguments and its shell body, where they name a
    folder."""
    magic = source.magic
    if magic is not None and magic.argument.strip():
        end = magic.argument_start + len(magic.argument.rstrip())
        yield from _founds(_arguments(source.text, magic.argument_start, end, magic.name, facts))
    if source.is_shell and magic is not None:
        yield from _founds(script_places(source.text, magic.body, len(source.text), facts))
    for command in source.commands:
        yield from _founds(_command_places(source, command, facts))


def command_edits(source: CellSource, command: Command, facts: NotebookFacts) -> list[Edit]:
    """The edits that insert the variables in a command."""
    return [edit for _, edit in _command_places(source, command, facts) if edit is not None]


def script_places(text: str, start: int, end: int, facts: NotebookFacts) -> list[Place]:
    """The folders named in the shell script `text[start:end]`."""
    script = shell.read(text[start:end], start, script=True)
    places = _shell_places(text, start, end, facts, is_script=True)
    for command in script.commands:
        for document in command.redirections:
            if document.body is None or document.target is None:
                continue
            if re.search(r"['\"\\]", document.target.raw):
                places = _quoted_document(text, document, places, facts)
    return places


def stray_lines(source: CellSource, facts: NotebookFacts) -> Iterator[Found]:
    """Folders named in the code of a cell that cannot be parsed: commands without their `!` or `%`, and the rest."""
    if not source.is_python or source.tree is not None or source.is_program:
        return
    masked = without_text(source)
    for line in re.finditer(r"[^\n]+", masked):
        start, end = line.span()
        command = _LINE_OF_COMMAND.match(masked, start, end)
        if command is None:
            spans = [_moved(span, start) for span in find_paths(line[0], facts.mounts)]
            yield from (
                kept(span.start, span.end, "unread", drive=span.folder == "drive")
                for span in spans
                if _is_spaced(masked, span)
            )
        elif command[1] == "cd":
            yield from _founds(_arguments(source.text, command.end(1), end, "cd", facts))
        else:
            yield from _founds(_shell_places(source.text, start, end, facts))


def _is_spaced(text: str, span: PathSpan) -> bool:
    """Whether the name is a path, not a divisor (`total /content`)."""
    return text[span.end : span.end + 1] == "/" or text[: span.start].rstrip(" \t").endswith(("=", ":", "(", ","))


def _moved(span: PathSpan, by: int) -> PathSpan:
    return replace(span, start=span.start + by, end=span.end + by)


def _founds(places: list[Place]) -> Iterator[Found]:
    """One match per position."""
    for span, edit in places:
        if edit is None:
            reason = "escaped" if span.is_escaped else "shell"
            yield kept(span.start, span.end, reason, drive=span.folder == "drive")
        else:
            yield changed(edit, "a command names {0}", [span])


def _command_places(source: CellSource, command: Command, facts: NotebookFacts) -> list[Place]:
    text = source.text
    if command.kind == "shell":
        return _shell_places(text, command.body, command.end, facts)
    if command.kind != "magic" or command.name in _RUNS_CODE:
        return []
    start = text.index(command.name, command.body) + len(command.name)
    if command.name in SHELL_MAGICS:
        return _shell_places(text, start, command.end, facts)
    if command.name in ("env", "set_env") and not command.target and _ENVIRONMENT.search(text, start, command.end):
        return _environment(source, command, facts)
    return _arguments(text, start, command.end, command.name, facts)


def _shell_places(text: str, start: int, end: int, facts: NotebookFacts, *, is_script: bool = False) -> list[Place]:
    """The folders named in the shell text `text[start:end]`, with the variable as each one's quoting wants it."""
    region = text[start:end]
    if not may_name_folder(region, facts.mounts):
        return []
    quotes = shell.read(region, script=is_script).quotes
    places: list[Place] = []
    done = 0
    for span in find_paths(region, facts.mounts, quotes=quotes):
        if span.start < done:
            continue
        if span.is_escaped:
            places.append((_moved(span, start), None))
            continue
        braces = None if is_script else _enclosing(region, span)
        if braces is not None:
            new = expression(region[braces[0] : braces[1]], facts)
            edit = Edit(start + braces[0], start + braces[1], new) if new != region[braces[0] : braces[1]] else None
            places.append((_moved(span, start), edit))
            done = braces[1]
            continue
        span = _within_word(region, quotes, span)
        edit_start, edit_end, new = _variable(region, quotes, span, facts)
        places.append((_moved(span, start), Edit(start + edit_start, start + edit_end, new)))
        done = edit_end
    return places


def _enclosing(region: str, span: PathSpan) -> tuple[int, int] | None:
    """The expression in braces around a path in one of its strings."""
    for found in _BRACES.finditer(region):
        if found.start() < span.start < found.end():
            inner = region[found.start() + 1 : span.start]
            # Text after a colon is not an expression: `{"path": "/content/x"}` is text, which IPython does not change.
            is_expression = re.search("['\"]", inner) and _FORMAT.match(inner) is None
            return (found.start() + 1, found.end() - 1) if is_expression else None
    return None


def _within_word(region: str, quotes: str, span: PathSpan) -> PathSpan:
    """`/content/drive/My Drive` is two words if the blank is not quoted: then only the mount point is meant."""
    blank = region.find(" ", span.start, span.end)
    if blank < 0 or quotes[blank] != "u" or region[blank - 1] == "\\":
        return span
    end = re.compile(r"/+[\"']?My$").search(region, span.start, blank)
    return PathSpan(span.start, end.start() if end else span.end, "drive", is_mount=True)


def _variable(region: str, quotes: str, span: PathSpan, facts: NotebookFacts) -> tuple[int, int, str]:
    """The replacement of a path in shell text, and the span it replaces: `"$WORK_DIR"` outside quotes."""
    name = "$" + (facts.drive if span.folder == "drive" else facts.work)
    start, end = span.start, span.end
    if quotes[start] == "u":
        return start, end, f'"{name}"'
    if quotes[start] != "s":
        return start, end, name
    opens = start > 0 and region[start - 1] == "'"
    close = region.find("'", end)
    if close < 0:
        return start, end, f"'\"{name}\"'"
    rest = region[end:close]
    if opens and _SAFE_IN_QUOTES.fullmatch(rest) and not find_paths(rest, facts.mounts):
        return start - 1, close + 1, f'"{name}{rest}"'
    if opens:
        return start - 1, end, f'"{name}"\''
    return (start, end + 1, f'\'"{name}"') if close == end else (start, end, f"'\"{name}\"'")


def _quoted_document(text: str, document: shell.Redirection, places: list[Place], facts: NotebookFacts) -> list[Place]:
    """Variables are not expanded in a here-document with a quoted delimiter: if nothing else in it would be expanded,
    the quotes of the delimiter are removed; otherwise it needs manual changes."""
    start, end = document.body or (0, 0)
    inside = [place for place in places if start <= place[0].start < end]
    if not inside or document.target is None:
        return places
    target = document.target
    if re.search(r"[$`]|\\[\\\n]", text[start:end]):
        return [(span, None) if start <= span.start < end else (span, edit) for span, edit in places]
    span, edit = inside[0]
    first = places.index((span, edit))
    unquoted = Edit(target.start, target.end, target.value)
    places.insert(first, (PathSpan(target.start, target.end, span.folder), unquoted))
    return places


def _arguments(text: str, start: int, end: int, name: str, facts: NotebookFacts) -> list[Place]:
    """The folders named in the arguments `text[start:end]` of a magic.

    Some magics use the rest of the line unchanged; the others split it into words, where a folder with a blank in its
    name must be quoted. IPython replaces no `$name` inside single quotes, so these become double ones.
    """
    region = text[start:end]
    spans = find_paths(region, facts.mounts)
    if not spans:
        return []
    script = shell.read(region)
    words = [word for command in script.commands for word in (*command.assignments, *command.words)]
    places: list[Place] = []
    done = 0
    for span in spans:
        if span.start < done:
            continue
        if span.is_escaped:
            places.append((_moved(span, start), None))
            continue
        variable = "$" + (facts.drive if span.folder == "drive" else facts.work)
        edit_start, edit_end, new = span.start, span.end, variable
        if script.quotes[span.start] == "s":
            edit_start, edit_end, new = _variable(region, script.quotes, span, facts)
        elif script.quotes[span.start] == "u" and name not in _WHOLE_ARGUMENT:
            word = next((word for word in words if word.start <= span.start < word.end), None)
            rest = region[span.end : word.end] if word and word.end >= span.end else ""
            if _SAFE_IN_QUOTES.fullmatch(rest) and not find_paths(rest, facts.mounts):
                edit_end, new = span.end + len(rest), f'"{variable}{rest}"'
            else:
                new = f'"{variable}"'
        places.append((_moved(span, start), Edit(start + edit_start, start + edit_end, new)))
        done = edit_end
    return places


def _environment(source: CellSource, command: Command, facts: NotebookFacts) -> list[Place]:
    """`%env A=/content/x:$PATH`: there is no Python variable `PATH`, so IPython would expand no `$` of the line. The
    same magic, called from Python, gets the same text as before."""
    text = source.text
    start = text.index(command.name, command.body) + len(command.name)
    argument = text[start : command.end].strip()
    spans = find_paths(argument, facts.mounts)
    if not spans:
        return []
    at = text.index(argument, start)
    if re.search(r"[\"\\\n]", argument) or any(span.is_escaped for span in spans):
        return [(_moved(span, at), None) for span in spans]
    pieces, done = [], 0
    for span in spans:
        variable = facts.drive if span.folder == "drive" else facts.work
        pieces += [as_format(argument[done : span.start], raw=False), f"{{{variable}}}"]
        done = span.end
    value = "".join([*pieces, as_format(argument[done:], raw=False)])
    edit = Edit(command.start, command.end, f'get_ipython().run_line_magic("{command.name}", f"{value}")')
    return [(_moved(spans[0], at), edit)]
