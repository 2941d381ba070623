"""Texts about Colab, in Markdown cells and in forms, are reported."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count, takewhile

from core.secrets.finding import masked
from migration.analysis.facts import NotebookFacts
from migration.colab.forms import marks
from migration.notebook.findings import Finding, Keeps
from migration.python.source import CellSource
from migration.rules.rule import Example, Match, Rule

# Texts about Colab, by a word that each of them contains: it is much faster to find than the pattern.
_ABOUT_COLAB = {
    word: re.compile(pattern, re.IGNORECASE)
    for word, pattern in (
        (
            "runtime",
            r"\b(?:change|set|select|choose|restart|reset|disconnect|reconnect)\w*(?: the| your)? runtime\b"
            r"|\bruntime type\b|\bruntime\W{1,12}(?:->|>|→|&gt;|➔|/|▶|\|)"
            r"|\bruntime\b\W{0,8}\bmenu\b|\bmenu\b.{0,20}\bruntime\b",
        ),
        ("hardware accelerator", r"\bhardware accelerator\b"),
        ("notebook settings", r"\bnotebook settings\b"),
        ("factory reset", r"\bfactory reset\b"),
        ("google.colab", r"\bgoogle\.colab\b"),
        ("mount", r"\bmount\w*\b.{0,40}\b(?:google |my |your )?drive\b"),
        ("files.", r"\bfiles\.(?:upload|download)\b"),
        ("userdata", r"\buserdata\b"),
        (
            "secret",
            r"\b(?:colab|notebook)\W{0,3}s?\W{0,3}secrets?\b|\bsecrets? (?:tab|panel|manager|section|pane)\b",
        ),
        ("cloud", r"\bcolab\b[^.]{0,60}\bin the cloud\b|\bin the cloud\b[^.]{0,60}\bcolab\b"),
        ("file", r"\bfiles? (?:icon|panel|pane|tab|explorer|browser)\b"),
        ("folder", r"\bfolder (?:icon|panel|pane|tab|explorer|browser)\b"),
    )
}
_EMPHASIS = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
_ABOUT_MESSAGE = "text about Colab's menus, files, drive or secrets"
_ABOUT_ACTION = "reword the text: the menu is called Kernel, files are in the work folder, secrets in the environment"


def _find_texts(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    by_line = {source.line_of(match.start()): match for match in reversed(_about_colab(source.text))}
    for _, match in sorted(by_line.items()):
        yield Match(*match.span(), _ABOUT_MESSAGE, (), _ABOUT_ACTION)


def _about_colab(text: str) -> list[re.Match[str]]:
    """The places of a text that are about Colab, in order."""
    lower = text.lower()
    patterns = [pattern for word, pattern in _ABOUT_COLAB.items() if word in lower]
    plain = _EMPHASIS.sub("*", text) if patterns else text
    return sorted((match for pattern in patterns for match in pattern.finditer(plain)), key=lambda match: match.start())


def form_texts(source: CellSource) -> Iterator[Finding]:
    """The findings for form texts about Colab, which other rules move or make plain comments, in an original cell."""
    if source.language != "python" or "markdown" not in source.text:
        return
    rows = {source.line_of(mark.start): mark for mark in marks(source) if mark.kind == "markdown"}
    while rows:
        first = next(iter(rows))
        run = list(takewhile(rows.__contains__, count(first)))
        text = "\n".join(rows.pop(row).text for row in run)
        lines = dict.fromkeys(first + text.count("\n", 0, match.start()) for match in _about_colab(text))
        for row in lines:
            before = masked(source.text[slice(*source.line_span(source.line_starts[row], source.line_starts[row]))])
            yield Finding(
                "LF704", Keeps.EQUIVALENT, source.index, row + 1, _ABOUT_MESSAGE, before=before, action=_ABOUT_ACTION
            )


RULES: tuple[Rule, ...] = (
    Rule(
        "LF704",
        "text about Colab",
        "its Runtime menu, mounting a drive, `google.colab`, the secrets or files pane, in markdown and in "
        "the texts of forms",
        "nothing; reported",
        Keeps.EQUIVALENT,
        _find_texts,
        None,
        ("markdown",),
        any_language=True,
        example=Example("Runtime > Change runtime type"),
    ),
)
