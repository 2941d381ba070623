"""Secrets written in a notebook: they are removed, and the code reads the environment instead."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from core.secrets.finding import Secret, find_secrets, variable_for
from core.secrets.names import is_secret_name
from migration import shell
from migration.analysis.facts import NotebookFacts
from migration.notebook.findings import Keeps
from migration.notebook.texts import Edit, edited
from migration.python.shell_texts import shell_texts
from migration.python.source import CellSource, once_a_cell
from migration.python.trees import walk
from migration.rules.rule import Example, Match, Rule

_BEFORE = re.compile(r"([A-Za-z_]\w*)[\"']?\s*\]?\s*(?::\s*[\w.\[\]| ]+)?(?:=|:|,|\()\s*[rRuUfF]?[\"']*\Z")

_SENTENCES = re.compile(r"(?:[a-z,]+ ){3,}[a-z]+[.!?]\s")


def _find_secrets(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    found = _own_secrets(source)
    if not found:
        return
    edits = {secret: _edit(source, secret) for secret in found}
    if source.tree is not None and CellSource(edited(source.text, set(edits.values()))).tree is None:
        edits = {secret: Edit(secret.start, secret.end, f"<{_variable(source, secret)}>") for secret in found}
    imported = _import_edit(source, list(edits.values())) if source.index <= facts.imports_os else None
    for secret, edit in edits.items():
        variable = _variable(source, secret)
        action = f"set {variable} in the environment that the notebook runs in, and revoke the secret written here"
        if f"<{variable}>" in edit.text:
            action = f"revoke the secret written here, and replace <{variable}> by a new one when the cell runs"
        both = (imported, edit) if imported else (edit,)
        imported = None
        yield Match(secret.start, secret.end, f"{secret.kind} written in the notebook", both, action)


def written_secrets(cells: Iterable[CellSource]) -> Iterator[str]:
    """The variables that replace the secrets in the code of a notebook."""
    for source in cells:
        for secret in _own_secrets(source):
            variable = _variable(source, secret)
            if f"<{variable}>" not in _edit(source, secret).text:
                yield variable


@once_a_cell
def _own_secrets(source: CellSource) -> list[Secret]:
    """The secrets of a cell, without passwords that are quoted inside a long text of sentences: it is example data."""
    found = find_secrets(source.text)
    passwords = [secret for secret in found if secret.kind == "password"]
    if not (passwords and source.is_python and source.tree):
        return found
    spans = [
        source.span(node)
        for node in source.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(_SENTENCES.findall(node.value)) > 1
    ]
    examples = {secret for secret in passwords for start, end in spans if start < secret.start < end}
    return [secret for secret in found if secret not in examples]


def _variable(source: CellSource, secret: Secret) -> str:
    before = _BEFORE.search(source.text, max(0, secret.start - 120), secret.start)
    return variable_for(before[1] if before and is_secret_name(before[1]) else "", secret.kind)


def _edit(source: CellSource, secret: Secret) -> Edit:
    """Replaces a string that is the secret by a look-up in the environment, and a secret in a shell line by the
    variable. Elsewhere the secret is replaced by the name of the variable, because code is not evaluated there."""
    variable = _variable(source, secret)
    value = source.text[secret.start : secret.end]
    for node in source.nodes if source.is_python else ():
        if isinstance(node, ast.Constant) and node.value == value:
            start, end = source.span(node)
            if start < secret.start < end and re.fullmatch(r"[rRuU]?(['\"]{1,3}).*\1", source.text[start:end]):
                return Edit(start, end, f'os.environ["{variable}"]')
    for text in shell_texts(source):
        if text.literal is None and text.start <= secret.start < text.end and "{" not in text.text:
            quotes = shell.read(text.text, script=text.script).quotes
            after = text.text[secret.end - text.start :]
            if quotes[secret.start - text.start] in "ud" and not re.match(r"\w", after):
                return Edit(secret.start, secret.end, f"${variable}")
    return Edit(secret.start, secret.end, f"<{variable}>")


def _import_edit(source: CellSource, edits: list[Edit]) -> Edit | None:
    """`import os` above the first statement that needs it, if the cell neither imports nor uses it before."""
    needing = [edit.start for edit in edits if re.search(r"os\.environ", edit.text)]
    if not needing or source.tree is None:
        return None
    for statement in source.tree.body:
        start, end = source.span(statement)
        if isinstance(statement, ast.Import) and any(
            alias.name == "os" and not alias.asname for alias in statement.names
        ):
            return None
        if any(isinstance(part, ast.Name) and part.id == "os" for part in walk(statement)):
            return None
        if end > min(needing):
            line = source.line_span(start, start)[0]
            indent = re.match(r"[ \t]*", source.text[line:])
            return Edit(line, line, f"{indent[0] if indent else ''}import os\n")
    return None


def _find_in_prose(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for secret in find_secrets(source.text):
        edit = Edit(secret.start, secret.end, f"<{_variable(source, secret)}>")
        yield Match(
            secret.start, secret.end, f"{secret.kind} written in the text", (edit,), "revoke the secret written here"
        )


RULES: tuple[Rule, ...] = (
    Rule(
        "LF801",
        "secret in the code",
        'a token, key or password written in a cell: `token = "hf_…"`, `!git clone https://user:…@host`',
        '`os.environ["HF_TOKEN"]`, `$HF_TOKEN` in a shell line, and `<HF_TOKEN>` where no code is evaluated',
        Keeps.NEEDS_HUMAN,
        _find_secrets,
        any_language=True,
        example=Example(
            "!git clone https://me:pa55-w0rd@example.org/x.git",
            "!git clone https://me:$PASSWORD_IN_A_URL@example.org/x.git",
        ),
    ),
    Rule(
        "LF803",
        "secret in the text",
        "a token, key or password written in a markdown or raw cell",
        "`<HF_TOKEN>`, the name of its environment variable",
        Keeps.NEEDS_HUMAN,
        _find_in_prose,
        None,
        ("markdown", "raw"),
        any_language=True,
        example=Example(
            "Clone https://me:pa55-w0rd@example.org/x.git first.",
            "Clone https://me:<PASSWORD_IN_A_URL>@example.org/x.git first.",
        ),
    ),
)
