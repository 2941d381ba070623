"""Colab's folders in Python: string literals become f-strings, comments and docstrings contain the folders' names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal as OneOf

from migration import shell
from migration.analysis.facts import NotebookFacts
from migration.colab.paths import PathSpan, begins_path, find_paths, may_name_folder
from migration.notebook.texts import FIELD, Edit, edited
from migration.python.source import CellSource, once_a_cell
from migration.python.strings import Literal, as_format, characters, read_cell
from migration.python.trees import fields, last_name, walk
from migration.rules.paths_found import changed, kept
from migration.rules.rule import Match

_RUNS_SHELL = frozenset({"system", "popen", "getoutput", "getstatusoutput", "create_subprocess_shell", "getpipeoutput"})
_MAY_RUN_SHELL = frozenset({"run", "call", "check_call", "check_output", "Popen"})
_SPLIT = re.compile(r"\s*\)?\s*\.\s*split\(\s*\)")
_IS_PART = re.compile(r"[=(\[,+:%]\s*$")
_ESCAPED_BLANK = re.compile(r"/My\\+ Drive\b")
_IN_TAG = re.compile(r"<[a-zA-Z][^<>]*[\w-]=[ \t]*$")
Use = OneOf["value", "text", "shell", "appended"]


def strings(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """The string literals with a folder, with the edits that insert the variable."""
    if source.is_python and not source.is_program and may_name_folder(source.masked, facts.mounts):
        run = _command_strings(source, facts)
        for group in groups(source):
            if group.use != "text":
                is_command = group.use == "shell" or group.literals[0].start in run
                found = list(rewritten(source.text, group, facts, is_command=is_command))
                if found and source.tree is None and _is_markup(source.text[: group.literals[0].start]):
                    found = [kept(PathSpan(match.start, match.end, "work")) for match in found]
                yield from found


def _is_markup(before: str) -> bool:
    """Whether a text ends inside an HTML tag or a script, so that no f-string can follow."""
    return _IN_TAG.search(before) is not None or before.rfind("<script") > before.rfind("</script")


def _command_strings(source: CellSource, facts: NotebookFacts) -> set[int]:
    """The starts of the strings in the values of names that the notebook runs as shell commands, or that escape the
    blank of `My Drive` for a shell; another value without a blank may be the path of a program that is used elsewhere.
    No string of a sum is one if another opens a quotation mark, nor is one that `%` inserts: the author may have quoted
    it."""
    found: set[int] = set()
    for node in source.nodes if facts.commands or _ESCAPED_BLANK.search(source.text) else ():
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value, names = getattr(node, "value", None), [target.id for target in targets if isinstance(target, ast.Name)]
        text = source.segment(value) if names and value is not None else ""
        if _ESCAPED_BLANK.search(text) or (" " in text and not facts.commands.isdisjoint(names)):
            parts = _summands(value)
            if len(parts) == 1 or all(map(_closes_quotes, parts)):
                found |= {source.span(part)[0] for part in parts if isinstance(part, ast.Constant | ast.JoinedStr)}
    return found


def _summands(node: ast.expr) -> list[ast.expr]:
    """The operands of a sum, or the expression itself; of `%`, the text into which it inserts."""
    parts = [node]
    for part in parts:
        if isinstance(part, ast.BinOp):
            parts += {ast.Add: [part.left, part.right], ast.Mod: [part.left]}.get(type(part.op), [])
    return [part for part in parts if not isinstance(part, ast.BinOp)]


def _closes_quotes(node: ast.expr) -> bool:
    """Whether the texts in an expression close each quotation mark that they open."""
    texts = [part.value for part in walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return not any(sum(text.count(mark) for text in texts) % 2 for mark in "\"'")


def rewritten(text: str, group: Group, facts: NotebookFacts, *, is_command: bool = False) -> Iterator[Match]:
    """The matches of one group of literals."""
    raw = "".join(text[literal.start : literal.end] for literal in group.literals)
    if "\\" not in raw and not may_name_folder(raw, facts.mounts):
        return
    chars = [(char, at) for at, literal in enumerate(group.literals) for char in characters(text, literal)]
    value = "".join(char.value for char, _ in chars)
    spans = find_paths(value, facts.mounts)
    if not spans:
        return
    # The name of a folder here may contain a blank, at which `split` would divide it.
    is_split = _SPLIT.match(text, group.literals[-1].end) is not None and " " in value.strip()
    by_literal: dict[int, list[tuple[PathSpan, int, int]]] = {}
    for span in spans:
        first, last = chars[span.start], chars[span.end - 1]
        is_divided = first[1] != last[1] or (group.use == "appended" and span.start == 0)
        if is_split or is_divided or span.is_escaped or group.literals[first[1]].is_bytes:
            yield kept(replace(span, start=first[0].start, end=last[0].end))
        else:
            by_literal.setdefault(first[1], []).append((span, first[0].start, last[0].end))
    quoting = shell.read(value.replace(FIELD, "x"), script=True).quotes if is_command else ""
    for at, places in by_literal.items():
        literal = group.literals[at]
        new = _new_literal(text, literal, places, group, facts, quoting)
        yield changed(Edit(literal.start, literal.end, new), "a string names {0}", [span for span, _, _ in places])


def _new_literal(
    text: str,
    literal: Literal,
    places: list[tuple[PathSpan, int, int]],
    group: Group,
    facts: NotebookFacts,
    quoting: str,
) -> str:
    """The literal with the folders' variables instead of the paths."""
    names = {"drive": facts.drive, "work": facts.work}
    body_start, body_end = literal.body
    before = " " if literal.start and re.match(r"\w", text[literal.start - 1]) else ""
    span, start, end = places[0]
    if (start, end) == (body_start, body_end) and len(group.literals) == 1 and not quoting:
        after = " " if re.match(r"\w", text[literal.end : literal.end + 1]) else ""
        return before + names[span.folder] + after
    if (
        group.use == "value"
        and not quoting
        and len(group.literals) == 1
        and _is_template(text[body_start:body_end], literal)
    ):
        fields = [Edit(at - literal.start, to - literal.start, f"{{{names[one.folder]}}}") for one, at, to in places]
        used = dict.fromkeys(names[span.folder] for span, _, _ in places)
        calls = "".join(f'.replace("{{{name}}}", {name})' for name in used)
        return edited(text[literal.start : literal.end], fields) + calls
    pieces, at = [], body_start
    for span, start, end in places:
        mark = ""
        if quoting and not literal.depth and quoting[span.start] == "u":
            mark = "'" if literal.quote[0] == '"' else '"'
        field = f"{mark}{{{names[span.folder]}}}{mark}"
        pieces += [_plain(text[at:start], literal), field]
        at = end
    pieces.append(_plain(text[at:body_end], literal))
    prefix = literal.prefix
    if not literal.is_format:
        prefix = ("r" if prefix == "r" else "R" if prefix == "R" else "r" * literal.is_raw) + "f"
    return f"{before}{prefix}{literal.quote}{''.join(pieces)}{literal.quote}"


def _is_template(body: str, literal: Literal) -> bool:
    """Whether a literal is a text of several lines with braces, each of which an f-string would double."""
    return "\n" in body and "{" in body and not literal.is_format


def _plain(part: str, literal: Literal) -> str:
    return part if literal.is_format else as_format(part, raw=literal.is_raw)


@dataclass(frozen=True)
class Group:
    """Literals that Python joins to one string, and how it is used."""

    literals: tuple[Literal, ...]
    use: Use


@once_a_cell
def groups(source: CellSource) -> list[Group]:
    """The literals of a cell in groups, by the syntax tree; without one, each alone."""
    return list(_groups(source, read_cell(source)[0]))


def _groups(source: CellSource, literals: list[Literal]) -> Iterator[Group]:
    nodes = _string_nodes(source)
    at = 0
    for start, end, use in nodes:
        while at < len(literals) and literals[at].start < start:
            # Literals that are not in the tree: in a command's code.
            yield Group((literals[at],), "value")
            at += 1
        inside = []
        while at < len(literals) and literals[at].end <= end:
            inside.append(literals[at])
            at += 1
        if inside:
            yield Group(tuple(literal for literal in inside if not literal.depth), use)
        yield from (Group((literal,), _use_in_text(source, literal)) for literal in inside if literal.depth)
    yield from (Group((literal,), _use_in_text(source, literal)) for literal in literals[at:])


def _use_in_text(source: CellSource, literal: Literal) -> Use:
    """The use of a literal that is not in the tree: in a cell without one, or inside an f-string."""
    before = source.text[: literal.start].rstrip(" \t")
    if before.endswith("+") and not re.search(r"[\"']\s*\+$", before):
        return "appended"
    is_bare = len(literal.quote) == 3 and not literal.depth and not _IS_PART.search(before)
    return "text" if is_bare else "value"


def _string_nodes(source: CellSource) -> list[tuple[int, int, Use]]:
    """The spans of the tree's strings with their uses, in order; nothing inside an f-string."""
    if source.tree is None:
        return []
    found: list[tuple[int, int, Use]] = []
    stack: list[tuple[ast.AST, Use]] = [(source.tree, "value")]
    while stack:
        node, use = stack.pop()
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)):
            found.append((*source.span(node), use))
        else:
            stack += _children(node, use)
    return sorted(found)


def _children(node: ast.AST, use: Use) -> Iterator[tuple[ast.AST, Use]]:
    """The parts of a node, with the use of a string in each."""
    for name in fields(node):
        value = getattr(node, name, None)
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child, _use_of(node, name, child, use)


def _use_of(node: ast.AST, name: str, child: ast.AST, use: Use) -> Use:
    if isinstance(node, ast.Expr):
        return "text" if isinstance(child, ast.Constant) else "value"
    if name == "decorator_list":
        return "appended"  # the URL of a route: to that of the server
    if isinstance(node, ast.Call):
        if name == "args" and child is node.args[0] and _runs_shell(node):
            return "shell"
        return use if use == "appended" or (name == "func" and use == "shell") else "value"
    if isinstance(child, ast.Constant | ast.JoinedStr) and _is_appended(node, name):
        return "appended"
    if isinstance(node, ast.List | ast.Tuple | ast.Subscript | ast.keyword):
        return use if use != "shell" else "value"
    return use if isinstance(node, ast.BinOp | ast.IfExp | ast.Attribute) else "value"


def _is_appended(node: ast.AST, name: str) -> bool:
    """Whether the part `name` of a node is appended to a text after which no path can begin."""
    if isinstance(node, ast.AugAssign):
        return isinstance(node.op, ast.Add) and name == "value"
    is_sum = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)
    return is_sum and name == "right" and not _ends_open(node.left)


def _ends_open(node: ast.expr) -> bool:
    """Whether a path may begin after this left operand of `+`: a string that ends neither in a name nor in a field."""
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        node = node.right
    if isinstance(node, ast.JoinedStr) and node.values:
        node = node.values[-1]
    value = node.value if isinstance(node, ast.Constant) else None
    return isinstance(value, str) and begins_path(value, len(value))


def _runs_shell(call: ast.Call) -> bool:
    name = last_name(call.func)
    if name in _RUNS_SHELL:
        return True
    return name in _MAY_RUN_SHELL and any(
        keyword.arg == "shell" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True
        for keyword in call.keywords
    )
