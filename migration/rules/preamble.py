"""The first two cells of a migrated notebook: its parameters, and the set-up that creates folders from them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from migration.analysis.facts import NotebookFacts
from migration.colab.forms import is_literal, written_literal
from migration.python.scopes import accesses
from migration.python.shell_texts import list_commands, shell_texts
from migration.python.source import CellSource
from migration.python.strings import without_comments
from migration.rules.commands import needs_bash
from migration.rules.configurations import localised
from migration.rules.paths import needs_drive_links

PARAMETERS_TAG = "parameters"
SETUP_TAG = "landfall-setup"
PARAMETERS_TITLE = "# Parameters: edit them here, or let papermill replace them with -p NAME VALUE."
SETUP_TITLE = """\
# Set-up for this machine, added by `landfall migrate`: run it before the cells below.
# Imports find modules in the folder of this notebook, and programs such as python and pip are those of its kernel."""
_RUNTIME = "landfall_runtime"
_CHANGES_FOLDER = re.compile(r"^[ \t]*%?cd[ \t]|\bchdir\(|%pushd|\bos\.environ\b.*\bWORK_DIR", re.MULTILINE)
# Colab has that folder: where it is missing, what follows would change the current one, such as `rm -rf *`, or fail.
_ENTERS_SAMPLES = re.compile(
    r"\b(?:cd[ \t]+|chdir\()[\"']?(?:\./)?sample_data\b|(?:\+\s*[\"']|\})/sample_data\b"
    r"|(?:\b(?:mkdir|makedirs|wget|curl|cp|mv|copy\w*|move|unzip|tar|git|gdown|urlretrieve|save\w*|to_\w+|write\w*)\b|>)"
    r"[^\n]*[\s\"'(=](?:\./)?sample_data/"
    r"|\b(?:(?:cp|mv)[ \t][^\n]*[ \t]|(?:copytree|move)\([^\n]*[\"'])(?:\./)?sample_data(?=[\s\"']|\Z)"
    r"|[\"'](?:\./)?sample_data/[^\n]*,\s*(?:mode\s*=\s*)?[\"'][wax][bt+]{0,2}[\"']"
)
# Programs of the system, and the path of the kernel's Python: pip may have installed any other next to that.
_OF_THE_SYSTEM = re.compile(
    r"(?:ba|da|z)?sh|apt(?:-\w+)?|add-apt-repository|dpkg|sudo|su|ls|cd|pwd|cp|mv|rm|mkdir|rmdir|ln|cat|head|tail|less|more|"
    r"echo|printf|test|\[|true|false|exit|export|set|unset|source|\.|alias|read|wait|sleep|kill|pkill|killall|ps|top|find|"
    r"grep|egrep|fgrep|sed|awk|cut|sort|uniq|wc|tr|tee|xargs|diff|touch|chmod|chown|file|stat|du|df|free|date|uname|which|"
    r"whereis|type|command|hash|tar|g?zip|g?unzip|bzip2|bunzip2|xz|7z[ar]?|unrar|wget|curl|git|svn|hg|ssh|scp|rsync|make|"
    r"cmake|gcc|g\+\+|cc|nvcc|nvidia-smi|lscpu|lspci|lsb_release|ldconfig|hostname|whoami|id|env|time|nohup|node|npm|npx|"
    r"java|javac|mvn|go|ruby|perl|ffmpeg|convert|tree|md5sum|sha\d+sum|service|systemctl|mount|umount|docker|R|Rscript|"
    r"julia|sqlite3|psql|mysql|pandoc|latex|pdflatex|screen|tmux|yes|seq|basename|dirname|realpath|readlink|ngrok|aria2c"
    r"|\{\s*sys\.executable\s*\}|\$sys\.executable"
)


@dataclass(frozen=True)
class Folders:
    """Defaults of the parameters `work_dir` and `drive_dir`, as written in the notebook."""

    work: str = "."
    drive: str = "drive"


@dataclass(frozen=True)
class _Needs:
    """What the migrated cells need from the set-up cell: the two folders and their names for Python and the shell, the
    modules and programs of the kernel, bash, links in the drive folder, and the folder of Colab's sample data."""

    work: bool = False
    drive: bool = False
    kernel: bool = False
    bash: bool = False
    drive_links: bool = False
    samples: bool = False

    def __bool__(self) -> bool:
        return self != _Needs()


def add_preamble(
    cells: list[dict[str, Any]],
    facts: NotebookFacts,
    folders: Folders,
    known: Iterable[CellSource] = (),
    *,
    start: int | None = None,
) -> list[dict[str, Any]]:
    """The cells with the parameters cell and the set-up cell before the first code cell, if the notebook needs them.
    Cells with these tags are extended if something is missing, and not changed otherwise. `known` are code cells that
    were parsed before; one with the same text is not parsed again. `start` is the position of new cells if it is above
    the first code cell: that of the original's first code cell, which the rules may have removed.
    """
    fields = dict(_written(facts))
    first = next((at for at, cell in enumerate(cells) if cell["cell_type"] == "code"), len(cells))
    if facts.language != "python":
        return cells
    needs = _needs(cells, facts, "\n".join(fields.values()), {source.text: source for source in known})
    if not needs and not fields:
        return cells
    work, drive = (written_literal(folder.replace("\\", "/")) for folder in (folders.work, folders.drive))
    lines = dict(fields)
    if needs.drive:
        name, base = parameter_name("drive_dir", cells), parameter_name("work_dir", cells)
        line = f"{name} = {drive}  # type: str folder in place of Google Drive, relative to {base}"
        lines = {name: line, **lines}
    if needs.work:
        name = parameter_name("work_dir", cells)
        line = f"{name} = {work}  # type: str folder of the notebook's files, relative to the one it is started in"
        lines = {name: line, **lines}
    parameters, setup = tagged(cells, PARAMETERS_TAG), tagged(cells, SETUP_TAG)
    if setup is not None and not needs:
        return cells
    if setup is not None:
        return _extended(cells, parameters, setup, lines, _setup_lines(cells, facts, needs))
    if parameters is not None and parameters > first and _is_movable(cells, parameters, facts):
        cells = [*cells[:first], cells[parameters], *cells[first:parameters], *cells[parameters + 1 :]]
        parameters = first
    if parameters is not None and (parameters > first or _holds_any(cells[parameters]["source"], facts)):
        # Papermill sets the values below that cell, too late for folders that are needed before or in it: those have
        # their defaults.
        text = _joined([SETUP_TITLE, *lines.values(), *_setup_lines(cells, facts, needs)])
        return [*cells[:first], _code_cell(text, SETUP_TAG), *cells[first:]]
    added = [_code_cell("\n".join([SETUP_TITLE, *_setup_lines(cells, facts, needs)]), SETUP_TAG)] if needs else []
    if parameters is not None:
        head = {**cells[parameters], "source": _with_parameters(cells[parameters]["source"], lines)}
        return [*cells[:parameters], head, *added, *cells[parameters + 1 :]]
    if lines:
        added.insert(0, _code_cell(_joined([PARAMETERS_TITLE, *lines.values()]), PARAMETERS_TAG))
    at = first if start is None else min(start, first)
    return [*cells[:at], *added, *cells[at:]]


def parameter_name(name: str, cells: Sequence[dict[str, Any]]) -> str:
    """The name of a folder's parameter: another one if a cell assigns it for itself."""
    own = (cell for cell in cells if cell["cell_type"] == "code" and not {PARAMETERS_TAG, SETUP_TAG} & {*_tags(cell)})
    found = (access for cell in own if name in cell["source"] for access in accesses(CellSource(cell["source"])))
    assigned = {access.name for access in found if access.binds and access.owner.parent is None}
    return f"landfall_{name}" if name in assigned else name


def _written(facts: NotebookFacts) -> Iterator[tuple[str, str]]:
    """The parameters by their names, each with the comments that are moved with it, and a blank line above those of
    another cell."""
    cell = None
    for field in facts.parameters:
        if field.stays:
            continue
        line = f"{field.name} = {localised(field.value, facts)}  {field.comment}"
        is_first, cell = field.cell != cell, field.cell
        yield field.name, "\n".join([*[""] * is_first, *field.above, line, *field.below])


def _joined(lines: Iterable[str]) -> str:
    """The lines of a cell, with at most one blank line between them."""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip("\n")


def _needs(
    cells: Sequence[dict[str, Any]], facts: NotebookFacts, parameters: str, known: Mapping[str, CellSource]
) -> _Needs:
    """The needs of the code cells and of the lines that are moved to the parameters cell; comments need nothing."""
    texts = [cell["source"] for cell in cells if cell["cell_type"] == "code" and SETUP_TAG not in _tags(cell)]
    code = [known.get(text) or CellSource(text, language=facts.language) for text in [*texts, parameters]]
    names = (facts.work, facts.drive, _RUNTIME)
    text = "\n".join(without_comments(source) for source in code if any(name in source.text for name in names))
    entered = any(_ENTERS_SAMPLES.search(without_comments(source)) for source in code if "sample_data" in source.text)
    entered = entered or re.search(rf"{facts.work}\W{{0,2}}/sample_data\b", text) is not None
    samples = entered and not facts.makes_samples
    drive_links = any(needs_drive_links(source, facts) for source in code)
    drive = drive_links or _holds(text, facts.drive)
    # The runtime uses the current folder as the work folder.
    moves = _RUNTIME in text and any(_CHANGES_FOLDER.search(source.text) for source in code)
    return _Needs(
        work=drive or moves or samples or _holds(text, facts.work),
        drive=drive,
        kernel=_RUNTIME in text or any(map(_runs_programs, code)),
        bash=any(needs_bash(source) for source in code),
        drive_links=drive_links,
        samples=samples,
    )


def _runs_programs(source: CellSource) -> bool:
    """Whether a cell runs a program that may be the kernel's: `!python`, `!gdown`, `run(["accelerate", …])`."""
    programs = [
        command.program
        for text in shell_texts(source)
        if not (text.magic or text.automagic)
        for command in text.commands
    ]
    programs += [found.command.program for found in list_commands(source)]
    return any(name and "/" not in name and not _OF_THE_SYSTEM.fullmatch(name) for name in programs)


def _setup_lines(cells: Sequence[dict[str, Any]], facts: NotebookFacts, needs: _Needs) -> list[str]:
    """The lines of the set-up cell below its title."""
    start, here = "START_DIR", "os.getcwd()"
    if any(_holds(cell["source"], start) for cell in cells if SETUP_TAG not in _tags(cell)):
        start = "LANDFALL_START_DIR"
    work, drive = facts.work, facts.drive
    lines = ["import os", *["import shutil"] * needs.bash, "import sys", ""]
    if needs.work:
        lines.append(f'{start} = globals().get("{start}") or os.getcwd()')
        here = start
    lines += [
        f"sys.path.insert(0, {here})",
        'os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]',
    ]
    if needs.bash:
        lines.append('os.environ["SHELL"] = shutil.which("bash") or os.environ.get("SHELL", "sh")')
    if needs.work:
        path = f"os.path.join({start}, os.path.expanduser({parameter_name('work_dir', cells)}))"
        lines += [f'{work} = os.environ["{work}"] = os.path.abspath({path})', f"os.makedirs({work}, exist_ok=True)"]
    if needs.samples:
        lines.append(f'os.makedirs(os.path.join({work}, "sample_data"), exist_ok=True)')
    if needs.drive:
        path = f"os.path.join({work}, os.path.expanduser({parameter_name('drive_dir', cells)}))"
        lines += [f'{drive} = os.environ["{drive}"] = os.path.abspath({path})', f"os.makedirs({drive}, exist_ok=True)"]
    if needs.drive_links:
        lines += [f"from {_RUNTIME} import link_my_drive", f"link_my_drive({drive})"]
    return [*lines, *[f"os.chdir({work})"] * needs.work]


def _extended(
    cells: list[dict[str, Any]], parameters: int | None, setup: int, lines: dict[str, str], wanted: list[str]
) -> list[dict[str, Any]]:
    """The cells of a notebook that was already migrated, with missing lines added to its two cells."""
    texts = {setup: _with_setup(cells[setup]["source"], wanted)}
    if parameters is not None:
        known = _assigned(cells[setup]["source"])
        lines = {name: line for name, line in lines.items() if name not in known}
        texts[parameters] = _with_parameters(cells[parameters]["source"], lines)
    if all(cells[at]["source"] == text for at, text in texts.items()):
        return cells
    return [{**cell, "source": texts.get(at, cell["source"])} for at, cell in enumerate(cells)]


def _with_parameters(text: str, lines: dict[str, str]) -> str:
    bound = _assigned(text)
    missing = [line for name, line in lines.items() if name not in bound]
    return _joined([text.rstrip("\n"), *missing]) if missing else text


def _with_setup(text: str, wanted: list[str]) -> str:
    """The set-up with its missing lines, before it changes the folder. A line is known by what it changes."""
    present = text.split("\n")
    known = {_changed(line) for line in ("", *present)}
    missing = [line for line in wanted if _changed(line) not in known]
    last = next((row for row, line in enumerate(present) if line.startswith("os.chdir(")), len(present))
    return "\n".join([*present[:last], *missing, *present[last:]])


def _changed(line: str) -> str:
    """The target that a line of the set-up assigns, or the call; of any folder for imports."""
    return "sys.path" if line.startswith("sys.path.insert(0, ") else line.partition(" = ")[0]


def _assigned(text: str) -> set[str]:
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return set()
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    targets += [node.target for node in body if isinstance(node, ast.AnnAssign)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _is_movable(cells: Sequence[dict[str, Any]], at: int, facts: NotebookFacts) -> bool:
    """Whether the parameters cell contains only literals, with names that no earlier cell uses."""
    try:
        body = ast.parse(cells[at]["source"]).body
    except (SyntaxError, ValueError):
        return False
    if not all(isinstance(node, ast.Assign | ast.AnnAssign) and node.value and is_literal(node.value) for node in body):
        return False
    before = "\n".join(cell["source"] for cell in cells[:at] if cell["cell_type"] == "code")
    return not any(_holds(before, name) for name in _assigned(cells[at]["source"]))


def _code_cell(source: str, tag: str) -> dict[str, Any]:
    return {"cell_type": "code", "execution_count": None, "metadata": {"tags": [tag]}, "outputs": [], "source": source}


def tagged(cells: Sequence[dict[str, Any]], tag: str) -> int | None:
    return next((at for at, cell in enumerate(cells) if cell["cell_type"] == "code" and tag in _tags(cell)), None)


def _tags(cell: dict[str, Any]) -> list[str]:
    tags = cell.get("metadata", {}).get("tags", [])
    return tags if isinstance(tags, list) else []


def _holds(text: str, name: str) -> bool:
    return name in text and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def _holds_any(text: str, facts: NotebookFacts) -> bool:
    return _holds(text, facts.work) or _holds(text, facts.drive)
