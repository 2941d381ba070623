"""Builds the documentation site in artifacts/site: `make site`.

Markdown pages and images are copied with their paths, so links between them stay valid. Pages of the Python API list
every public module; mkdocstrings fills them from the docstrings without importing the code.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from core.cli import add_root_argument, root_of, run_command
from core.errors import EXIT_OK, LandfallError

SOURCE = Path("artifacts/site-source")
SITE = Path("artifacts/site")
PACKAGES = ("core", "trainers", "inference", "migration", "pipelines", "landfall_runtime")
_COPIED = (
    "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**/*.md", "docs/images/*", "dev/*.md", "configs/**/*.md",
)  # fmt: skip
# Pages that the search excludes: old figures, requirements.
_NOT_SEARCHED = ("dev/LOG.md", "docs/requirements/*/*.md")


def stage(root: Path) -> Path:
    """Copies pages and images to a new folder, adds the pages of the API, and returns the folder."""
    source = root / SOURCE
    shutil.rmtree(source, ignore_errors=True)
    for pattern in _COPIED:
        for path in filter(Path.is_file, root.glob(pattern)):
            target = source / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    for page in (page for pattern in _NOT_SEARCHED for page in source.glob(pattern)):
        page.write_text(f"---\nsearch:\n  exclude: true\n---\n{page.read_text(encoding='utf-8')}", encoding="utf-8")
    for package in PACKAGES:
        page = source / "api" / f"{package}.md"
        page.parent.mkdir(exist_ok=True)
        modules = "\n".join(f"::: {name}\n" for name in public_modules(root, package))
        page.write_text(f"# {package}\n\n{modules}", encoding="utf-8")
    return source


def public_modules(root: Path, package: str) -> list[str]:
    """Dotted names of the modules of a package, without those whose name begins with an underscore."""
    paths = sorted((root / package).rglob("*.py")) or [root / f"{package}.py"]
    names = (path.relative_to(root).with_suffix("").as_posix().replace("/", ".") for path in paths)
    return [name for name in names if "._" not in name and not name.endswith(".__init__")]


def _build(arguments: argparse.Namespace) -> int:
    root = root_of(arguments)
    stage(root)
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--quiet",
        "--clean",
        *(["--strict"] if arguments.strict else []),
    ]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    if subprocess.run(command, cwd=root, env=quiet, check=False).returncode:
        raise LandfallError("mkdocs could not build the site", hint="`make site` installs it; see its output above")
    site = root / SITE
    sys.stderr.write(f"open {site / 'index.html'}\n")
    sys.stderr.write(f"with the search: {sys.executable} -m http.server --bind 127.0.0.1 --directory {site}\n")
    return EXIT_OK


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="site", description="Builds the documentation site.")
    parser.add_argument("--strict", action="store_true", help="fail on warnings, such as a link to a missing page")
    add_root_argument(parser)
    return run_command(_build, parser, argv)


if __name__ == "__main__":
    sys.exit(main())
