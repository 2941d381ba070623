"""Migration from Colab to a local machine: `landfall migrate`, in a notebook `%load_ext migration` and `%migrate`.

Layers, lowest first; each imports only itself and those above it in this list (tests/test_architecture.py):

- `notebook`: the file: read, repaired, cleaned, written; findings, secrets, edits of texts
- `shell`: what shell text says
- `python`: a code cell as IPython reads it: commands, tree, strings, scopes, its shell texts
- `colab`: what a name, a path, a form or a branch means on Colab and here
- `analysis`: facts of a whole notebook, by pure passes in a fixed order
- `rules`: the table of rules, and the means to apply it to a cell
- `report`: what was found and done, as a document, a page, and other forms
- `migrate`: one notebook in memory
- `planning`: which notebooks, and where each goes
- `batch`: many notebooks and their files
- `command`: the command line
- `magic`: the command in Jupyter
- `contract`: what local notebooks and configurations of a workspace keep to
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def load_ipython_extension(shell: InteractiveShell) -> None:
    """What `%load_ext migration` calls."""
    from migration.magic import register

    register(shell)
