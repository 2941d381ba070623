"""The names of the secrets that a notebook reads with `userdata.get`, or from the environment instead of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from core.secrets.names import is_secret_name
from migration.analysis.names import ColabNames
from migration.colab.local_branch import Choice
from migration.colab.names import Use
from migration.python.scopes import ids_in
from migration.python.source import CellSource
from migration.python.trees import last_name, walk


def secret_names(cells: Sequence[CellSource], colab: ColabNames) -> tuple[str, ...]:
    """Each name once, in the order of the notebook; names that are computed are not known."""
    found: list[str] = []
    for source in cells:
        cell = colab.cell(source)
        placed = [(source.span(use.node)[0], _name_read(use)) for use in cell.uses]
        for choice in cell.choices:
            placed += _read_instead(source, choice, cell.names.uses)
        found += [name for _, name in sorted(placed)]
    return tuple(dict.fromkeys(filter(None, found)))


def _name_read(use: Use) -> str:
    """The name in `userdata.get("NAME")`; empty for anything else."""
    if use.path != "userdata.get" or use.call is None:
        return ""
    arguments = [*use.call.args, *(word.value for word in use.call.keywords)]
    values = [argument.value for argument in arguments if isinstance(argument, ast.Constant)]
    return next((value for value in values[:1] if isinstance(value, str)), "")


def _read_instead(source: CellSource, choice: Choice, uses: Sequence[Use]) -> Iterator[tuple[int, str]]:
    """The secrets, with their positions, that the kept branch reads from the environment instead of `userdata`."""
    removed = ids_in(choice.removed)
    on_colab = {_name_read(use) for use in uses if use.path == "userdata.get" and id(use.node) in removed}
    if not on_colab:
        return
    for node in (node for statement in choice.kept for node in walk(statement)):
        match node:
            case (
                ast.Subscript(value=environment, slice=ast.Constant(value=str(name)), ctx=ast.Load())
                | ast.Call(func=ast.Attribute(value=environment, attr="get"), args=[ast.Constant(value=str(name)), *_])
            ) if last_name(environment) == "environ":
                read = name
            case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]) if last_name(function) == "getenv":
                read = name
            case _:
                continue
        if read in on_colab or is_secret_name(read):
            yield source.span(node)[0], read
