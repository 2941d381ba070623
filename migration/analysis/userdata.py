"""The names of the secrets that a notebook reads with `userdata.get`."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from migration.analysis.names import ColabNames
from migration.python.source import CellSource


def secret_names(cells: Sequence[CellSource], colab: ColabNames) -> tuple[str, ...]:
    """Each name once, in the order of the notebook; names that are computed are not known."""
    found: list[str] = []
    for source in cells:
        for use in colab.cell(source).uses:
            if use.path == "userdata.get" and use.call is not None:
                arguments = [*use.call.args, *(word.value for word in use.call.keywords)]
                values = [argument.value for argument in arguments if isinstance(argument, ast.Constant)]
                found += [value for value in values[:1] if isinstance(value, str)]
    return tuple(dict.fromkeys(filter(None, found)))
