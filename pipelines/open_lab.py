"""Opens the notebooks of the workspace in JupyterLab: `landfall lab`.

The kernels find Landfall's packages also if it was installed from a wheel, and JupyterLab uses the settings of
`configs/jupyter`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec

from core.cli import add_root_argument, root_of, run_command
from core.errors import LandfallError

_FIRST_NOTEBOOK = "notebooks/local_patchtst_ssl.ipynb"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="landfall lab",
        description="Opens the notebooks in JupyterLab.",
        epilog="Arguments after -- are options of JupyterLab: landfall lab -- --no-browser",
    )
    add_root_argument(parser)
    words = list(sys.argv[1:] if argv is None else argv)
    end = words.index("--") if "--" in words else len(words)  # argparse drops it when it parses intermixed arguments
    return run_command(partial(_open, words[end + 1 :]), parser, words[:end])


def _open(options: Sequence[str], arguments: argparse.Namespace) -> int:
    root = root_of(arguments)
    if find_spec("jupyterlab") is None:
        raise LandfallError(
            "JupyterLab is not installed", hint="make setup, or install the wheel with its extra: WHEEL[lab]"
        )
    os.environ["JUPYTER_CONFIG_PATH"] = str(root / "configs/jupyter")
    os.chdir(root)
    # JupyterLab replaces this process, so that it receives Ctrl-C and signals directly.
    # The folder of the notebook is the default, from which executed copies and data cannot be reached.
    command = [sys.executable, "-m", "jupyterlab", _FIRST_NOTEBOOK, f"--ServerApp.root_dir={root}", *options]
    os.execv(sys.executable, command)


if __name__ == "__main__":
    sys.exit(main())
