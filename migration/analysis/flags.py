"""Flags (names whose value only says whether the notebook runs on Colab), and names that only Colab branches bind."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from migration.analysis.names import ColabNames
from migration.colab.effects import Functions, of_function
from migration.colab.forms import MARK
from migration.colab.local_branch import Context, only_bound_in
from migration.colab.local_value import Answer, asks_for_content
from migration.colab.names import MODULES, MOUNTS
from migration.python.scopes import Assignment, accesses, bound, ids_in, read
from migration.python.source import CellSource
from migration.python.trees import walk

_FLAG_NAME = re.compile(
    r"_*(?:(?:in|is|on|at|use|using|i_?am_?in|has|with|from|run|running|run_?in|running_?(?:in|on)|env(?:ironment)?_?is)_?)?"
    r"(?:google_?)?colab(?:oratory)?(?:_?(?:env|environment|backend|runtime|mode|session|kernel|notebook|available|"
    r"detected|flag))?_*",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class _Store:
    """An assignment to a candidate; `found` is its value here, None if unknown. `removed`: it does not run here, or is
    `IN_COLAB = True` in a kept branch for Colab (`claims`)."""

    found: Answer | None
    top_level: bool = False
    removed: bool = False
    claims: bool = False


def find_flags(cells: Sequence[CellSource], colab: ColabNames) -> Mapping[str, Any]:
    """The flags of a notebook, with their values here, that follow from the known ones (in `colab`) and the branches
    that run here."""
    candidates = {
        access.name
        for cell in map(colab.cell, cells)
        for access in (accesses(cell.source) if cell.concerned else ())
        if access.value is not None and access.scope.parent is None
        and (_FLAG_NAME.fullmatch(access.name) or cell.answer(access.value))
    }  # fmt: skip
    stores: dict[str, list[_Store]] = {name: [] for name in candidates}
    words = _pattern(candidates)
    for source in cells:
        if candidates and words.search(source.text):
            for name, store in _stores(source, candidates, colab):
                stores[name].append(store)
    values = {name: _agreed(name, found) for name, found in stores.items()}
    return _of_imports(cells, colab) | {name: value.value for name, value in values.items() if value is not None}


def _of_imports(cells: Sequence[CellSource], colab: ColabNames) -> dict[str, bool]:
    """The names of any kind that only say whether an import of google.colab succeeded (`HAVE_FILES`), with their values
    here: a `try` sets each to True or False, and its handler, which runs here, to the opposite."""
    opposite = {
        flag
        for source in cells
        for choice in colab.cell(source).choices
        if isinstance(choice.failing, ast.Import | ast.ImportFrom | ast.Try) and not choice.colab
        for node in choice.removed
        if (flag := _as_flag(node)) is not None
    }
    if not opposite:
        return {}
    return {name: value for name, value in _set_by_handlers(cells, colab).items() if (name, not value) in opposite}


def find_context(cells: Sequence[CellSource], colab: ColabNames, *, static_mount: bool) -> Context:
    """The context of the branches, completed by what the branches need that run here."""
    needed = colab.context.needed | _find_needed(cells, colab, static_mount)
    of_imports = {name for name in _of_imports(cells, colab) if name in colab.flags}
    return replace(
        colab.context,
        needed=needed,
        functions=_find_functions(cells, colab),
        flags_of_imports=frozenset(of_imports),
    )


def _find_functions(cells: Sequence[CellSource], colab: ColabNames) -> Functions:
    """The functions of the notebook that branches call, directly or through others, with the kinds of their
    effects."""
    choices = [choice for source in cells for choice in colab.cell(source).choices]
    waiting = _called([part for choice in choices for part in (*choice.kept, *choice.removed)])
    nodes: dict[str, tuple[CellSource, ast.FunctionDef]] = {}
    while waiting:
        defines = re.compile(rf"\bdef[ \t]+(?:{'|'.join(sorted(waiting))})\b")
        new = {
            node.name: (source, node)
            for source in cells
            if defines.search(source.text)
            for node in source.nodes
            if isinstance(node, ast.FunctionDef) and node.name in waiting
        }
        nodes |= new
        waiting = _called([node for _, node in new.values()]) - nodes.keys()
    calls = {name: _called([node]) for name, (_, node) in nodes.items()}
    found: dict[str, tuple[str, ...]] = {}
    earlier: set[tuple[str, tuple[str, ...]]] = set()  # functions in a circle may change their effects in turn
    waiting = set(nodes)
    while waiting:
        kinds = {name: of_function(*nodes[name], found) for name in waiting}
        changed = {name for name, _ in kinds.items() - earlier}
        found |= kinds
        earlier |= kinds.items()
        waiting = {name for name in nodes if not changed.isdisjoint(calls[name])}
    return found


def _called(parts: Sequence[ast.stmt]) -> set[str]:
    """The names that statements call."""
    calls = (node for part in parts for node in walk(part) if isinstance(node, ast.Call))
    return {node.func.id for node in calls if isinstance(node.func, ast.Name)}


def _find_needed(cells: Sequence[CellSource], colab: ColabNames, static_mount: bool) -> frozenset[str]:
    """Names that only branches bind which do not run here, at module level, although remaining code reads them."""
    choices = ((source, choice) for source in cells for choice in colab.cell(source).choices)
    idle = (only_bound_in(source, choice) for source, choice in choices if isinstance(choice.scope, ast.Module))
    candidates = set().union(*idle) - colab.flags.keys()
    mounting = colab.bound_to(MOUNTS) if static_mount else set()  # these mounts are removed
    modules = colab.bound_to(MODULES)
    if not candidates:
        return frozenset()
    words = _pattern(candidates)
    used: set[str] = set()
    stored: set[str] = set()
    for source in cells:
        if not words.search(source.text):
            continue
        if source.tree is None:
            text = source.text if source.is_python else source.text[: source.body]
            used |= {match[0] for line in text.split("\n") for match in words.finditer(line.partition("#")[0])}
            continue
        idle_here = ids_in(node for choice in colab.cell(source).choices for node in choice.idle)
        left = [access for access in accesses(source) if id(access.node) not in idle_here]
        used |= read(access for access in left if access.name not in mounting or not _is_owner(source, access.node))
        stored |= bound(access for access in left if access.name not in modules or not access.is_set_to_none)
    return frozenset(candidates & used - stored)


def _is_owner(source: CellSource, node: ast.AST) -> bool:
    """Whether a name is followed by an attribute: `drive.mount`."""
    return isinstance(node, ast.Name) and source.text[source.span(node)[1] :].lstrip().startswith(".")


def _set_by_handlers(cells: Sequence[CellSource], colab: ColabNames) -> dict[str, bool]:
    """Names that a handler of a failed Colab import sets to True or False: the author's own flags for a local run. Any
    other assignment is the opposite value at module level, above the handler."""
    found: dict[str, tuple[bool, tuple[int, int], frozenset[int]]] = {}
    for source in cells:
        for choice in colab.cell(source).choices:
            if choice.handler is not None and isinstance(choice.scope, ast.Module):
                place = source.index, source.offset(choice.handler.lineno, choice.handler.col_offset)
                inside = frozenset(ids_in([*choice.handler.body, *choice.removed]))
                flags = [flag for node in choice.handler.body if (flag := _as_flag(node)) is not None]
                # Conditions on a flag for Colab are choices themselves.
                found |= {name: (value, place, inside) for name, value in flags if not _FLAG_NAME.fullmatch(name)}
    words = _pattern(found) if found else None
    for source in cells:
        for access in accesses(source) if words and words.search(source.text) else ():
            if access.name in found and access.binds:
                value, place, inside = found[access.name]
                node = access.assignment
                is_above = node is not None and _as_flag(node) == (access.name, not value)
                is_above = is_above and (source.index, source.span(node)[0]) < place
                if id(access.node) not in inside and not (is_above and access.owner.parent is None):
                    del found[access.name]
    return {name: value for name, (value, _, _) in found.items()}


def _as_flag(node: ast.stmt) -> tuple[str, bool] | None:
    """The name and the value of `name = True` or `name = False`."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=bool(value))):
            return name, value
    return None


def _pattern(names: Collection[str]) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(names)))})\b")


def _agreed(name: str, stores: Sequence[_Store]) -> Answer | None:
    """The common value of all assignments that run here, if they define a flag."""
    here = [store for store in stores if not store.removed]
    if stores and all(store.claims for store in stores):
        return Answer(False)
    answers = [store.found for store in here if store.found is not None]
    if not answers or len(answers) < len(here) or len({(type(found.value), found.value) for found in answers}) > 1:
        return None
    value, is_flag_name = answers[0].value, _FLAG_NAME.fullmatch(name) is not None
    if any(found.asks for found in answers):
        return answers[0] if is_flag_name or all(found.asks for found in answers) else None
    if not is_flag_name or not isinstance(value, bool):
        return None
    if value:  # set by hand, which is wrong on a local machine
        return Answer(False) if all(store.top_level for store in here) else None
    # Without another value on Colab the author has set it for a local run: nothing to change.
    return Answer(False) if len(stores) > len(here) else None


def _stores(source: CellSource, names: Collection[str], colab: ColabNames) -> Iterator[tuple[str, _Store]]:
    """The assignments to some names of the module. `IN_COLAB = True` in a kept branch for Colab does not count: the
    branch runs here, but not on Colab; the value in the other branch does."""
    if source.tree is None:
        text = source.text if source.is_python else ""
        for name in names:
            if re.search(rf"\b{re.escape(name)}\s*=(?!=)|\bas\s+{re.escape(name)}\b", text):
                yield name, _Store(None)
        return
    cell = colab.cell(source)
    claiming = [choice for choice in cell.choices if choice.colab and any(map(_claims_colab, choice.kept))]
    removed = cell.removed - ids_in(node for choice in claiming for node in choice.removed)
    claims = ids_in(node for choice in claiming for node in choice.kept if _claims_colab(node))
    top = {id(node) for node in source.tree.body}
    for access in accesses(source):
        if access.name in names and access.binds and access.owner.parent is None:
            node = access.assignment if access.scope.parent is None else None
            found = _stored_value(source, node, colab) if node is not None else None
            stored = id(access.node)
            yield access.name, _Store(found, id(node) in top, stored in removed | claims, stored in claims)


def _claims_colab(node: ast.stmt) -> bool:
    """Whether a statement is `IN_COLAB = True`."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=True)):
            return _FLAG_NAME.fullmatch(name) is not None
    return False


def _stored_value(source: CellSource, node: Assignment, colab: ColabNames) -> Answer | None:
    """The value of an assignment; None for one that the user should edit or that is unknown."""
    start, end = source.span(node)
    if MARK.search(source.text, end, source.line_span(start, end)[1]) or source.command_of(node) is not None:
        return None
    value = node.value
    if isinstance(value, ast.Constant) and (isinstance(value.value, bool) or value.value is None):
        return Answer(value.value, asks=False)
    if asks_for_content(value):
        return Answer(False)
    return colab.cell(source).answer(value) if value is not None else None
