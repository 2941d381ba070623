"""LF23x: `google.colab` in text: comments, commands, files, JavaScript, cells that are not Python 3."""

from __future__ import annotations

import re
from collections.abc import Iterator

from migration.analysis.facts import NotebookFacts
from migration.colab.names import RUNTIME
from migration.notebook.findings import Keeps
from migration.notebook.texts import Edit, holding
from migration.python.source import CellSource
from migration.python.strings import comments, outside_comments, read_strings
from migration.rules.rule import Example, Match, Rule

_COLAB = holding("colab", like=r"google\s*\.\s*colab|google\s+import\s+colab\b")
# The JavaScript API of Colab's page; `output.clear`, `output.eval_js` and so on are Python.
_SCRIPT = re.compile(
    r"(?:window\.|parent\.|top\.)?google\.colab\.(?:kernel|widgets|output\.(?:set|resize|pause|get|create|invoke|"
    r"appendTo|display)\w*|colabUrl\w*|drive\.(?:js)?\w*Url)\b|nbextensions/google\.colab"
)
# A complete script that only requests the URL of a port: `eval_js` supports it here, too.
_ASKS_PORT = re.compile(r"\s*(?:await\s+)?google\.colab\.kernel\.proxyPort\((?:[^()\n]|\([^()\n]*\))*\)\s*;?\s*")
# Elements of the page that scripts click to keep a Colab machine.
_ELEMENT = re.compile(r"colab-(?:connect|toolbar)-button")
_PAGE = re.compile(r"(?:nbextensions/)?google\.colab(?:\.\w+)*")
_IS_SCRIPT = re.compile(r"<script|=>|\b(?:document|window)\.|\b(?:const|let|await)\s+\w|\bfunction\b\s*\w*\(")
_SCRIPT_CELLS = frozenset({"javascript", "js", "html", "HTML", "svg"})
_KNOWN_MAGICS = re.compile(
    r"writefile|file|script|ba?sh|shell|system|sx|python[23]?|pypy|cython|latex|markdown|perl|ruby|R"
)
_MAGIC_ACTION = (
    "check the cell, whose magic may run Python: only its text was searched, so replace Colab's calls, folders and "
    "form fields by hand"
)
# Code that is commented out; prose is not changed.
_CODE_COMMENT = re.compile(
    r"#[#\s]*(?:from\s+google\b.*\bimport\b|import\s+google\b|(?:[\w, ]+=\s*)?google\.colab\.[\w.]+\()(?P<rest>.*)"
)
_FROM_GOOGLE = re.compile(r"\bfrom\s+google\s+import\s+colab\b(?P<alias>\s+as\s+\w+)?")
# Not a question whether the package is there: the answer is no.
_ANY = re.compile(r"(?<!find_spec\([\"'])\bgoogle\s*\.\s*colab\b(?![\"']\s*(?:not\s+)?in\b)")
# An import that a message advises.
_SAID = re.compile(r"(?<=[\w:] )from google\.colab\b")
_COMMENT_ACTION = "none is needed; to use the comment as code, make it code in the original, and migrate that"
_SAID_ACTION = f"none is needed, or reword it: here the package is `{RUNTIME}`"
_PAGE_ACTION = (
    "replace the script by ipywidgets or by a cell of its own: the page of a plain notebook has no `google.colab`, and "
    "nothing in it calls Python"
)
_HEIGHT_ACTION = "delete the script: it only sets the height of the output, which is shown completely here"
_ELEMENT_ACTION = "delete the script: a local machine does not disconnect, and a plain notebook has no such button"


def _find_texts(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """The lines of text that contain google.colab, rewritten one by one; JavaScript is not changed."""
    is_unknown = source.magic is not None and not source.is_python and not _KNOWN_MAGICS.fullmatch(source.magic.name)
    for start, end in _texts(source, facts):
        at = start
        for line in source.text[start:end].split("\n"):
            is_text = _COLAB.fires(line) and (_ASKS_PORT.fullmatch(line) or not _SCRIPT.search(line))
            new = _local(line) if is_text else line
            if new != line and line.startswith("#") and source.tree is not None and not _is_code(line, facts):
                yield Match(at, at + len(line), "a comment names `google.colab`", action=_COMMENT_ACTION)
            elif new != line:
                action = _MAGIC_ACTION if is_unknown else ""
                keeps = Keeps.NEEDS_HUMAN if action else None
                edit = Edit(at, at + len(line), new)
                yield Match(edit.start, edit.end, "the text names `google.colab`", (edit,), action, keeps)
            at += len(line) + 1
    for match in outside_comments(source, _SAID) if source.tree is not None else ():
        yield Match(*match.span(), "a message names `google.colab`", action=_SAID_ACTION)


def _is_code(comment: str, facts: NotebookFacts) -> bool:
    """Whether a comment is code whose Colab part has a counterpart in the notebook: its code imports from Colab's
    package, and it is no mount without a folder."""
    found = _CODE_COMMENT.match(comment) if facts.colab.bindings else None
    return found is not None and ("drive" in facts.folders or not re.search(r"\bdrive\b", found["rest"]))


def _texts(source: CellSource, facts: NotebookFacts) -> list[tuple[int, int]]:
    """The commands of a Python cell, its scripts that request the URL of a port, and its comments; all of another
    cell."""
    if _is_script_cell(source):
        return []
    if source.tree is None:
        return [(0, len(source.text))]
    commands = [command for command in source.commands if not command.name.endswith("load_ext")]
    ports = [span for span in _script_spans(source) if _ASKS_PORT.fullmatch(source.text, *span)]
    return [*comments(source), *ports, *((command.start, command.end) for command in commands)]


def _local(text: str) -> str:
    """A text with the names of the runtime instead of those of Colab."""
    text = _FROM_GOOGLE.sub(lambda found: f"import {RUNTIME}{found['alias'] or ' as colab'}", text)
    return _ANY.sub(RUNTIME, text)


def _find_scripts(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for start, end in _script_spans(source):
        if _ASKS_PORT.fullmatch(source.text, start, end):
            continue
        is_script = _is_script_cell(source) or (source.tree is not None and _IS_SCRIPT.search(source.text, start, end))
        for match in (_PAGE if is_script else _SCRIPT).finditer(source.text, start, end):
            action = _HEIGHT_ACTION if "Iframe" in match[0] else _PAGE_ACTION
            yield Match(*match.span(), f"JavaScript uses `{match[0]}` of Colab's page", action=action)
        if match := _ELEMENT.search(source.text, start, end):
            yield Match(*match.span(), f"JavaScript clicks `{match[0]}` on Colab's page", action=_ELEMENT_ACTION)


def _script_spans(source: CellSource) -> list[tuple[int, int]]:
    """Texts that may be JavaScript: strings, and cells of other languages."""
    if source.tree is None:
        return [(source.body, len(source.text))]
    return [literal.body for literal in read_strings(source.masked, source.body)[0] if literal.depth == 0]


def _is_script_cell(source: CellSource) -> bool:
    return source.magic is not None and source.magic.name in _SCRIPT_CELLS


RULES: tuple[Rule, ...] = (
    Rule(
        "LF230",
        "Colab's package in text",
        "`google.colab` in shell lines, the body of `%%writefile`, cells that cannot be parsed, comments and messages; "
        "the JavaScript that requests the URL of a port",
        f"the same with `{RUNTIME}`; nothing in messages, and in comments where no code imports the package: they are "
        "reported",
        Keeps.EQUIVALENT,
        _find_texts,
        _COLAB,
        example=Example("!python -c 'import google.colab'", "!python -c 'import landfall_runtime'"),
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
)
