"""LF23x: `google.colab` in text: comments, strings, shell lines, other languages, cells that are not Python 3."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator

from migration.analysis.facts import NotebookFacts
from migration.colab.names import RUNTIME
from migration.notebook.findings import Keeps
from migration.notebook.texts import Edit, holding
from migration.python.source import CellSource
from migration.python.strings import Literal, read_strings
from migration.python.trees import last_name
from migration.rules.rule import Example, Match, Rule

_COLAB = holding("colab", like=r"google\s*\.\s*colab|google\s+import\s+colab\b")
# The JavaScript API of Colab's page; `output.clear`, `output.eval_js` and so on are Python.
_SCRIPT = re.compile(
    r"(?:window\.|parent\.|top\.)?google\.colab\.(?:kernel|widgets|output\.(?:set|resize|pause|get|create|invoke|"
    r"appendTo|display)\w*|colabUrl\w*|drive\.(?:js)?\w*Url)\b|nbextensions/google\.colab"
)
# A complete script that only requests the URL of a port: `eval_js` supports it here, too.
_ASKS_PORT = re.compile(
    r"\s*(?:await\s+)?(?P<module>google\.colab)\.kernel\.proxyPort\((?:[^()\n]|\([^()\n]*\))*\)\s*;?\s*"
)
# Elements of the page that scripts click to keep a Colab machine.
_ELEMENT = re.compile(r"colab-(?:connect|toolbar)-button")
_PAGE = re.compile(r"(?:nbextensions/)?google\.colab(?:\.\w+)*")
_IS_SCRIPT = re.compile(r"<script|=>|\b(?:document|window)\.|\b(?:const|let|await)\s+\w|\bfunction\b\s*\w*\(")
_SCRIPT_CELLS = frozenset({"javascript", "js", "html", "HTML", "svg"})
_FROM_GOOGLE = re.compile(r"\bfrom\s+google\s+import\s+colab\b(?P<alias>\s+as\s+\w+)?")
_IMPORTS = re.compile(r"(?:^|;|\\n)\s*(?:from\s+google|import\s+google\.colab)", re.MULTILINE)
_ANY = re.compile(r"\bgoogle\s*\.\s*colab\b")
_PAGE_ACTION = (
    "replace the script by ipywidgets or by a cell of its own: the page of a plain notebook has no `google.colab`, and "
    "nothing in it calls Python"
)
_ELEMENT_ACTION = "delete the script: a local machine does not disconnect, and a plain notebook has no such button"


def _local(text: str) -> str:
    """A text with the names of the runtime instead of those of Colab."""
    text = _FROM_GOOGLE.sub(lambda found: f"import {RUNTIME}{found['alias'] or ' as colab'}", text)
    return _ANY.sub(RUNTIME, text)


def _rewritten(source: CellSource, start: int, end: int, message: str) -> Iterator[Match]:
    """The lines of a segment of text that contain google.colab, rewritten one by one; JavaScript is not changed."""
    at = start
    for line in source.text[start:end].split("\n"):
        if _COLAB.fires(line) and not _SCRIPT.search(line):
            new = _local(line)
            if new != line:
                yield Match(at, at + len(line), message, (Edit(at, at + len(line), new),))
        at += len(line) + 1


def _find_comments(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    if source.tree is None:
        return
    for start, end in read_strings(source.masked, source.body)[1]:
        yield from _rewritten(source, start, end, "a comment names `google.colab`")
    if source.magic is not None:
        yield from _rewritten(source, 0, source.magic.start, "a comment names `google.colab`")


def _find_strings(source: CellSource) -> Iterator[Match]:
    shown = _shown_texts(source)
    for literal in _literals(source):
        start, end = literal.body
        if port := _ASKS_PORT.fullmatch(source.text, start, end):
            edit = Edit(*port.span("module"), RUNTIME)
            yield Match(*port.span(), "JavaScript requests the URL of a port", (edit,))
        if port or _IS_SCRIPT.search(source.text, start, end):
            continue
        if literal.start not in shown and _is_code(source.text[start:end]):
            yield from _rewritten(source, start, end, "a text contains code for `google.colab`")


def _is_code(text: str) -> bool:
    """Whether a string is Python code that imports from Colab; a message that names a module of it is not."""
    if not _IMPORTS.search(text):
        return False
    try:
        ast.parse(textwrap.dedent(text.replace("{{", "{").replace("}}", "}").replace("\\n", "\n")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _literals(source: CellSource) -> list[Literal]:
    """The strings of a cell's Python, the outermost ones."""
    if source.tree is None:
        return []
    return [literal for literal in read_strings(source.masked, source.body)[0] if literal.depth == 0]


def _shown_texts(source: CellSource) -> set[int]:
    """Start positions of the strings that are only printed: messages are not changed."""
    return {
        source.span(argument)[0]
        for node in source.nodes
        if isinstance(node, ast.Call) and last_name(node.func) == "print"
        for argument in node.args
        if isinstance(argument, ast.Constant | ast.JoinedStr)
    }


def _find_scripts(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for start, end in _script_spans(source):
        if _ASKS_PORT.fullmatch(source.text, start, end):
            continue
        is_script = _is_script_cell(source) or (source.tree is not None and _IS_SCRIPT.search(source.text, start, end))
        for match in (_PAGE if is_script else _SCRIPT).finditer(source.text, start, end):
            yield Match(*match.span(), f"JavaScript uses `{match[0]}` of Colab's page", action=_PAGE_ACTION)
        if match := _ELEMENT.search(source.text, start, end):
            yield Match(*match.span(), f"JavaScript clicks `{match[0]}` on Colab's page", action=_ELEMENT_ACTION)


def _script_spans(source: CellSource) -> list[tuple[int, int]]:
    """Texts that may be JavaScript: strings, and cells of other languages."""
    if source.tree is None:
        return [(source.body, len(source.text))]
    return [literal.body for literal in _literals(source)]


def _is_script_cell(source: CellSource) -> bool:
    return source.magic is not None and source.magic.name in _SCRIPT_CELLS


def _find_code(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """Code for Colab in strings, shell lines, files, and cells that are not Python 3."""
    message = "a shell line, or text for a file, names `google.colab`"
    if not source.is_python:
        if not _is_script_cell(source):
            yield from _rewritten(source, 0, len(source.text), message)
    elif source.tree is None:
        message = "the cell is not Python 3, and its text names `google.colab`"
        yield from _rewritten(source, 0, len(source.text), message)
    else:
        for command in source.commands:
            if command.kind == "shell" or command.name not in ("load_ext", "reload_ext", "unload_ext"):
                yield from _rewritten(source, command.start, command.end, message)
        yield from _find_strings(source)


RULES: tuple[Rule, ...] = (
    Rule(
        "LF230",
        "Code for Colab in comments",
        "`# from google.colab import files`",
        f"`# from {RUNTIME} import files`",
        Keeps.EXACT,
        _find_comments,
        _COLAB,
        example=Example("# from google.colab import files", "# from landfall_runtime import files"),
    ),
    Rule(
        "LF232",
        "JavaScript for Colab's page",
        "`google.colab.kernel.invokeFunction(…)`, `google.colab.kernel.comms`, the button `colab-connect-button`, in "
        "strings, `%%javascript` and `%%html`",
        "nothing; it is reported",
        Keeps.NEEDS_HUMAN,
        _find_scripts,
        holding("google.colab", "colab-connect-button", "colab-toolbar-button"),
        example=Example('%%javascript\ngoogle.colab.kernel.invokeFunction("f", [], {})'),
    ),
    Rule(
        "LF233",
        "Code for Colab in text",
        "Python code for `google.colab` in strings, shell lines, the body of `%%writefile` and cells that cannot be "
        "parsed; the JavaScript that requests the URL of a port",
        f"the same with `{RUNTIME}`",
        Keeps.EQUIVALENT,
        _find_code,
        _COLAB,
        example=Example("!python -c 'import google.colab'", "!python -c 'import landfall_runtime'"),
    ),
)
