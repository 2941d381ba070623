"""The files on Google Drive that a notebook may read, as the report lists them, and how code uses a path."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from string import ascii_letters

from migration.notebook.findings import Finding
from migration.python.source import CellSource
from migration.python.strings import without_comments

_MOUNT_RULE = "LF203"
# Rules for mounts of the drive, and for paths, some of which are on it.
_DRIVE_RULES = frozenset({_MOUNT_RULE, "LF402", "LF404"})
_PLACE = re.compile(r"""(?P<mine>(?P<mark>["']?)My(?:\\? |%20)?Drive(?P=mark))(?=/)|(?=[Ss]hared ?[Dd]rives/)""")
_ROOT = re.compile(r"""My(?:\\? |%20)?Drive["']""")
_OPENED = re.compile(r"""(["'])[\w./~-]*$""")
_CD = re.compile(r"\s*%cd\s")  # the rest of the line is one path
_WORD = re.compile(r"""(?:\\\W|[^\s"'`;|&<>()\\])*""")
# A name of which this is only the beginning: a number or another text follows it.
_GOES_ON = re.compile(r"""[^/]["']\s*\+(?!\s*["']/)""")
# Code before and after a path, or the name of one, that is written, or only printed, looked for or removed.
_INSIDE = r"(?:(?!(?:read|load|open)\w*\()[^;])*$"
_WRITES = re.compile(
    r"(?:\.to_\w+|\b(?:save|write|export)\w*|\b(?:dump|imsave|imwrite|mkdir|\w*Writer|ModelCheckpoint|CSVLogger))"
    rf"\({_INSIDE}|\bshutil\.(?:copy\w*|move)\([^,]*,{_INSIDE}|!\s*(?:cp|mv)\s.*\S\s+[\"'{{]*$"
    r"""|[\[(,.{]\s*["']?out\w*["'\]]*\s*[=:]\s*[frb]?["']?$"""
)
_SHOWS = re.compile(
    r"""\b(?:print|input|exists|isdir|isfile|remove)\((?:[\w.]*listdir\()?(?:[^()]*|f?["'][^"']*)$|^\s*!\s*(?:ls|mkdir|rm)\s[^;&|]*$"""
)
_CREATES = re.compile(r"\bmakedirs\([^()]*(?:join\([^()]*)?$|!\s*mkdir\s+-p\s[^;&|]*$")
# `files.download` neither reads nor writes the file on the drive.
_SENDS = re.compile(rf"\bfiles\.download\({_INSIDE}")
_OPENS = re.compile(r"""\bopen\([frb]?["']?$""")
_TO_WRITE = re.compile(r"""(?:[^,()]|\(\w*\))*,\s*(?:mode\s*=\s*)?["'][wxa]""")
_WRITTEN = re.compile(r"""["']?\)\.write_(?:text|bytes)\(""")
_ASSIGNED = re.compile(r"\s*(\w+)\s*=(?!=)\s*(?:[\w.]*(?:join|[Pp]ath)\()?[^()]*")
_FOLDER = re.compile(r"""\s*(?P<name>\w+)\s*=\s*[rf]?(["'])(?P<folder>[^"'\n{}]*My ?Drive(?:/[^"'\n{}]*)?)\2\s*""")
_STORE = re.compile(r"\s*=(?!=)")
_DEPTH = 3  # maximum length of a chain of names
_NEAR = 1000  # maximum distance of a path from the code that uses it
_OPEN_END = re.compile(r"(?<=[(\[{,])[ \t]*\n\s*|\n[ \t]*(?=[)\]}])")

Found = tuple[str, int, int]


def uses_drive(findings: Iterable[Finding]) -> bool:
    """Whether a notebook mounts the drive, or names a path on it."""
    return any(
        found.rule == _MOUNT_RULE or (found.rule in _DRIVE_RULES and _PLACE.search(found.before)) for found in findings
    )


def drive_files(findings: Iterable[Finding], cells: Sequence[CellSource]) -> tuple[str, ...]:
    """Files and folders, such as `MyDrive/plant/a.csv`, in the order of the notebook, each once. A computed path is
    listed up to its last known folder. Of a file that the code cells write before they read it, its folder is listed,
    which exists on the drive, unless they create it."""
    lines = [line for found in findings if found.rule in _DRIVE_RULES for line in found.before.splitlines()]
    if not any(_PLACE.search(line) or _ROOT.search(line) for line in lines):
        return ()
    paths = {path for line in lines for path, _, _ in _of_line(line)}
    code, joined = _with_joined_names(code_lines(cells))
    uses = uses_of_paths(code, _of_line)
    found = {path: kinds for path, kinds in uses.items() if path in paths or path in joined}
    needed = [path for path, kinds in found.items() if must_exist(path, kinds) or kinds == ["sends"]]
    needed = [path for path in needed if not _is_cloned(path, cells)]
    there = [*needed, *(path for path, kinds in found.items() if "creates" in kinds)]
    for path in (path for path, kinds in found.items() if path not in there and "writes" in kinds):
        folder = path.rpartition("/")[0]
        if "/" in folder and not any(_is_below(one, folder) or _is_below(folder, one) for one in there):
            needed.append(folder)
            there.append(folder)
    return tuple(needed)


def _with_joined_names(code: Sequence[str]) -> tuple[list[str], set[str]]:
    """The lines with the folder of the drive in place of its name, where a text follows that names a file in it:
    `FOLDER + "a.csv"`, `f"{FOLDER}/a.csv"`, `join(FOLDER, "a.csv")`, also `join("…/MyDrive", "a.csv")`; and the paths
    in these lines. An assignment of a folder that is only used in this way is omitted."""
    assigned = [_FOLDER.fullmatch(line) for line in code]
    folders = {found["name"]: found["folder"] for found in assigned if found}
    names = [found["name"] for found in assigned if found]
    folders = {name: folder for name, folder in folders.items() if names.count(name) == 1}
    any_name = "|".join(folders) or r"(?!)"
    uses = re.compile(
        rf"""(?<![\w.])(?P<name>{any_name})\s*\+\s*[rf]?(?P<plus>["'])|\{{(?P<field>{any_name})\}}"""
        rf"""|\bjoin\(\s*(?:[rf]?(?P<mark>["'])(?P<root>[^"'\n{{}}]*My ?Drive/?)(?P=mark)|(?P<first>{any_name}))"""
        rf"""\s*,\s*[rf]?(?P<quote>["'])"""
    )

    def with_folder(found: re.Match[str]) -> str:
        folder = found["root"] or folders[found["name"] or found["field"] or found["first"]]
        slash = "" if folder.endswith("/") else "/"
        return f"join({found['quote']}{folder}{slash}" if found["quote"] else f"{found['plus'] or ''}{folder}"

    lines = [uses.sub(with_folder, line) for line in code]
    changed = [new for new, old in zip(lines, code, strict=True) if new != old]
    text = "\n".join(lines)
    only_joined = {
        name
        for name in folders
        if len(re.findall(rf"(?<![\w.]){name}(?!\w)", text)) == 1 and any(folders[name] in line for line in changed)
    }
    kept = [line for line, found in zip(lines, assigned, strict=True) if not (found and found["name"] in only_joined)]
    return kept, {path for line in changed for path, _, _ in _of_line(line)}


def _is_cloned(path: str, cells: Sequence[CellSource]) -> bool:
    """Whether a notebook clones the repository of a folder's name, and makes that its current folder."""
    name, code = re.escape(path.rpartition("/")[2]), "\n".join(source.text for source in cells)
    clones = re.search(rf"git clone\b[^\n]*/{name}(?:\.git)?/?(?=[\s\"';&|]|$)", code)
    return clones is not None and bool(re.search(rf"(?:cd\s|chdir\()[^\n]*\b{name}/?[\"')]*\s*(?:\n|$)", code))


def _is_below(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder}/")


def code_lines(cells: Iterable[CellSource]) -> list[str]:
    """The lines of the cells without comments; a line that ends inside brackets is joined with the next one."""
    return [line for source in cells for line in _OPEN_END.sub(" ", without_comments(source)).splitlines()]


def uses_of_paths(code: Sequence[str], paths_of: Callable[[str], Iterable[Found]]) -> dict[str, list[str]]:
    """What the code does with each path that `paths_of` finds in a line, in this order: `reads` (also if unknown),
    `writes`, `creates` (a folder with those above it), `shows` or `sends` it."""
    uses: dict[str, list[str]] = {}
    for line in code:
        for path, start, end in paths_of(line):
            uses.setdefault(path, []).extend(_uses(line, start, end, code))
    return {path: list(dict.fromkeys(kinds)) for path, kinds in uses.items()}


def must_exist(path: str, kinds: Sequence[str]) -> bool:
    """Whether a path with these uses, in order, must exist: it is read, and not created before, or, if it is a file,
    written."""
    before = kinds[: kinds.index("reads")] if "reads" in kinds else kinds
    is_file = "." in path.rpartition("/")[2]
    return "reads" in kinds and "creates" not in before and not (is_file and "writes" in before)


def _uses(line: str, start: int, end: int, code: Sequence[str], depth: int = _DEPTH) -> list[str]:
    """What a line does with the file that `start:end` names, or the other lines with a name that it assigns: nothing if
    they do not use it. What creates a folder may create another one if the name has several values."""
    before, after = line[max(start - _NEAR, 0) : start], line[end : end + _NEAR]
    for use, pattern in (("sends", _SENDS), ("creates", _CREATES), ("shows", _SHOWS)):
        if pattern.search(before):
            return [use]
    if _WRITES.search(before) and not (before.lstrip().startswith("!") and after.strip(" \"'}")):
        return ["writes"]
    if (_OPENS.search(before) and _TO_WRITE.match(after)) or _WRITTEN.match(after):
        return ["writes"]
    assigned = _ASSIGNED.fullmatch(before)
    if assigned is None or not depth:
        return ["reads"]
    name = re.compile(rf"(?<![\w.]){assigned[1]}(?!\w)")
    uses: list[str] = []
    values: set[str] = set()
    for other in code:
        for found in name.finditer(other):
            if other[: found.start()].strip() or not _STORE.match(other[found.end() :]):
                uses += _uses(other, *found.span(), code, depth - 1)
            else:
                values.add(other[found.end() :])
    if not uses and any(re.search(rf"(?<!\bos)\.{assigned[1]}(?!\w)", other) for other in code):
        return ["reads"]  # by an attribute of a class
    return [use for use in uses if use != "creates" or len(values) == 1]


def _of_line(line: str) -> Iterator[Found]:
    """Each path on the drive, with the span of its text."""
    for place in _PLACE.finditer(line):
        rest = line[place.end() :]
        if opened := _OPENED.search(line, max(place.start() - _NEAR, 0), place.start()):
            text, start = rest.partition(opened[1])[0].rstrip("\\"), opened.start() + 1
        else:
            word = None if _CD.match(line) else _WORD.match(rest)
            text = (word[0] if word else rest).rstrip(".,: ")
            start = place.start()
            start = len(line[:start].rstrip(f"/.~_-{ascii_letters}"))
        parts: list[str] = []
        for part in filter(None, (text if opened else text.replace("\\", "")).split("/")):
            if any(sign in part for sign in "{$%"):
                break
            parts.append(part)
        else:
            if opened and _GOES_ON.match(line, place.end() + len(text) - 1):
                parts = parts[:-1]
        if parts:
            yield "/".join(["MyDrive", *parts] if place["mine"] else parts), start, place.end() + len(text)
