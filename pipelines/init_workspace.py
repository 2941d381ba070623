"""Creates a workspace for the other commands: `landfall init DIR`.

A workspace contains configurations, notebooks and the page of the dashboard; data, runs and results are added later. A
clone of the repository is a workspace; this command is for an installed wheel, or for a second plant next to a clone.
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
# Outputs of runs and files of editors are not copied.
_LEFT_OUT = ("data", ".*", "__pycache__")
_WRITTEN = ("data", "samples", "runs", "checkpoints", "artifacts", "cache", "machines", "training_dashboard/data")
_IGNORED_BY_GIT = "".join(f"/{folder}/\n" for folder in _WRITTEN) + ".env\n"
_NEXT = """\
{folder} is a workspace now. In it:
  landfall sample-data     write sample data to samples/, or copy your own files to data/fdc and data/vib
  landfall check           what your data has and needs
  landfall pipeline        train both models, score, check everything, export the dashboard
  landfall dashboard       show the results
  landfall lab             open the notebooks
"""


def init_workspace(folder: Path) -> None:
    """Copies a new workspace to `folder`, which is created if necessary; other files in it are kept. Raises UsageError
    if a file or folder of the workspace exists.
    """
    taken = [name for name in FOLDERS if (folder / name).exists()]
    if taken or (folder.exists() and not folder.is_dir()):
        in_the_way = folder / taken[0] if taken else folder
        raise UsageError(f"{in_the_way} exists", hint="choose another folder, or move it away")
    for name in FOLDERS:
        shutil.copytree(CODE_ROOT / name, folder / name, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    if not (folder / ".gitignore").exists():
        (folder / ".gitignore").write_text(_IGNORED_BY_GIT, encoding="utf-8")


def renew_workspace(folder: Path, *, source: Path, without: Sequence[str] = ()) -> None:
    """Makes `folder` a workspace like `source`, or brings its files up to date; other files in it are kept.

    without: patterns of names that are not copied.
    """
    for name in FOLDERS:
        if (source / name).is_dir():
            left_out = shutil.ignore_patterns(*_LEFT_OUT, *without)
            shutil.copytree(
                source / name, folder / name, ignore=left_out, copy_function=_copy_changed, dirs_exist_ok=True
            )


def _copy_changed(source: str, target: str) -> None:
    """An incomplete copy of a killed process differs, and is made again."""
    if not Path(target).is_file() or Path(source).read_bytes() != Path(target).read_bytes():
        shutil.copyfile(source, target)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="landfall init", description="Creates a workspace: configurations, notebooks, the page of the dashboard."
    )
    parser.add_argument(
        "folder", type=Path, metavar="DIR", help="folder of the workspace; created if it does not exist"
    )
    return run_command(_init, parser, argv)


def _init(arguments: argparse.Namespace) -> int:
    init_workspace(arguments.folder)
    sys.stdout.write(_NEXT.format(folder=arguments.folder))
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
