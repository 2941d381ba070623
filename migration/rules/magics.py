"""Magics that exist on Colab only, and magics without their `%`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from migration.analysis.facts import NotebookFacts
from migration.colab.paths import find_paths
from migration.notebook.findings import Keeps
from migration.notebook.texts import Edit, holding
from migration.python.source import BARE_MAGIC, LINE_MAGICS, CellSource, Command
from migration.python.statements import catching, place_of, removal
from migration.python.strings import comments
from migration.rules.rule import Example, Match, Rule

TENSORFLOW_1_ACTION = (
    "run this notebook in an environment with TensorFlow 1.15 (Python 3.7 at most), or port it to TensorFlow 2 with "
    "`tf.compat.v1`"
)
_SHELL_ACTION = (
    "decide what a failed command does here: `if _exit_code: raise subprocess.CalledProcessError(_exit_code, command)` "
    "on the next line reaches the handler, as `%shell` did; its result is now the list of printed lines"
)
_CATCHES_FAILURE = frozenset({"CalledProcessError", "SubprocessError", "Exception", "BaseException"})
_COLAB_EXTENSION = re.compile(r"google\.colab(?:\.[\w.]+)?$")


_APART = re.compile(
    rf"^[ \t]*%[ \t]+(?=(?:{LINE_MAGICS}|autoreload|config|env|load_ext|matplotlib|pylab|run|tensorboard"
    r"|time(?:it)?)\b)",
    re.MULTILINE,
)


def _uses(source: CellSource, name: str) -> Iterator[tuple[Command, str]]:
    """The uses of a line magic as a statement, with their arguments."""
    for command in source.commands:
        if command.kind == "magic" and command.name == name and not command.target:
            yield command, source.text[command.body : command.end].strip().removeprefix(name).strip()


def _shell_cells(source: CellSource) -> Iterator[Match]:
    magic = source.magic
    if magic is None or magic.name != "shell":
        return
    start = source.text.index("%%", magic.start) + 2
    edits = [Edit(start, start + len("shell"), "bash")]
    flag = re.search(r"--ignore-errors\b", magic.argument)
    if flag:
        at = magic.argument_start
        edits.append(Edit(at + flag.start(), at + flag.end(), "--no-raise-error"))
    yield Match(start - 2, source.line_span(start, start)[1], "`%%shell` exists only in Colab", tuple(edits))


def _find_shell(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    yield from _shell_cells(source)
    for command in source.commands:
        if command.kind != "magic" or command.name != "shell":
            continue
        text = source.text[command.body : command.end]
        head = re.match(r"[ \t]*shell[ \t]*(?:--ignore-errors\b[ \t]*)?", text)
        if head is None or not text[head.end() :].strip():
            continue
        edit = Edit(command.start, command.body + head.end(), "!")
        message = "`%shell` exists only in Colab, and raises there if the command fails"
        handler = catching(source, command.start, _CATCHES_FAILURE)
        if command.target or (handler and not _does_nothing(handler)):
            message = f"{message}: the cell uses its result or handles this, and `!` never raises"
            yield Match(command.start, command.end, message, (edit,), _SHELL_ACTION, Keeps.NEEDS_HUMAN)
        else:
            yield Match(command.start, command.end, message, (edit,))


def _find_colab_magics(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    if not source.is_python:
        return
    for use, argument in _uses(source, "tensorflow_version"):
        start, end = use.start, use.end
        place = place_of(source, start)
        block = place.around[-1] if place and place.around else None
        if isinstance(block, ast.Try) and place is not None and place.statement in block.body:
            if not all(map(_does_nothing, block.handlers)):
                # The notebook uses its failure to detect Colab: see rules/detection.py.
                continue
            if len(block.body) == 1 and not block.orelse and not block.finalbody:
                start, end = source.span(block)
        message = "`%tensorflow_version` exists only in Colab"
        edits = removal(source, start, end)
        is_alone = source.tree is not None and [place and place.statement] == source.tree.body
        if is_alone and (source.index in facts.described or comments(source)):
            edits = (Edit(start, end, "%pip show tensorflow"),)
        if argument.startswith("1"):
            message = f"{message}, and so does TensorFlow 1 here"
            yield Match(start, end, message, edits, TENSORFLOW_1_ACTION, Keeps.NEEDS_HUMAN)
        else:
            yield Match(start, end, message, edits)
    for name in ("load_ext", "reload_ext", "unload_ext"):
        for use, argument in _uses(source, name):
            if _COLAB_EXTENSION.match(argument):
                message = f"the extension `{argument}` exists only in Colab"
                yield Match(use.start, use.end, message, removal(source, use.start, use.end))


def _does_nothing(handler: ast.ExceptHandler) -> bool:
    return all(isinstance(node, ast.Pass) for node in handler.body)


def _find_bare(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """A magic without `%` that another rule has to rewrite."""
    found = source.bare_magic
    start, end = found.span("name") if found else (0, 0)
    command = f"{found['name']} {source.text[end : found.end()]}" if found else ""
    if found and (found["name"] == "tensorflow_version" or find_paths(command, facts.mounts)):
        message = f"`{found['name']}` without `%` is not Python, and names what only Colab has"
        apart = (Edit(end, end, " "),) if source.text[end] == "/" else ()  # IPython itself reads `cd/x` as `%cd /x`
        yield Match(start, found.end(), message, (Edit(start, start, "%"), *apart))
    for command in source.commands if _APART.search(source.text) else ():
        line = source.line_span(command.start, command.start)[0]
        if command.kind == "magic" and (blank := _APART.match(source.text, line)):
            message = f"`% {command.name}` with a blank is a magic only in the IPython of earlier Colab machines"
            edits = (Edit(command.body, blank.end(), ""),)
            yield Match(command.start, command.end, message, edits, keeps=Keeps.EQUIVALENT)


RULES: tuple[Rule, ...] = (
    Rule(
        id="LF561",
        name="Colab's shell magics",
        matches="`%%shell`, `%%shell --ignore-errors`, `%shell command`",
        writes="`%%bash`, `%%bash --no-raise-error`, `!command`, which continues if the command fails: the user "
        "decides where a `try` handles that",
        keeps=Keeps.EQUIVALENT,
        find=_find_shell,
        trigger=holding("shell", like=r"%[ \t]*shell\b"),
        example=Example("%%shell\nls", "%%bash\nls"),
    ),
    Rule(
        id="LF563",
        name="Colab's own magics",
        matches="`%tensorflow_version 2.x`, also with a `try` around it, `%load_ext google.colab.data_table`",
        writes="nothing; `pass` if a block would be empty, and `%pip show tensorflow` where a text would describe "
        "nothing else; version 1 needs a separate environment",
        keeps=Keeps.EQUIVALENT,
        find=_find_colab_magics,
        trigger=holding("tensorflow_version", "load_ext", like=r"tensorflow_version|load_ext\b.*google\.colab"),
        example=Example("%tensorflow_version 2.x\nimport tensorflow as tf", "import tensorflow as tf"),
    ),
    Rule(
        id="LF567",
        name="magic without `%`",
        matches="`cd /content/x`, `cd/content/x`, `tensorflow_version 2.x`, alone in a cell; `% cd x` with a blank",
        writes="`%cd /content/x`, `%tensorflow_version 2.x`, for the rules of these",
        keeps=Keeps.EXACT,
        find=_find_bare,
        trigger=holding("/content", "rive", "tensorflow_version", "%", like=rf"{BARE_MAGIC.pattern}|{_APART.pattern}"),
        example=Example("cd /content/x", "%cd /content/x"),
    ),
)
