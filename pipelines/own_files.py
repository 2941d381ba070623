"""Sensor files of a user in any folder and with any name: the configuration that reads them, and the command that
copies them to the data folder."""

from __future__ import annotations

import glob
import logging
import os
import shlex
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from core.config.compose import LoadedConfig, with_values
from core.config.overrides import stream_hint
from core.config.schema import STREAMS, Stream
from core.data.files import (
    ARRAY_SUFFIXES,
    FORMATS_HINT,
    data_stem,
    data_suffix,
    have,
    matches,
    other_files,
    refuse_other_kinds,
)
from core.data.labels import label_file
from core.data.splits import SPLIT_NAMES, SplitName
from core.data.tables import read_blocks
from core.errors import DataError
from core.workspace import relative

log = logging.getLogger(__name__)

_AXES = {"x", "y", "z"}
_FOLDERS: dict[Stream, str] = {"patchtst": "data/fdc", "swinmae": "data/vib"}
_PREFIXES = ("train_", "test_")


def sensor_files(paths: Sequence[Path]) -> list[Path]:
    """The files, and the sensor files in the folders. Raises DataError for a path that has none."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            hint = stream_hint(str(path)) or "name a sensor file or a folder with sensor files"
            raise DataError("does not exist", path=path, hint=hint)
        where = ("**/*", path.resolve()) if path.is_dir() else (glob.escape(path.name), path.parent)
        refuse_other_kinds(*where)
        files, others = matches(*where), other_files(*where)
        if not files:
            named = f"; {have(others, 'another format')}" if others else ""
            raise DataError(f"has no sensor file{named}", path=path, hint=FORMATS_HINT)
        if others:
            log.warning("%s: %s and are not read", path, have(others, "another format"))
        found += [file.absolute() for file in files]
    return sorted(set(found))


def stream_of(file: Path) -> Stream:
    """The stream of a file: arrays, and tables with the axes x, y and z, are vibration; other tables are process
    sensors."""
    if data_suffix(file) in ARRAY_SUFFIXES:
        return "swinmae"
    try:
        names = {str(name).lower() for name in next(read_blocks(file, None)).frame.columns}
    except (DataError, OSError, ValueError, StopIteration):  # reported when the file is read
        return "patchtst"
    return "swinmae" if names >= _AXES else "patchtst"


def by_stream(files: Sequence[Path]) -> dict[Stream, list[Path]]:
    found: dict[Stream, list[Path]] = {stream: [] for stream in STREAMS}
    for file in files:
        found[stream_of(file)].append(file)
    return {stream: each for stream, each in found.items() if each}


def with_files(loaded: LoadedConfig, files: Sequence[Path]) -> tuple[LoadedConfig, list[SplitName]]:
    """The configuration that reads these files, and the splits that have files.

    Files named `test…` are the test split, unless all files are named so. The other files are divided into the other
    splits, in the shares of the configuration.
    """
    tests = [file for file in files if file.name.lower().startswith("test")]
    others = [file for file in files if file not in tests] or tests
    of_split = dict.fromkeys(SPLIT_NAMES, others) | {"test": tests if others != tests else []}
    folder = Path(os.path.commonpath([file.parent for file in files]))
    values: dict[str, object] = {"data.root": str(folder), "enabled": True}
    for name in SPLIT_NAMES:
        values[f"data.splits.{name}.files"] = [glob.escape(relative(file, folder)) for file in of_split[name]]
    config = with_values(loaded.config, values, source=loaded.source)
    return replace(loaded, config=config), [name for name in SPLIT_NAMES if values[f"data.splits.{name}.files"]]


def copying(files: Sequence[Path], stream: Stream, root: Path) -> tuple[str, str]:
    """The command that copies files, with their labels and sidecars, to the data folder; and a remark."""
    target = _FOLDERS[stream]
    if all(file.is_relative_to(root / target) for file in files):
        return f"landfall train {stream}", ""
    named = [file for file in files if file.name.startswith(_PREFIXES)]
    unchanged = {other for file in named for other in _with_companions(file)}
    unchanged |= {path for file in files if (path := file.with_name("dataset.json")).is_file()}
    commands = [f"mkdir -p {target}"]
    if unchanged:
        commands.append(f"cp {' '.join(_globs(unchanged))} {target}/")
    for file in files:
        if file not in named:
            prefix = "test_" if file.name.lower().startswith("test") else "train_"
            commands += [
                f"cp {shlex.quote(str(other))} {shlex.quote(f'{target}/{prefix}{other.name}')}"
                for other in _with_companions(file)
            ]
    return " && ".join(commands), "files named train_… are for training, test_… are scored" if len(named) < len(
        files
    ) else ""


def _with_companions(file: Path) -> list[Path]:
    """The file, with its label file and its sidecar if they exist."""
    sidecar = file.with_name(f"{data_stem(file)}.json")
    return [file, *filter(None, [label_file(file)]), *([sidecar] if sidecar.is_file() else [])]


def _globs(files: Collection[Path]) -> list[str]:
    """The files as words of a shell: one glob for the files of a folder with the same prefix, if it matches no other
    file."""
    words: list[str] = []
    left = set(files)
    for folder in sorted({file.parent for file in files}):
        for prefix in _PREFIXES:
            found = set(folder.glob(f"{prefix}*"))
            if len(found) > 1 and found <= left:
                words.append(f"{shlex.quote(str(folder))}/{prefix}*")
                left -= found
    return words + [shlex.quote(str(file)) for file in sorted(left)]
