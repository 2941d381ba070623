"""Colab's folders in the text below a cell magic: files written by `%%writefile`, programs of other interpreters.

Such text is not Python code of the notebook, so it cannot contain a variable of the notebook. A program that runs as a
child of the kernel reads the folder from the environment; other text is composed in Python.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from migration.analysis.facts import NotebookFacts
from migration.colab.paths import PathSpan, find_paths, may_name_folder, replaced
from migration.notebook.findings import Keeps
from migration.notebook.texts import Edit
from migration.python.source import CellSource
from migration.python.strings import read_strings
from migration.rules.paths_found import Found, changed, kept
from migration.rules.paths_shell import command_edits, script_places
from migration.rules.paths_strings import Group, python_text, read, rewritten, strings
from migration.rules.rule import Match

WRITES_FILE = frozenset({"writefile", "file"})
_IS_CODE = re.compile(r"\s?(?:[A-Za-z_]\w*(?!['\"\w])|[rR]?f['\"])")
_LEFT_SUFFIXES = frozenset({"ipynb", "html", "htm", "js", "ts", "jsx", "tsx", "css", "vue", "php"})
"""Kinds of file in which `/content` may be a URL, or that do not belong to a local program."""

_COMMAND = re.compile(r"(?:#+[ \t]*|[ \t]*`*[ \t]*)(?P<command>[!%][ \t]*[A-Za-z/.][^\n`]*)")
_CODE_BEFORE = re.compile(r"[=(\[,+{]\s*$")
_FORM = re.compile(r"#\s*(?:@|param:|type:)")
_LINK = re.compile(r"\]\([^)\s]*\)|\b(?:href|src)\s*=\s*[\"'][^\"']*[\"']|https?://[^\s)>\"'`]+")


def bodies(source: CellSource, facts: NotebookFacts) -> Iterator[Found]:
    """The positions of folders below a cell magic; one match for all if the complete cell is rewritten."""
    magic = source.magic
    if magic is None or source.is_shell:
        return
    start = magic.body
    body = source.text[start:]
    if source.is_program:
        yield from _python_file(source, body, facts)
        return
    if source.is_python:
        return
    spans = find_paths(body, facts.mounts)
    if not spans:
        return
    suffix = re.search(r"\.(\w+)[\"']?\s*$", magic.argument)
    kind = suffix[1].lower() if suffix else ""
    if any(span.is_escaped for span in spans):
        yield from (_left(start, span) for span in spans)
    elif magic.name == "writetemplate":
        yield _whole(source, spans, [_template(start, span, facts) for span in spans])
    elif magic.name not in WRITES_FILE or kind in _LEFT_SUFFIXES:
        yield from (_left(start, span) for span in spans)
    elif kind == "py":
        yield from _python_file(source, body, facts)
    elif kind in ("sh", "bash"):
        yield from _shell_file(source, spans, facts)
    else:
        yield from _text_file(source, body, spans, facts)


def _left(start: int, span: PathSpan) -> Found:
    return kept(start + span.start, start + span.end, "body", drive=span.folder == "drive")


def _whole(source: CellSource, spans: list[PathSpan], edits: list[Edit]) -> Found:
    start = source.magic.body if source.magic else 0
    drive = any(span.folder == "drive" for span in spans)
    what = "the mounted Drive" if drive else "Colab's folder /content"
    message = f"a file or program below a cell magic names {what}"
    first, last = start + spans[0].start, start + spans[-1].end
    return Found(Match(first, last, message, tuple(edits), keeps=Keeps.EQUIVALENT), drive)


def _template(start: int, span: PathSpan, facts: NotebookFacts) -> Edit:
    """`%%writetemplate`, as notebooks define it, replaces `{name}` by the notebook's variables."""
    name = facts.drive if span.folder == "drive" else facts.work
    return Edit(start + span.start, start + span.end, f"{{{name}}}")


def _shell_file(source: CellSource, spans: list[PathSpan], facts: NotebookFacts) -> Iterator[Found]:
    start = source.magic.body if source.magic else 0
    places = script_places(source.text, start, len(source.text), facts)
    edits = [edit for _, edit in places if edit is not None]
    if edits:
        yield _whole(source, spans, edits)
    for span, edit in places:
        if edit is None:
            yield _left(0, span)


def _python_file(source: CellSource, body: str, facts: NotebookFacts) -> Iterator[Found]:
    """Uses a variable of the file, with the folder's name and read from the environment, in its strings."""
    inner = CellSource(body)
    spans = find_paths(body, facts.mounts)
    if not spans:
        return
    start = source.magic.body if source.magic else 0
    in_strings = list(strings(inner, facts))
    found = [*in_strings, *comments(inner, facts)]
    edits = [edit for one in found for edit in one.match.edits]
    is_own = any(_uses(body, name) for name in (facts.work, facts.drive))
    if inner.tree is None or inner.commands or (is_own and edits):
        yield from (_left(start, span) for span in spans)
        return
    for one in found:
        if not one.match.edits:
            match = replace(one.match, start=start + one.match.start, end=start + one.match.end)
            yield Found(match, one.drive)
    if not edits:
        return
    moved = [Edit(start + edit.start, start + edit.end, edit.text) for edit in edits]
    code = [edit.text for one in in_strings for edit in one.match.edits if _IS_CODE.match(edit.text)]
    names = [name for name in (facts.work, facts.drive) if any(_uses(text, name) for text in code)]
    if names:
        at, prelude = _prelude(inner, inner.tree, names)
        moved.append(Edit(start + at, start + at, prelude))
    yield _whole(source, spans, moved)


def _uses(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def _prelude(inner: CellSource, tree: ast.Module, names: list[str]) -> tuple[int, str]:
    """The position of a file's variables, after its first imports, and the lines that set them."""
    at, has_os = 0, False
    for index, node in enumerate(tree.body):
        is_docstring = index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not (is_docstring or isinstance(node, ast.Import | ast.ImportFrom)):
            break
        has_os = has_os or (isinstance(node, ast.Import) and any(a.name == "os" and not a.asname for a in node.names))
        at = inner.line_span(*inner.span(node))[1]
    lines = ["import os"] * (not has_os) + [f'{name} = os.environ["{name}"]' for name in names]
    if at == 0:
        first = inner.span(tree.body[0])[0] if tree.body else 0
        return inner.text.rfind("\n", 0, first) + 1, "\n".join([*lines, "", ""])
    return at, "\n" + "\n".join(lines)


def _text_file(source: CellSource, body: str, spans: list[PathSpan], facts: NotebookFacts) -> Iterator[Found]:
    """The same magic, called from Python with a text that contains the variables."""
    magic = source.magic
    quotes = [quote for quote in ('"""', "'''") if quote not in body and not body.startswith(quote[0])]
    named = replaced(body, facts.mounts, facts.work, facts.drive)
    names = {facts.drive if span.folder == "drive" else facts.work for span in spans}
    is_argument_plain = magic is not None and '"' not in magic.argument.strip('"') and "\\" not in magic.argument
    if magic is None or not quotes or not is_argument_plain or any(_uses(body, name) for name in names):
        yield from (_left(magic.body if magic else 0, span) for span in spans)
        return
    raw = "r" if "\\" in body else ""
    end = "" if named.endswith("\n") else "\n"
    if re.search("[{}]", body):
        text = f"{raw}{quotes[0]}{named}{end}{quotes[0]}"
        text += "".join(f'.replace("{name}", {name})' for name in sorted(names))
    else:
        pieces, at = [], 0
        for span in spans:
            name = facts.drive if span.folder == "drive" else facts.work
            pieces += [body[at : span.start], f"{{{name}}}"]
            at = span.end
        text = f"{raw}f{quotes[0]}{''.join([*pieces, body[at:]])}{end}{quotes[0]}"
    argument = magic.argument.strip()
    literal = f"'{argument}'" if '"' in argument else f'"{argument}"'
    new = f'get_ipython().run_cell_magic("{magic.name}", {literal}, {text})'
    yield _whole(source, spans, [Edit(magic.start, len(source.text), new)])


def comments(source: CellSource, facts: NotebookFacts) -> Iterator[Found]:
    """The comments of a Python cell that name a folder."""
    if source.is_python and not source.is_program and may_name_folder(python_text(source), facts.mounts):
        for start, end in read(source)[1]:
            yield from _prose(source.text, start, end, facts, "a comment names {0}")


def markdown(source: CellSource, facts: NotebookFacts) -> Iterator[Found]:
    """The lines of a text cell with a folder; URLs and the targets of links are not changed."""
    for line in re.finditer(r"[^\n]+", source.text):
        yield from _prose(source.text, *line.span(), facts, "the text names {0}")


def _prose(text: str, start: int, end: int, facts: NotebookFacts, message: str) -> Iterator[Found]:
    """The positions of folders in one line of prose."""
    line = text[start:end]
    spans = find_paths(line, facts.mounts)
    if not spans:
        return
    links = [found.span() for found in _LINK.finditer(line)]
    code = _code_edits(line, facts)
    for edit in code:
        inside = [span for span in spans if edit.start <= span.start < edit.end]
        yield changed(Edit(start + edit.start, start + edit.end, edit.text), message, inside)
    for span in spans:
        if span.is_escaped or any(low <= span.start < high for low, high in links):
            continue
        if not any(edit.start <= span.start < edit.end for edit in code):
            name = facts.drive if span.folder == "drive" else facts.work
            yield changed(Edit(start + span.start, start + span.end, name), message, [span])


def _code_edits(line: str, facts: NotebookFacts) -> list[Edit]:
    """The edits of a command or of string literals that a line of prose shows."""
    if _FORM.match(line):
        return []
    if found := _COMMAND.match(line):
        inner = CellSource(found["command"])
        at = found.start("command")
        edits = [edit for command in inner.commands for edit in command_edits(inner, command, facts)]
        return [Edit(at + edit.start, at + edit.end, edit.text) for edit in sorted(edits)]
    edits = []
    for literal in read_strings(line.replace("#", " "))[0]:
        if not literal.depth and _CODE_BEFORE.search(line, 0, literal.start):
            matches = rewritten(line, Group((literal,), "value"), facts)
            edits += [edit for match in matches for edit in match.match.edits]
    return edits
