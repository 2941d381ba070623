"""Rules LF4xx: Colab's fixed folders become the folders of this machine.

`/content` is the work folder, a mounted Google Drive the drive folder. Python uses variables for them, shell text
environment variables of the same names; the set-up cell (`rules.preamble`) sets both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from migration.analysis.facts import NotebookFacts
from migration.colab.paths import TRIGGER
from migration.notebook.findings import Keeps
from migration.python.source import CellSource
from migration.rules import paths_shell, paths_strings, paths_texts
from migration.rules.paths_found import Found
from migration.rules.rule import Example, Find, Match, Rule

_MY_DRIVE = re.compile(r"(?<!content/drive/)(?<=[\"'/=])My\\?[ ]?Drive(?=[\"'/\s}]|$)")


Places = Callable[[CellSource, NotebookFacts], Iterator[Found]]


def needs_drive_links(source: CellSource, facts: NotebookFacts) -> bool:
    """Whether the code of a migrated cell still contains the name `MyDrive`, and so may append it to the mount point at
    run time: then the drive folder needs links of that name to itself."""
    if not _MY_DRIVE.search(source.text):
        return False
    comments = paths_strings.read(source)[1] if source.is_python else []
    return any(
        not any(start <= found.start() < end for start, end in comments) for found in _MY_DRIVE.finditer(source.text)
    )


def _matches(places: Places) -> Find:
    """The `find` of a rule: all positions."""
    return lambda source, facts: (found.match for found in places(source, facts))


def _split(places: Places) -> tuple[Find, Find]:
    """The `find` of two rules: positions with the work folder, and positions with the drive folder."""

    def of(source: CellSource, facts: NotebookFacts) -> list[Found]:
        return list(places(source, facts))

    def work(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
        yield from (found.match for found in facts.once(of, source) if not found.drive)

    def drive(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
        yield from (found.match for found in facts.once(of, source) if found.drive)

    return work, drive


_WORK_IN_PYTHON, _DRIVE_IN_PYTHON = _split(paths_strings.strings)
_WORK_IN_COMMANDS, _DRIVE_IN_COMMANDS = _split(paths_shell.commands)

RULES: tuple[Rule, ...] = (
    Rule(
        id="LF402",
        name="`/content` in Python",
        matches="`'/content/x'` and `f'/content/{x}'` in any string, also inside other text",
        writes="`f'{WORK_DIR}/x'`; `WORK_DIR` for `'/content'` alone; `.replace(…)` after a text of several lines with "
        "braces",
        keeps=Keeps.EXACT,
        find=_WORK_IN_PYTHON,
        trigger=TRIGGER,
        example=Example('frame = read_csv("/content/a.csv")', 'frame = read_csv(f"{WORK_DIR}/a.csv")'),
    ),
    Rule(
        id="LF403",
        name="mounted Drive in Python",
        matches="`'/content/drive/MyDrive/x'`, `'/content/gdrive/My Drive/x'`, `'drive/MyDrive/x'`, the mount point",
        writes="`f'{DRIVE_DIR}/x'`, which is `MyDrive` itself",
        keeps=Keeps.EXACT,
        find=_DRIVE_IN_PYTHON,
        trigger=TRIGGER,
        example=Example('frame = read_csv("/content/drive/MyDrive/a.csv")', 'frame = read_csv(f"{DRIVE_DIR}/a.csv")'),
    ),
    Rule(
        id="LF404",
        name="`/content` in commands",
        matches="`!cp /content/x .`, `%cd /content/x`, `%env A=/content/x`, the body of `%%bash`",
        writes='`!cp "$WORK_DIR"/x .`, `%cd $WORK_DIR/x`, quoted as needed',
        keeps=Keeps.EXACT,
        find=_WORK_IN_COMMANDS,
        trigger=TRIGGER,
        example=Example("!cp /content/a.csv .", '!cp "$WORK_DIR"/a.csv .'),
    ),
    Rule(
        id="LF405",
        name="mounted Drive in commands",
        matches=r"`!cp /content/drive/My\ Drive/x .`, `%cd drive/MyDrive`",
        writes='`!cp "$DRIVE_DIR"/x .`, `%cd $DRIVE_DIR`',
        keeps=Keeps.EXACT,
        find=_DRIVE_IN_COMMANDS,
        trigger=TRIGGER,
        example=Example("!cp /content/drive/My\\ Drive/a.csv .", '!cp "$DRIVE_DIR"/a.csv .'),
    ),
    Rule(
        id="LF406",
        name="folders below a cell magic",
        matches="`/content` in the body of `%%writefile` or of another interpreter",
        writes='`"$WORK_DIR"` in shell scripts; else the same magic, called from Python with the text; nothing for '
        "other interpreters and web pages",
        keeps=Keeps.EXACT,
        find=_matches(paths_texts.bodies),
        trigger=TRIGGER,
        example=Example(
            "%%writefile a.yaml\ntrain: /content/a",
            'get_ipython().run_cell_magic(\'writefile\', \'a.yaml\', f"""\\\ntrain: {WORK_DIR}/a\n""")',
        ),
    ),
    Rule(
        id="LF407",
        name="folders in comments",
        matches="`# see /content/x`, `# path = '/content/x'`, the same in docstrings and strings that nothing uses",
        writes="`# see WORK_DIR/x`, `# path = f'{WORK_DIR}/x'`",
        keeps=Keeps.EXACT,
        find=_matches(paths_texts.comments),
        trigger=TRIGGER,
        example=Example("# see /content/a.csv\nx = 1", "# see WORK_DIR/a.csv\nx = 1"),
    ),
    Rule(
        id="LF408",
        name="folders in a cell that cannot be parsed",
        matches="`/content` outside strings and commands",
        writes="nothing",
        keeps=Keeps.NEEDS_HUMAN,
        find=_matches(paths_strings.unparsed),
        trigger=TRIGGER,
        example=Example("print 1\nx = /content/x"),
    ),
    Rule(
        id="LF409",
        name="folders in text",
        matches="`/content/x` in the prose and code spans of a text cell",
        writes="`WORK_DIR/x`, `DRIVE_DIR/x`",
        keeps=Keeps.EXACT,
        find=_matches(paths_texts.markdown),
        trigger=TRIGGER,
        cells=("markdown",),
        example=Example("Look into `/content/x`.", "Look into `WORK_DIR/x`."),
    ),
)
