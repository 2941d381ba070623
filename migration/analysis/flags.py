"""Flags (names whose value only says whether the notebook runs on Colab), and names that only Colab branches bind."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from migration.analysis.names import ColabNames
from migration.colab.local_branch import Choice, only_bound_in
from migration.colab.local_value import Answer, FlagOf, answer, asks_for_content
from migration.colab.names import MOUNTS
from migration.python.scopes import names_bound_by, own_nodes, read_names_of, stored_names
from migration.python.source import CellSource

_FLAG_NAME = re.compile(
    r"_*(?:(?:in|is|on|at|use|using|i_?am_?in|has|with|from|run|running|run_?in|running_?(?:in|on)|env(?:ironment)?_?is)_?)?"
    r"(?:google_?)?colab(?:oratory)?(?:_?(?:env|environment|backend|runtime|mode|session|kernel|notebook|available|"
    r"detected|flag))?_*",
    re.IGNORECASE,
)
_FORM = re.compile(r"#[ \t]*@[ \t]*param\b")


@dataclass(frozen=True)
class _Store:
    """An assignment to a candidate; `found` is its value here, None if unknown."""

    found: Answer | None
    top_level: bool = False


def find_flags(cells: Sequence[CellSource], colab: ColabNames) -> Mapping[str, Any]:
    """The flags of a notebook, with their values here, that follow from the known ones (in `colab`) and the branches
    that run here."""
    concerned = [source for source in cells if colab.concern(source) and source.tree is not None]
    candidates: set[str] = set()
    for source in concerned:
        flag_of = colab.flag_of(source)
        for node in own_nodes(source.tree.body if source.tree else []):
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                names = {target.id for target in _targets(node) if isinstance(target, ast.Name)}
                candidates |= {name for name in names if _FLAG_NAME.fullmatch(name) or answer(node.value, flag_of)}
    variables: dict[str, Any] = {}
    for name in candidates:
        stores = list(_stores(name, cells, colab))
        value = _agreed(name, stores)
        if value is not None and not (value.value or value.asks) and _count_assignments(name, cells) == len(stores):
            continue  # the author has set it for a run outside Colab: nothing to change
        if value is not None:
            variables[name] = value.value
    return variables


def find_needed(cells: Sequence[CellSource], colab: ColabNames, *, static_mount: bool) -> frozenset[str]:
    """Names that only removed branches bind, at module level, although remaining code reads them."""
    candidates: set[str] = set()
    for source in cells:
        for choice in colab.choices(source):
            if not choice.colab and isinstance(choice.scope, ast.Module):
                candidates |= only_bound_in(choice)
    candidates -= colab.flags.keys()
    if static_mount:
        candidates -= {name for name, places in colab.bindings.items() if any(place[2] in MOUNTS for place in places)}
    if not candidates:
        return frozenset()
    words = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(candidates)))})\b")
    read: set[str] = set()
    bound: set[str] = set()
    for source in cells:
        if not words.search(source.text):
            continue
        if source.tree is None:
            text = source.text if source.is_python else source.text[: source.body]
            read |= {match[0] for line in text.split("\n") for match in words.finditer(line.partition("#")[0])}
            continue
        removed = _removed_statements(colab.choices(source))
        read |= read_names_of(source, source.tree.body, removed)
        bound |= stored_names(source.tree.body, removed)
    return frozenset(candidates & read - bound)


def is_as_on_colab(cells: Sequence[CellSource], colab: ColabNames) -> bool:
    """Whether a kept branch for Colab creates files and folders that other cells expect."""
    return any(choice.sets_place for source in cells for choice in colab.choices(source))


def _removed_statements(found: Sequence[Choice]) -> list[ast.stmt]:
    """The statements of the removed branches."""
    return [statement for choice in found for statement in choice.removed]


def _agreed(name: str, stores: Sequence[_Store]) -> Answer | None:
    """The common value of all assignments, if they define a flag."""
    if not stores or any(store.found is None for store in stores):
        return None
    answers = [store.found for store in stores if store.found is not None]
    if any((type(found.value), found.value) != (type(answers[0].value), answers[0].value) for found in answers):
        return None
    if any(found.asks for found in answers) and (_FLAG_NAME.fullmatch(name) or all(found.asks for found in answers)):
        return answers[0]
    if not _FLAG_NAME.fullmatch(name) or not isinstance(answers[0].value, bool):
        return None
    # Set by hand: `IN_COLAB = True` is wrong on a local machine.
    is_local = all(store.top_level for store in stores) or not answers[0].value
    return Answer(False, asks=bool(answers[0].value)) if is_local else None


def _count_assignments(name: str, cells: Sequence[CellSource]) -> int:
    assigned = re.compile(rf"\b{re.escape(name)}\s*=(?!=)")
    return sum(len(assigned.findall(source.masked)) for source in cells if name in source.text)


def _stores(name: str, cells: Sequence[CellSource], colab: ColabNames) -> Iterator[_Store]:
    """The assignments to a name at module level, without those in removed branches."""
    word = re.compile(rf"\b{re.escape(name)}\b")
    for source in cells:
        if not word.search(source.text):
            continue
        if source.tree is None:
            if source.is_python and re.search(rf"\b{re.escape(name)}\s*=(?!=)|\bas\s+{re.escape(name)}\b", source.text):
                yield _Store(None)
            continue
        flag_of = colab.flag_of(source)
        top = {id(node) for node in source.tree.body}
        found = colab.choices(source)
        claiming = [choice for choice in found if choice.colab and any(map(_claims_colab, choice.kept))]
        claims = {id(node) for choice in claiming for node in choice.kept if _claims_colab(node)}
        for choice in claiming:
            yield from (_Store(_stored_value(source, node, flag_of)) for node in choice.removed if _assigns(node, name))
        nodes = own_nodes(source.tree.body, _removed_statements(found))
        assignments = [
            node for node in nodes if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        ]
        owners = {id(target): node for node in assignments for target in _targets(node)}
        for node in nodes:
            owner = owners.get(id(node))
            if name not in names_bound_by(node) or id(owner) in claims:
                continue  # a claim: the branch runs here, but not on Colab
            yield _Store(_stored_value(source, owner, flag_of), id(owner) in top) if owner else _Store(None)
        for node in source.nodes:
            if isinstance(node, ast.Global) and name in node.names:
                yield _Store(None)


def _assigns(node: ast.stmt, name: str) -> TypeGuard[ast.Assign]:
    return isinstance(node, ast.Assign) and any(isinstance(part, ast.Name) and part.id == name for part in node.targets)


def _claims_colab(node: ast.stmt) -> bool:
    """Whether a statement is `IN_COLAB = True`."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=True)):
            return _FLAG_NAME.fullmatch(name) is not None
    return False


def _stored_value(source: CellSource, node: ast.Assign | ast.AnnAssign, flag_of: FlagOf) -> Answer | None:
    """The value of an assignment; None for one that the user should edit or that is unknown."""
    start, end = source.span(node)
    if _FORM.search(source.text, end, source.line_span(start, end)[1]) or source.command_of(node) is not None:
        return None
    value = node.value
    if isinstance(value, ast.Constant) and (isinstance(value.value, bool) or value.value is None):
        return Answer(value.value, asks=False)
    if asks_for_content(value):
        return Answer(False)
    return answer(value, flag_of) if value else None


def _targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]
