"""Executes one notebook in a separate process: `python -m pipelines.execute_notebook NOTEBOOK EXECUTED -p NAME=JSON`.

Each start and end of a cell is reported as a line of JSON on stdout; the output of the notebook goes to stderr. SIGINT
and SIGTERM interrupt the kernel, so that training saves a checkpoint.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import logging
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.cli import add_root_argument, root_of, run_command
from core.errors import EXIT_OK, LandfallError, NotebookError
from core.reading import read_json_object
from core.secrets.literals import secret_values
from core.secrets.names import has_secret_word
from core.secrets.redaction import hide_values, redacted, redacted_code, redacted_text
from core.signals import is_repeated, stop_signals
from core.workspace import relative, temporary_folder, write_text
from pipelines.kernel_watch import Death, KernelWatch
from pipelines.notebook_page import write_page
from pipelines.notebook_parameters import check_parameters, parameter

if TYPE_CHECKING:
    from jupyter_client import AsyncKernelManager
    from nbformat import NotebookNode
    from papermill import PapermillExecutionError

log = logging.getLogger(__name__)

Event = dict[str, Any]

# Time for a cell to save its state after an interrupt for a limit, before its kernel is killed.
_GRACE_S = 120.0
_PR_SET_PDEATHSIG = 1
_FETCHED = re.compile(r"""userdata\.get\(\s*\\?['"]([\w.-]+)""")
_LARGEST_ENV = 1 << 20


class NotebookRun:
    """One execution of a notebook with its parameters.

    executed: path of the copy with its outputs. A complete copy is on disk from the first cell on, and after any
        failure; at the end there is also an HTML page of it. Secrets are redacted in both.
    report: called with each event: first `{"event": "notebook", "cells": n}`, then for every code cell
        `{"event": "start", "cell": number, "title": the heading above it}` and `{"event": "end", …, "seconds": s}`.
    cell_timeout_s: time limit of a cell. memory_limit_mb: memory limit of the kernel in MiB.
    """

    def __init__(
        self,
        notebook: Path,
        executed: Path,
        *,
        root: Path,
        report: Callable[[Event], None],
        cell_timeout_s: float | None = None,
        memory_limit_mb: float | None = None,
    ):
        self.notebook, self.executed, self.report = notebook, executed, report
        self.cell_timeout_s, self.memory_limit_mb = cell_timeout_s, memory_limit_mb
        self._evidence = f"the executed copy is {relative(executed, root)}"
        self._watch: KernelWatch | None = None
        self._titles: list[str] = []
        self._index, self._number, self._started = 0, 0, 0.0
        self._timers: list[threading.Timer] = []
        self._stop_asked = self._overran = False

    def execute(self, parameters: Mapping[str, Any]) -> None:
        """Raises UsageError for a parameter that the notebook does not have, NotebookError with the error of a cell,
        LandfallError for a cell that took too long or a kernel that died."""
        check_parameters(self.notebook, parameters)
        hide_values(_secrets_near(self.notebook))
        try:
            self._execute(parameters)
        finally:
            self._write_page()

    def _execute(self, parameters: Mapping[str, Any]) -> None:
        import papermill
        from traitlets.config import Config

        self.executed.parent.mkdir(parents=True, exist_ok=True)
        _write_atomically_below(self.executed.parent)
        logging.getLogger("papermill").setLevel(
            logging.CRITICAL
        )  # its messages about cells would hide those of the notebook
        # The kernel uses sockets in a folder that only this user can open, instead of TCP ports.
        with temporary_folder(Path(tempfile.gettempdir(), "landfall")) as private, self._watching(private) as watch:
            kernel = {
                "kernel_name": "python3",
                "language": "python",
                "cwd": self.notebook.parent,
                "config": Config({"KernelManager": {"transport": "ipc", "connection_file": f"{private}/kernel.json"}}),
                "kernel_manager_class": _manager_watched_by(watch),
                "extra_arguments": watch.arguments,
                "shutdown_kernel": "immediate",  # everything is on disk, and PyTorch exits slowly
            }
            output = _RedactedStderr()
            try:
                papermill.execute_notebook(
                    self.notebook, self.executed, dict(parameters), **kernel,
                    stdout_file=output, stderr_file=output, progress_bar=False, coalesce_streams=True,
                    on_notebook_start=self._on_notebook_start, on_cell_execute=self._on_cell_execute,
                    on_cell_executed=self._on_cell_executed,
                )  # fmt: skip
            except papermill.PapermillExecutionError as error:
                raise self._failure(error) from error
            except RuntimeError as error:  # nbclient's DeadKernelError, or another error if the kernel never responded
                if not watch.is_dead:
                    raise
                raise self._dead(watch.death()) from error
            finally:
                self._cancel_timers()

    def stop(self) -> None:
        """Interrupts the running cell; no other cell is started."""
        self._stop_asked = True
        if self._watch is not None:
            self._watch.interrupt()

    @contextmanager
    def _watching(self, folder: Path) -> Iterator[KernelWatch]:
        with KernelWatch(folder, self.memory_limit_mb) as self._watch:
            yield self._watch

    def _write_page(self) -> None:
        try:
            write_page(self.executed)
        except Exception as error:  # outputs may contain any markup; the notebook itself is complete
            log.warning("%s has no page for a browser: %s", self.executed.name, error)

    # -------------------------------------------------------------------------------------------- callbacks of nbclient
    def _on_notebook_start(self, notebook: NotebookNode) -> None:
        self._titles = _headings(notebook)
        cells = sum(cell.cell_type == "code" and bool(cell.source.strip()) for cell in notebook.cells)
        self.report({"event": "notebook", "cells": cells})

    def _on_cell_execute(self, cell: NotebookNode, cell_index: int) -> None:
        if self._stop_asked:
            raise KeyboardInterrupt
        self._index, self._number, self._started = cell_index, self._number + 1, time.monotonic()
        self.report({"event": "start", "cell": self._number, "title": self._titles[cell_index]})
        if self.cell_timeout_s is not None:
            self._after(self.cell_timeout_s, self._interrupt_for_limit)

    def _on_cell_executed(self, cell: NotebookNode, cell_index: int, execute_reply: Mapping[str, Any]) -> None:
        self._cancel_timers()
        self.report({"event": "end", "cell": self._number, "seconds": round(time.monotonic() - self._started, 3)})

    def _interrupt_for_limit(self) -> None:
        self._overran = True
        self._watch.interrupt()
        self._after(_GRACE_S, self._watch.kill)

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, action)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()

    def _cancel_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    # --------------------------------------------------------------------------------------------------------- failures
    def _failure(self, error: PapermillExecutionError) -> LandfallError:
        name, limit = self.notebook.name, f"its limit of {self.cell_timeout_s} s"
        if not self._overran:
            return NotebookError(name, error.exec_count, error.ename, error.evalue, hint=self._evidence)
        if error.ename == "StoppedError":
            problem = f"over {limit}: {error.evalue}"
            return NotebookError(name, error.exec_count, error.ename, problem, hint=self._evidence)
        return LandfallError(f"{self._place()} took longer than {limit}", hint=f"raise it; {self._evidence}")

    def _dead(self, death: Death) -> LandfallError:
        cause = f"its kernel died: {death.cause}"
        if self._overran:
            cause = f"it took longer than its limit of {self.cell_timeout_s} s and did not stop after an interrupt"
        self._note_in_executed(cause, death.trace)
        message = f"{self._place()}: {cause}; peak memory {death.peak_mb:,.0f} MiB"
        return LandfallError(message, hint=f"{death.hint}; {self._evidence}")

    def _place(self) -> str:
        if not self._number:
            return f"{self.notebook.name}, before its first cell"
        title = f" ({self._titles[self._index]})" if self._titles[self._index] else ""
        return f"{self.notebook.name}, In [{self._number}]{title}"

    def _note_in_executed(self, cause: str, trace: Sequence[str]) -> None:
        """Adds the error to the cell at which the kernel died, as for any other error."""
        import nbformat

        notebook = nbformat.read(self.executed, as_version=4)
        cell = notebook.cells[self._index]
        if cell.cell_type == "code":
            output = nbformat.v4.new_output("error", ename="DeadKernelError", evalue=cause, traceback=[cause, *trace])
            cell.outputs.append(output)
            _write_executed(self.executed, nbformat.writes(notebook))


def _headings(notebook: NotebookNode) -> list[str]:
    """The heading above each cell."""
    titles, latest = [], ""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            lines = [line for line in cell.source.splitlines() if line.startswith("#")]
            latest = lines[-1].lstrip("# ") if lines else latest
        titles.append(latest)
    return titles


# ------------------------------------------------------------------------------------------------ papermill's machinery
def _manager_watched_by(watch: KernelWatch) -> type[AsyncKernelManager]:
    from jupyter_client import AsyncKernelManager

    class WatchedKernelManager(AsyncKernelManager):
        async def _async_post_start_kernel(self, **options: Any) -> None:
            await super()._async_post_start_kernel(**options)
            watch.started(self.provisioner.process)

    return WatchedKernelManager


class _RedactedStderr:
    """Papermill writes the output of cells to it."""

    def write(self, text: str) -> None:
        sys.stderr.write(redacted_text(text))

    def flush(self) -> None:
        sys.stderr.flush()


def _write_atomically_below(folder: Path) -> None:
    from papermill.iorw import LocalHandler, papermill_io

    class AtomicHandler(LocalHandler):
        def write(self, buf: str, path: str) -> None:
            _write_executed(Path(path), buf)

    papermill_io.register(str(folder), AtomicHandler())


def _write_executed(path: Path, text: str) -> None:
    """Redacts secrets in the texts of the notebook, not in its JSON, because that would remove quotation marks."""
    import nbformat

    notebook = nbformat.reads(text, as_version=4)
    shown = nbformat.from_dict(redacted(notebook))
    for cell, original in zip(shown.cells, notebook.cells, strict=True):
        if cell.cell_type == "code":
            cell.source = redacted_code(original.source)
    write_text(path, nbformat.writes(shown))


def _secrets_near(notebook: Path) -> Iterator[str]:
    """Values that the notebook may print: those in its code, of the secrets it names, and of every `.env` in its parent
    folders."""
    for cell in read_json_object(notebook)["cells"]:
        yield from secret_values("".join(cell["source"])) if cell["cell_type"] == "code" else ()
    names = set(_FETCHED.findall(notebook.read_text(encoding="utf-8", errors="replace")))
    yield from (os.environ[name] for name in names if name in os.environ)
    for file in (folder / ".env" for folder in notebook.parents):
        if not file.is_file() or file.stat().st_size > _LARGEST_ENV:
            continue
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition("=")
            name = name.strip().removeprefix("export ").strip()
            if name in names or has_secret_word(name):
                yield value.strip().strip("'\"")


# --------------------------------------------------------------------------------------------------------- command line
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="execute_notebook", description="Executes a notebook in a separate kernel.")
    parser.add_argument("notebook", type=Path)
    parser.add_argument("executed", type=Path, help="path of the copy with its outputs")
    parser.add_argument(
        "-p", "--parameter", type=parameter, action="append", default=[], metavar="NAME=JSON", help="may be repeated"
    )
    parser.add_argument("--cell-timeout", type=float, metavar="SECONDS", help="time limit for one cell")
    parser.add_argument("--memory-limit", type=float, metavar="MIB", help="memory limit of its kernel")
    add_root_argument(parser)
    return run_command(_execute, parser, argv)


def _execute(arguments: argparse.Namespace) -> int:
    def report(event: Event) -> None:
        sys.stdout.write(json.dumps(redacted(event)) + "\n")
        sys.stdout.flush()

    run = NotebookRun(
        arguments.notebook.resolve(), arguments.executed.resolve(), root=root_of(arguments), report=report,
        cell_timeout_s=arguments.cell_timeout, memory_limit_mb=arguments.memory_limit,
    )  # fmt: skip
    if arguments.owns_process:
        _die_with_parent()
        on_signal = _stop_first(run)
        for number in stop_signals():
            signal.signal(number, on_signal)
    run.execute(dict(arguments.parameter))
    return EXIT_OK


def _stop_first(run: NotebookRun) -> Callable[..., None]:
    """The first signal lets the notebook save a checkpoint and stop, the second stops it immediately."""
    signals: list[int] = []

    def on_signal(number: int, frame: object) -> None:
        if is_repeated(number):
            return
        signals.append(number)
        if len(signals) > 1:
            raise KeyboardInterrupt
        run.stop()

    return on_signal


def _die_with_parent() -> None:
    """If the pipeline is killed, Linux sends this process SIGTERM, so that no notebook keeps running."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
