"""Rules for pip: packages go into the environment of the notebook's kernel."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from migration.analysis.facts import NotebookFacts
from migration.notebook.findings import Keeps
from migration.notebook.texts import Edit, holding
from migration.python.shell_texts import ShellText, command_of_list, shell_calls, simple_line
from migration.python.source import CellSource
from migration.rules.pip_matches import kernel_program, match, pip_calls, without
from migration.rules.rule import Example, Match, Rule
from migration.shell.installs import PipCall, pip_call

# `%pip` puts values into its line twice, the second time from its own variables.
_TWICE = re.compile(r"\{\{|\}\}|\$\$|\$(?:line|python|self)\b")
_UV_SUBCOMMANDS = frozenset({"install", "uninstall", "sync", "freeze", "list", "show", "check", "tree"})
_PIP = holding("pip", like=r"\bpip")


# ---------------------------------------------------------------------------------------------------- which interpreter
def _fits_magic(found: ShellText, call: PipCall) -> bool:
    """The line is one that `%pip` can run: it takes everything behind the word pip."""
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
            f"`{wrote}` can reach another Python than the one of the kernel",
            (edit,),
        )


def _find_compound(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for found, call in pip_calls(source):
        if (
            call.interpreter != "path"
            or call.uv
            or found.magic
            or found.automagic
            or found.literal
            or _fits_magic(found, call)
        ):
            continue
        message = "pip in a line of several commands, or in a script, can reach another Python than the kernel's"
        yield from match(found, call, message, kernel_program(found, call, facts))


def _find_other(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for found, call in pip_calls(source):
        if call.interpreter == "other":
            words = call.command.words
            wrote = found.text[words[call.first].start : words[call.last].end]
            yield from match(
                found,
                call,
                f"`{wrote}` belongs to one certain Python, which need not be the kernel's",
                action="see which Python these packages are for; for the notebook's own write `%pip`",
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
            edits = [found.edit(end, end, f' --python "${facts.python}"')]
        edits += [without(found, item.words[0]) for item in call.items if item.option == "--system"]
        if edits:
            message = "`uv pip` needs to be told which Python's packages to change; on Colab it was the system's"
            yield from match(found, call, message, edits)


# ---------------------------------------------------------------------------------------------------- calls from Python
def _find_calls(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    message = "pip called from Python can reach another Python than the kernel's"
    for found, call in pip_calls(source):
        if found.literal and call.interpreter == "path" and not call.uv:
            edits = _without_shell(source, found, call) if found.words else kernel_program(found, call, facts)
            if None in edits:
                yield from match(found, call, message, keeps=Keeps.NEEDS_HUMAN, action="write `sys.executable -m pip`")
            yield from match(found, call, message, edits)
    for _, argument in shell_calls(source) if _takes_lines(source) else ():
        command = command_of_list(argument) if isinstance(argument, ast.List) else None
        call = pip_call(command) if command else None
        if isinstance(argument, ast.List) and call and call.interpreter == "path" and not call.uv and call.first == 0:
            start, end = source.span(argument.elts[0])
            new = "sys.executable" if call.last else 'sys.executable, "-m", "pip"'
            yield Match(*source.span(argument), message, (Edit(start, end, new), *_import_sys(source)))


def _without_shell(source: CellSource, found: ShellText, call: PipCall) -> list[Edit | None]:
    """`"pip install x".split()` as `[sys.executable, "-m", "pip", *"install x".split()]`: no shell reads a variable."""
    if found.words is None or call.first or call.has_options or not _takes_lines(source):
        return [None]
    (start, end), words = found.words, call.command.words
    rest = words[call.last + 1].start if len(words) > call.last + 1 else len(found.text)
    head = Edit(start, start, '[sys.executable, "-m", "pip", *')
    return [*_import_sys(source), head, found.edit(words[0].start, rest, ""), Edit(end, end, "]")]


def _takes_lines(source: CellSource) -> bool:
    """Where the whole cell is indented, a line at its top would have to be, too."""
    return bool(source.text[source.body :].lstrip("\n")[:1].strip())


def _import_sys(source: CellSource) -> list[Edit]:
    """Adds `import sys` at the top of the cell unless the cell has it there."""
    body = source.tree.body if source.tree else []
    if any(isinstance(node, ast.Import) and any(name.name == "sys" for name in node.names) for node in body):
        return []
    future = [node for node in body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    start = source.span(future[-1])[1] if future else source.span(body[0])[0]
    return [Edit(start, start, "\nimport sys" if future else "import sys\n")]


RULES: tuple[Rule, ...] = (
    Rule(
        id="LF504",
        name="uv for the kernel",
        matches="`uv pip install --system x`",
        writes='`uv pip install --python "$KERNEL_PYTHON" x`',
        keeps=Keeps.EQUIVALENT,
        find=_find_uv,
        trigger=holding("uv", like=r"\buv\b"),
        example=Example("!uv pip install --system x", '!uv pip install --python "$KERNEL_PYTHON" x'),
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
        id="LF502",
        name="pip for the kernel in compound lines",
        matches="`!cd x && pip install .`, `x = !pip list`, pip in `%%bash`",
        writes='`"$KERNEL_PYTHON" -m pip`, a variable of the set-up cell, in place of the word pip',
        keeps=Keeps.EQUIVALENT,
        find=_find_compound,
        trigger=_PIP,
        example=Example("!cd x && pip install .", '!cd x && "$KERNEL_PYTHON" -m pip install .'),
    ),
    Rule(
        id="LF507",
        name="pip called from Python",
        matches='`os.system("pip …")`, `subprocess.run(["pip", …])` and the like',
        writes="the same call of the kernel's interpreter",
        keeps=Keeps.EQUIVALENT,
        find=_find_calls,
        trigger=_PIP,
        example=Example(
            'subprocess.run(["pip", "install", "x"])',
            'import sys\nsubprocess.run([sys.executable, "-m", "pip", "install", "x"])',
        ),
    ),
    Rule(
        id="LF508",
        name="pip of another Python",
        matches="`!pip2 …`, `!python3.7 -m pip …`, `!/opt/env/bin/pip …`",
        writes="nothing: only a person knows which Python is meant",
        keeps=Keeps.NEEDS_HUMAN,
        find=_find_other,
        trigger=_PIP,
        example=Example("!pip2 install x"),
    ),
)
