"""Texts that a notebook passes to a shell: `!` lines, shell magics, `%%bash` bodies, and strings in Python calls. Each
text has the positions of its characters in the cell, so that matches in it can be edited there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from migration import shell
from migration.notebook.texts import FIELD, Edit, holding
from migration.python.source import CellSource, Command, once_a_cell
from migration.python.strings import Literal, characters, read_strings
from migration.python.trees import last_name, walk

_SHELL_MAGICS = frozenset({"sx", "system", "shell", "bash"})
_CALLS = frozenset(
    {
        "system",
        "system_raw",
        "system_piped",
        "popen",
        "getoutput",
        "getstatusoutput",
        "call",
        "check_call",
        "check_output",
        "run",
        "Popen",
    }
)
_ARGUMENTS = frozenset({"args", "cmd", "command"})
_OF_KERNEL = frozenset({"{sys.executable}", "{sys.prefix}"})
_MAYBE_CALL = holding(
    *(f"{name}{opening}" for name in sorted(_CALLS) for opening in ("(", " (")),
    like=rf"\b(?:{'|'.join(sorted(_CALLS))})\s*\(",
)
# Colab's older IPython accepted such a line among comments; the present one accepts it only alone.
_AUTOMAGIC = re.compile(
    r"(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]*(?P<line>(?:pip|conda|mamba)[ \t]+-{0,2}[a-z][^\n]*)(?:\s|#[^\n]*)*\Z"
)


@dataclass(frozen=True)
class ShellText:
    """A text for the shell, and its position. `start:end` is the text's span in the cell; for a string in Python, the
    part between its quotes. `command` is the notebook's command, `magic`: the text begins with the magic's name (`%pip
    install x`), `automagic`: its `%` is missing. `literal` is the string that contains it and `positions` are the
    offsets of its characters; `words` is the span of `"…".split()`, whose words are passed without a shell.
    """

    text: str
    start: int
    end: int
    script: bool = False
    command: Command | None = None
    magic: bool = False
    automagic: bool = False
    literal: Literal | None = None
    positions: tuple[int, ...] = ()
    words: tuple[int, int] | None = None

    @cached_property
    def commands(self) -> tuple[shell.Command, ...]:
        return shell.commands(self.text, script=self.script)

    @property
    def is_colab_magic(self) -> bool:
        """`%shell cmd`, which another rule converts to `!cmd` first."""
        return self.command is not None and self.command.name == "shell"

    @property
    def is_line(self) -> bool:
        """A command of its own, `!cmd` or `!!cmd`, whose output goes to the notebook."""
        return self.command is not None and self.command.kind == "shell" and not self.command.target

    def at(self, position: int) -> int:
        """The offset in the cell of a position in the text."""
        if self.literal is None:
            return self.start + position
        return self.positions[position] if position < len(self.positions) else self.end

    def span(self, command: shell.Command) -> tuple[int, int]:
        """The position of a command of the text in the cell."""
        return self.at(command.start), self._end_of(command.end - 1)

    def edit(self, start: int, end: int, new: str) -> Edit | None:
        """Replaces `start:end` of the text; None if the string around it cannot contain the new text."""
        low = self.at(start)
        high = low if start == end else self._end_of(end - 1)
        if self.literal is not None and '"' in new and self.literal.quote[0] == '"':
            if self.literal.is_raw:
                return None
            new = new.replace('"', '\\"')
        return Edit(low, high, new)

    def _end_of(self, position: int) -> int:
        return self.at(position + 1) if self.literal is None or position + 1 < len(self.positions) else self.end


@once_a_cell
def shell_texts(source: CellSource) -> tuple[ShellText, ...]:
    """Every text of the cell that a shell reads: its lines, its body, strings in calls."""
    return tuple(_texts(source))


def _texts(source: CellSource) -> Iterator[ShellText]:
    if source.language != "python":
        return
    if source.is_shell:
        yield ShellText(source.text[source.body :], source.body, len(source.text), script=True)
        return
    if not source.is_python:
        return
    for command in source.commands:
        yield from _of_command(source, command)
    if automagic := _AUTOMAGIC.match(source.text, source.body):
        if source.tree is None:
            yield ShellText(automagic["line"], *automagic.span("line"), automagic=True)
    elif _MAYBE_CALL.fires(source.masked):
        for _, argument in _calls(source):
            if (found := string_of(source, argument)) is not None:
                yield found


@dataclass(frozen=True)
class ListCommand:
    """A command that a call runs without a shell: `subprocess.run(["pip", "install", name])`."""

    command: shell.Command
    call: ast.Call
    words: ast.expr


def list_commands(source: CellSource) -> list[ListCommand]:
    """Every command of the cell that is a list of words."""
    found = ((command_of_list(words), call, words) for call, words in _calls(source))
    return [ListCommand(command, call, words) for command, call, words in found if command is not None]


def _calls(source: CellSource) -> list[tuple[ast.Call, ast.expr]]:
    """Calls that may run a program (`os.system(…)`, `subprocess.run(…)`, a function of the cell that passes its first
    parameter to one of them), each with its first argument, or with each value of a variable."""
    if not _MAYBE_CALL.fires(source.masked) or source.tree is None:
        return []
    calls = [
        (node, argument)
        for node in source.nodes
        if isinstance(node, ast.Call)
        for argument in [*node.args[:1], *(word.value for word in node.keywords if word.arg in _ARGUMENTS)][:1]
    ]
    run = {id(node): last_name(argument) for node, argument in calls if last_name(node.func) in _CALLS}
    functions = (node for node in source.nodes if isinstance(node, ast.FunctionDef) and node.args.args)
    names = _CALLS | {one.name for one in functions if one.args.args[0].arg in map(run.get, map(id, walk(one)))}
    found = {
        id(value): (node, value)
        for node, argument in calls
        if last_name(node.func) in names
        for value in _values(source, argument)
    }
    return list(found.values())


def _values(source: CellSource, node: ast.expr, *, loops: bool = True) -> list[ast.expr]:
    """What the cell assigns to a variable, also one after the other in its loops; any other expression itself."""
    if not isinstance(node, ast.Name):
        return [node]
    found = []
    for one in source.nodes:
        if isinstance(one, ast.Assign) and node.id in map(last_name, one.targets):
            found.append(one.value)
        elif loops and isinstance(one, ast.For) and last_name(one.target) == node.id:
            found += [part for value in _values(source, one.iter, loops=False) for part in getattr(value, "elts", ())]
    return found


def string_of(source: CellSource, node: ast.expr) -> ShellText | None:
    """The text of a string literal, or of the one that an expression begins with (`"pip install " + name`), also after
    the path of the kernel's Python or its folder."""
    kernel = ""
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
        kernel = f"{{{ast.unparse(node.left)}}}" if isinstance(node.left, ast.Attribute) else ""
        node = node.right if kernel in _OF_KERNEL else node.left
    words = None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("format", "split"):
        words = source.span(node) if node.func.attr == "split" else None
        node = node.func.value
    if not isinstance(node, ast.JoinedStr) and not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return None
    start, end = source.span(node)
    literals = [literal for literal in read_strings(source.text, start, end)[0] if literal.depth == 0]
    if len(literals) != 1 or literals[0].is_bytes:
        return None
    start, end = literals[0].body
    found = [(char, start) for char in kernel if kernel in _OF_KERNEL]
    for value, low, high in characters(source.text, literals[0]):
        field = source.text[low:high]
        found += [(char, low) for char in (field if value == FIELD and field in _OF_KERNEL else value)]
    return ShellText(
        text="".join(char for char, _ in found),
        start=start,
        end=end,
        script=True,
        literal=literals[0],
        positions=tuple(at for _, at in found),
        words=words,
    )


def command_of_list(node: ast.expr) -> shell.Command | None:
    """The command that a list of arguments runs (`["pip", "install", name]`); None for any other expression."""
    elements = _elements(node)
    if elements is None:
        return None
    values = [_argument(element) for element in elements]
    words = (
        shell.Word(0, len(value), value, value, "u" * len(value), value[:1] not in (FIELD, "{")) for value in values
    )
    return shell.Command(0, 0, tuple(words))


def simple_line(found: ShellText, commands: Sequence[shell.Command]) -> bool:
    """Whether the text is a single command, possibly followed by redirections and a comment."""
    if not found.is_line or len(commands) != 1:
        return False
    (command,) = commands
    read = shell.read(found.text)
    return (
        not read.blocks
        and not command.assignments
        and not command.after.strip()
        and command.words[:1] != ()
        and command.words[0].start == command.start
    )


def _of_command(source: CellSource, command: Command) -> Iterator[ShellText]:
    start = command.body
    if command.kind == "magic":
        if command.name in _SHELL_MAGICS:
            start = source.text.index(command.name, start) + len(command.name)
        elif command.name not in ("pip", "conda", "mamba", "micromamba", "uv"):
            return
    elif command.kind != "shell":
        return
    magic = command.kind == "magic" and command.name not in _SHELL_MAGICS
    yield ShellText(source.text[start : command.end], start, command.end, command=command, magic=magic)


def _elements(node: ast.expr) -> list[ast.expr] | None:
    """The elements of a list; a list that is inserted or added, and no literal, is one of them."""
    match node:
        case ast.BinOp(op=ast.Add(), left=left, right=right) if (first := _elements(left)) is not None:
            return [*first, *(_elements(right) or [right])]
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            inserted = ((part, part.value if isinstance(part, ast.Starred) else part) for part in parts)
            return [one for part, value in inserted for one in (part is not value and _elements(value)) or [value]]
    return None


def _argument(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    text = ast.unparse(node)
    return f"{{{text}}}" if re.fullmatch(r"[\w.]+(?:\(\))?", text) else FIELD
