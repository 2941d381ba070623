"""Markdown: the badge that opens the notebook in Colab is removed, links to its cells lead to headings, and other links
to Colab are reported. Texts are not changed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from migration.analysis.facts import NotebookFacts
from migration.notebook.findings import Keeps
from migration.notebook.reading import source_text
from migration.notebook.texts import Edit, holding
from migration.python.source import CellSource
from migration.rules.rule import Example, Match, Rule

# The address of a notebook that Colab opens: on GitHub, as a gist or on the drive.
_URL = (
    r"(?:(?:https?:)?//|(?<![\w./@=%-]))"
    r"(?:colab\.(?:research|sandbox)\.google\.com/(?:github|gist|drive)/|githubtocolab\.com/)"
    r"(?:[^\s()<>\"'`\[\]{}|]|\([^\s()<>]*\)|\{+[\w.]+\}+)*"
)
_TARGET = r"""\(\s*<?(?:[^()\s]|\([^()\s]*\))*>?(?:\s+(?:"[^"\n]*"|'[^'\n]*'))?\s*\)"""
_IMAGE = rf"(?:!\[[^\]\n]*\]{_TARGET}|<img\b[^>]*>)"
_IN_LINK = r"(?:(?!</?\s*a\b)[\s\S]){0,200}?"
# A picture in a link, with its text, or alone; it is a badge if it names Colab.
_PICTURE = re.compile(
    rf"\[\s*{_IMAGE}[^\]\n]*\]{_TARGET}(?:\{{[^}}\n]*\}})?|<a\b[^>]*>{_IN_LINK}{_IMAGE}{_IN_LINK}</\s*a\s*>|{_IMAGE}",
    re.IGNORECASE,
)
_BADGE = re.compile(
    r"colab(?:oratory)?(?:[-_.\d][-_.\w]*)?(?:badge|logo|button)"
    r"|(?:(?:badge|logo|button)[^)\s\"']*|\b(?:open|run|view|try)\b[^\]\n\"']{0,30}\b)colab(?:oratory)?(?![a-z])",
    re.IGNORECASE,
)
_NOTEBOOK_URL = re.compile(_URL)
_LINKS = re.compile(rf"{_PICTURE.pattern}|\[[^\]\n]*\]\([^)\n]*\)|<a\b[^>]*>[^<]*</a>|<br\s*/?>", re.IGNORECASE)
_TAG_END = re.compile(r"(?:(?:[\"'][^<>\n]*)?>\s*)?")
_HTML_AROUND = re.compile(r"\s*</?(?!(?:a|img|br)\b)\w", re.IGNORECASE)
_NAMES_BADGE = holding(
    "badge",
    "colab",
    like=r"\b(?:click|press|use|follow)\w*\b[^.\n]{0,40}"
    r"\b(?:badge\b|(?:icon|button|logo)\b[^.\n]{0,60}\bcolab\b(?! (?:toolbar|menu))|colab\W{1,4}(?:icon|button|logo)\b"
    r"|open in (?:google )?colab)",
)
_INTRODUCES = re.compile(r"\b(?:run|open|try|launch|execute)\b.*\bcolab\b", re.IGNORECASE)
_SCROLL_LINK = re.compile(
    r"\[(?P<text>(?:[^\[\]\n]|\[[^\[\]\n]*\])*)\]\(\s*<?#scrollTo=(?P<cell>[^\s)>&]*)[^\s)>]*>?\s*\)"
)
_MARKS = re.compile(r"<[^>]*>|[*`]")
_HEADING = re.compile(r"^[ ]{0,3}#{1,6}[ \t]+(.*?)[ \t#]*$", re.MULTILINE)
_CODE = re.compile(
    r"^(?P<fence>`{3,}|~{3,}).*?(?:^(?P=fence)|\Z)|(?P<tick>`+)(?:(?!(?P=tick)).)+(?P=tick)", re.DOTALL | re.MULTILINE
)


def _find_badges(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for start, end in _badges(source.text):
        is_its_own = source.index < facts.first_code and not facts.names_badge
        if is_its_own and _is_alone(source.text, start, end):
            edit = _removal(source.text, start, end)
            yield Match(start, end, "badge that opens the notebook in Colab", (edit,))
        else:
            yield Match(start, end, "badge that opens a notebook in Colab", (), _LINK_ACTION, Keeps.EQUIVALENT)


def _find_links(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    badges = _badges(source.text)
    for match in _NOTEBOOK_URL.finditer(source.text):
        start, end = match.span()
        rest = _TAG_END.match(source.text, end)
        of_badge = any(low < end <= high or (rest and end <= low <= rest.end()) for low, high in badges)
        if not _is_code(source.text, start) and not of_badge:
            yield Match(start, end, "link that opens a notebook in Colab", (), _LINK_ACTION)


def _badges(text: str) -> list[tuple[int, int]]:
    """Spans of the badges."""
    found = (match for match in _PICTURE.finditer(text) if _BADGE.search(match[0]))
    return [match.span() for match in found if not _is_code(text, match.start())]


def _is_alone(text: str, start: int, end: int) -> bool:
    """Whether the line of a badge contains only other badges and links, no HTML is directly around it, no text
    introduces it, and no sentence continues below it: its removal leaves nothing that speaks of it, and no gap."""
    before, after = _around(text, start, end)
    rest = _LINKS.sub("", before + after)
    if re.search(r"[\w|<>]", re.sub(r"^[ \t]*(?:>|\d+[.)])", "", rest)):
        return False
    above, below = text[: start - len(before)], text[end + len(after) + 1 :]
    near = above.removesuffix("\n").rpartition("\n")[2], below.partition("\n")[0]
    introduces = above.rstrip().endswith(":") or _INTRODUCES.search(_LINKS.sub("", above.rstrip().rpartition("\n")[2]))
    continues = near[1].lstrip()[:1].islower()
    return not (continues or introduces or any(map(_HTML_AROUND.match, near)))


def names_badge(cells: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a text of the notebook names its badge, as in "click the badge"."""
    texts = (source_text(cell) for cell in cells if cell["cell_type"] in _PROSE_CELLS)
    return any(_NAMES_BADGE.fires(text.lower()) for text in texts)


def _around(text: str, start: int, end: int) -> tuple[str, str]:
    """The rest of the line before and after a span."""
    newline = text.find("\n", end)
    return text[text.rfind("\n", 0, start) + 1 : start], text[end : len(text) if newline < 0 else newline]


def _removal(text: str, start: int, end: int) -> Edit:
    """Removes a span, and its line if only blanks or a list mark would remain there, else the spaces after it, and
    those before it at the end of a line. A line break by two blanks is kept."""
    before, after = _around(text, start, end)
    first, last = start - len(before), end + len(after)
    if not re.sub(r"^\s*(?:[-*+>]|\d+[.)])?\s*|<br\s*/?>|\W", "", before + after) and "<" not in before + after:
        end = min(last + 1, len(text))
        while first == 0 and text[end : end + 1] == "\n":
            end += 1
        if end == len(text) and first > 0 and not text.endswith("\n"):
            first -= 1
        is_between = re.search(r"\S[ \t]?\n\Z", text[:first]) and text[end : end + 1].strip()
        return Edit(first - 1, end, "  \n") if after.endswith("  ") and is_between else Edit(first, end, "")
    if not after.strip():
        return Edit(first + len(before.rstrip(" \t")), end, "")
    return Edit(start, end + len(after) - len(after.lstrip(" \t")), "")


def headings(cells: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """The headings of each cell, or else the one above it, by the id that Colab gave the cell; none that a cell above
    has, because a link leads to the first one with its text."""
    found: dict[str, tuple[str, ...]] = {}
    above: tuple[str, ...] = ()
    known: set[str] = set()
    for cell in cells:
        texts = _HEADING.findall(source_text(cell)) if cell["cell_type"] == "markdown" else ()
        own = [_MARKS.sub("", text).strip() for text in texts]
        new = tuple(text for text in own if text not in known)
        known.update(own)
        above = new[-1:] if own else above
        if isinstance(name := cell.get("metadata", {}).get("id"), str):
            found[name] = new if own else above
    return found


def _find_scroll_links(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for match in _SCROLL_LINK.finditer(source.text):
        found = facts.headings.get(match["cell"], ())
        heading = match["text"] if match["text"] in found else next(iter(found), "")
        if not heading or re.search(r"[()$%#\\]", heading):  # programs differ in the anchor of such a heading
            action = "if the link is needed, link the heading: `[text](#Heading-with-hyphens)`"
            yield Match(*match.span(), "link to a cell by its id on Colab: it leads nowhere here", (), action)
            continue
        edit = Edit(*match.span(), f"[{match['text']}](#{heading.replace(' ', '-')})")
        yield Match(*match.span(), "link to a cell by its id on Colab", (edit,))


def _is_code(text: str, at: int) -> bool:
    return "`" in text and any(match.start() < at < match.end() for match in _CODE.finditer(text))


_LINK_ACTION = "none is needed: it opens a notebook on Colab, not on this machine; delete it, or reword its text"
_TRIGGER = holding("colab", like=r"colab[.\-_](?:research|sandbox|badge|logo|button|com)")
_MARKDOWN_CELLS = ("markdown",)
_PROSE_CELLS = ("markdown", "raw")

RULES: tuple[Rule, ...] = (
    Rule(
        "LF701",
        "badge",
        "`[![Open In Colab](…)](https://colab.research.google.com/…)`, also in HTML",
        "nothing above the first code cell, if its line contains only badges and links, and no text names or "
        "introduces it or continues below it; other badges are reported",
        Keeps.EXACT,
        _find_badges,
        _TRIGGER,
        _PROSE_CELLS,
        any_language=True,
        example=Example(
            (
                "[![Open In Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://col"
                "ab.research.google.com/github/a/b/blob/main/c.ipynb)\n"
                "\n"
                "# Title"
            ),
            "# Title",
        ),
    ),
    Rule(
        "LF702",
        "link to Colab",
        "other links and addresses of notebooks below `https://colab.research.google.com/`",
        "nothing; reported",
        Keeps.EQUIVALENT,
        _find_links,
        _TRIGGER,
        _PROSE_CELLS,
        any_language=True,
        example=Example("See [part 2](https://colab.research.google.com/github/a/b/blob/main/c.ipynb)."),
    ),
    Rule(
        "LF703",
        "link to a cell",
        "`[text](#scrollTo=…)`",
        "`[text](#Heading)` with the heading of that cell, or else the one above it; without any, or if an earlier one "
        "has its text, it is reported",
        Keeps.EQUIVALENT,
        _find_scroll_links,
        holding("#scrollTo="),
        _MARKDOWN_CELLS,
        any_language=True,
        example=Example("See [below](#scrollTo=abc)."),
    ),
)
