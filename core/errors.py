"""All errors that Landfall raises on purpose, with the facts that a caller needs and the exit code of the command.

Libraries raise these; `core.cli` turns one into a single line on stderr. Callers read the attributes and never
parse the text.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from core.secrets.redaction import printable

EXIT_OK = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_DATA = 3
EXIT_OUTPUT = 4
EXIT_RESUMABLE = 75
EXIT_INTERRUPTED = 130
# A process of the job was ended by SIGKILL; a shell reports the same code.
EXIT_KILLED = 137


class LandfallError(Exception):
    """Base of all errors raised on purpose; `hint` says how to fix the problem. Control characters and line breaks of
    quoted names and cells are escaped."""

    exit_code = EXIT_FAILURE

    def __init__(self, message: str, *, hint: str | None = None):
        self.message = printable(message)
        self.hint = printable(hint) if hint else hint
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} — {self.hint}" if self.hint else self.message


class UsageError(LandfallError):
    """A command was called with invalid arguments."""

    exit_code = EXIT_USAGE


@dataclass(frozen=True)
class ConfigFault:
    """One fault of a configuration: the key, the problem, and the file or override that set it."""

    key: str
    problem: str
    origin: str | None = None

    def __str__(self) -> str:
        where = f" (set by {self.origin})" if self.origin else ""
        return f"{self.key}: {self.problem}{where}"


class ConfigError(UsageError):
    """A configuration is invalid; `faults` contains every fault, not only the first."""

    def __init__(self, source: str, faults: Sequence[ConfigFault], *, hint: str | None = None):
        self.source = source
        self.faults = tuple(faults)
        lines = "; ".join(str(fault) for fault in self.faults)
        super().__init__(f"configuration {source}: {lines}", hint=hint)


class DataError(LandfallError):
    """A data file cannot be used; `path` and, if known, the 1-based `row` and the `column` give the place."""

    exit_code = EXIT_DATA

    def __init__(
        self,
        message: str,
        *,
        path: Path | str | None = None,
        row: int | None = None,
        column: str | None = None,
        hint: str | None = None,
    ):
        self.path = Path(path) if path is not None else None
        self.row = row
        self.column = column
        where = [str(path)] if path is not None else []
        where += [f"row {row}"] if row is not None else []
        where += [f"column {column!r}"] if column is not None else []
        super().__init__(f"{', '.join(where)}: {message}" if where else message, hint=hint)


class QualityError(DataError):
    """The data quality check dropped files that the run needs."""


class OutputError(LandfallError):
    """An output of a run is missing, damaged or contradicts another."""

    exit_code = EXIT_OUTPUT


class CheckpointError(OutputError):
    """A checkpoint is missing, damaged, or belongs to another configuration."""

    def __init__(self, path: Path | str, message: str, *, hint: str | None = None):
        self.path = Path(path)
        super().__init__(f"checkpoint {path}: {message}", hint=hint)


class WriteError(OutputError, OSError):
    """A file cannot be written: the disk is full, or the folder is read-only or belongs to another user."""

    # Errors caused by the disk, not by the program.
    HINTS = MappingProxyType(
        {
            errno.ENOSPC: "free space on its disk and start again",
            errno.EDQUOT: "free space within the quota and start again",
            errno.EROFS: "its disk is read-only: mount it for writing, or use another path",
            errno.EACCES: "check the owner of the file and its folder, or use another path",
            errno.EPERM: "check the owner of the file and its folder, or use another path",
            errno.EIO: "check the disk, and start again",
            errno.EFBIG: "files on this disk may not be so large: use another path",
            errno.ENAMETOOLONG: "use a shorter name",
            errno.EEXIST: "something else has this name: move it away",
            errno.EISDIR: "a folder has this name: move it away",
            errno.ELOOP: "a link leads to itself: remove it",
            errno.ENOTDIR: "one of its folders is a file: move that away",
        }
    )

    def __init__(self, path: Path | str, cause: OSError):
        problem = os.strerror(cause.errno)  # the same text for errors of any library
        super().__init__(f"{path} cannot be written: {problem}", hint=self.HINTS.get(cause.errno))
        self.errno, self.strerror, self.filename = cause.errno, problem, str(path)


class LockedError(UsageError):
    """Another run writes the same files; `owner`: that run, according to its lock."""

    def __init__(self, path: Path | str, owner: str, *, hint: str):
        self.path, self.owner = Path(path), owner
        super().__init__(f"{path} is being written by {owner}", hint=hint)


class NotebookError(LandfallError):
    """An executed notebook failed; `ename` is the class of its error, which sets the exit code of the command."""

    def __init__(self, notebook: str, prompt: int | None, ename: str, evalue: str, *, hint: str | None = None):
        self.notebook, self.prompt, self.ename = notebook, prompt, ename
        cause = globals().get(ename)
        if isinstance(cause, type) and issubclass(cause, LandfallError):
            self.exit_code = cause.exit_code
        elif ename == "KeyboardInterrupt":
            self.exit_code = EXIT_INTERRUPTED
        first_line = evalue.partition("\n")[0]
        super().__init__(f"{notebook}, In [{prompt}]: {ename}: {first_line}", hint=hint)


class StoppedError(LandfallError):
    """Work stopped early on request: training with a checkpoint that resumes; other work, with None, must run again."""

    exit_code = EXIT_RESUMABLE

    def __init__(self, reason: str, checkpoint: Path | str | None, *, interrupted: bool = False):
        self.reason = reason
        self.checkpoint = None if checkpoint is None else Path(checkpoint)
        if interrupted:
            self.exit_code = EXIT_INTERRUPTED
        saved = "there was nothing to save yet" if checkpoint is None else f"saved {checkpoint}"
        hint = (
            "run it again" if checkpoint is None else "continue with --resume auto; in a notebook, run the cell again"
        )
        super().__init__(f"stopped: {reason}; {saved}", hint=hint)


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, or the name of its class. Of an error of the file system only its text:
    the caller names the path."""
    message = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return next(iter(message.strip().splitlines()), "") or type(error).__name__
