"""What the processes of a job leave for the command that started them, and for those torchrun starts in their place.

torchrun starts all processes again when one ends with anything but 0. A planned stop is no failure to be repaired, and
a wrong configuration is no failure that a new start repairs. And those that are started again are to go on where the
others were: torchrun's own count of starts is each machine's, and leaves out starts because a machine came or went.

Imports no torch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.errors import EXIT_DATA, EXIT_INTERRUPTED, EXIT_OK, EXIT_OUTPUT, EXIT_RESUMABLE, EXIT_USAGE
from core.workspace import temporary_folder, write_text

# Names the folder of the notes. No LANDFALL_ name: those are configuration.
_FOLDER = "_LANDFALL_JOB"
_ENDING, _BEGUN = "ending", "begun"
_PLANNED = (EXIT_RESUMABLE, EXIT_INTERRUPTED)
# Errors that the next start would find again.
_FINAL = (EXIT_USAGE, EXIT_DATA, EXIT_OUTPUT)


@contextmanager
def taking_notes(path: Path) -> Iterator[None]:
    """For the command that starts processes: while they run, their notes lie in a folder beside `path`, which is this
    command's own. Those of other machines have theirs."""
    with temporary_folder(path) as folder:
        os.environ[_FOLDER] = str(folder)
        try:
            yield
        finally:
            del os.environ[_FOLDER]


def ending() -> int | None:
    """The exit code with which a process of this job ended for good; None where none did."""
    code = _read(_ENDING)
    return int(code) if code is not None else None


def ended(code: int) -> int:
    """What a process exits with. In a job a planned stop is noted and is 0 for torchrun."""
    if _FOLDER not in os.environ:
        return code
    if code in (*_PLANNED, *_FINAL):
        _write(_ENDING, str(code))
    return EXIT_OK if code in _PLANNED else code


def begun() -> str | None:
    """The run that earlier processes of this job trained; None for the first."""
    return _read(_BEGUN)


def begin(run_id: str) -> None:
    """To be called only after every process of the job has asked what was `begun`."""
    if _FOLDER in os.environ:
        _write(_BEGUN, run_id)


def _read(name: str) -> str | None:
    note = Path(os.environ[_FOLDER]) / name if _FOLDER in os.environ else None
    return note.read_text(encoding="utf-8") if note is not None and note.exists() else None


def _write(name: str, text: str) -> None:
    write_text(Path(os.environ[_FOLDER]) / name, text)
