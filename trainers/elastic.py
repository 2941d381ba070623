"""Notes of the processes of a job, for the command that started them and for the processes torchrun restarts.

torchrun restarts all processes when one ends with anything but 0. A planned stop is not a failure, and a restart does
not repair a wrong configuration. Restarted processes must resume the run of those before: torchrun counts restarts per
machine, and does not count those caused by a machine that joined or left.

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
_ENDING, _BEGUN, _PROCESS = "ending", "begun", "process-"
_PLANNED = (EXIT_RESUMABLE, EXIT_INTERRUPTED)
# Errors that a restart would repeat.
_FINAL = (EXIT_USAGE, EXIT_DATA, EXIT_OUTPUT)


@contextmanager
def taking_notes(path: Path) -> Iterator[None]:
    """For the command that starts processes: keeps their notes in a temporary folder next to `path`. Each machine has
    its own."""
    with temporary_folder(path) as folder:
        os.environ[_FOLDER] = str(folder)
        try:
            yield
        finally:
            del os.environ[_FOLDER]


def ending() -> int | None:
    """The final exit code of a process of this job; None where none has ended for good."""
    code = _read(_ENDING)
    return int(code) if code is not None else None


def ended(code: int) -> int:
    """The exit code of a process. In a job, a planned stop is noted and is 0 for torchrun.

    torchrun also sends SIGTERM to the processes that are left when one has died: that is not a planned stop.
    """
    if _FOLDER not in os.environ:
        return code
    if code in _PLANNED and _has_lost_a_process():
        return EXIT_FAILURE
    if code in (*_PLANNED, *_FINAL):
        _write(_ENDING, str(code))
    return EXIT_OK if code in _PLANNED else code


def note_process() -> None:
    """Call it first in a process: the others of this machine can then see whether it has died."""
    if _FOLDER in os.environ:
        _write(f"{_PROCESS}{os.environ.get('RANK', '0')}", Owner.this_process().token)


def _has_lost_a_process() -> bool:
    notes = Path(os.environ[_FOLDER]).glob(f"{_PROCESS}*")
    owners = (Owner.named_in(note.read_text(encoding="utf-8")) for note in notes)
    return any(owner is not None and owner.is_dead() for owner in owners)


def begun() -> str | None:
    """The run that earlier processes of this job trained; None in the first ones."""
    return _read(_BEGUN)


def begin(run_id: str) -> None:
    """Call it only after every process of the job has called `begun`."""
    if _FOLDER in os.environ:
        _write(_BEGUN, run_id)


def _read(name: str) -> str | None:
    note = Path(os.environ[_FOLDER]) / name if _FOLDER in os.environ else None
    return note.read_text(encoding="utf-8") if note is not None and note.exists() else None


def _write(name: str, text: str) -> None:
    write_text(Path(os.environ[_FOLDER]) / name, text)
