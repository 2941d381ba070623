"""Sensor files: their names, and the rejection of other kinds of files."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from core.errors import DataError
from core.numbers import size_in_words
from core.reading import LARGEST_RATIO, unpacks_too_far
from core.workspace import broken_link

Part = TypeVar("Part")

TABLE_SUFFIXES = (".csv", ".csv.gz", ".txt", ".txt.gz", ".parquet")
PLAIN_TEXT_SUFFIXES = (".csv", ".txt")
ARRAY_SUFFIXES = (".npy", ".npz")
FORMATS_HINT = (
    "sensor files are .csv, .csv.gz, .txt, .parquet, .npy or .npz; docs/data-formats.md, Other formats, converts "
    "Excel, wav and mat"
)

_LABEL_FILE = re.compile(r"[._](?:run_)?labels\.", re.IGNORECASE)


def expand(patterns: Iterable[str], root: Path, *, hint: str = "correct data.splits.*.files") -> list[Path]:
    """The sensor files that `patterns` (globs or plain names, relative to `root`) match: sorted, each once.

    hint: what a user can do about a pattern without files.

    Raises DataError for a pattern that matches no sensor file, where label files and sidecars do not count, for a
    name that is not UTF-8, and as `refuse_other_kinds`.
    """
    found: set[Path] = set()
    for pattern in patterns:
        sensors = matches(pattern, root)
        folder = root / folder_of(pattern)
        refuse_other_kinds(pattern, root)
        if not sensors and folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
            raise DataError("cannot be read: Permission denied", path=folder, hint="check the owner of the folder")
        if not sensors and (link := broken_link(folder)):
            raise DataError("is a broken link", path=link, hint="correct the link, or connect its drive")
        if not sensors:
            name = pattern.removeprefix(f"{folder_of(pattern)}/")
            is_there = folder.is_dir()
            problem = f"{folder} has no sensor file {name}" if is_there else f"the folder {folder} does not exist"
            everything = f"{folder_of(pattern)}/*"
            if others := other_files(pattern, root):
                problem, hint = f"{problem}; {have(others, 'another format')}", FORMATS_HINT
            elif others := matches(everything, root):
                problem = f"{problem}; {have(others, 'another name')}"
            elif others := other_files(everything, root):
                problem, hint = f"{problem}; {have(others, 'another format')}", f"{hint}; {FORMATS_HINT}"
            raise DataError(f"no data: {problem}", hint=hint)
        found.update(sensors)
    for path in found:
        try:
            str(path).encode("utf-8")
        except UnicodeEncodeError as error:  # tables of scores cannot hold it
            raise DataError("its name is not UTF-8", path=path, hint="rename the file") from error
    return sorted(found)


def folder_of(pattern: str) -> str:
    """The folder of a glob, as far as it contains no wildcard: `data/fdc` of `data/fdc/train_*`."""
    return Path(re.split(r"[*?\[]", pattern)[0] + "?").parent.as_posix()


def matches(pattern: str, root: Path) -> list[Path]:
    """The sensor files of one pattern, sorted; empty if there are none."""
    return sorted(path for path in _glob(pattern, root) if path.is_file() and _is_sensor_file(path))


def other_files(pattern: str, root: Path) -> list[Path]:
    """The files of one pattern that are neither sensor files nor labels nor sidecars, sorted: no reader reads them."""
    ignored = (".", "~")
    files = (path for path in _glob(pattern, root) if path.is_file() and not path.name.startswith(ignored))
    return sorted(path for path in files if not data_suffix(path) and path.suffix.lower() != ".json")


def have(files: Sequence[Path], what: str) -> str:
    """Such as `a.xlsx and 2 more have another format`."""
    return (
        f"{files[0].name} and {len(files) - 1:,} more have {what}" if len(files) > 1 else f"{files[0].name} has {what}"
    )


def refuse_other_kinds(pattern: str, root: Path) -> None:
    """Raises DataError for a link, folder or pipe with the name of a sensor file, whose rows would be missing without a
    message. A folder may have such a name if the pattern matches files in it."""
    found = {path for path in _glob(pattern, root) if _is_sensor_file(path)}
    files = {path for path in found if is_present(path)}
    parents = {parent for path in files for parent in path.parents}
    for path in sorted(found - files - parents):
        if path.is_dir():
            raise DataError("is a folder, not a file", path=path, hint=f"name its files: {path.name}/*")
        if path.exists():
            raise DataError("is not a regular file", path=path, hint="copy its content to a file")


def is_present(path: Path) -> bool:
    """Whether the file exists. Raises DataError for a link without a target."""
    if path.is_symlink() and not path.exists():
        raise DataError("is a broken link", path=path, hint="correct or remove the link")
    return path.is_file()


def _is_sensor_file(path: Path) -> bool:
    return bool(data_suffix(path)) and not path.name.startswith(".") and not _LABEL_FILE.search(path.name)


def _glob(pattern: str, root: Path) -> Iterable[Path]:
    anchor = Path(pattern).anchor
    try:
        return list(Path(anchor or root).glob(pattern.removeprefix(anchor))) if pattern.strip() else ()
    except (ValueError, IndexError, NotImplementedError):  # pathlib, for `a**b`, `.` and `/`
        return ()


def refuse_large(path: Path, num_bytes: int, scratch: Path | None = None) -> None:
    """Raises DataError if `num_bytes` exceed the free space on the disk of `scratch`, or without one the memory."""
    import psutil

    if scratch is None:
        free, what = psutil.virtual_memory().available, "memory"
        hint = "set data.store_dir to a folder for large arrays, or split the file by time"
    else:
        there = next(place for place in (scratch, *scratch.parents) if place.is_dir())
        free, what = psutil.disk_usage(str(there)).free, f"the disk of {scratch}"
        hint = "set data.store_dir to a folder on a larger disk, or split the file by time; data.splits takes globs"
    if num_bytes > free:
        raise DataError(
            f"needs {size_in_words(num_bytes)}, but {what} has only {size_in_words(free)} free",
            path=path,
            hint=hint,
        )


def refuse_bomb(path: Path, num_bytes: int) -> None:
    """Raises DataError for a compressed file with `num_bytes` of content, if that is more than sensor data can have."""
    if unpacks_too_far(num_bytes, path.stat().st_size):
        raise DataError(
            f"unpacks to more than {LARGEST_RATIO} times its size",
            path=path,
            hint="sensor data hardly compresses that far; if you trust it, unpack it and read the plain file",
        )


# CPU seconds that a file may take: at least, and for each MiB on the disk. Measured on valid files of 1 to 24 MiB: .2
# per MiB where the order of day and month must be found, .65 where gzip packs constant channels 50 times.
_CPU_SECONDS, _CPU_SECONDS_PER_MIB = 60, 10


def in_time(path: Path, parts: Iterable[Part]) -> Iterator[Part]:
    """The parts of a file, one after the other. CPU time is limited, not elapsed time, which depends on other load.

    Raises DataError if reading and processing them takes far longer than for a valid file.
    """
    limit = _CPU_SECONDS + _CPU_SECONDS_PER_MIB * path.stat().st_size / 2**20
    start = time.process_time()
    for part in parts:
        yield part
        if time.process_time() - start > limit:
            raise DataError(
                f"takes more than {limit:.0f} s of processor time, far more than a file of its size needs",
                path=path,
                hint="export it again as plain csv, or split it by time",
            )


# First bytes of files that are often saved with the name of a csv file.
_FOREIGN = (
    (b"\x1f\x8b", "gzip", "name it .csv.gz"),
    (b"PK\x03\x04", "a workbook or another zip archive", "export it as csv"),
    (b"\xd0\xcf\x11\xe0", "an old workbook", "export it as csv"),
    (b"PAR1", "parquet", "name it .parquet"),
    (b"\x93NUMPY", "an array", "name it .npy"),
    (b"%PDF", "a PDF", "export it as csv"),
    (b"<!DOCTYPE", "a web page, perhaps a login page", "download the file again"),
    (b"<html", "a web page, perhaps a login page", "download the file again"),
)


def refuse_foreign(path: Path) -> None:
    """Raises DataError for a file whose first bytes contradict its name."""
    try:
        with path.open("rb") as file:
            head = file.read(512)
    except OSError as error:
        raise DataError(
            f"cannot be read: {error.strerror}", path=path, hint="check the disk and the permissions"
        ) from error
    if data_suffix(path) not in PLAIN_TEXT_SUFFIXES:
        return
    if len(head) == 512 and not any(head):
        raise DataError("NUL bytes, not text", path=path, row=1, hint="export it again")
    for magic, kind, hint in _FOREIGN:
        if head.lstrip()[: len(magic)].lower() == magic.lower():
            raise DataError(f"is {kind}, not csv", path=path, hint=hint)


def ends_in_nul(path: Path) -> bool:
    """Whether the last bytes are 0, as after a power cut or an incomplete copy."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 512))
        return file.read().endswith(bytes(16))


def data_suffix(path: Path) -> str:
    """The suffix that selects a reader (`.csv.gz`, `.npy`, …), in lower case; empty for other files."""
    name = path.name.lower()
    return next((suffix for suffix in (*TABLE_SUFFIXES, *ARRAY_SUFFIXES) if name.endswith(suffix)), "")


def data_stem(path: Path) -> str:
    """The file name without its data suffix: `valve1_0` of `valve1_0.csv.gz`."""
    return path.name[: len(path.name) - len(data_suffix(path))]
