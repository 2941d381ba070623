"""The files on Google Drive that a notebook may read, as the report lists them, and how code uses a path."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from string import ascii_letters

from migration.notebook.findings import Finding
from migration.python.source import CellSource
from migration.python.strings import only_code

_MOUNT_RULE = "LF203"
# Rules for mounts of the drive, and for paths, some of which are on it.
_DRIVE_RULES = frozenset({_MOUNT_RULE, "LF402", "LF404"})
# Below the folder that an archive with the complete paths of the drive was unpacked into: `/content/x/content/drive/…`.
_UNPACKED = r"(?<![\w.}]/content/drive/)"
_PLACE = re.compile(
    rf"""{_UNPACKED}(?<![A-Za-z]:[/\\])"""  # a drive of Windows
    r"""(?:(?P<mine>(?P<mark>["']?)My(?:\\? |%20)?Drive(?P=mark))(?=/)|(?=[Ss]hared ?[Dd]rives/))"""
)
_NAMED = re.compile(rf"{_UNPACKED}(?:\bMy(?:\\? |%20)?Drive\b|[Ss]hared ?[Dd]rives/)")
_OPENED = re.compile(r"""(["'])[\w./~-]*$""")
_CD = re.compile(r"\s*%cd\s")  # the rest of the line is one path
_WORD = re.compile(r"""(?:\\\W|[^\s"'`;|&<>()\\])*""")
# A name of which this is only the beginning: a number or another text follows it.
_GOES_ON = re.compile(r"""[^/]["']\s*\+(?!\s*["']/)""")
# Code before and after a path, or the name of one, that is written, or only printed, looked for or removed.
_INSIDE = r"(?:(?!(?:read|load|open)\w*\()[^;])*$"
_WRITES = re.compile(
    r"(?:\.to_\w+|\b(?:save|write|export)\w*|\b(?:dump|imsave|imwrite|mkdir|\w*Writer|ModelCheckpoint|CSVLogger))"
    rf"\s?\({_INSIDE}|\bshutil\.(?:copy\w*|move)\([^,]*,{_INSIDE}"
    r"""|[\[(,.{]\s*["']?(?:out\w*|to_file|save_(?:dir|path|to)|logs?_?dir|logging_dir)["'\]]*\s*[=:]\s*[frb]?["']?$"""
    r"""|!\s*(?:zip(?:\s+-\S+)*|tar\s+-?c\S*|unzip\s.*\s-d|(?:wget|curl|gdown|aria2c)\s.*\s-[oOP])\s*["'{]*$"""
)
_END = re.compile(r"[;#|]|&&|\d?>")  # of a command, or of its arguments
_CLONES = re.compile(r"""!\s*git\s+clone\s.*\S\s+["'{]*$""")
_COPIES = re.compile(r"""!\s*(?:cp|mv)\s.*\S\s+["'{]*$""")
_SHOWS = re.compile(
    r"""\b(?:print|input|exists|isdir|isfile|remove|rmtree|mount)\((?:[\w.]*listdir\()?(?:[^()]*|f?["'][^"']*)$"""
    r"""|^\s*!\s*(?:ls|mkdir|rm)\s[^;&|]*$"""
)
_CREATES = re.compile(
    r"\bcopytree\([^,]*,[^()]*$|\bmakedirs\([^()]*(?:(?:join|dirname)\([^()]*)?$|!\s*mkdir\s+-p\s[^;&|]*$"
)
# `files.download` neither reads nor writes the file on the drive.
_SENDS = re.compile(rf"\bfiles\.download\({_INSIDE}")
_OPENS = re.compile(r"""\b(?:open|ZipFile)\([frb]?["']?$""")
_TO_WRITE = re.compile(r"""(?:[^,()]|\(\w*\))*,\s*(?:mode\s*=\s*)?["'][wxa]""")
_WRITTEN = re.compile(r"""["']?\)\.write_(?:text|bytes)\(""")
_ASSIGNED = re.compile(r"\s*(\w+)\s*=(?!=)\s*(?:[\w.]*(?:join|[Pp]ath)\()?[^()]*")
_ATTRIBUTE = re.compile(r"\.(\w+)")
_STORED = re.compile(r"\s*(\w+)\s*=(?!=)")
_FOLDER = r"""[rf]?(["'])(?P<folder>[^"'\n{}]*My ?Drive(?:/[^"'\n{}]*)?)\2"""
_VALUE = re.compile(rf"{_STORED.pattern}\s*{_FOLDER}\s*")
# A folder of the drive, and the beginning of a text that follows it.
_JOINED = re.compile(rf"""(?P<join>\bjoin\(\s*)?{_FOLDER}\s*(?P<sign>(?(join)[+,]|\+))\s*[rf]?(?P<quote>["'])""")
_DEPTH = 3  # maximum length of a chain of names
NEAR = 1000  # maximum distance of a path from the code that uses it
_OPEN_END = re.compile(r"(?<=[(\[{,])[ \t]*\n\s*|\n[ \t]*(?=[)\]}])")

Found = tuple[str, int, int]


def uses_drive(findings: Iterable[Finding]) -> bool:
    """Whether a notebook mounts the drive and may use it, or names a path on it; an unused mount has no action."""
    return any(
        (found.rule == _MOUNT_RULE and found.action) or (found.rule in _DRIVE_RULES and _NAMED.search(found.before))
        for found in findings
    )


def drive_files(findings: Iterable[Finding], cells: Sequence[CellSource]) -> tuple[str, ...]:
    """Files and folders, such as `MyDrive/plant/a.csv`, in the order of the notebook, each once. A computed path is
    listed up to its last known folder. Of a file that the code cells write before they read it, its folder is listed,
    which exists on the drive, unless they create it."""
    if not uses_drive(findings):
        return ()
    code = _with_values(code_lines(cells))
    found = uses_of_paths(code, _of_line)
    needed = [path for path, kinds in found.items() if must_exist(path, kinds) or kinds == ["sends"]]
    cloned = [path for path, kinds in found.items() if "clones" in kinds]
    needed = [
        path for path in needed if not _is_cloned(path, cells) and not any(_is_below(path, one) for one in cloned)
    ]
    needed = [
        path for path in needed if _is_file(path) or not any(_is_below(path, one) for one in needed if one != path)
    ]
    there = [*needed, *(path for path, kinds in found.items() if "creates" in kinds), *cloned]
    filled = {path for line in code for path, _, end in _of_line(line) if line[end - 1] == "/"}
    for path in (path for path, kinds in found.items() if path not in there and "writes" in kinds):
        folder = path if path in filled else path.rpartition("/")[0]
        if "/" in folder and not any(_is_below(one, folder) or _is_below(folder, one) for one in there):
            needed.append(folder)
            there.append(folder)
    return tuple(needed)


def _with_values(code: Sequence[str]) -> list[str]:
    """The lines with folders and files of the drive in place of their names, for names with one value, which are no
    attributes: `FOLDER + "a.csv"`, `f"{FOLDER}/a.csv"` and `join(FOLDER, "a.csv")` name a file."""
    stores = Counter(found[1] for line in code if (found := _STORED.match(line)))
    names = {name for name, count in stores.items() if count == 1}.difference(_ATTRIBUTE.findall("\n".join(code)))
    lines = list(code)
    for _ in range(_DEPTH):
        assigned = [_VALUE.fullmatch(line) for line in lines]
        values = {found[1]: found["folder"] for found in assigned if found and found[1] in names}
        any_name = "|".join(values)
        uses = re.compile(rf"\{{(?P<field>{any_name})\}}|(?<![\w.])(?P<name>{any_name})\b(?!\s*=[^=])")

        def with_value(found: re.Match[str], values: dict[str, str] = values) -> str:
            return values[found["field"]] if found["field"] else f"'{values[found['name']]}'"

        lines = [
            "" if found and found[1] in values else _joined(uses.sub(with_value, line) if values else line)
            for line, found in zip(lines, assigned, strict=True)
        ]
    return lines


def _joined(line: str) -> str:
    """The line with texts that follow a folder of the drive as a part of it."""
    return _JOINED.sub(_as_one, line) if "Drive" in line else line


def _as_one(joined: re.Match[str]) -> str:
    """The text for a folder and a text that follows it."""
    slash = "" if joined["sign"] == "+" or joined["folder"].endswith("/") else "/"
    return f"{joined['join'] or ''}{joined['quote']}{joined['folder']}{slash}"


def _is_cloned(path: str, cells: Sequence[CellSource]) -> bool:
    """Whether a notebook clones the repository of a folder's name, and makes that its current folder."""
    name, code = re.escape(path.rpartition("/")[2]), "\n".join(source.text for source in cells)
    clones = re.search(rf"git clone\b[^\n]*/{name}(?:\.git)?/?(?=[\s\"';&|]|$)", code)
    return clones is not None and bool(re.search(rf"(?:cd\s|chdir\()[^\n]*\b{name}/?[\"')]*\s*(?:\n|$)", code))


def _is_file(path: str) -> bool:
    return "." in path.rpartition("/")[2]


def _is_below(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder}/")


def code_lines(cells: Iterable[CellSource]) -> list[str]:
    """The lines of the cells without comments and strings that are statements; a line that ends inside brackets is
    joined with the next one."""
    return [line for source in cells for line in _OPEN_END.sub(" ", only_code(source)).splitlines()]


def uses_of_paths(code: Sequence[str], paths_of: Callable[[str], Iterable[Found]]) -> dict[str, list[str]]:
    """What the code does with each path that `paths_of` finds in a line, in this order: `reads` (also if unknown),
    `writes`, `creates` (a folder with those above it), `clones` into, `shows` or `sends` it."""

    def of_text(line: str, start: int, end: int, depth: int = _DEPTH) -> list[str]:
        """What a line does with the file that `start:end` names, or the other lines with a name that it assigns."""
        before, after = line[max(start - NEAR, 0) : start], line[end : end + NEAR]
        if use := _use(before, after):
            return [use]
        assigned = _ASSIGNED.fullmatch(before)
        return of_name(assigned[1], depth - 1) if assigned and depth else ["reads"]

    @cache
    def of_name(name: str, depth: int) -> list[str]:
        """What the lines do with a name: nothing if they do not use it. What creates a folder may create another one if
        the name has several values."""
        pattern = re.compile(rf"(?<![\w.]){name}(?!\w)")
        found: list[str] = []
        values: set[str] = set()
        for line in (line for line in code if name in line):
            stored = _STORED.match(line)
            for place in pattern.finditer(line):
                if stored and place.span() == stored.span(1):
                    values.add(line[place.end() :])
                else:
                    found += of_text(line, *place.span(), depth)
        if not found and any(re.search(rf"(?<!\bos)\.{name}(?!\w)", line) for line in code):
            return ["reads"]  # by an attribute of a class
        return [use for use in dict.fromkeys(found) if use != "creates" or len(values) == 1]

    uses: dict[str, list[str]] = {}
    for line in code:
        for path, start, end in paths_of(line):
            uses.setdefault(path, []).extend(of_text(line, start, end))
    return {path: list(dict.fromkeys(kinds)) for path, kinds in uses.items()}


def _use(before: str, after: str) -> str | None:
    """What code does with the path between these texts; None if it may read it, or give it a name."""
    for use, pattern in (("sends", _SENDS), ("creates", _CREATES), ("clones", _CLONES), ("shows", _SHOWS)):
        if pattern.search(before):
            return use
    writes = _WRITES.search(before) or _WRITTEN.match(after) or (_OPENS.search(before) and _TO_WRITE.match(after))
    return "writes" if writes or (_COPIES.search(before) and not _END.split(after)[0].strip(" \"'}")) else None


def must_exist(path: str, kinds: Sequence[str]) -> bool:
    """Whether a path with these uses, in order, must exist: it is read, and not written before if it is a file, or
    created before if it is a folder."""
    made = "writes" if _is_file(path) else "creates"
    return "reads" in kinds and made not in kinds[: kinds.index("reads")]


def _of_line(line: str) -> Iterator[Found]:
    """Each path on the drive, with the span of its text."""
    for place in _PLACE.finditer(line):
        rest = line[place.end() :]
        if opened := _OPENED.search(line, max(place.start() - NEAR, 0), place.start()):
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
