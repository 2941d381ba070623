"""Imports that a notebook does not need here: of Colab's package without any use, and of `sys` for questions about
Colab, which other rules replace."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from migration.analysis.names import PACKAGE_WORDS, ColabNames
from migration.colab.local_value import answer
from migration.colab.names import imported_names
from migration.python.source import CellSource

SYS = "sys"
_SYS = re.compile(r"\bsys\b")
_WORD = re.compile(r"--[\w-]+|\w+")  # an option of a program names nothing


def unused_imports(cells: Sequence[CellSource]) -> frozenset[str]:
    """The names that only imports from google.colab contain, outside of blocks, and no other text of a code cell."""
    imports = [
        (source, node)
        for source in cells
        if PACKAGE_WORDS.search(source.text) and source.tree is not None
        for node in source.tree.body
        if isinstance(node, ast.ImportFrom) and any(path for _, path in imported_names(node))
    ]
    if not imports:
        return frozenset()
    inside = Counter(word for source, node in imports for word in _WORD.findall(source.segment(node)))
    all_words = Counter(word for source in cells for word in _WORD.findall(source.text))
    names = {name for _, node in imports for name, path in imported_names(node) if path}
    return frozenset(name for name in names - {"*"} if all_words[name] == inside[name])


def uses_sys_for_tests(cells: Sequence[CellSource], colab: ColabNames) -> bool:
    """Whether a notebook names `sys` in imports and in replaced questions about Colab, and nowhere else, also not in
    text and comments."""
    asks = False
    for source in cells:
        named = [match.start() for match in _SYS.finditer(source.text)]
        if not named:
            continue
        questions = list(_questions(source, colab))
        spans = [*questions, *(source.span(node) for node in source.nodes if is_import(node))]
        if not all(any(start <= at < end for start, end in spans) for at in named):
            return False
        asks = asks or any(start <= at < end for start, end in questions for at in named)
    return asks


def is_import(node: ast.AST) -> bool:
    """Whether a statement imports `sys` under its own name."""
    return isinstance(node, ast.Import) and any(alias.name == SYS and not alias.asname for alias in node.names)


def _questions(source: CellSource, colab: ColabNames) -> Iterator[tuple[int, int]]:
    """The spans of the tests and expressions that ask about Colab and are replaced."""
    cell = colab.cell(source)
    for choice in cell.choices:
        if not isinstance(choice.node, ast.Try) and not choice.stays:
            yield source.span(choice.node.test)
    for node in cell.expressions:
        if isinstance(node, ast.Compare) and answer(node) is not None and cell.answer(node) is not None:
            yield source.span(node)
