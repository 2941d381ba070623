"""Migration from Colab to a local machine: `landfall migrate`, in a notebook `%load_ext migration` and `%migrate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def load_ipython_extension(shell: InteractiveShell) -> None:
    """What `%load_ext migration` calls."""
    from migration.magic import register

    register(shell)
