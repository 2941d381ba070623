"""Rules for pip: packages are installed into the environment of the notebook's kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator

from migration.analysis.facts import NotebookFacts
from migration.notebook.findings import Keeps
from migration.notebook.texts import Edit, holding
from migration.python.shell_texts import ShellText, simple_line
from migration.python.source import CellSource
from migration.rules.pip_matches import match, pip_calls, without
from migration.rules.rule import Example, Match, Rule
from migration.shell.installs import PipCall

# `%pip` interpolates its line twice, the second time with its own variables.
_TWICE = re.compile(r"\{\{|\}\}|\$\$|\$(?:line|python|self)\b")
_UV_SUBCOMMANDS = frozenset({"install", "uninstall", "sync", "freeze", "list", "show", "check", "tree"})
_KERNEL_PYTHON = ' --python "$(which python)"'
_PIP = holding("pip", like=r"\bpip")


# ---------------------------------------------------------------------------------------------------- which interpreter
def _fits_magic(found: ShellText, call: PipCall) -> bool:
    """Whether `%pip` can run the line: it passes everything after the word pip."""
    if call.uv or call.interpreter != "path" or _TWICE.search(found.text):
        return False
    return simple_line(found, found.commands) and not call.has_options and call.first == call.after_sudo


def _find_lines(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for found, call in pip_calls(source):
        if found.command is None or not _fits_magic(found, call):
            continue
        start = found.command.start
        edit = Edit(start, found.at(call.command.words[call.last].end), "%pip")
        wrote = source.text[start : edit.end].replace("\\\n", " ")
        yield Match(
            start,
            found.span(call.command)[1],
            f"`{wrote}` may use another Python than that of the kernel",
            (edit,),
        )


def _find_other(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for found, call in pip_calls(source):
        if call.interpreter == "other":
            words = call.command.words
            wrote = found.text[words[call.first].start : words[call.last].end]
            yield from match(
                found,
                call,
                f"`{wrote}` belongs to a specific Python, which may differ from that of the kernel",
                action="check which Python these packages are for; for that of the notebook use `%pip`",
            )


# ------------------------------------------------------------------------------------------------------------------- uv
def _find_uv(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for found, call in pip_calls(source):
        if not call.uv or call.subcommand not in _UV_SUBCOMMANDS:
            continue
        edits: list[Edit | None] = []
        if found.words:
            continue
        if not (found.magic or found.automagic):
            if call.option("--python", "-p", "--target", "--prefix"):
                continue
            end = call.command.words[call.subcommand_at].end
            edits = [found.edit(end, end, _KERNEL_PYTHON)]
        edits += [without(found, item.words[0]) for item in call.items if item.option == "--system"]
        if edits:
            message = "`uv pip` needs an option that selects the Python environment; on Colab it was the system's"
            yield from match(found, call, message, edits)


RULES: tuple[Rule, ...] = (
    Rule(
        id="LF504",
        name="uv for the kernel",
        matches="`uv pip install --system x`",
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
        writes="`%pip …`",
        keeps=Keeps.EQUIVALENT,
        find=_find_lines,
        trigger=_PIP,
        example=Example("!pip install x", "%pip install x"),
    ),
    Rule(
        id="LF508",
        name="pip of another Python",
        matches="`!pip2 …`, `!python3.7 -m pip …`, `!/opt/env/bin/pip …`",
        writes="nothing: the user must decide which Python is meant",
        keeps=Keeps.NEEDS_HUMAN,
        find=_find_other,
        trigger=_PIP,
        example=Example("!pip2 install x"),
    ),
)
