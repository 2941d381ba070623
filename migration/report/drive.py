"""The files on Google Drive that a notebook may read, as the report lists them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from migration.analysis.written import written_spans
from migration.notebook.findings import Finding
from migration.python.source import CellSource

# Rules for mounts of the drive, and for paths on it.
DRIVE_RULES = frozenset({"LF203", "LF204", "LF403", "LF405"})
_PLACE = re.compile(r"My(?:\\? |%20)?Drive(?=/)|(?=[Ss]hared ?[Dd]rives/)")
_OPENED = re.compile(r"""(["'])[\w./~-]*$""")
_WORD = re.compile(r"""(?:\\.|[^\s"'`;|&<>()])*""")


def drive_files(findings: Iterable[Finding], cells: Sequence[CellSource] = ()) -> tuple[str, ...]:
    """Files and folders, such as `MyDrive/plant/a.csv`, in the order of the notebook, each once. Of a path that is
    computed, the folder that is known. A path that the code cells clearly only write is left out."""
    lines = (line for found in findings if found.rule in DRIVE_RULES for line in found.before.splitlines())
    paths = dict.fromkeys(path for line in lines for path in _of_line(line))
    left_out = _only_written(cells) if paths else set()
    return tuple(path for path in paths if path not in left_out)


def _only_written(cells: Sequence[CellSource]) -> set[str]:
    """The paths of which every mention in the code is a file to write."""
    spans = written_spans(cells)
    written: set[str] = set()
    other: set[str] = set()
    for source in cells:
        rest = source.text
        for start, end in spans.get(source.index, ()):
            written.update(_of_line(source.text[start:end]))
            rest = rest[:start] + " " * (end - start) + rest[end:]
        other.update(path for line in rest.splitlines() for path in _of_line(line))
    return written - other


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
