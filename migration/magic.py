"""`%migrate NOTEBOOK [options]` in a notebook: the command `landfall migrate`, without leaving JupyterLab."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import EXIT_USAGE, LandfallError

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

# Jupyter's server sets this variable to the notebook of a kernel.
NOTEBOOK_VARIABLE = "JPY_SESSION_NAME"


def register(shell: InteractiveShell) -> None:
    """Adds the line magic `%migrate` to a shell."""
    shell.register_magic_function(migrate, "line", "migrate")


def migrate(line: str) -> None:
    """Convert a Colab notebook to a local one: `%migrate NOTEBOOK [options]`; `%migrate --help` lists the options.
    Without a file name it migrates the current notebook, as it was last saved.
    """
    from IPython.core.error import UsageError
    from IPython.utils.process import arg_split

    from migration.command import build_parser, run

    parser = build_parser()
    parser.prog = "migrate"
    try:
        arguments = parser.parse_intermixed_args(arg_split(line, posix=os.name == "posix"))
    except SystemExit as exit_:
        # argparse has printed its help or the error.
        if exit_.code:
            raise UsageError("see %migrate --help") from None
        return
    if not (arguments.inputs or arguments.rules or arguments.schema):
        arguments.inputs = [_open_notebook()]
    try:
        code = run(arguments)
    except LandfallError as error:
        raise UsageError(str(error)) from None
    if code == EXIT_USAGE:
        raise UsageError("not every notebook was migrated")


def _open_notebook() -> Path:
    from IPython.core.error import UsageError

    notebook = Path(os.environ.get(NOTEBOOK_VARIABLE, ""))
    if notebook.suffix != ".ipynb" or not notebook.is_file():
        raise UsageError("pass the notebook: %migrate path.ipynb")
    return notebook
