"""Rules for packages that pip does not install: those of the system, and those of conda.

A notebook cannot install them without administrator rights, so its lines become comments or do nothing, and the finding
lists what to install by other means.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

from migration import shell
from migration.analysis.facts import NotebookFacts
from migration.notebook.findings import Keeps
from migration.notebook.texts import Edit, holding
from migration.python.shell_texts import ShellText, command_of_list, shell_calls, shell_texts
from migration.python.source import CellSource, Command
from migration.python.statements import blocks
from migration.rules.rule import Example, Match, Rule
from migration.shell.installs import SystemCall, pipelines, system_call

_CONDA = frozenset({"conda", "mamba", "micromamba"})
_CONDA_CHANGES = frozenset({"install", "create", "update", "upgrade", "remove", "uninstall", "env"})
_ASKS = frozenset({"command", "which", "type", "hash", "test", "[", "[["})
_CHOOSES = frozenset({"ldconfig", "update-alternatives"})


@lru_cache(maxsize=64)
def _system_calls(found: ShellText) -> list[SystemCall]:
    return [call for command in found.commands if (call := system_call(command)) is not None]


def _becomes_comment(found: ShellText) -> bool:
    """Whether this line only changes the system, so that it can become a comment."""
    return found.is_line and _only_changes(found, found.commands)


def _only_changes(found: ShellText, commands: tuple[shell.Command, ...]) -> bool:
    """Whether commands only change the system, or test whether they must (`command -v x || apt install x`)."""
    changes = {call.command for call in _system_calls(found)}
    return not changes.isdisjoint(commands) and all(
        any(part in changes for part in line) or all(part.words and part.words[0].value in _ASKS for part in line)
        for line in pipelines(commands)
    )


def _removable_lines(found: ShellText) -> list[tuple[shell.Command, ...]]:
    """The commands of the lines of a `%%bash` cell that only change the system; none if it has blocks, which could
    become empty."""
    if not found.script or found.literal or not _system_calls(found) or shell.read(found.text, script=True).blocks:
        return []
    lines: list[tuple[shell.Command, ...]] = []
    for command in found.commands:
        if not lines or command.before in ("", "\n"):
            lines.append(())
        lines[-1] = (*lines[-1], command)
    return [
        line
        for line in lines
        if _only_changes(found, line) and not any(part.body for command in line for part in command.redirections)
    ]


def _description(calls: list[SystemCall]) -> tuple[str, str, Keeps]:
    """The message, the action, and whether the behaviour is kept."""
    packages = list(dict.fromkeys(name for call in calls for name in call.packages))
    others = list(dict.fromkeys(name for call in calls for name in call.others))
    if not packages and not others:
        if chosen := sorted({call.command.program for call in calls} & _CHOOSES):
            message = f"`{chosen[0]}` changes which libraries or programs the system uses"
            return message, "run it by hand if this machine needs it", Keeps.NEEDS_HUMAN
        return "changes the system's packages, and installs none", "", Keeps.EQUIVALENT
    message = "installs into the system: " + ", ".join([*packages, *others])
    listed = " (the list of system requirements next to the notebook contains them)" if packages else ""
    wanted = ", ".join([*packages, *others])
    return message, f"install {wanted} with the system's package manager{listed}", Keeps.NEEDS_HUMAN


def _find_installs(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    yield from _lines(source)
    yield from _segments(source)
    yield from _calls(source)


def _lines(source: CellSource) -> Iterator[Match]:
    removed_texts = [found for found in shell_texts(source) if _becomes_comment(found)]
    commands = [found.command for found in removed_texts if found.command]
    only_ones = _only_in_block(source, commands) if removed_texts else set()
    for found, command in zip(removed_texts, commands, strict=True):
        message, action, keeps = _description(_system_calls(found))
        head = "pass  # " if command.start in only_ones else "# "
        edits = _as_comment(source, command.start, command.end, len(command.indent), head)
        yield Match(command.start, command.end, message, edits, action, keeps)
    for found in shell_texts(source):
        for line in _removable_lines(found):
            start, end = found.at(line[0].start), found.span(line[-1])[1]
            message, action, keeps = _description([call for call in _system_calls(found) if call.command in line])
            yield Match(start, end, message, _as_comment(source, start, end), action, keeps)


def _as_comment(source: CellSource, start: int, end: int, indent: int = 0, head: str = "# ") -> tuple[Edit, ...]:
    edits = [Edit(start, start, head)]
    for line in range(source.line_of(start) + 1, source.line_of(end) + 1):
        at = source.line_starts[line]
        at += min(len(source.text[at:]) - len(source.text[at:].lstrip(" \t")), indent)
        edits.append(Edit(at, at, "# "))
    return tuple(edits)


def _only_in_block(source: CellSource, removed: list[Command]) -> set[int]:
    """The positions of the commands that must leave a statement, because their block would be empty: its first one."""
    if source.tree is None:
        return {command.start for command in removed if _opens_block(source.text, command)}
    starts = {command.start for command in removed}
    only_ones = set()
    for block in (block.statements for block in blocks(source) if block.owner is not None):
        commands = [source.command_of(node) if isinstance(node, ast.Expr) else None for node in block]
        own = [command.start for command in commands if command and command.start in starts]
        others = [
            node for node, command in zip(block, commands, strict=True) if not command or command.start not in own
        ]
        if own and all(_may_be_removed(source, node) for node in others):
            only_ones.add(own[0])
    return only_ones


def _may_be_removed(source: CellSource, node: ast.stmt) -> bool:
    """Whether other rules may remove this statement in the same round."""
    return bool(re.search(r"colab|drive", source.segment(node), re.IGNORECASE))


def _opens_block(text: str, command: Command) -> bool:
    above = text[: command.start].rstrip()
    return bool(command.indent) and above.split("\n")[-1].split("#")[0].rstrip().endswith(":")


def _segments(source: CellSource) -> Iterator[Match]:
    for found in shell_texts(source):
        if found.magic or found.automagic or found.is_colab_magic or found.literal or _becomes_comment(found):
            continue
        if (split := _split(found)) is not None:
            yield split
            continue
        removed = {command for line in _removable_lines(found) for command in line}
        for call in _system_calls(found):
            if call.command not in removed:
                yield _without_effect(found, call)


def _split(found: ShellText) -> Match | None:
    """The match that makes a line of its own of the changes of the system at the start or the end of a `!` line, so
    that it can become a comment: `!apt install x && make`. None if the line is not a plain list of commands."""
    calls, commands = _system_calls(found), found.commands
    is_call = [any(call.command == command for call in calls) for command in commands]
    is_list = all(
        command.depth == 0 and not command.keywords and {command.before, command.after} <= {"", "&&", ";"}
        for command in commands
    )
    if not found.is_line or found.command is None or "\n" in found.text or not is_list or sum(is_call) != 1:
        return None
    at = is_call.index(True)
    if at not in (0, len(commands) - 1):
        return None
    message, action, keeps = _description(calls)
    after, before = ("# ", "") if at else ("", "# ")
    low, high = found.at(commands[at - 1 if at else 0].end), found.at(commands[at or 1].start)
    edits = [Edit(found.command.start, found.command.start, before)] if before else []
    edits.append(Edit(low, high, f"\n{found.command.indent}{after}!"))
    return Match(found.start, found.end, message, tuple(edits), action, keeps)


def _without_effect(found: ShellText, call: SystemCall) -> Match:
    message, action, keeps = _description([call])
    start, end = found.span(call.command)
    nothing = "true " if found.words else ": "  # a colon is the shell's own
    return Match(start, end, message, (Edit(start, start, nothing),), action, keeps)


def _calls(source: CellSource) -> Iterator[Match]:
    for found in shell_texts(source):
        if found.literal:
            for call in _system_calls(found):
                yield _without_effect(found, call)
    for _, argument in shell_calls(source):
        command = command_of_list(argument) if isinstance(argument, ast.List) else None
        call = system_call(command) if command else None
        if call is not None:
            message, action, keeps = _description([call])
            start = source.span(argument.elts[0])[0]
            yield Match(*source.span(argument), message, (Edit(start, start, '"true", '),), action, keeps)


def _find_conda(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for found in shell_texts(source):
        for command in found.commands:
            values = [word.value for word in command.arguments if not word.value.startswith("-")]
            if command.program in _CONDA and values[:1] and values[0] in _CONDA_CHANGES:
                yield Match(
                    *found.span(command),
                    "changes a conda environment, which this machine's kernel need not have",
                    action="install these packages into the kernel's environment, with conda if it is a conda "
                    "environment and else with pip, then delete the line",
                )
    for node in source.nodes if source.tree and "condacolab" in source.masked else ():
        imported = isinstance(node, ast.Import) and any(name.name == "condacolab" for name in node.names)
        if imported or (isinstance(node, ast.Call) and ast.unparse(node.func).startswith("condacolab.")):
            yield Match(
                *source.span(node),
                "condacolab installs conda on a Colab machine, and refuses to run elsewhere",
                action="run the notebook in a kernel of a conda environment and delete what names condacolab",
            )


_SYSTEM = holding(
    *("apt", "dpkg", "gdebi", "ldconfig", "update-alternatives"),
    like=r"\b(?:apt|aptitude|dpkg|gdebi|ldconfig|update-alternatives|add-apt-repository)\b",
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="LF520",
        name="system packages",
        matches="`!apt-get install …`, `!dpkg -i …`, `!ldconfig`, `!add-apt-repository …`, also in `%%bash`, next to "
        'other commands, and in `os.system("apt-get …")` and `subprocess.run(["apt-get", …])`',
        writes="a comment, as a line of its own; where a line cannot be split, `: apt-get …` or `true apt-get …`, "
        "which does nothing and succeeds. The packages are listed in the system requirements",
        keeps=Keeps.NEEDS_HUMAN,
        find=_find_installs,
        trigger=_SYSTEM,
        example=Example("!apt-get install cmake && make", "# !apt-get install cmake\n!make"),
    ),
    Rule(
        id="LF523",
        name="conda",
        matches="`conda install …`, `mamba install …`, `condacolab`",
        writes="nothing: the user must decide which environment the kernel uses",
        keeps=Keeps.NEEDS_HUMAN,
        find=_find_conda,
        trigger=holding("conda", "mamba"),
        example=Example("!conda install x"),
    ),
)
