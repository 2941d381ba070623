"""Makes a workspace, which is what the other commands work in: `landfall init DIR`.

A workspace holds configurations, notebooks and the dashboard's page; data, runs and results are added to it. A clone of
the repository is one already; this command is for an installed wheel, or for a second plant beside a clone.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from core.cli import run_command
from core.errors import EXIT_OK, UsageError
from core.workspace import CODE_ROOT

FOLDERS = ("configs", "notebooks", "training_dashboard")
# What runs write and what editors leave there is not copied.
_LEFT_OUT = shutil.ignore_patterns("data", ".*", "__pycache__")
_IGNORED_BY_GIT = "/data/\n/samples/\n/runs/\n/checkpoints/\n/artifacts/\n/cache/\n/training_dashboard/data/\n.env\n"
_NEXT = """\
{folder} is a workspace now. In it:
  landfall sample-data     make sample data in samples/, or put your own files into data/fdc and data/vib
  landfall pipeline        train both models, score, check everything, export the dashboard
  landfall dashboard       look at the results
  landfall lab             open the notebooks
"""


def init_workspace(folder: Path) -> None:
    """Copies a new workspace into `folder`, which is created; other files there stay.

    Raises UsageError where a file or folder of that name is in the way.
    """
    taken = [name for name in FOLDERS if (folder / name).exists()]
    if taken or (folder.exists() and not folder.is_dir()):
        in_the_way = folder / taken[0] if taken else folder
        raise UsageError(f"{in_the_way} exists", hint="choose another folder, or move it away")
    for name in FOLDERS:
        shutil.copytree(CODE_ROOT / name, folder / name, ignore=_LEFT_OUT)
    if not (folder / ".gitignore").exists():
        (folder / ".gitignore").write_text(_IGNORED_BY_GIT, encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="landfall init", description="Makes a workspace: configurations, notebooks, the dashboard's page."
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="where; created if it does not exist")
    return run_command(_init, parser, argv)


def _init(arguments: argparse.Namespace) -> int:
    init_workspace(arguments.folder)
    sys.stdout.write(_NEXT.format(folder=arguments.folder))
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
