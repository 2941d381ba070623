"""Creates a workspace for the other commands: `landfall init DIR`.

A workspace contains configurations, notebooks, the page of the dashboard and the documentation, which messages name;
data, runs and results are added later. A clone of the repository is a workspace; this command is for an installed
wheel, or for a second plant next to a clone.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from core.cli import run_command
from core.errors import EXIT_OK, UsageError
from core.page import PAGE
from core.workspace import CODE_ROOT, write_text, writing

FOLDERS = ("configs", "notebooks", PAGE)
_WITH_DOCUMENTATION = (*FOLDERS, "docs")
# Outputs of runs, files of editors and requirements of the project are not copied.
_LEFT_OUT = ("data", "requirements", ".*", "__pycache__")
_WRITTEN = ("data", "samples", "runs", "checkpoints", "artifacts", "cache", "machines", "training_dashboard/data")
_IGNORED_BY_GIT = "".join(f"/{folder}/\n" for folder in _WRITTEN) + ".env\n"
_NEXT = """\
{folder} is a workspace now. In it:
  landfall sample-data     write sample data to samples/, or copy your own files to data/fdc and data/vib
  landfall check           what your data has and needs
  landfall pipeline        train both models, score, check everything, export the dashboard
  landfall dashboard       show the results
  landfall lab             open the notebooks
docs/README.md lists the documentation.
"""


def init_workspace(folder: Path) -> None:
    """Copies a new workspace to `folder`, which is created if necessary; other files in it are kept. Raises UsageError
    if a file or folder of the workspace exists, and WriteError if it cannot be written; then nothing remains of it.
    """
    taken = [name for name in _WITH_DOCUMENTATION if (folder / name).exists()]
    if taken or (folder.exists() and not folder.is_dir()):
        in_the_way = folder / taken[0] if taken else folder
        raise UsageError(f"{in_the_way} exists", hint="choose another folder, or move it away")
    try:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        for name in _WITH_DOCUMENTATION:
            _copy(CODE_ROOT / name, folder / name)
        if not (folder / ".gitignore").exists():
            write_text(folder / ".gitignore", _IGNORED_BY_GIT)
    except BaseException:  # also Ctrl-C
        for name in _WITH_DOCUMENTATION:
            shutil.rmtree(folder / name, ignore_errors=True)
        raise


def renew_workspace(folder: Path, *, source: Path, without: Sequence[str] = ()) -> None:
    """Makes `folder` a workspace like `source`, or brings its files up to date; other files in it are kept.

    without: patterns of names that are not copied. Raises WriteError if it cannot be written.
    """
    for name in FOLDERS:
        if (source / name).is_dir():
            _copy(source / name, folder / name, without)


def renew_page(root: Path) -> None:
    """Brings the page of the dashboard in a workspace up to date with this version of Landfall, which writes its data.
    A clone has its own page. Raises WriteError if it cannot be written."""
    is_clone = root.resolve() == CODE_ROOT or (root / "landfall.py").exists()
    if not is_clone and (root / PAGE / "index.html").is_file():
        _copy(CODE_ROOT / PAGE, root / PAGE)


def _copy(source: Path, target: Path, without: Sequence[str] = ()) -> None:
    """Copies files that differ, such as an incomplete copy of a killed process."""
    with writing(target):
        target.mkdir(parents=True, exist_ok=True)
    found = sorted(source.iterdir())
    left_out = shutil.ignore_patterns(*_LEFT_OUT, *without)(str(source), [path.name for path in found])
    for path in found:
        copy = target / path.name
        if path.name in left_out:
            continue
        if path.is_dir():
            _copy(path, copy, without)
        elif not copy.is_file() or copy.read_bytes() != path.read_bytes():
            with writing(copy):
                copy.write_bytes(path.read_bytes())


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="landfall init", description="Creates a workspace: configurations, notebooks, dashboard, documentation."
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
