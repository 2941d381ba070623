"""Many notebooks, each read, migrated and written separately: one that cannot be read does not affect the others."""

from __future__ import annotations

import gc
import hashlib
import logging
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from multiprocessing import get_context
from pathlib import Path
from shlex import quote
from typing import Any

from core.errors import LandfallError, OutputError, UsageError
from core.host import usable_cores
from core.secrets.finding import masked
from core.workspace import find_root, write_bytes
from migration.analysis.requirements import requirement_lines, requirements_text, system_text
from migration.colab.names import RUNTIME_FILE
from migration.migrate import Migration, migrate
from migration.notebook.difference import source_diff
from migration.notebook.findings import Finding, Keeps
from migration.notebook.positions import lines_of_cells
from migration.notebook.reading import read, source_text
from migration.notebook.writing import write
from migration.planning import Task
from migration.report.document import (
    HAZARDS,
    SECRETS,
    Mode,
    Needs,
    NotebookReport,
    found_items,
    only_colab_has,
    places,
    shown,
)
from migration.report.drive import uses_drive
from migration.rules.preamble import Folders

log = logging.getLogger(__name__)

# Starting processes takes as long as a dozen notebooks or some megabytes of them.
_MIN_TASKS_IN_PARALLEL = 16
_MIN_BYTES_IN_PARALLEL = 16 * 2**20
_BLOCK_BYTES = 2**20
_GC_THRESHOLDS = (200_000, 10, 10)


@dataclass(frozen=True)
class Options:
    """Options of a migration. With `mode` other than `write` nothing is written. `check` reports Colab-only constructs,
    and with `strict` everything that needs manual changes. `diff` returns the difference of the sources. `force`
    overwrites existing outputs. `details` reports every finding; without it only those that need manual changes.
    """

    mode: Mode = "write"
    strict: bool = False
    diff: bool = False
    folders: Folders = field(default_factory=Folders)
    force: bool = False
    details: bool = False


@dataclass(frozen=True)
class Result:
    """The result of one notebook; `diff` only in that mode."""

    report: NotebookReport
    diff: str = ""


def run_tasks(
    tasks: Sequence[Task], options: Options, *, jobs: int = 0, on_done: Callable[[Task], None] = lambda task: None
) -> list[Result]:
    """The results in the order of the tasks; `on_done` is called after each. 0 `jobs` chooses by the amount of work.

    Worker processes are spawned, not forked, so a script that calls this with more than one job needs the usual
    `if __name__ == "__main__":`.
    """
    if jobs == 0:
        jobs = _suitable_jobs(tasks)
    if jobs == 1 or len(tasks) < 2:
        done = []
        with _rare_garbage_collection():
            for task in tasks:
                done.append(migrate_file(task, options))
                on_done(task)
        return done
    results = _in_processes(tasks, options, min(jobs, len(tasks)), on_done)
    return [results[task] for task in tasks]


def migrate_file(task: Task, options: Options) -> Result:
    """Migrates one notebook. Raises nothing: a failure is a result with the reason."""
    try:
        return _migrated(task, options)
    except Exception as error:
        return _failed(task, error)


def _failed(task: Task, error: Exception) -> Result:
    """Reports any error of a notebook in one line, so that the other notebooks are processed."""
    match error:
        case LandfallError():
            reason = str(error)
        case OSError():
            reason = f"{error.strerror or type(error).__name__}: {shown(Path(error.filename or task.input))}"
        case MemoryError():
            reason = "it needs more memory than is available"
        case _:
            log.debug("%s", task.input, exc_info=error)
            reason = f"a bug in Landfall, please report it: {type(error).__name__}: {error}"
    return _failure(task, reason)


def _failure(task: Task, reason: str) -> Result:
    return Result(NotebookReport(input=shown(task.input), status="failed", error=masked(" ".join(reason.split()))))


def _migrated(task: Task, options: Options) -> Result:
    notebook, repairs = _read(task.input)  # first, because it refuses pipes and devices
    with task.input.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    before = [source_text(cell) for cell in notebook["cells"]] if options.diff else []
    workspace = workspace_of(task.output.parent if task.output else task.input.parent)
    migration = migrate(notebook, folders=options.folders, workspace=workspace, here=task.input.parent)
    count = len(notebook["cells"])
    is_same = not repairs and migration.notebook == notebook
    del notebook
    findings = [*repairs, *migration.findings]
    if options.mode == "check":
        findings = [found for found in findings if only_colab_has(found) or (options.strict and _needs_changes(found))]
    wanted = {found.cell for found in findings}
    lines = lines_of_cells(task.input.read_bytes(), count, wanted) if options.details else []
    files: dict[Path, bytes] = {}
    is_local = not findings
    if options.mode == "write":
        is_local = is_same
        data = task.input.read_bytes() if is_same else _bytes_of(migration)
        if task.output is not None and (task.copies or not is_local):
            files = {task.output: data, **_companions(task.output, migration)}
    names = [shown(path) for path in files]
    work = Path((task.output or task.input).parent, options.folders.work)
    report = NotebookReport(
        input=shown(task.input),
        status="unchanged" if is_local else "migrated",
        output=names[0] if names else None,
        sha256=sha256,
        files=tuple(names[1:]),
        changes=sum(found.changed for found in findings),
        hardware=migration.hardware,
        rules=dict(sorted(Counter(found.rule for found in findings).items())),
        keeps=dict(sorted(Counter(found.keeps.value for found in findings).items())),
        requirements=Needs(*map(requirement_lines, (migration.requirements.python, migration.requirements.system))),
        findings=found_items(findings if options.details else filter(_needs_changes, findings), lines),
        cells=migration.origins if options.details else (),
        hazards=places(findings, HAZARDS),
        secrets=places(findings, SECRETS),
        uses_drive=uses_drive(findings),
        drive={path: shown(work / options.folders.drive / path.removeprefix("MyDrive/")) for path in migration.drive},
        content={f"/content/{path}": shown(work / path) for path in migration.content},
        secret_names=migration.secrets,
    )
    result = Result(report, _diff(report.input, before, migration) if options.diff else "")
    _write(files, force=options.force)
    return result


def _read(path: Path) -> tuple[dict[str, Any], list[Finding]]:
    """Like `read`, but error messages begin with "it" instead of the path: the report already names the notebook."""
    try:
        return read(path)
    except UsageError as error:
        raise UsageError(f"it{error.message.removeprefix(str(path))}", hint=error.hint) from None


def _needs_changes(found: Finding) -> bool:
    return found.keeps is Keeps.NEEDS_HUMAN


def _diff(name: str, before: Sequence[str], migration: Migration) -> str:
    cells = migration.notebook["cells"]
    return source_diff(name, before, [source_text(cell) for cell in cells], migration.origins)


# -------------------------------------------------------------------------------------------------------------- writing
def _bytes_of(migration: Migration) -> bytes:
    buffer = BytesIO()
    write(migration.notebook, buffer)
    return buffer.getvalue()


def _write(files: Mapping[Path, bytes], *, force: bool) -> None:
    """Writes a notebook (the first of the files) and its additional files. Raises OutputError, before anything is
    written, if one of them exists with other content.
    """
    new = {path: content for path, content in files.items() if not _holds(path, content)}
    for path in new:
        if path.exists() and not force:
            raise OutputError(f"{shown(path)} exists and differs", hint="--force overwrites it")
    # The notebook is written last: if it exists, the other files do too.
    for path, content in reversed(new.items()):
        write_bytes(path, content)


def _companions(output: Path, migration: Migration) -> dict[Path, bytes]:
    texts = {
        output.with_name(f"{output.stem}.requirements.txt"): requirements_text(migration.requirements),
        output.with_name(f"{output.stem}.system-requirements.txt"): system_text(migration.requirements),
    }
    files = {
        path: text.replace("THIS_FILE", quote(path.name)).encode("utf-8", "replace")
        for path, text in texts.items()
        if text
    }
    if migration.uses_runtime and workspace_of(output.parent) is None:
        files[output.with_name(RUNTIME_FILE.name)] = RUNTIME_FILE.read_bytes()
    return files


def _holds(path: Path, content: bytes) -> bool:
    """Whether a file has this content; compared in blocks, because a notebook can be large."""
    try:
        if path.stat().st_size != len(content):
            return False
        with path.open("rb") as file:
            blocks = iter(lambda: file.read(_BLOCK_BYTES), b"")
            return all(block == content[at * _BLOCK_BYTES : (at + 1) * _BLOCK_BYTES] for at, block in enumerate(blocks))
    except OSError:
        return False


def workspace_of(folder: Path) -> Path | None:
    """The Landfall workspace that contains a folder; there Landfall itself can be imported."""
    return _workspace_of(folder.resolve())


@lru_cache(maxsize=256)
def _workspace_of(folder: Path) -> Path | None:
    try:
        return find_root(folder)
    except UsageError:
        return None


# ------------------------------------------------------------------------------------------------------------ processes
def _suitable_jobs(tasks: Sequence[Task]) -> int:
    worthwhile = len(tasks) >= _MIN_TASKS_IN_PARALLEL or sum(task.size for task in tasks) >= _MIN_BYTES_IN_PARALLEL
    return min(usable_cores(), len(tasks)) if worthwhile else 1


@contextmanager
def _rare_garbage_collection() -> Iterator[None]:
    """Runs the garbage collector less often: parsing creates many objects and hardly any cycles."""
    before = gc.get_threshold()
    gc.set_threshold(*_GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _in_processes(
    tasks: Sequence[Task], options: Options, jobs: int, on_done: Callable[[Task], None]
) -> dict[Task, Result]:
    """The results of worker processes. If one dies, usually out of memory, its pool is lost. The remaining notebooks
    are then processed by one process in order, so the first notebook without a result is the one that killed it."""
    results: dict[Task, Result] = {}
    waiting = sorted(tasks, key=lambda task: -task.size)
    while waiting:
        for task, result in _one_pool(waiting, options, jobs):
            results[task] = result
            on_done(task)
        waiting = [task for task in waiting if task not in results]
        if waiting and jobs == 1:
            task = waiting.pop(0)
            results[task] = _failure(task, "its process was killed, most likely out of memory")
            on_done(task)
        jobs = 1
    return results


def _one_pool(tasks: Sequence[Task], options: Options, jobs: int) -> Iterator[tuple[Task, Result]]:
    """Yields results until all are complete or a process has died."""
    # After `%reset` in a notebook this name is missing, and multiprocessing would fail.
    vars(sys.modules["__main__"]).setdefault("__spec__", None)
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_prepare_worker)
    try:
        futures: dict[Future[Result], Task] = {pool.submit(migrate_file, task, options): task for task in tasks}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool:
        log.debug("a worker process died", exc_info=True)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _prepare_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # interrupts are handled by the parent
    gc.set_threshold(*_GC_THRESHOLDS)
