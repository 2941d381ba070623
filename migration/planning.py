"""Plans a migration: from files and folders to one task per notebook, with its output path.

No input is ever an output. Next to its input an output is named `local_…`; below `--out-dir` it keeps its name, and its
place in the requested folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import UsageError
from migration.report.document import NotebookReport, shown

_COLAB_PREFIX = re.compile(r"colab[_-](?=.)", re.IGNORECASE)
_LOCAL_PREFIX = "local_"
_SUFFIX = ".ipynb"


@dataclass(frozen=True)
class Task:
    """One notebook to migrate; `output` is None if nothing is written. `size` is that of the input, in bytes. With
    `copies` an input that is already local is copied to the output; a copy next to itself would be useless.
    """

    input: Path
    output: Path | None
    size: int
    copies: bool = True


@dataclass(frozen=True)
class Plan:
    """The tasks in the given order, the inputs that failed, and the inputs that were skipped on purpose."""

    tasks: tuple[Task, ...]
    failed: tuple[NotebookReport, ...] = ()
    left_out: tuple[str, ...] = ()


def make_plan(
    inputs: Sequence[Path], *, output: Path | None = None, out_dir: Path | None = None, writes: bool = True
) -> Plan:
    """The plan for files and folders. Raises UsageError if the arguments contradict each other. A folder means every
    notebook below it, except in hidden folders and `.ipynb_checkpoints`. With `writes` false (to check, to show a
    difference) every notebook is a task without output.
    """
    if output is not None:
        _require_one_file(inputs, output)
    found, failed = _find(inputs, without=out_dir)
    if not writes:
        return Plan(tuple(Task(path, None, _size(path)) for path, _ in found), tuple(failed))
    left_out: list[str] = []
    is_beside = output is None and out_dir is None
    if is_beside:
        found, left_out = _without_outputs(found)
    originals = {identity for path, _ in found if (identity := _identity(path)) is not None}
    tasks: list[Task] = []
    taken: dict[Path, Path] = {}
    for path, inside in found:
        target = output or (out_dir / inside if out_dir is not None else local_path(path))
        refusal = _refusal(path, target, originals, taken)
        if refusal:
            failed.append(_failure(path, refusal))
            continue
        taken[_canonical(target)] = path
        tasks.append(Task(path, target, _size(path), copies=not is_beside))
    return Plan(tuple(tasks), tuple(failed), tuple(left_out))


def local_path(path: Path) -> Path:
    """The default output path of a notebook: `colab_x.ipynb` and `x.ipynb` become `local_x.ipynb`, and
    `local_x.ipynb` becomes `local_x_local.ipynb`."""
    if path.name.startswith(_LOCAL_PREFIX):
        return path.with_name(f"{path.stem}_local{_SUFFIX}")
    return path.with_name(f"{_LOCAL_PREFIX}{_COLAB_PREFIX.sub('', path.stem, count=1)}{_SUFFIX}")


def _require_one_file(inputs: Sequence[Path], output: Path) -> None:
    if len(inputs) != 1 or inputs[0].is_dir():
        raise UsageError("-o is the output of one notebook", hint="pass --out-dir for several, or for a folder")
    if output.is_dir():
        raise UsageError(f"{shown(output)} is a folder", hint="pass it as --out-dir")


def _find(inputs: Sequence[Path], *, without: Path | None) -> tuple[list[tuple[Path, Path]], list[NotebookReport]]:
    """Each notebook once, with its path inside the given folder; and inputs that cannot be read."""
    found: dict[Path, tuple[Path, Path]] = {}
    failed: list[NotebookReport] = []
    names = _distinct_names([path for path in inputs if path.is_file()])
    for path in inputs:
        if path.is_dir():
            pairs = [(notebook, notebook.relative_to(path)) for notebook in _notebooks_below(path, without, failed)]
        elif path.exists():
            pairs = [(path, names.get(path, Path(path.name)))]
        else:
            failed.append(_failure(path, "no such file or folder"))
            continue
        for notebook, inside in pairs:
            found.setdefault(_canonical(notebook), (notebook, inside))
    return list(found.values()), failed


def _distinct_names(paths: Sequence[Path]) -> dict[Path, Path]:
    """Output paths below a folder for notebooks that were passed one by one: their names, and for equal names also the
    folders that distinguish them."""
    by_name: dict[str, list[Path]] = {}
    for path in dict.fromkeys(paths):
        by_name.setdefault(path.name, []).append(path)
    names = {}
    for name, same_named in by_name.items():
        parents = [_canonical(path.parent) for path in same_named]
        shared = os.path.commonpath(parents) if len({parent.anchor for parent in parents}) == 1 else parents[0].anchor
        for path, parent in zip(same_named, parents, strict=True):
            names[path] = Path(os.path.relpath(parent, shared), name) if parent.is_relative_to(shared) else Path(name)
    return names


def _notebooks_below(folder: Path, without: Path | None, failed: list[NotebookReport]) -> Iterator[Path]:
    """The notebooks of a folder in the order of their names; outputs of an earlier run in a subfolder are not
    inputs."""
    skipped = _canonical(without) if without is not None and _canonical(without) != _canonical(folder) else None

    def is_wanted(place: Path) -> bool:
        return not place.name.startswith(".") and (skipped is None or _canonical(place) != skipped)

    def report(error: OSError) -> None:
        failed.append(_failure(Path(error.filename or folder), error.strerror or "it cannot be read"))

    for place, folders, files in os.walk(folder, onerror=report):
        here = Path(place)
        folders[:] = sorted(name for name in folders if is_wanted(here / name))
        yield from (here / name for name in sorted(files) if name.lower().endswith(_SUFFIX) and name[0] != ".")


def _failure(path: Path, reason: str) -> NotebookReport:
    return NotebookReport(input=shown(path), status="failed", error=reason)


def _without_outputs(found: list[tuple[Path, Path]]) -> tuple[list[tuple[Path, Path]], list[str]]:
    """Skips a notebook that is the output of another given one: on a second run `*.ipynb` matches both."""
    outputs = {_canonical(local_path(path)): path for path, _ in found}
    kept, left_out = [], []
    for path, inside in found:
        source = outputs.get(_canonical(path))
        if source is None:
            kept.append((path, inside))
        else:
            left_out.append(f"{shown(path)} is skipped: it is the local form of {source.name}")
    return kept, left_out


def _refusal(path: Path, target: Path, originals: set[tuple[int, int]], taken: dict[Path, Path]) -> str:
    """Why `target` cannot be the output of `path`; empty if it can."""
    if _canonical(path) == _canonical(target) or _identity(target) in originals:
        return f"its output {shown(target)} is an input, which is never changed; pass another with -o or --out-dir"
    other = taken.get(_canonical(target))
    if other is not None:
        return f"its output {shown(target)} is already that of {shown(other)}; migrate it separately with -o"
    return ""


def _canonical(path: Path) -> Path:
    """One spelling for one file: absolute and, as far as it exists, without links."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path.absolute()


def _identity(path: Path) -> tuple[int, int] | None:
    """The identity of a file in the file system, regardless of its spelling; None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
