"""Markdown: badges and links that open a notebook in Colab are removed or lead to the notebook itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any
from urllib.parse import unquote

from migration.analysis.facts import NotebookFacts
from migration.notebook.findings import Keeps
from migration.notebook.reading import source_text
from migration.notebook.texts import Edit, holding
from migration.python.source import CellSource
from migration.rules.rule import Example, Match, Rule

_HOST = r"(?:(?:https?:)?//|(?<![\w./@=%-]))(?:colab\.(?:research|sandbox)\.google\.com|githubtocolab\.com)"
_URL = _HOST + r"(?:[^\s()<>\"'`\[\]{}|]|\([^\s()<>]*\)|\{+[\w.]+\}+)*"
_TITLE = r"""(?:\s+(?:"[^"\n]*"|'[^'\n]*'))?"""
_ATTRIBUTES = r"(?:\{:?[^}\n]*\})?"
_IMAGE = r"!\[[^\]\n]*\]\((?:[^()\s]|\([^()\s]*\))*" + _TITLE + r"\s*\)"
# Forms of a badge: a link around an image, the image alone, or a link in HTML.
_MARKDOWN_BADGE = re.compile(
    rf"\[\s*(?P<inner>(?:{_IMAGE}|<img\b[^>\n]*>)[^\]\n]*)\]\(\s*<?(?P<url>{_URL})>?{_TITLE}\s*\){_ATTRIBUTES}"
)
_COLAB_IMAGE = (
    r"(?:!\[[^\]\n]*\]\([^()\s]*(?:colab-badge|colab_logo)[^()\s]*" + _TITLE + r"\s*\)"
    r"|<img\b[^>]*\bsrc\s*=\s*[\"']?[^\"'>]*(?:colab-badge|colab_logo)[^>]*>)"
)
# The image, with the link around it if that leads elsewhere, such as to a service that redirects to Colab.
_BADGE_IMAGE = re.compile(
    rf"\[\s*{_COLAB_IMAGE}\s*\]\([^()\s]*\)|<a\b[^>]*>\s*{_COLAB_IMAGE}\s*</\s*a\s*>|{_COLAB_IMAGE}", re.IGNORECASE
)
_HTML_LINK = re.compile(
    rf"<a\b(?P<open>[^>]*\bhref\s*=\s*[\"']?\s*(?P<url>{_URL})[^>]*)>(?P<inner>(?:(?!</?a\b).)*)</\s*a\s*>",
    re.DOTALL | re.IGNORECASE,
)
_MARKDOWN_LINK = re.compile(
    rf"(?<!!)\[(?P<text>(?:[^\[\]\n]|\[[^\[\]\n]*\])*)\]\(\s*<?(?P<url>{_URL})>?{_TITLE}\s*\){_ATTRIBUTES}"
)
_PLAIN_LINK = re.compile(rf"<?(?P<url>{_URL})>?")
_OPENS_COLAB = re.compile(
    r"\W*(?:open|run|view|try|launch|execute|play|start|abrir|ejecutar|ouvrir)\b[^.\n]{0,60}\bcolab\w*\W*"
    r"|\W*(?:google )?colab\W*",
    re.IGNORECASE,
)
_SCROLL_LINK = re.compile(
    r"\[(?P<text>(?:[^\[\]\n]|\[[^\[\]\n]*\])*)\]\("
    rf"\s*<?(?P<url>{_HOST}[^\s()<>#]*)?#scrollTo=(?P<cell>[^\s)>&]*)[^\s)>]*>?{_TITLE}\s*\)"
    r"|<a\b[^>]*\bhref\s*=\s*[\"']?#scrollTo=[^>]*>(?P<inner>(?:(?!</?a\b).)*)</\s*a\s*>"
    r"|(?<=\.ipynb)#scrollTo=[\w=&-]+",
    re.DOTALL,
)
_MARKS = re.compile(r"<[^>]*>|[*`]")
_HEADING = re.compile(r"^[ ]{0,3}#{1,6}[ \t]+(.*?)[ \t#]*$", re.MULTILINE)
_CODE = re.compile(
    r"^(?P<fence>`{3,}|~{3,}).*?(?:^(?P=fence)|\Z)|(?P<tick>`+)(?:(?!(?P=tick)).)+(?P=tick)", re.DOTALL | re.MULTILINE
)
_WRAPPERS = "td|th|tr|tbody|thead|table|p|center|div|span|li|ul|ol|b|strong|em|i|h[1-6]|figure"
_OPENED = re.compile(rf"<(?P<tag>{_WRAPPERS})\b[^>]*>\s*\Z", re.IGNORECASE)
# What may follow an element that HTML closes by itself.
_UNCLOSED = {
    "td": re.compile(r"\s*(?=<td\b|</tr|</table)", re.IGNORECASE),
    "p": re.compile(r"[ \t]*(?=\n[ \t]*(?:\n|\Z)|\Z)"),
}
_NEVER = re.compile(r"(?!)")
_CAPTION = re.compile(r"\s*<figcaption\b[^>]*>(?P<text>[^<]*)</figcaption>(?=\s*</figure>)", re.IGNORECASE)
_COLUMN_BEFORE, _COLUMN_AFTER = re.compile(r"(?:.*\|)?\s*"), re.compile(r"\s*(?:\|.*)?")
_LABEL = re.compile(r"\w[*_)]*:[*_]*\s*$")
_COLAB_WORDS = re.compile(
    r"<[^>]*>|(?<![\w/.-])(?:(?P<verb>run|execute|launch)"
    r"|(?:google[ -])?coll?ab(?:oratory)?(?P<notebook>[ -]notebook)?)(?![\w/-]|\.\w)",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"\n[ \t]*\n|(?<=[.!?])\s")
_COLAB_ITSELF = re.compile(r"(?<![\w/.-])colab(?:oratory)?(?![\w/-]|\.\w)", re.IGNORECASE)
_NAMES_BADGE = re.compile(
    r"\b(?:click|press|use|follow)\w*\b[^.\n]{0,40}\b(?:badge\b|(?:icon|button|logo)\b[^.\n]{0,60}\bcolab)",
    re.IGNORECASE,
)
_PLACE = re.compile(r"\b(?:in|on|at|to|with|via|using|dans|sur|avec|en|con|auf|mit|no|em)\W*$", re.IGNORECASE)
_IN_COLAB = re.compile(
    r"\b(?:in|on|with|via|using|into|inside|from)\W{1,3}(?:(?:the|an?)\W)?(?:google\W{1,3})?colab(?:oratory)?(?![\w/-]|\.\w)",
    re.IGNORECASE,
)
_OR_HERE = re.compile(r"\blocally\W+or\W*$", re.IGNORECASE)  # another machine is the alternative
_ONLY_COLAB = re.compile(r"\W*(?:google\W{1,3})?colab(?:oratory)?\W*", re.IGNORECASE)
_LIST_ITEM = re.compile(r"^[ \t]*(?:[-*+]|\d+[.)])[ \t]+", re.MULTILINE)
_BLOCK_START = re.compile(rf"{_LIST_ITEM.pattern}|{_HEADING.pattern}\n", re.MULTILINE)


def _find_badges(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    pointed = _NAMES_BADGE.search(source.text) is not None
    for start, end in _badges(source.text):
        opened = _file_of(source.text, start, end)
        is_other = bool(opened and facts.files) and opened not in facts.files
        message = f"badge or link that opens {'another' if is_other else 'the'} notebook in Colab"
        is_said = not pointed and _says_in_colab(source.text, start, end)
        if pointed or is_said:
            message += f": it stays, because {'its sentence says so' if is_said else 'the text names it'}"
            yield Match(start, end, message, (), _TEXT_ACTION, Keeps.EQUIVALENT)
        else:
            edit = _badge_edit(source.text, start, end, is_other=is_other)
            yield Match(start, end, message, (edit,), keeps=Keeps.EQUIVALENT if is_other else None)


def own_files(cells: Sequence[Mapping[str, Any]], name: str) -> frozenset[str]:
    """The names of a notebook's file: `name` on Colab, and that in its first badge, which for a copy is the name of the
    original. Each is left out if it is not known."""
    texts = (source_text(cell) for cell in cells if cell["cell_type"] in _PROSE_CELLS)
    badges = ((text, *span) for text in texts if _COLAB_TRIGGER.fires(text) for span in _badges(text))
    first = next(filter(None, (_file_of(*badge) for badge in badges)), "")
    return frozenset(filter(None, (first, name and f"{name}.ipynb")))


def _file_of(text: str, start: int, end: int) -> str:
    """The name of the file that a badge opens, if its address names one."""
    name = unquote(_target(text, start, end).rpartition("/")[2])
    return name if name.endswith(".ipynb") else ""


def _target(text: str, start: int, end: int) -> str:
    """The address of the notebook that a badge opens, outside Colab."""
    return next(filter(None, (local_meaning(url[0]) for url in re.finditer(_URL, text[start:end]))), "")


def _badge_edit(text: str, start: int, end: int, *, is_other: bool) -> Edit:
    """Removes a badge with its empty wrappers. A link to the notebook itself replaces one of another notebook, and in a
    column of a table or after a label: a removal would leave a gap."""
    first, last = _with_wrappers(text, start, end)
    target = _target(text, start, end)
    if is_other:
        return Edit(start, end, f'<a href="{target}">notebook</a>' if text[start] == "<" else f"[notebook]({target})")
    before, after = _around(text, first, last)
    is_column = "|" in before + after and bool(_COLUMN_BEFORE.fullmatch(before) and _COLUMN_AFTER.fullmatch(after))
    if target and (is_column or (_LABEL.search(text[:first]) and not after.strip())):
        return Edit(start, end, f"[notebook]({target})")
    return _removal(text, first, last)


def _around(text: str, start: int, end: int) -> tuple[str, str]:
    """The rest of the line before and after a span."""
    newline = text.find("\n", end)
    return text[text.rfind("\n", 0, start) + 1 : start], text[end : len(text) if newline < 0 else newline]


def _badges(text: str) -> list[tuple[int, int]]:
    """Spans of the badges, none inside another."""
    found = [match.span() for match in _MARKDOWN_BADGE.finditer(text) if not _is_picture(match["inner"], match["url"])]
    for match in _HTML_LINK.finditer(text):
        inner = match["inner"]
        shown = re.sub(r"<[^>]*>", "", inner).strip()
        has_image = "<img" in inner.lower() or "![" in inner
        is_badge = not _is_picture(inner, match["url"]) if has_image else not shown or _OPENS_COLAB.fullmatch(shown)
        if is_badge:
            found.append(match.span())
    for match in _MARKDOWN_LINK.finditer(text):
        if _OPENS_COLAB.fullmatch(match["text"]) and _stands_alone(text, *match.span()):
            found.append(match.span())
    found += [match.span() for match in _BADGE_IMAGE.finditer(text)]
    outer: list[tuple[int, int]] = []
    for start, end in sorted(found, key=lambda span: (span[0], -span[1])):
        if (not outer or start >= outer[-1][1]) and not _is_code(text, start):
            outer.append((start, end))
    return outer


def _is_picture(inner: str, url: str) -> bool:
    """Whether the image in a link to a notebook does not name Colab: a picture of the other notebook, no badge."""
    return bool(local_meaning(url)) and "colab" not in inner.lower()


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Whether its line contains only other links, list marks and punctuation."""
    rest = "".join(_around(text, start, end))
    return not re.search(r"[^\W\d_]", re.sub(r"\[[^\]]*\](?:\([^)]*\))+|<[^>]*>|\*\*\w+:?\*\*", "", rest))


def _with_wrappers(text: str, start: int, end: int) -> tuple[int, int]:
    """The span with its caption and the HTML elements around it that would be left empty."""
    if (caption := _CAPTION.match(text, end)) and _OPENS_COLAB.fullmatch(caption["text"]):
        end = caption.end()
    while opened := _OPENED.search(text, max(0, text.rfind("<", 0, start)), start):
        cells = "" if opened["tag"].lower() in ("td", "th") else r"(?:\s*</?td\b[^>]*>)*"
        closed = re.compile(rf"{cells}\s*</\s*{opened['tag']}\s*>", re.IGNORECASE).match(text, end)
        unclosed = _UNCLOSED.get(opened["tag"].lower(), _NEVER).match(text, end)
        if closed:
            end = closed.end()
        elif not unclosed:
            break
        start = opened.start()
    return start, end


def _removal(text: str, start: int, end: int) -> Edit:
    """Removes a span, and its line if only blanks or a list mark would remain there, else the spaces after it, and
    those before it at the end of a sentence or line. A line break by two blanks is kept."""
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
    at_end = not after.strip()
    if at_end or re.match(r"\s*[.,;:!?)]", after):
        start = first + len(before.rstrip(" \t"))
    if at_end:
        return Edit(start, end, "")
    return Edit(start, end + len(after) - len(after.lstrip(" \t")), "")


def _find_links(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    text = source.text
    badges = _badges(text)
    done: list[tuple[int, int]] = list(badges)
    for pattern in (_MARKDOWN_LINK, _HTML_LINK, _PLAIN_LINK):
        for match in pattern.finditer(text):
            if any(start < match.end() and match.start() < end for start, end in done) or _is_code(text, match.start()):
                continue
            done.append(match.span())
            url = match["url"].rstrip(".,;:!?*_") if pattern is _PLAIN_LINK else match["url"]
            if not (other := local_meaning(url)):
                continue  # a page of Colab itself
            start = match.start("url")
            if pattern is _MARKDOWN_LINK and _is_own_cell(url, text, facts):
                continue  # LF703 rewrites it
            is_plain = pattern is _PLAIN_LINK
            if (_speaks_of_colab if is_plain else _says_in_colab)(text, *match.span()):
                what = "address" if is_plain else "link"
                message = f"{what} that opens a notebook in Colab: it stays, because its sentence says so"
                yield Match(start, start + len(url), message, (), _TEXT_ACTION)
                continue
            label = next((name for name in ("text", "inner") if name in pattern.groupindex), "")
            shown = match[label] if label else None
            edits = [Edit(start, start + len(url), other)]
            if shown is not None and (new := _relabelled(text, *match.span(label), other)) != shown:
                edits.append(Edit(*match.span(label), new))
            message = "link that opens a notebook in Colab"
            yield Match(match.start(), match.end(), message, tuple(sorted(edits)))


def _is_own_cell(url: str, text: str, facts: NotebookFacts) -> bool:
    """Whether an address leads to a cell of this very notebook: by the name of its file. One on the drive has none, and
    a copy has the cells of the original; then `text` names the original as a whole, too."""
    page, _, cell = url.partition("#scrollTo=")
    is_this = unquote(page.rpartition("/")[2]) in facts.files
    is_this |= "/drive/" in page and not re.search(rf"{re.escape(page)}(?!#scrollTo)", text)
    return is_this and cell.partition("&")[0] in facts.headings


def _speaks_of_colab(text: str, start: int, end: int) -> bool:
    """Whether the sentence around an address names Colab."""
    before, after = _SENTENCE_END.split(text[:start])[-1], re.split(r"\n|(?<=[.!?])\s", text[end:])[0]
    return _COLAB_ITSELF.search(f"{before} {after}") is not None


def _says_in_colab(text: str, start: int, end: int) -> bool:
    """Whether the sentence or list item around a badge or link, or the line that introduces the list, says that
    something is done in Colab, apart from the text of links. That of a link counts if it is only "Colab"."""
    line, after = _around(text, start, end)
    if re.match(r"[ ]{0,3}#|[ \t]*<", line) or "|" in line + after or "<td" in text[:start]:
        return False  # a heading, or a row of badges
    before = _BLOCK_START.split(_SENTENCE_END.split(text[:start])[-1])[-1]
    label = re.match(r"\[([^\[\]\n]*)\]", text[start:end])
    if (label and _ONLY_COLAB.fullmatch(label[1]) and _PLACE.search(before)) or _OR_HERE.search(before):
        return True
    sentence = before + " " + re.split(r"(?<=[.!?])\s", after)[0]
    if _LIST_ITEM.match(line) and (lead := _lead(text[: start - len(line)])).endswith(":"):
        sentence = f"{lead} {sentence}"
    return _IN_COLAB.search(re.sub(r"\[[^\]]*\]\([^)]*\)|<[^>]*>", "", sentence)) is not None


def _lead(above: str) -> str:
    """The last line of a text that is not an item of a list."""
    lines = (line.rstrip() for line in reversed(above.split("\n")))
    return next((line for line in lines if line and not _LIST_ITEM.match(line) and line[:1] not in " \t"), "")


@cache
def local_meaning(url: str) -> str:
    """The URL of the notebook that a Colab link opens: on GitHub, as a gist or on the drive; empty for others."""
    path = re.sub(_HOST, "", url, count=1).partition("#")[0].partition("?")[0]
    if "githubtocolab" in url:
        return f"https://github.com{path}"
    if found := re.match(r"/github/([^/]+/[^/]+(?:/.*)?)$", path):
        return f"https://github.com/{found[1]}"
    if found := re.match(r"/gist/([^/]+/[0-9a-f]+)", path):
        return f"https://gist.github.com/{found[1]}"
    if found := re.match(r"/drive/([\w-]{20,})$", path):
        return f"https://drive.google.com/file/d/{found[1]}"
    return ""


def _relabelled(text: str, start: int, end: int, target: str) -> str:
    """The label `start:end` of a link that now leads to `target`, where a notebook can be read but not run."""
    host = "Google Drive" if "drive.google" in target else "GitHub"

    def replaced(word: re.Match[str]) -> str:
        if word[0].startswith("<"):
            return word[0]
        if word["verb"]:
            return "Read" if word["verb"][0].isupper() else "read"
        at = start + word.start()
        if not word["notebook"] and _PLACE.search(text[max(0, at - 20) : at]):
            return host
        return (word["notebook"] or " notebook")[1:]

    return _COLAB_WORDS.sub(replaced, text[start:end])


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
        if match["url"] and not _is_own_cell(f"{match['url']}#scrollTo={match['cell']}", source.text, facts):
            continue
        shown = match["text"] if match["text"] is not None else match["inner"] or ""
        found = facts.headings.get(match["cell"] or "", ())
        heading = shown if shown in found else next(iter(found), "")
        if re.search(r"[()$%#\\]", heading):  # programs differ in the anchor of such a heading
            heading = ""
        action = "" if heading else "if the link is needed, link the heading: `[text](#Heading-with-hyphens)`"
        edit = Edit(match.start(), match.end(), f"[{shown}](#{heading.replace(' ', '-')})" if heading else shown)
        yield Match(match.start(), match.end(), "link to a cell by its id on Colab", (edit,), action)


def _is_code(text: str, at: int) -> bool:
    return "`" in text and any(match.start() < at < match.end() for match in _CODE.finditer(text))


_TEXT_ACTION = "reword the text, or leave both: the notebook runs here, and the link still opens Colab"
_COLAB_TRIGGER = holding("colab", like=r"colab[.\-_](?:research|sandbox|badge|logo|com)")
_MARKDOWN_CELLS = ("markdown",)
_PROSE_CELLS = ("markdown", "raw")

RULES: tuple[Rule, ...] = (
    Rule(
        "LF701",
        "badge",
        "`[![Open In Colab](…)](https://colab.research.google.com/…)`, also in HTML, and its table cell",
        "nothing; `[notebook](https://github.com/…)` in a Markdown column or after a label; "
        "a link instead of a badge that names another "
        "file than the first one. A badge stays if the text says to click it, or its sentence says `in Colab`",
        Keeps.EXACT,
        _find_badges,
        _COLAB_TRIGGER,
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
        "the address of the same notebook on GitHub, as a gist or on the drive, where it can be read: so says the text "
        "of the link. A bare address stays if its sentence speaks of Colab, and a link if it says `in Colab`",
        Keeps.EQUIVALENT,
        _find_links,
        _COLAB_TRIGGER,
        _PROSE_CELLS,
        any_language=True,
        example=Example(
            "Please [run the next one on Colab](https://colab.research.google.com/github/a/b/blob/main/c.ipynb).",
            "Please [read the next one on GitHub](https://github.com/a/b/blob/main/c.ipynb).",
        ),
    ),
    Rule(
        "LF703",
        "link to a cell",
        "`[text](#scrollTo=…)`, also below the address of this notebook on Colab",
        "`[text](#Heading)` with the heading of that cell, or else the one above it; without any, or if an earlier one "
        "has its text, `text`",
        Keeps.EQUIVALENT,
        _find_scroll_links,
        holding("#scrollTo="),
        _MARKDOWN_CELLS,
        any_language=True,
        example=Example("See [below](#scrollTo=abc).", "See below."),
    ),
)
