"""The two cells a migrated notebook begins with: its parameters, and the set-up that makes folders of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from migration.analysis.facts import NotebookFacts
from migration.analysis.parameters import written_literal
from migration.colab.forms import is_literal
from migration.python.source import CellSource
from migration.rules.commands import needs_bash
from migration.rules.configurations import localised
from migration.rules.paths import needs_drive_links

PARAMETERS_TAG = "parameters"
SETUP_TAG = "landfall-setup"
PARAMETERS_TITLE = "# Parameters: edit them here, or let papermill replace them with -p NAME VALUE."
SETUP_TITLE = "# The folders of this machine, for Python and for shell lines."
_RUNTIME = "landfall_runtime"


@dataclass(frozen=True)
class Folders:
    """Defaults of the parameters `work_dir` and `drive_dir`, as written in the notebook."""

    work: str = "."
    drive: str = "drive"


@dataclass(frozen=True)
class _Needs:
    """What the set-up cell must provide, as the migrated cells show."""

    folders: bool
    drive: bool
    python: bool
    bash: bool
    drive_links: bool

    def __bool__(self) -> bool:
        return self.folders or self.drive or self.python or self.bash or self.drive_links


def add_preamble(
    cells: list[dict[str, Any]], facts: NotebookFacts, folders: Folders, known: Iterable[CellSource] = ()
) -> list[dict[str, Any]]:
    """The cells with the parameters cell and the set-up cell before the first code cell, where the notebook
    needs them.

    Cells that have the tags are extended where something is missing, and left alone otherwise. `known` are code cells
    that were read before; one with the same text is not read again.
    """
    fields = {
        field.name: f"{field.name} = {localised(field.value, facts)}  {field.comment}"
        for field in facts.parameters
        if not field.stays
    }
    first = next((at for at, cell in enumerate(cells) if cell["cell_type"] == "code"), None)
    if facts.language != "python" or first is None:
        return cells
    needs = _needs(cells, facts, "\n".join(fields.values()), {source.text: source for source in known})
    if not needs and not fields:
        return cells
    work, drive = (written_literal(folder.replace("\\", "/")) for folder in (folders.work, folders.drive))
    lines = {
        "work_dir": f"work_dir = {work}  # type: str folder of the notebook's files, "
        "relative to the one it is started in",
        "drive_dir": f"drive_dir = {drive}  # type: str folder in place of Google Drive, relative to work_dir",
        **fields,
    }
    parameters, setup = _tagged(cells, PARAMETERS_TAG), _tagged(cells, SETUP_TAG)
    if setup is not None:
        return _extended(cells, parameters, setup, lines, _setup_lines(cells, facts, needs))
    if parameters is not None and parameters > first and _is_movable(cells, parameters, facts):
        cells = [*cells[:first], cells[parameters], *cells[first:parameters], *cells[parameters + 1 :]]
        parameters = first
    if parameters is not None and (parameters > first or _holds_any(cells[parameters]["source"], facts)):
        # Papermill fills that cell where it stands, too late for folders that are needed before or in it: they get
        # their defaults.
        text = "\n".join([SETUP_TITLE, *lines.values(), *_setup_lines(cells, facts, needs)])
        return [*cells[:first], _code_cell(text, SETUP_TAG), *cells[first:]]
    body = _code_cell("\n".join([SETUP_TITLE, *_setup_lines(cells, facts, needs)]), SETUP_TAG)
    if parameters is None:
        head = _code_cell("\n".join([PARAMETERS_TITLE, *lines.values()]), PARAMETERS_TAG)
        return [*cells[:first], head, body, *cells[first:]]
    head = {**cells[parameters], "source": _with_parameters(cells[parameters]["source"], lines)}
    return [*cells[:parameters], head, body, *cells[parameters + 1 :]]


def _needs(
    cells: Sequence[dict[str, Any]], facts: NotebookFacts, parameters: str, known: Mapping[str, CellSource]
) -> _Needs:
    """What the code cells and the lines that join the parameters cell ask for."""
    texts = [cell["source"] for cell in cells if cell["cell_type"] == "code" and SETUP_TAG not in _tags(cell)]
    code = [known.get(text) or CellSource(text, language=facts.language) for text in [*texts, parameters]]
    text = "\n".join(source.text for source in code)
    has_fields = any(not parameter.stays for parameter in facts.parameters)
    drive = _holds(text, facts.drive) or any(parameter.folder == "drive" for parameter in facts.parameters)
    return _Needs(
        folders=has_fields or _holds(text, facts.work) or drive or _RUNTIME in text,
        drive=drive,
        python=_holds(text, facts.python),
        bash=any(needs_bash(source) for source in code),
        drive_links=any(needs_drive_links(source, facts) for source in code),
    )


def _setup_lines(cells: Sequence[dict[str, Any]], facts: NotebookFacts, needs: _Needs) -> list[str]:
    """The lines of the set-up cell below its title."""
    start = "START_DIR"
    if any(_holds(cell["source"], start) for cell in cells if SETUP_TAG not in _tags(cell)):
        start = "LANDFALL_START_DIR"
    work, drive, python = facts.work, facts.drive, facts.python
    lines = ["import os"]
    lines += ["import shutil"] if needs.bash else []
    lines += ["import sys"] if needs.python else []
    if needs.drive_links:
        lines += ["", f"from {_RUNTIME} import link_my_drive"]
    lines += [
        "",
        f'{start} = globals().get("{start}") or os.getcwd()',
        f'{work} = os.environ["{work}"] = os.path.abspath(os.path.join({start}, os.path.expanduser(work_dir)))',
        f'{drive} = os.environ["{drive}"] = os.path.abspath(os.path.join({work}, os.path.expanduser(drive_dir)))',
    ]
    if needs.python:
        lines.append(f'{python} = os.environ["{python}"] = sys.executable')
    if needs.bash:
        lines.append('os.environ["SHELL"] = shutil.which("bash") or os.environ.get("SHELL", "sh")')
    lines.append(f"os.makedirs({work}, exist_ok=True)")
    if needs.drive:
        lines.append(f"os.makedirs({drive}, exist_ok=True)")
    if needs.drive_links:
        lines.append(f"link_my_drive({drive})")
    return [*lines, f"os.chdir({work})"]


def _extended(
    cells: list[dict[str, Any]], parameters: int | None, setup: int, lines: dict[str, str], wanted: list[str]
) -> list[dict[str, Any]]:
    """The cells of a notebook that was migrated before, with what is missing in its two cells."""
    texts = {setup: _with_setup(cells[setup]["source"], wanted)}
    if parameters is not None:
        fields = {name: line for name, line in lines.items() if name not in ("work_dir", "drive_dir")}
        texts[parameters] = _with_parameters(cells[parameters]["source"], fields)
    if all(cells[at]["source"] == text for at, text in texts.items()):
        return cells
    return [{**cell, "source": texts.get(at, cell["source"])} for at, cell in enumerate(cells)]


def _with_parameters(text: str, lines: dict[str, str]) -> str:
    bound = _assigned(text)
    missing = [line for name, line in lines.items() if name not in bound]
    return "\n".join([text.rstrip("\n"), *missing]) if missing else text


def _with_setup(text: str, wanted: list[str]) -> str:
    """The set-up with its missing lines: imports below its first import, the others before it changes the folder."""
    present = text.split("\n")
    assigned = {_target(line) for line in present}
    missing = [line for line in wanted if line and line not in present and _target(line) not in assigned]
    at = next((row for row, line in enumerate(present) if line.startswith("import ")), None)
    last = next((row for row, line in enumerate(present) if line.startswith("os.chdir(")), len(present))
    if not missing or at is None:
        return text
    imports = [line for line in missing if line.startswith(("import ", "from "))]
    others = [line for line in missing if line not in imports]
    return "\n".join([*present[: at + 1], *imports, *present[at + 1 : last], *others, *present[last:]])


def _target(line: str) -> str:
    """What a line assigns to; the whole line where it assigns nothing."""
    return line.partition(" = ")[0]


def _assigned(text: str) -> set[str]:
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return set()
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    targets += [node.target for node in body if isinstance(node, ast.AnnAssign)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _is_movable(cells: Sequence[dict[str, Any]], at: int, facts: NotebookFacts) -> bool:
    """Whether the parameters cell holds nothing but literals, of names that no cell before it knows."""
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


def _tagged(cells: Sequence[dict[str, Any]], tag: str) -> int | None:
    return next((at for at, cell in enumerate(cells) if cell["cell_type"] == "code" and tag in _tags(cell)), None)


def _tags(cell: dict[str, Any]) -> list[str]:
    tags = cell.get("metadata", {}).get("tags", [])
    return tags if isinstance(tags, list) else []


def _holds(text: str, name: str) -> bool:
    return name in text and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def _holds_any(text: str, facts: NotebookFacts) -> bool:
    return _holds(text, facts.work) or _holds(text, facts.drive)
