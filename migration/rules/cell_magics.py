"""Cell magics: comments above them, and comments that are all that remains of a cell."""

from __future__ import annotations

import re
from collections.abc import Iterator

from migration.analysis.facts import NotebookFacts
from migration.colab.forms import HEADING, MARK, OPTIONS
from migration.notebook.findings import Keeps
from migration.notebook.texts import Edit, holding
from migration.python.source import RUNS_CELL, CellSource
from migration.rules.rule import Example, Match, Rule

_RUNS_CELL = RUNS_CELL | {"mprun", "lprun", "debug"}
_HASH_COMMENTS = _RUNS_CELL | {"bash", "sh", "shell", "script", "system", "sx", "perl", "ruby", "R", "julia", "octave"}
_HASH_COMMENTS |= {"python", "python2", "python3", "pypy", "cython", "cython_pyximport", "cython_inline"}
# The program reads the cell as its input, as in `%%bash -c 'cat > file'`.
_IS_INPUT = re.compile(r"[ \t]*%%(?:bash|sh|script|system|sx)\b.*(?:\s-c\b|>|\b(?:cat|tee)\b)")
_STACKED = re.compile(
    r"(?P<above>(?:[ \t]*(?:#[^\n]*)?\n)*)(?P<line>[ \t]*%%(?P<name>[^\s?]+)[ \t]*[^\n]*)(?P<end>\n|$)"
)

_PROSE = re.compile(r"#(?![ \t]*[!%]|[^\n]*(?:\w\(|[\w\])][ \t]*=))")


def _stack(source: CellSource) -> Iterator[re.Match[str]]:
    """The cell magics at the top of a cell: a magic that runs the cell may be followed by another one."""
    at, runs = 0, source.magic is not None
    while runs and (found := _STACKED.match(source.text, at)) is not None:
        yield found
        at, runs = found.end(), found["name"] in _RUNS_CELL and bool(found["end"])


def _find_comments_above(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    for found in _stack(source):
        if found["above"].strip():
            yield _moved_below(found)
            return


def _moved_below(found: re.Match[str]) -> Match:
    """The match that moves the comments above a cell magic (a match of `_STACKED`) to a position where they are
    comments."""
    name, above, prose = found["name"], found["above"], ""
    edits = [Edit(found.start("above"), found.end("above"), "")]
    if name in _HASH_COMMENTS and not _IS_INPUT.match(found["line"]):
        keeps, fate = Keeps.EXACT, "it moves below"
        # IPython removes the indentation of the first line from all others.
        below = re.sub(r"(?:[ \t]*\n)*([ \t]*).*", r"\1", found.string[found.end() :], flags=re.DOTALL)
        above = re.sub(r"^[ \t]*(?=#)", below, above, flags=re.MULTILINE)
        edits.append(Edit(found.end(), found.end(), above if found["end"] else "\n" + above.rstrip("\n")))
    else:
        keeps, fate = Keeps.EQUIVALENT, "below it would become content, so it moves to a Markdown cell above"
        prose = _as_markdown(above)
    message = f"there is a comment above `%%{name}`, which only Colab accepts; {fate}"
    return Match(found.start("above"), found.end("line"), message, tuple(edits), keeps=keeps, prose=prose)


def prose_left(source: CellSource, new: CellSource) -> str:
    """The comments of a cell, as Markdown, if the rules have removed all its code. Empty if anything else remains, such
    as code that is commented out, which may be needed again, or if the original contained no code."""
    text = new.text.strip()
    lines = [line.strip() for line in text.split("\n")]
    if not all(map(_PROSE.match, filter(None, lines))) or source.tree is None or not source.tree.body:
        return ""
    # The comment of a heading has lost its marks.
    texts = [mark["text"].strip() for mark in MARK.finditer(source.text)]
    headings = {
        text[found.end() :]: f"{found[0].strip()} {text[found.end() :]}"
        for text in texts
        if (found := HEADING.match(text))
    }
    return "\n".join(headings.get(line.strip(), line) for line in _as_markdown(text).split("\n"))


def _as_markdown(comments: str) -> str:
    """Comment lines as Markdown: titles of forms as headings, each other line with its break."""
    lines = []
    for line in comments.splitlines():
        mark = MARK.search(line)
        if mark is None:
            lines.append(line.strip().lstrip("#").strip())
        elif mark["kind"] == "title":
            lines.append("#### " + OPTIONS.sub("", mark["text"]).strip())
        else:
            lines.append(mark["text"].strip())
    return re.sub(r"  \n(?:  \n)+", "\n\n", "  \n".join(lines)).strip()


RULES: tuple[Rule, ...] = (
    Rule(
        id="LF560",
        name="comment above a cell magic",
        matches="`#@title …`, `#@markdown …` or any comment above `%%magic`",
        writes="the magic in line 1, the comment below it, or in a Markdown cell above where it would become content "
        "(`%%writefile`, `%%bash -c 'cat > file'`)",
        keeps=Keeps.EXACT,
        find=_find_comments_above,
        trigger=holding("%%", like=r"#.*\n\s*%%"),
        example=Example("#@title Time\n%%time\nrun()", "%%time\n#@title Time\nrun()"),
    ),
)
