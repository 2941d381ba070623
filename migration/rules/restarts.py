"""LF25x: restarts of the kernel, which Colab notebooks trigger after an installation."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from migration.analysis.facts import NotebookFacts
from migration.notebook.findings import Keeps
from migration.notebook.texts import holding
from migration.python.source import CellSource
from migration.python.statements import Block, blocks, place_of, take_out
from migration.python.strings import comments
from migration.python.trees import walk
from migration.rules.rule import Example, Match, Rule

_NOTE = "# The kernel was restarted here."
_TEXTS = "; reword texts that announce the restart"
_ACTION = (
    "restart the kernel here if freshly installed packages are not picked up, if the cells below need a new state, "
    f"such as another mode of TensorFlow, or to free its memory, then continue with the next cell{_TEXTS}"
)
_GUARD_ACTION = (
    "restart the kernel if the condition holds, and run this cell again: its code below runs without a restart here"
    f"{_TEXTS}"
)
_STATE = "names, settings and imported modules stay"
_TRIGGER = holding(
    *("do_shutdown", "kill", "_exit", "abort", "exit", "quit", "kernel.restart"),
    like=r"do_shutdown|os\s*\.\s*(?:kill|_exit|abort)|(?:^|;)[ \t]*(?:exit|quit)\s*\(|kernel\.restart",
)


def _find_restarts(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    if source.tree is None:
        return
    in_functions = _inside_functions(source.tree)
    for block in blocks(source):
        found = [node for node in block.statements if _restarts(source, block, node, in_functions)]
        if found:
            start, end = source.span(found[0])[0], source.span(found[-1])[1]
            message = f"`{ast.unparse(found[0])}` restarts the kernel; here its state is not reset: {_STATE}"
            place = place_of(source, start)
            is_guarded = place is not None and any(isinstance(node, ast.If) for node in place.around)
            action, keeps = (_GUARD_ACTION, Keeps.NEEDS_HUMAN) if is_guarded else (_ACTION, None)
            is_emptied = block.owner is not None and len(found) == len(block.statements)
            note = _NOTE if is_emptied else "\n".join([_NOTE, *_comments_after(source, found)])
            yield Match(start, end, message, take_out(source, found, note, always=True), action, keeps)


def _comments_after(source: CellSource, found: Sequence[ast.stmt]) -> Iterator[str]:
    """The comments after statements whose lines are removed, as lines of their own."""
    for node in found:
        start, end = source.span(node)
        first, last = source.line_span(start, end)
        if not (indent := source.text[first:start]).strip():
            yield from (indent + source.text[low:high] for low, high in comments(source) if end <= low < last)


def _restarts(source: CellSource, block: Block, node: ast.stmt, in_functions: set[int]) -> bool:
    """Whether a statement ends the kernel, so that Colab starts a new one."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    match node.value:
        case ast.Call(func=ast.Attribute(attr="do_shutdown")):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id="os"), attr="kill"), args=[target, *_]):
            return ast.unparse(target) == "os.getpid()"
        case ast.Call(func=ast.Attribute(value=ast.Name(id="os"), attr="_exit" | "abort")):
            return id(node) not in in_functions
        case ast.Call(func=ast.Name(id="exit" | "quit")):
            # Below an `if` or in a handler it ends a run that has failed.
            return block.owner is None
    return "notebook.kernel.restart(" in source.segment(node)


def _inside_functions(tree: ast.Module) -> set[int]:
    functions = [node for node in walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {id(part) for function in functions for part in walk(function)}


RULES: tuple[Rule, ...] = (
    Rule(
        "LF250",
        "Restart of the kernel",
        "`os.kill(os.getpid(), 9)`, `os._exit(0)`, `exit()` at the top, `….kernel.do_shutdown(True)`",
        f"the comment `{_NOTE}`; below an `if` the user must act",
        Keeps.EQUIVALENT,
        _find_restarts,
        _TRIGGER,
        example=Example("os.kill(os.getpid(), 9)", "# The kernel was restarted here."),
    ),
)
