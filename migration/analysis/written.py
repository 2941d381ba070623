"""Strings of a notebook that name files or folders which it only writes, such as the path of `to_csv`."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from migration.python.shell_texts import shell_texts
from migration.python.source import CellSource
from migration.python.trees import last_name, walk

# Functions and methods that read none of the files in their arguments.
_WRITERS = frozenset(
    {
        *("to_csv", "to_excel", "to_feather", "to_html", "to_json", "to_latex", "to_parquet", "to_pickle", "tofile"),
        *("save", "savefig", "savetxt", "savez", "savez_compressed", "savemat", "imsave", "imwrite", "write_image"),
        *("save_model", "save_pretrained", "save_weights", "write_html", "dump", "makedirs", "mkdir"),
    }
)
# Functions that write their second argument, or the one of these names.
_COPIES = frozenset({"copy", "copy2", "copyfile", "copytree", "move"})
_TARGETS = frozenset({"dst"})
_COPY_PROGRAMS = frozenset({"cp", "mv"})
_NEW_FILE = re.compile(r"[wx][bt+]*")
# Calls that use a path without reading its content.
_NEUTRAL = frozenset({"print", "exists", "isdir", "isfile"})
# Calls that compose a path.
_COMPOSES = frozenset({"join", "Path", "str"})
_PARTS = (ast.Constant, ast.JoinedStr, ast.FormattedValue, ast.BinOp, ast.Name, ast.Attribute, ast.Call)


def written_spans(cells: Sequence[CellSource]) -> Mapping[int, list[tuple[int, int]]]:
    """The spans of such strings, by the index of the cell. A string that is assigned to a name counts if the notebook
    assigns that name once, and uses it for nothing else than to write. What is unclear does not count."""
    spans: dict[int, list[tuple[int, int]]] = {}
    written: Counter[str] = Counter()
    for source in cells:
        for path in _destinations(source):
            nodes = walk(path)
            spans.setdefault(source.index, []).extend(_strings(source, nodes))
            written.update(node.id for node in nodes if isinstance(node, ast.Name))
        spans.setdefault(source.index, []).extend(_of_programs(source))
    known: set[str] = set()
    while new := [
        (name, source, nodes)
        for name, source, nodes in _assigned_once(cells, set(written) - known)
        if _uses(cells, name) == written[name]
    ]:
        for name, source, nodes in new:
            known.add(name)
            spans.setdefault(source.index, []).extend(_strings(source, nodes))
            written.update(node.id for node in nodes if isinstance(node, ast.Name))
    return {index: found for index, found in spans.items() if found}


def _destinations(source: CellSource) -> Iterator[ast.expr]:
    for node in source.nodes:
        if isinstance(node, ast.Call):
            yield from filter(_is_path, _written_by(node))


def _written_by(call: ast.Call) -> Iterable[ast.expr]:
    """The arguments of a call that it may write, and never reads."""
    name = last_name(call.func)
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    if name in _WRITERS:
        return [*call.args, *named.values()]
    if name in _COPIES and isinstance(call.func, ast.Attribute) and last_name(call.func.value) == "shutil":
        return [*call.args[1:2], *(value for key, value in named.items() if key in _TARGETS)]
    if name == "open" and call.args:
        mode = call.args[1] if len(call.args) > 1 else named.get("mode")
        if isinstance(mode, ast.Constant) and isinstance(mode.value, str) and _NEW_FILE.fullmatch(mode.value):
            return call.args[:1]
    if name in ("write_text", "write_bytes") and isinstance(call.func, ast.Attribute):
        return [call.func.value]
    return []


def _is_path(node: ast.expr) -> bool:
    """Whether an expression only composes a text or a path."""
    return all(
        isinstance(part, _PARTS) and (not isinstance(part, ast.Call) or last_name(part.func) in _COMPOSES)
        for part in walk(node)
    )


def _strings(source: CellSource, nodes: Iterable[ast.AST]) -> list[tuple[int, int]]:
    return [
        source.span(node)
        for node in nodes
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
    ]


def _of_programs(source: CellSource) -> Iterator[tuple[int, int]]:
    """The last arguments of `cp` and `mv` in lines for the shell."""
    for text in shell_texts(source):
        for command in text.commands if text.literal is None else ():
            if command.program in _COPY_PROGRAMS and len(command.arguments) > 1:
                word = command.arguments[-1]
                yield text.at(word.start), text.at(word.end)


def _assigned_once(cells: Sequence[CellSource], names: set[str]) -> Iterator[tuple[str, CellSource, list[ast.AST]]]:
    """The names that have one assignment in the notebook, each with its cell and the nodes of its value."""
    stores = Counter(
        node.id
        for source in cells
        for node in source.nodes
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    for source in cells:
        for node in source.nodes:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                if name in names and stores[name] == 1 and _is_path(node.value):
                    yield name, source, walk(node.value)


def _uses(cells: Sequence[CellSource], name: str) -> int:
    """How often the notebook may use the value of a name: in Python, and in text that is not parsed."""
    found = 0
    word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
    for source in cells:
        if name not in source.text:
            continue
        if source.tree is None:
            found += len(word.findall(source.text))
            continue
        neutral = {
            id(part)
            for node in source.nodes
            if isinstance(node, ast.Call) and last_name(node.func) in _NEUTRAL
            for argument in filter(_is_path, node.args)
            for part in walk(argument)
        }
        found += sum(len(word.findall(source.text, command.start, command.end)) for command in source.commands)
        found += sum(
            isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Store)
            for node in source.nodes
            if id(node) not in neutral
        )
    return found
