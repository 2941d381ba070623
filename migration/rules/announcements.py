"""LF310: a branch for Colab that is kept prints that it runs on Colab; here it does not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from migration.analysis.facts import NotebookFacts
from migration.analysis.unused import SYS, is_import
from migration.notebook.findings import Keeps
from migration.notebook.texts import Edit, holding
from migration.python.source import CellSource
from migration.python.statements import blocks, take_out
from migration.rules.rule import Example, Match, Rule

_COLAB = r"(?:google\W?)?colab(?:oratory)?\b"
_SAYS_COLAB = re.compile(
    r"\b(?:running|executing|working|(?:you|we)(?: a|')re|i(?: a|')m|this is|it(?: i|')s)\b[^\n]*"
    rf"\b(?:on|in|inside|with|as|an?|is|'s)\b[^\n]*\b{_COLAB}|\busing {_COLAB}(?! pro)"
    r"|\bcolab\b\W*(?:environment |notebook |runtime )?(?:is |was |has been )?(?:detected|found|recogni[sz]ed)\b"
    r"|\b(?:detected|found|recogni[sz]ed)\b[^\n]*\bcolab\b"
    rf"|\A\W*(?:(?:in|on|environment|platform)\W+)?{_COLAB}(?: (?:mode|environment|notebook|runtime))?\W*\Z",
    re.IGNORECASE,
)
_WORKS_ON_COLAB = re.compile(rf"(?P<work>\A\W*\w+ing\b[^\n]*?) (?:on|in|inside|within) {_COLAB}", re.IGNORECASE)
_DENIES = re.compile(r"\bnot\b|n't\b|\bno\b|\bif\b|\bunless\b|\bwithout\b|\?", re.IGNORECASE)
_SAYS_LOCAL = re.compile(r"\bcolab|\blocal|\bjupyter", re.IGNORECASE)
_BLANK_LINES = re.compile(r"(?<=\n)(?:[ \t]*\n)+")
_SENTENCE = re.compile(r"(?<=[.!])[ ]+(?=\S)")


def _find_announcements(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for choice in facts.colab.cell(source).choices:
        local = next((source.segment(node) for node in choice.idle if _denies_colab(node)), "")
        found = [_without_claim(source, node, local) for node in choice.kept] if choice.colab else []
        if edits := tuple(edit for edits in found for edit in edits):
            span = source.span(choice.node)
            yield Match(*span, "the kept branch prints that it runs on Colab", (*edits, *_others(source, span, edits)))


def _others(source: CellSource, span: tuple[int, int], edits: Sequence[Edit]) -> Iterator[Edit]:
    """Edits that change nothing, of the other lines: the next round replaces the complete statement."""
    for start, end in (source.line_span(start, start) for start in source.line_starts):
        apart = all(end < edit.start or edit.end <= start for edit in edits)
        if span[0] <= end and start < span[1] and apart and start < end:
            yield Edit(start, end, source.text[start:end])


def _without_claim(source: CellSource, node: ast.stmt, local: str) -> tuple[Edit, ...]:
    """Edits that remove the sentences of a `print("…")` that say that this is Colab; `local` is the message of the
    other branch, which is true here."""
    if (said := _printed(node)) is None or not (_says_colab(said.value) or _WORKS_ON_COLAB.search(said.value)):
        return ()
    left = " ".join(sentence for sentence in _SENTENCE.split(said.value) if not _says_colab(sentence))
    left = _WORKS_ON_COLAB.sub(r"\g<work>", left)
    if not left and not local:
        return take_out(source, [node])
    if not left:
        return (Edit(*source.span(node), local),)
    at = source.text.find(said.value, *source.span(said))
    return (Edit(at, at + len(said.value), left),) if at >= 0 else ()


def _printed(node: ast.stmt) -> ast.Constant | None:
    """The text of a `print("…")`."""
    match node:
        case ast.Expr(ast.Call(ast.Name("print"), [ast.Constant(str()) as said], [])):
            return said
    return None


def _says_colab(text: str) -> bool:
    return _SAYS_COLAB.search(text) is not None and _DENIES.search(text) is None


def _denies_colab(node: ast.stmt) -> bool:
    """Whether a statement prints that this is another machine."""
    said = _printed(node)
    return said is not None and _SAYS_LOCAL.search(said.value) is not None and not _says_colab(said.value)


def _find_unused(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """Imports of `sys` that only the replaced questions used."""
    for block in blocks(source) if facts.unused_sys else ():
        for node in filter(is_import, block.statements):
            others = [ast.unparse(alias) for alias in node.names if alias.name != SYS]
            edits = (Edit(*source.span(node), f"import {', '.join(others)}"),) if others else take_out(source, [node])
            end = source.span(node)[1]
            blanks = _BLANK_LINES.match(source.text, end + 1)
            if blanks and not others and not source.text[: source.span(node)[0]].strip():
                edits = (*edits, Edit(*blanks.span(), ""))
            yield Match(source.span(node)[0], end, "only the test for Colab that is gone used `sys`", edits)


RULES: tuple[Rule, ...] = (
    Rule(
        "LF310",
        "A message that this is Colab",
        '`print("Google Colab detected.")` in a branch for Colab that is kept',
        "the message without this sentence, or the one of the other branch, or nothing",
        Keeps.EQUIVALENT,
        _find_announcements,
        holding("olab"),
        of_colab=True,
        example=Example(
            'if "google.colab" in sys.modules:\n    print("Running on Colab. Cloning …")\n    !git clone https://example.org/a/b.git',
            'if "google.colab" in sys.modules:\n    print("Cloning …")\n    !git clone https://example.org/a/b.git',
        ),
    ),
    Rule(
        "LF312",
        "An import for a test for Colab",
        '`import sys`, if only tests such as `"google.colab" in sys.modules` use it in the notebook',
        "nothing",
        Keeps.EQUIVALENT,
        _find_unused,
        holding("sys"),
        example=Example(
            'import sys\nIN_COLAB = "google.colab" in sys.modules', 'IN_COLAB = "google.colab" in sys.modules'
        ),
    ),
)
