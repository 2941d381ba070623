"""A notebook for the tests, executed in its own process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import nbformat

from tests.support import REPO_ROOT


class Ended(NamedTuple):
    """The result of the process; `executed` is its output notebook."""

    code: int
    events: list[dict[str, Any]]
    messages: str
    executed: nbformat.NotebookNode | None

    @property
    def last_line(self) -> str:
        return self.messages.splitlines()[-1]


def write_notebook(path: Path, *cells: str) -> Path:
    """A notebook with the parameters `count` and `name`, and a heading over each cell: First, Second, …"""
    notebook = nbformat.v4.new_notebook()
    parameters = nbformat.v4.new_code_cell('count = 2  # type: int\nname = "x"')
    parameters.metadata.tags = ["parameters"]
    notebook.cells = [nbformat.v4.new_markdown_cell("# A notebook"), parameters]
    for title, cell in zip(("First", "Second", "Third"), cells, strict=False):
        notebook.cells += [nbformat.v4.new_markdown_cell(f"Text\n## {title}"), nbformat.v4.new_code_cell(cell)]
    nbformat.write(notebook, path)
    return path


def start(notebook: Path, *words: str) -> subprocess.Popen[str]:
    executed = notebook.parent / "executed" / notebook.name
    command = [sys.executable, "-m", "pipelines.execute_notebook", str(notebook), str(executed)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*command, "--repo-root", str(notebook.parent), *words], cwd=REPO_ROOT, **pipes)


def end(process: subprocess.Popen[str], notebook: Path) -> Ended:
    output, messages = process.communicate(timeout=400)
    executed = notebook.parent / "executed" / notebook.name
    read = nbformat.read(executed, as_version=4) if executed.is_file() else None
    return Ended(process.returncode, [json.loads(line) for line in output.splitlines()], messages, read)


def execute(notebook: Path, *words: str) -> Ended:
    return end(start(notebook, *words), notebook)
