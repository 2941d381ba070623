"""Rules LF4xx: Colab's fixed folders become the folders of this machine.

`/content` is the work folder, a mounted Google Drive the drive folder. Python uses variables for them, shell text
environment variables of the same names; the set-up cell (`rules.preamble`) sets both.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from migration import shell
from migration.analysis.facts import NotebookFacts
from migration.analysis.mounts import MAKES_LINK, links_made
from migration.colab.paths import TRIGGER, find_paths
from migration.notebook.findings import Keeps
from migration.notebook.texts import Edit, holding
from migration.python.source import CellSource
from migration.rules import paths_shell, paths_strings, paths_texts
from migration.rules.paths_found import Found
from migration.rules.rule import Example, Find, Match, Rule

_SAMPLE = re.compile(
    r"""(?<![\w-])sample_data(?:/(?:README\.md|anscombe\.json|california_housing_(?:train|test)\.csv|"""
    r"""mnist_(?:train_small|test)\.csv)|(?=/?["']))"""
)
_CHANGES_SAMPLE = re.compile(r"\b(?:rm|rmtree|mkdir|makedirs|rmdir)\b")
_SAMPLE_SOURCE = (
    "put the file there: the California housing tables (1990 census) and small CSV cuts of MNIST are public data sets, "
    "anscombe.json is Anscombe's quartet as in the vega-datasets package; make the folder where the notebook only puts "
    "files of its own there"
)
_MY_DRIVE = re.compile(r"(?<=[\"'/=])My\\?[ ]?Drive(?=[\"'/\s}]|$)")


Places = Callable[[CellSource, NotebookFacts], Iterator[Found]]

_INSTEAD = {"ismount": "isdir", "is_mount": "is_dir"}


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


def _samples(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """Colab's own samples are not on this machine."""
    for found in _SAMPLE.finditer(source.text):
        start, end = source.line_span(found.start(), found.end())
        line = source.text[start:end]
        if not line.lstrip().startswith("#") and not _CHANGES_SAMPLE.search(line):
            message = "Colab's sample data is read, which does not exist on this machine"
            yield Match(found.start(), found.end(), message, action=_SAMPLE_SOURCE)


def links(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """The command that creates a link is removed: its name is replaced by the drive folder everywhere."""
    for command in source.commands:
        for name, simple in links_made(source.text, command, facts.mounts):
            if name not in facts.mounts:
                continue
            message = f"the mounted Drive is linked to {name}, a name outside the work folder"
            edit = Edit(simple.start, simple.end, "true")
            line = source.line_span(command.start, command.end)
            alone = source.text[line[0] : line[1]].strip() == source.text[command.start : command.end].strip()
            if alone and shell.is_simple(source.text[command.body : command.end]):
                note = f"# the drive folder is {facts.drive}: no link to it is needed"
                edit = Edit(command.start, command.end, f"pass  {note}" if command.indent else note)
            yield Match(simple.start, simple.end, message, (edit,))


def questions(source: CellSource, facts: NotebookFacts) -> Iterator[Match]:
    """`os.path.ismount("/content/drive")` and `Path("/content/drive").is_mount()`, before and after the place itself is
    rewritten."""
    for node in source.nodes if source.is_python else ():
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in _INSTEAD:
            continue
        holder = node if node.func.attr == "ismount" else node.func.value
        if isinstance(holder, ast.Call) and len(holder.args) == 1 and _is_drive(holder.args[0], facts):
            name, end = node.func.attr, source.span(node.func)[1]
            edit = Edit(end - len(name), end, _INSTEAD[name])
            yield Match(*source.span(node), "the mounted drive is a folder here, not a mount point", (edit,))


def _is_drive(node: ast.expr, facts: NotebookFacts) -> bool:
    if isinstance(node, ast.Name):
        return node.id == facts.drive
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return False
    place = node.value.rstrip("/")
    return [(span.folder, span.end) for span in find_paths(place, facts.mounts)] == [("drive", len(place))]


_WORK_IN_PYTHON, _DRIVE_IN_PYTHON = _split(paths_strings.strings)
_WORK_IN_COMMANDS, _DRIVE_IN_COMMANDS = _split(paths_shell.commands)

RULES: tuple[Rule, ...] = (
    Rule(
        id="LF401",
        name="link to the drive",
        matches=r"`!ln -s /content/gdrive/My\ Drive/ /mydrive`",
        writes="nothing; `/mydrive/x` becomes `DRIVE_DIR`",
        keeps=Keeps.EQUIVALENT,
        find=links,
        trigger=holding("ln", like=MAKES_LINK),
        example=Example(
            ('from google.colab import drive\ndrive.mount("/content/drive")\n!ln -s /content/drive/MyDrive /mydrive'),
            (
                "from google.colab import drive\n"
                'drive.mount("/content/drive")\n'
                "# the drive folder is DRIVE_DIR: no link to it is needed"
            ),
        ),
    ),
    Rule(
        id="LF402",
        name="`/content` in Python",
        matches="`'/content/x'` and `f'/content/{x}'` in any string, also inside other text",
        writes="`f'{WORK_DIR}/x'`; `WORK_DIR` for `'/content'` alone; plain text in docstrings",
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
        writes="the same magic, called from Python with an f-string; nothing for other interpreters and web pages",
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
        matches="`# see /content/x`, `# path = '/content/x'`",
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
    Rule(
        id="LF410",
        name="Colab's sample data",
        matches="`sample_data/california_housing_train.csv` and the other files of Colab",
        writes="nothing: the path is rewritten like any other",
        keeps=Keeps.NEEDS_HUMAN,
        find=_samples,
        trigger=holding("sample_data"),
        example=Example('read_csv("sample_data/california_housing_train.csv")'),
    ),
    Rule(
        id="LF411",
        name="whether the drive is mounted",
        matches='`os.path.ismount("/content/drive")`, `Path("/content/drive").is_mount()`',
        writes="`os.path.isdir(DRIVE_DIR)`, `Path(DRIVE_DIR).is_dir()`",
        keeps=Keeps.EQUIVALENT,
        find=questions,
        trigger=holding("ismount(", "is_mount("),
        example=Example('os.path.ismount("/content/drive")', 'os.path.isdir("/content/drive")'),
    ),
)
