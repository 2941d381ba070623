"""Notes of the processes of a job: for the command that started them, and for processes that torchrun restarts.

torchrun restarts all processes when one ends with an exit code other than 0. But a planned stop is not a failure, and a
restart does not repair a wrong configuration. Restarted processes must resume the run of the previous ones. The restart
count of torchrun is not sufficient: it is per machine, and excludes restarts because a machine joined or left.

Imports no torch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.errors import EXIT_DATA, EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK, EXIT_OUTPUT, EXIT_RESUMABLE, EXIT_USAGE
from core.owner import Owner
from core.workspace import temporary_folder, write_text

# Names the folder of the notes. Not a LANDFALL_ name: those are configuration.
_FOLDER = "_LANDFALL_JOB"
_EXIT_CODE, _RUN, _PROCESS = "exit_code", "run", "process-"
_PLANNED = (EXIT_RESUMABLE, EXIT_INTERRUPTED)
# Errors that a restart would repeat.
_FINAL = (EXIT_USAGE, EXIT_DATA, EXIT_OUTPUT)
_is_connected = False


@contextmanager
def job_notes(path: Path) -> Iterator[Path]:
    """For the command that starts processes: keeps their notes in a temporary folder next to `path`, and returns it."""
    with temporary_folder(path) as folder:
        os.environ[_FOLDER] = str(folder)
        try:
            yield folder
        finally:
            del os.environ[_FOLDER]


def final_exit_code() -> int | None:
    """The final exit code of a process of this job; None if no process has ended with one."""
    code = _read(_EXIT_CODE)
    return int(code) if code is not None else None


def record_exit(code: int) -> int:
    """Records the exit code of a process; returns the code for torchrun, which is 0 after a planned stop.

    torchrun also sends SIGTERM to the remaining processes when one has died; that is not a planned stop.
    A process that stops before it is connected keeps its code, so that torchrun ends the others, which would wait. If
    torchrun restarts them, they find the recorded code.
    """
    if _FOLDER not in os.environ:
        return code
    if code in _PLANNED and _has_lost_a_process():
        return EXIT_FAILURE
    others_wait = not _is_connected and final_exit_code() is None
    if code in (*_PLANNED, *_FINAL):
        _write(_EXIT_CODE, str(code))
    return EXIT_OK if code in _PLANNED and not others_wait else code


def record_connection() -> None:
    """Records that this process is connected to the others, which then agree on each stop."""
    global _is_connected
    _is_connected = True


def record_process() -> None:
    """Records this process, so that the others on this machine notice if it dies. Call it first in a process."""
    if _FOLDER in os.environ:
        _write(f"{_PROCESS}{os.environ.get('RANK', '0')}", Owner.this_process().token)


def _has_lost_a_process() -> bool:
    notes = Path(os.environ[_FOLDER]).glob(f"{_PROCESS}*")
    owners = (Owner.named_in(note.read_text(encoding="utf-8")) for note in notes)
    return any(owner is not None and owner.is_dead() for owner in owners)


def previous_run() -> str | None:
    """The run that previous processes of this job trained; None in the first ones."""
    return _read(_RUN)


def record_run(run_id: str) -> None:
    """Records the run of this job. Call it only after every process has called `previous_run`."""
    if _FOLDER in os.environ:
        _write(_RUN, run_id)


def _read(name: str) -> str | None:
    note = Path(os.environ[_FOLDER]) / name if _FOLDER in os.environ else None
    return note.read_text(encoding="utf-8") if note is not None and note.exists() else None


def _write(name: str, text: str) -> None:
    write_text(Path(os.environ[_FOLDER]) / name, text)
