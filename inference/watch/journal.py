"""A growing file of JSON lines, in which no line is lost or repeated when the writer is killed.

The state of a monitor holds the length of each journal. Lines after that length were written by a process that was
killed before it stored its state. The next process reads the same rows again and computes the same lines. It does not
write those that exist already; until it has computed all of them, its state lists the remaining ones. An incomplete
last line is removed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from core.errors import OutputError
from core.workspace import flush_folder, writing


class Journal:
    """Each line is a JSON object. key: the fields that identify a line. Raises WriteError if the file cannot be
    opened."""

    def __init__(self, path: Path, key: tuple[str, ...]):
        self.path, self._key = path, key
        self._known: set[tuple[Any, ...]] = set()
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab")

    def resume(self, stored: dict[str, Any]) -> None:
        """Continues a journal from a result of `state`. Raises OutputError if the file has become shorter."""
        length = stored["bytes"]
        if self.path.stat().st_size < length:
            hint = "restore the file, or remove it with the state to begin again at the first row"
            raise OutputError(f"{self.path} is shorter than when its state was stored", hint=hint)
        with self.path.open("rb") as file:
            file.seek(length)
            lines = file.read().split(b"\n")
        cut = lines.pop()
        self._known = {tuple(key) for key in stored["ahead"]} | {self._key_of(json.loads(line)) for line in lines}
        if cut:
            self._file.truncate(self.path.stat().st_size - len(cut))

    def add(self, line: dict[str, Any]) -> None:
        """Appends a line, unless a killed process has already written it."""
        if self._known and (key := self._key_of(line)) in self._known:
            self._known.discard(key)
            return
        with writing(self.path):
            self._file.write(json.dumps(line, ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n")

    def flush(self) -> None:
        """Makes the lines visible to readers."""
        with writing(self.path):
            self._file.flush()

    def state(self) -> dict[str, Any]:
        """The length of the file, and the keys of the lines that this process has not computed yet; valid after
        `sync`."""
        self.flush()
        return {"bytes": self.path.stat().st_size, "ahead": sorted(self._known)}

    def sync(self) -> None:
        """Writes all lines to the disk; another thread may add lines meanwhile."""
        with writing(self.path):
            os.fsync(self._file.fileno())
            flush_folder(self.path.parent)

    def _key_of(self, line: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(line[name] for name in self._key)
