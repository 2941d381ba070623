"""The parameters of a notebook, and a check of given parameters."""

from __future__ import annotations

import argparse
import ast
import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from core.errors import UsageError
from core.reading import parse_json, read_json_object


def check_parameters(notebook: Path, given: Mapping[str, Any]) -> None:
    """Raises UsageError for an unknown parameter, with the names of all parameters."""
    known = parameters_of(notebook)
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise UsageError(f"{notebook.name} has no parameter {name!r}", hint=f"{hint}it has {', '.join(known)}")


def parameters_of(notebook: Path) -> list[str]:
    """The names that the cell tagged `parameters` sets. Raises UsageError if the file cannot be read."""
    try:
        cells = read_json_object(notebook)["cells"]
        tagged = ["".join(cell["source"]) for cell in cells if "parameters" in cell["metadata"].get("tags", ())]
        return [name for source in tagged for name in _assigned(source)]
    except (OSError, ValueError, KeyError, TypeError, SyntaxError) as error:
        raise UsageError(f"{notebook} is not a notebook with parameters: {error}") from error


def _assigned(source: str) -> Iterator[str]:
    for statement in ast.parse(source).body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def parameter(text: str) -> tuple[str, Any]:
    """`name=value`, the value in JSON. Raises ArgumentTypeError, for argparse."""
    name, equals, value = text.partition("=")
    try:
        return name, parse_json(value)
    except ValueError as error:
        problem = "is not NAME=VALUE" if not equals else 'has a value that is not JSON (a string needs "quotes")'
        raise argparse.ArgumentTypeError(f"{text!r} {problem}") from error
