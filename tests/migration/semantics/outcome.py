"""Runs a case on both machines and describes the effects, independently of the paths of the folders."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import PIL.Image

from migration.migrate import Migration, migrate
from migration.rules.preamble import Folders
from tests.migration.semantics.kernels import COLAB_CONTENT, HERE, CellRun, Machine, copy_modules, environment

# Programs that not every machine has, and what they print.
_BOTH = {"nvidia-smi": "echo Tesla T4", "uv": "echo uv done"}
MOUNTS = ("/content/drive", "/content/gdrive", "/content/google_drive")
# What only Colab's machine says, or only %pip, and times: no part of the notebook's own output.
_REMARKS = re.compile(
    r"^(?:(?:Mounted|Drive already mounted) at .*|Running in Colab\.|Note: you may need to restart .*|CPU times: .*"
    r"|Wall time: .*)\n",
    re.MULTILINE,
)
_CONTENT = re.compile(r"(?P<address>https?://\S+)|(?:(?<![\w.])|(?<= -\w))/content(?![\w-])")
_NAMES = {"START_DIR", "WORK_DIR", "DRIVE_DIR"}
PREAMBLE_NAMES = {"work_dir", "drive_dir", *_NAMES, *(f"LANDFALL_{name}" for name in _NAMES)}

Content = str | bytes


@dataclass(frozen=True)
class Case:
    """A small notebook, and what stands around it.

    `rules` are those that must rewrite something in it. `files` are in /content before the run, `drive` in My Drive,
    `shared` in Shareddrives, `uploads` on the person's disk. Where the notebook asks whether it runs on Colab, the
    migrated one must do what the original does on a plain machine: `original_on` is "local" then. `gone` are
    variables that the migration takes away; `restarts` says that the original loses its variables on the way.

    Here the notebook begins in the folder `start`: with a space in it, all but cells that put a variable of their own
    into a shell line without quotes must cope; `in_workspace` says that it is a Landfall workspace. `folders` are the
    parameters `work_dir` and `drive_dir`. `private_root` says that the original writes at the root of the machine;
    `needs` are programs that not every machine has.
    """

    name: str
    cells: tuple[str, ...]
    rules: tuple[str, ...] = ()
    files: Mapping[str, Content] = field(default_factory=dict)
    drive: Mapping[str, Content] = field(default_factory=dict)
    shared: Mapping[str, Content] = field(default_factory=dict)
    uploads: Mapping[str, Content] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    original_on: Literal["colab", "local"] = "colab"
    gone: frozenset[str] = frozenset()
    restarts: bool = False
    start: str = "work folder"
    in_workspace: bool = False
    folders: Folders = field(default_factory=Folders)
    private_root: bool = False
    needs: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name


def cells(text: str) -> tuple[str, ...]:
    """The cells of a notebook written as one text, with a line `# ----` between two of them."""
    return tuple(cell.removeprefix("\n").removesuffix("\n") for cell in text.split("# ----"))


@dataclass(frozen=True)
class Outcome:
    """The effects of the original and the migrated notebook, cell by cell, and their files."""

    original: list[CellRun]
    migrated: list[CellRun]
    original_files: dict[str, bytes]
    migrated_files: dict[str, bytes]
    migration: Migration

    @property
    def rules(self) -> set[str]:
        return {finding.rule for finding in self.migration.findings if finding.changed}


class Machines:
    """Both machines with their folders; `proxy` is their web proxy."""

    def __init__(self, folder: Path, colab: Machine, content: Path, local: Machine, proxy: str):
        self.folder, self.colab, self.content, self.local = folder, colab, content, local
        self.web = {"http_proxy": proxy, "no_proxy": "localhost,127.0.0.1"}
        self.modules = copy_modules(folder / "modules")

    def outcome(self, case: Case, migration: Migration | None = None) -> Outcome:
        """Runs a case; `migration` replaces the result of `migrate`."""
        _write(_fresh(self.folder / "workspace"), case.files if case.in_workspace else {})
        workspace = self.folder / "workspace" if case.in_workspace else None
        migration = migration or migrate(notebook_of(case.cells), folders=case.folders, workspace=workspace)
        new_cells = migration.notebook["cells"]
        sources = [cell["source"] if cell["cell_type"] == "code" else "" for cell in new_cells]
        with ThreadPoolExecutor(2) as pool:
            run_original = self._on_colab if case.original_on == "colab" else self._locally
            original = pool.submit(run_original, case, case.cells, "original")
            migrated = pool.submit(self._locally, case, sources, "migrated")
            original_runs, original_files = original.result()
            migrated_runs, migrated_files = migrated.result()
        # A cell that migration has taken out does nothing, and leaves the variables as they are.
        kept: list[CellRun] = []
        last = CellRun()
        origins = migration.origins or range(len(new_cells))
        for cell, origin, run in zip(new_cells, origins, migrated_runs, strict=True):
            if origin is None:
                assert cell["cell_type"] == "markdown" or (run.error, run.stdout) == (None, ""), run.traceback
            else:
                kept += [CellRun(variables=last.variables)] * (origin - len(kept))
                kept.append(run)
            last = run
        kept += [CellRun(variables=last.variables)] * (len(case.cells) - len(kept))
        return Outcome(original_runs, kept, original_files, migrated_files, migration)

    def _on_colab(self, case: Case, cells: Sequence[str], name: str) -> tuple[list[CellRun], dict[str, bytes]]:
        place = _fresh(self.folder / f"colab-{name}")
        machine = {name: str(place / name) for name in ("uploads", "downloads", "drive", "shared_drives")}
        for name, files in (("uploads", case.uploads), ("drive", case.drive), ("shared_drives", case.shared)):
            _write(place / name, files)
        (place / "downloads").mkdir()
        (place / "machine.json").write_text(json.dumps({**machine, "secrets": dict(case.secrets)}))
        _empty(self.content)
        _write(self.content, case.files)
        programs = _programs(place / "programs", {**_BOTH, "apt-get": "exit 0", "apt": "exit 0", "sudo": '"$@"'})
        more = {"COLAB_STAND_IN": str(place / "machine.json"), "COLAB_RELEASE_TAG": "release-colab", "COLAB_GPU": "1"}
        variables = environment(
            place, programs=programs, modules=HERE, shell="/bin/bash", more={**more, **self.web, **case.environment}
        )
        runs = self.colab.run(cells, COLAB_CONTENT, variables)
        plain = partial(_plain_colab, drive=machine["drive"], home=str(place / "home"))
        files = {
            **_files(self.content, plain, skip=("drive", "gdrive", "google_drive")),
            **_files(place / "drive", plain, "drive/"),
            **({"drive/Shareddrives/": b""} if case.shared else {}),
            **_files(place / "shared_drives", plain, "drive/Shareddrives/"),
            **_files(place / "downloads", plain, "downloads/"),
            **_files(place / "home", plain, "home/", skip=(".ipython", ".cache", ".config", ".local")),
        }
        return [_plain(run, plain) for run in runs], files

    def _locally(self, case: Case, cells: Sequence[str], name: str) -> tuple[list[CellRun], dict[str, bytes]]:
        place = _fresh(self.folder / f"local-{name}")
        start = place / case.start
        work = Path(os.path.normpath(start / case.folders.work))
        drive = Path(os.path.normpath(work / case.folders.drive))
        for folder in (start, work):
            folder.mkdir(parents=True, exist_ok=True)
        _write(work, case.files)
        for folder, files in (
            (drive, case.drive),
            (drive / "Shareddrives", case.shared),
            (work / "uploads", case.uploads),
            *((work / "uploads" / str(number), case.uploads) for number in range(1, 10) if case.uploads),
        ):
            if files:
                _write(folder, files)
        if case.secrets:
            (work / ".env").write_text("".join(f"{key}='{value}'\n" for key, value in case.secrets.items()))
        refusing = "echo this machine must not be changed; exit 1"
        programs = _programs(place / "programs", {**_BOTH, "apt-get": refusing, "apt": refusing, "sudo": refusing})
        variables = environment(
            place, programs=programs, modules=self.modules, shell="/bin/sh", more={**self.web, **case.environment}
        )
        runs = self.local.run(cells, start, variables)
        plain = partial(_plain_local, work=str(work), drive=str(drive), home=str(place / "home"))
        files = {
            **_files(work, plain, skip=("drive", "downloads", "uploads", ".env")),
            **_files(drive, plain, "drive/"),
            **_files(work / "downloads", plain, "downloads/"),
            **_files(place / "home", plain, "home/", skip=(".ipython", ".cache", ".config", ".local")),
        }
        return [_plain(run, plain) for run in runs], files


def notebook_of(cells: tuple[str, ...]) -> dict[str, Any]:
    return {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
        "cells": [
            {"cell_type": "code", "id": f"c{n}", "metadata": {}, "execution_count": None, "outputs": [], "source": cell}
            for n, cell in enumerate(cells)
        ],
    }


def _plain_colab(text: str, *, drive: str, home: str) -> str:
    """The text with placeholders for Colab's folders; URLs and relative paths stay."""

    def word(found: re.Match[str]) -> str:
        return found[0] if found["address"] else "‹work›"

    text = text.replace(drive, "‹drive›")
    for mount in MOUNTS:
        text = re.sub(rf"(?<![\w.]){mount}(?:/My ?Drive)?(?![\w-])", "‹drive›", text)
    text = re.sub(r"(?<![\w/])g?drive/My ?Drive(?![\w-])", "‹drive›", text)
    return _CONTENT.sub(word, text).replace(home, "‹home›")


def _plain_local(text: str, *, work: str, drive: str, home: str) -> str:
    text = re.sub(re.escape(drive) + r"(?:/My ?Drive)?(?![\w-])", "‹drive›", text)
    return text.replace(work, "‹work›").replace(home, "‹home›")


def _plain(run: CellRun, plain: Callable[[str], str]) -> CellRun:
    return replace(
        run,
        stdout=_REMARKS.sub("", plain(run.stdout.replace("\r\n", "\n"))),
        results=[" ".join(plain(result).split()) for result in run.results],  # IPython breaks lines by their length
        images=[_pixels(image) for image in run.images],
        variables={name: plain(value) for name, value in run.variables.items()},
    )


def _pixels(png: bytes) -> bytes:
    image = PIL.Image.open(io.BytesIO(png))
    return f"{image.mode} {image.size} ".encode() + image.tobytes()


def _files(folder: Path, plain: Callable[[str], str], prefix: str = "", skip: tuple[str, ...] = ()) -> dict[str, bytes]:
    return dict(_walk(folder, folder, plain, prefix, skip)) if folder.is_dir() else {}


def _walk(
    root: Path, folder: Path, plain: Callable[[str], str], prefix: str, skip: tuple[str, ...]
) -> Iterator[tuple[str, bytes]]:
    """Files with their contents, empty folders, and links with their targets, except .git and caches."""
    for path in sorted(folder.iterdir()):
        name = path.relative_to(root).as_posix()
        if name in skip or path.name in (".git", "__pycache__", ".ipynb_checkpoints", "MyDrive", "My Drive"):
            continue
        if path.is_symlink():
            yield prefix + name, f"-> {plain(str(path.readlink()))}".encode()
        elif path.is_dir():
            yield prefix + name + "/", b""
            yield from _walk(root, path, plain, prefix, skip)
        else:
            content = path.read_bytes()
            try:
                yield prefix + name, plain(content.decode()).encode()
            except UnicodeDecodeError:
                yield prefix + name, content


def _write(folder: Path, files: Mapping[str, Content]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def _programs(folder: Path, programs: Mapping[str, str]) -> Path:
    """A folder of programs for the start of PATH."""
    _write(folder, {name: f"#!/bin/sh\n{script}\n" for name, script in programs.items()})
    for path in folder.iterdir():
        path.chmod(0o755)
    return folder


def _fresh(folder: Path) -> Path:
    if folder.exists():
        _empty(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
