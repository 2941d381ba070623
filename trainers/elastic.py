"""How the processes of a job end, told to the command that started them and to those that torchrun starts after them.

torchrun starts all processes again when one ends with anything but 0. A planned stop is no failure to be repaired, and
a wrong configuration is no failure that a new start repairs. Imports no torch.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.errors import EXIT_DATA, EXIT_INTERRUPTED, EXIT_OK, EXIT_OUTPUT, EXIT_RESUMABLE, EXIT_USAGE
from core.workspace import write_text

# Names the file. No LANDFALL_ name: those are configuration.
_NOTE = "_LANDFALL_ENDING"
_PLANNED = (EXIT_RESUMABLE, EXIT_INTERRUPTED)
# Errors that the next start would find again.
_FINAL = (EXIT_USAGE, EXIT_DATA, EXIT_OUTPUT)


def is_restarted() -> bool:
    """Whether torchrun started this process in the place of one that died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0


@contextmanager
def taking_notes() -> Iterator[None]:
    """For the command that starts processes: inside, `noted` gives how they ended."""
    with tempfile.TemporaryDirectory(prefix="landfall-") as folder:
        os.environ[_NOTE] = str(Path(folder) / "ending")
        try:
            yield
        finally:
            del os.environ[_NOTE]


def noted() -> int | None:
    """The exit code with which a process of this job ended for good; None where none did."""
    if _NOTE not in os.environ:
        return None
    note = Path(os.environ[_NOTE])
    return int(note.read_text()) if note.exists() else None


def ended(code: int) -> int:
    """What a process of a job exits with: 0 for a planned stop, which the note then tells; else the code."""
    if _NOTE not in os.environ:
        return code
    if code in (*_PLANNED, *_FINAL):
        write_text(Path(os.environ[_NOTE]), str(code))
    return EXIT_OK if code in _PLANNED else code
