"""The files on Google Drive that a notebook names, as the report lists them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from migration.notebook.findings import Finding

# Rules for mounts of the drive, and for paths on it.
DRIVE_RULES = frozenset({"LF203", "LF204", "LF403", "LF405"})
_PLACE = re.compile(r"My(?:\\? |%20)?Drive(?=/)|(?=[Ss]hared ?[Dd]rives/)")
_OPENED = re.compile(r"""(["'])[\w./~-]*$""")
_WORD = re.compile(r"""(?:\\.|[^\s"'`;|&<>()])*""")


def drive_files(findings: Iterable[Finding]) -> list[str]:
    """Files and folders, such as `MyDrive/plant/a.csv`, in the order of the notebook, each once. Of a path that is
    computed, the folder that is known."""
    lines = (line for found in findings if found.rule in DRIVE_RULES for line in found.before.splitlines())
    return list(dict.fromkeys(path for line in lines for path in _of_line(line)))


def _of_line(line: str) -> Iterator[str]:
    for place in _PLACE.finditer(line):
        rest = line[place.end() :]
        if opened := _OPENED.search(line[: place.start()]):
            path = rest.partition(opened[1])[0]
        else:
            path = _WORD.match(rest)[0].replace("\\", "")  # type: ignore[index]  # it matches an empty text, too
        parts: list[str] = []
        for part in filter(None, path.split("/")):
            if any(sign in part for sign in "{$%"):
                break
            parts.append(part)
        if parts:
            yield "/".join(["MyDrive", *parts] if place[0] else parts)
