"""Migration from Colab to a local machine: `landfall migrate`, in a notebook `%load_ext migration` and `%migrate`.

Layers, lowest first; each imports only itself and those above it in this list (tests/test_architecture.py):

- `notebook`: reads, repairs, cleans and writes the file; findings; edits of texts
- `shell`: parses shell text into commands
- `python`: a code cell as IPython reads it: commands, tree, strings, scopes, its shell texts
- `colab`: the meaning of a name, a path, a form or a branch on Colab and locally
- `analysis`: facts of a whole notebook, by pure passes in a fixed order
- `rules`: the table of rules, and the engine that applies it to a cell
- `report`: findings and changes, as a document, a page, and other formats
- `migrate`: one notebook in memory
- `planning`: the input notebooks, and the output path of each
- `batch`: many notebooks and their files
- `command`: the command line
- `magic`: the command in Jupyter
- `contract`: rules for local notebooks and configurations of a workspace
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Called by `%load_ext migration`."""
    from migration.magic import register

    register(shell)
