"""Rules LF4xx: Colab's fixed folders become the folders of this machine.

`/content` is the work folder, a mounted Google Drive the drive folder. Python uses variables for them, shell text
environment variables of the same names; the set-up cell (`rules.preamble`) sets both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from migration.analysis.facts import NotebookFacts
from migration.colab.paths import TRIGGER
from migration.notebook.findings import Keeps
from migration.python.source import CellSource
from migration.python.strings import read_cell
from migration.rules import paths_shell, paths_strings, paths_texts
from migration.rules.rule import Example, Match, Rule

_MY_DRIVE = re.compile(
    r"(?:(?<!content/drive/)(?<=[\"'/=])|^[ \t]*[!%][^\n]*[ \t])My\\?[ ]?Drive(?=[\"'/\s}]|$)", re.MULTILINE
)


def needs_drive_links(source: CellSource, facts: NotebookFacts) -> bool:
    """Whether the code of a migrated cell still contains the name `MyDrive`, and so may append it to the mount point at
    run time, or after `%cd` to that: then the drive folder needs links of that name to itself. A notebook that neither
    mounts the drive nor names Colab's folders means another folder."""
    if facts.colab.first_mount is None and not facts.folders:
        return False
    if "Drive" not in source.text or not _MY_DRIVE.search(source.text):
        return False
    comments = read_cell(source)[1] if source.is_python else []
    return any(
        not any(start <= found.start() < end for start, end in comments) for found in _MY_DRIVE.finditer(source.text)
    )


def _find_in_python(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    if source.bare_magic is not None:
        return  # a string of `cd "/content"` is text of a command, as soon as a rule has written `%cd`
    yield from paths_strings.strings(source, facts)


def _find_in_commands(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    yield from paths_shell.commands(source, facts)
    yield from paths_texts.bodies(source, facts)


RULES: tuple[Rule, ...] = (
    Rule(
        id="LF402",
        name="folders in Python",
        matches="`'/content/x'`, `f'/content/drive/MyDrive/{x}'`, `'drive/MyDrive/x'`, the mount point, in any string, "
        "also inside other text",
        writes="`f'{WORK_DIR}/x'`, `f'{DRIVE_DIR}/x'`, which is `MyDrive` itself; `WORK_DIR` for `'/content'` alone; "
        "`.replace(…)` after a text of several lines with braces",
        keeps=Keeps.EXACT,
        find=_find_in_python,
        trigger=TRIGGER,
        example=Example('frame = read_csv("/content/a.csv")', 'frame = read_csv(f"{WORK_DIR}/a.csv")'),
    ),
    Rule(
        id="LF404",
        name="folders in commands",
        matches=r"`!cp /content/x .`, `%cd /content/x`, `%env A=/content/x`, `!cp /content/drive/My\ Drive/x .`, "
        "`%cd drive/MyDrive`, `%cd drive`, the body of `%%bash`; other text below a cell magic, such as that of "
        "`%%writefile`",
        writes='`!cp "$WORK_DIR"/x .`, `%cd $WORK_DIR/x`, `!cp "$DRIVE_DIR"/x .`, quoted as needed; nothing '
        "in other text",
        keeps=Keeps.EXACT,
        find=_find_in_commands,
        trigger=TRIGGER,
        example=Example("!cp /content/drive/My\\ Drive/a.csv .", '!cp "$DRIVE_DIR"/a.csv .'),
    ),
    Rule(
        id="LF407",
        name="folders in comments",
        matches="`# path = '/content/x'`, `#unzip /content/x.zip`, `# see /content/x`, also below `%%bash`, "
        "docstrings and strings that nothing uses",
        writes="`# path = f'{WORK_DIR}/x'`, `#unzip \"$WORK_DIR\"/x.zip`; nothing in other texts, or where the code "
        "names no such folder: they are reported",
        keeps=Keeps.EXACT,
        find=paths_texts.comments,
        trigger=TRIGGER,
        example=Example("# path = '/content/a'\nx = 1", "# path = f'{WORK_DIR}/a'\nx = 1"),
    ),
    Rule(
        id="LF409",
        name="folders in text",
        matches="`/content/x` in the prose and code spans of a text cell",
        writes="nothing; reported",
        keeps=Keeps.EQUIVALENT,
        find=paths_texts.markdown,
        trigger=TRIGGER,
        cells=("markdown",),
        example=Example("Look into `/content/x`."),
    ),
)
