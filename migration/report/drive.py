"""The files on Google Drive that a notebook may read, as the report lists them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from string import ascii_letters

from migration.notebook.findings import Finding
from migration.python.source import CellSource

MOUNT_RULE = "LF203"
# Rules for mounts of the drive, and for paths, some of which are on it.
_DRIVE_RULES = frozenset({MOUNT_RULE, "LF402", "LF404"})
_PLACE = re.compile(r"My(?:\\? |%20)?Drive(?=/)|(?=[Ss]hared ?[Dd]rives/)")
_OPENED = re.compile(r"""(["'])[\w./~-]*$""")
_WORD = re.compile(r"""(?:\\\W|[^\s"'`;|&<>()\\])*""")
# Code before and after a path, or the name of one, that is written, or only printed or looked for.
_INSIDE = r"""(?:(?!read|load|open)[\w.,\s=+*\[\]()])*(?:[frb]?["'][^"']*)?$"""
_WRITES = re.compile(
    rf"(?:\.(?:to_\w+|save\w*|write_\w+)|\b(?:dump|imsave|imwrite|makedirs|mkdir))\({_INSIDE}"
    rf"|\bshutil\.(?:copy\w*|move)\([^,]*,{_INSIDE}|!\s*(?:cp|mv)\s.*\S\s+[\"'{{]*$"
    r"|\b(?:print|exists|isdir|isfile)\([^()]*$"
)
# `files.download` neither reads nor writes the file on the drive.
_SENDS = re.compile(rf"\bfiles\.download\({_INSIDE}")
_OPENS = re.compile(r"""\bopen\([frb]?["']?$""")
_TO_WRITE = re.compile(r"""["']?\s*,\s*(?:mode\s*=\s*)?["'][wx]""")
_WRITTEN = re.compile(r"""["']?\)\.write_(?:text|bytes)\(""")
_ASSIGNED = re.compile(rf"\s*(\w+)\s*=(?!=){_INSIDE}")
_STORE = re.compile(r"\s*=(?!=)")
_DEPTH = 3  # maximum length of a chain of names


def drive_files(findings: Iterable[Finding], cells: Sequence[CellSource] = ()) -> tuple[str, ...]:
    """Files and folders, such as `MyDrive/plant/a.csv`, in the order of the notebook, each once. A computed path is
    listed up to its last known folder. Paths that the code cells clearly only write are left out."""
    lines = (line for found in findings if found.rule in _DRIVE_RULES for line in found.before.splitlines())
    paths = dict.fromkeys(path for line in lines for path, _, _ in _of_line(line))
    code = [line for source in cells for line in source.text.splitlines()] if paths else []
    mentions = [
        (path, _is_written(line, start, end, code))
        for line in code
        for path, start, end in _of_line(line)
        if not _SENDS.search(line[:start])
    ]
    read = {path for path, is_written in mentions if not is_written}
    written = {path for path, is_written in mentions if is_written} - read
    return tuple(path for path in paths if path not in written)


def _is_written(line: str, start: int, end: int, code: Sequence[str], depth: int = _DEPTH) -> bool:
    """Whether a line clearly does not read the file that `start:end` names: it writes it, or assigns the path to a name
    that the code uses only to write. Statements of several lines are not analysed."""
    before, after = line[:start], line[end:]
    if _WRITES.search(before) and not (before.lstrip().startswith("!") and after.strip(" \"'}")):
        return True
    if (_OPENS.search(before) and _TO_WRITE.match(after)) or _WRITTEN.match(after):
        return True
    assigned = _ASSIGNED.fullmatch(before)
    if assigned is None or not depth:
        return False
    name = re.compile(rf"(?<![\w.]){assigned[1]}(?!\w)")
    uses = [
        (other, *found.span())
        for other in code
        for found in name.finditer(other)
        if not _SENDS.search(other[: found.start()])
    ]
    stores = [bool(_STORE.match(other[last:])) and not other[:first].strip() for other, first, last in uses]
    return len(uses) > sum(stores) > 0 and all(
        is_store or _is_written(*use, code, depth - 1) for use, is_store in zip(uses, stores, strict=True)
    )


def _of_line(line: str) -> Iterator[tuple[str, int, int]]:
    """Each path on the drive, with the span of its text."""
    for place in _PLACE.finditer(line):
        rest = line[place.end() :]
        if opened := _OPENED.search(line[: place.start()]):
            text, start = rest.partition(opened[1])[0].rstrip("\\"), opened.start() + 1
        else:
            text = _WORD.match(rest)[0].rstrip(".,:")  # type: ignore[index]  # it matches an empty text, too
            start = place.start()
            start = len(line[:start].rstrip(f"/.~_-{ascii_letters}"))
        parts: list[str] = []
        for part in filter(None, (text if opened else text.replace("\\", "")).split("/")):
            if any(sign in part for sign in "{$%"):
                break
            parts.append(part)
        if parts:
            yield "/".join(["MyDrive", *parts] if place[0] else parts), start, place.end() + len(text)
