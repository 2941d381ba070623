"""Rules for pip: packages are installed into the environment of the notebook's kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator

from migration import shell
from migration.analysis.facts import NotebookFacts
from migration.notebook.findings import Keeps
from migration.notebook.texts import Edit, holding
from migration.python.shell_texts import ShellText, shell_texts, simple_line
from migration.python.source import CellSource, once_a_cell
from migration.rules.rule import Example, Match, Rule
from migration.rules.system_installs import as_comment
from migration.shell.installs import PipCall, pip_call

# `%pip` interpolates its line twice, the second time with its own variables.
_TWICE = re.compile(r"\{\{|\}\}|\$\$|\$(?:line|python|self)\b")
_UV_SUBCOMMANDS = frozenset({"install", "uninstall", "sync", "freeze", "list", "show", "check", "tree"})
_KERNEL_PYTHON = '--python "$(which python)"'
_COLAB_PYTHON = re.compile(r"/usr(?:/local)?/bin/python[\d.]*")
_PIP = holding("pip", like=r"\bpip")
_COLAB = re.compile(r"google[-_.]+colab(?![\w.-])", re.IGNORECASE)
_OWN_PACKAGE = "`google-colab` is Colab's own package, which pip cannot install here"


@once_a_cell
def _pip_calls(source: CellSource) -> tuple[tuple[ShellText, PipCall], ...]:
    """Every pip command of the cell, with its text."""
    return tuple(
        (found, call)
        for found in shell_texts(source)
        for command in (() if found.is_colab_magic else found.commands)
        if (call := pip_call(command)) is not None
    )


def _without(found: ShellText, word: shell.Word) -> Edit | None:
    """Removes a word with the blanks after it, or with those before it at the end of a line."""
    after = re.compile(r"[ \t]+(?![ \t\\\n#]|$)").match(found.text, word.end)
    before = re.compile(r"(?:[ \t]|\\\r?\n)*$").search(found.text[: word.start])
    start = word.start if after or before is None else before.start()
    return found.edit(start, after.end() if after else word.end, "")


# ---------------------------------------------------------------------------------------------------- which interpreter
def _fits_magic(found: ShellText, call: PipCall) -> bool:
    """Whether `%pip` can run the line: it passes everything after the word pip."""
    return call.is_plain and not _TWICE.search(found.text) and simple_line(found, found.commands)


def _find_lines(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for found, call in _pip_calls(source):
        if found.command is None or not _fits_magic(found, call):
            continue
        start = found.command.start
        edit = Edit(start, found.at(call.command.words[call.last].end), "%pip")
        wrote = source.text[start : edit.end].replace("\\\n", " ")
        # A virtual environment refuses the option; on Colab the package is installed for the kernel with or without it.
        options = [_without(found, item.words[0]) for item in call.items if item.option == "--user" and call.installs]
        yield Match(
            start,
            found.span(call.command)[1],
            f"`{wrote}` may use another Python than that of the kernel",
            tuple(sorted({edit, *filter(None, options)})),
        )


# ------------------------------------------------------------------------------------------------------------------- uv
def _find_uv(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for found, call in _pip_calls(source):
        if not call.uv or call.subcommand not in _UV_SUBCOMMANDS or found.words or _colab_words(call)[1]:
            continue
        edits = [_without(found, item.words[0]) for item in call.items if item.option == "--system"]
        chosen = (item for item in call.items if item.option in ("--python", "-p"))
        of_colab = [item.words for item in chosen if _COLAB_PYTHON.fullmatch(item.value)]
        if found.magic or found.automagic:
            edits += [_without(found, word) for words in of_colab for word in words]
        elif of_colab:
            edits += [found.edit(words[0].start, words[-1].end, _KERNEL_PYTHON) for words in of_colab]
        elif call.option("--python", "-p", "--target", "--prefix"):
            continue
        else:
            end = call.command.words[call.subcommand_at].end
            edits.insert(0, found.edit(end, end, f" {_KERNEL_PYTHON}"))
        whole = tuple(edit for edit in edits if edit is not None)
        if whole and len(whole) == len(edits):  # the string around the command can contain the option
            message = "`uv pip` needs an option that selects the Python environment; on Colab it was the system's"
            yield Match(*found.span(call.command), message, whole)


# ------------------------------------------------------------------------------------------------- Colab's own package
def _find_colab(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for found, call in _pip_calls(source):
        words, is_alone = _colab_words(call)
        if is_alone:
            edits = _disabled(source, found, call)
        else:
            edits = tuple(filter(None, (_without(found, word) for word in words)))
        if edits:
            yield Match(*found.span(call.command), _OWN_PACKAGE, edits)


def _colab_words(call: PipCall) -> tuple[list[shell.Word], bool]:
    """The words of an installation that name Colab's package, and whether it installs nothing else."""
    items = [item for item in call.items if item.option in ("", "--editable", "--requirement") and call.installs]
    words = [item.words[0] for item in items if not item.option and _COLAB.match(item.value)]
    return words, bool(words) and len(words) == len(items)


def _disabled(source: CellSource, found: ShellText, call: PipCall) -> tuple[Edit, ...]:
    """Edits that make a pip command a comment, or one that does nothing; none if `%pip` has a result."""
    line = found.command if found.magic or len(found.commands) == 1 else None
    if line is not None and not line.target:
        return as_comment(source, line, needs_pass=bool(line.indent))
    start = found.span(call.command)[0]
    return () if found.magic else (Edit(start, start, "# " if found.automagic else "true " if found.words else ": "),)


RULES: tuple[Rule, ...] = (
    Rule(
        id="LF505",
        name="Colab's own package",
        matches="`pip install google-colab …`",
        writes="the other packages of the line; a comment, or `: pip …`, which does nothing, if there are none",
        keeps=Keeps.EQUIVALENT,
        find=_find_colab,
        trigger=holding("colab", "Colab", "COLAB", like=re.compile(rf"\bpip\b[\s\S]*{_COLAB.pattern}", re.IGNORECASE)),
        example=Example("!pip install google-colab x", "!pip install x"),
    ),
    Rule(
        id="LF504",
        name="uv for the kernel",
        matches="`uv pip install --system x`, `uv pip install --python /usr/bin/python3 x`",
        writes='`uv pip install --python "$(which python)" x`: the Python of the kernel, by the set-up cell',
        keeps=Keeps.EQUIVALENT,
        find=_find_uv,
        trigger=holding("uv", like=r"\buv\b"),
        example=Example("!uv pip install --system x", '!uv pip install --python "$(which python)" x'),
    ),
    Rule(
        id="LF501",
        name="pip for the kernel",
        matches="`!pip …`, `!pip3 …`, `!python -m pip …`, `!sudo pip …` as the only command of a line",
        writes="`%pip …`, without `--user`, which a virtual environment refuses",
        keeps=Keeps.EQUIVALENT,
        find=_find_lines,
        trigger=_PIP,
        example=Example("!pip install x", "%pip install x"),
    ),
)
