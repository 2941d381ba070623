"""The configuration that reads files of a user's own, wherever they are and whatever their names."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from core.config.compose import LoadedConfig, with_values
from core.config.overrides import stream_meant
from core.config.schema import STREAMS, Stream
from core.data.files import ARRAY_SUFFIXES, data_suffix, matches
from core.data.splits import SPLIT_NAMES, SplitName
from core.data.tables import read_blocks
from core.errors import DataError
from core.workspace import relative

_AXES = {"x", "y", "z"}


def sensor_files(paths: Sequence[Path]) -> list[Path]:
    """The files, and the sensor files in the folders. Raises DataError for a path that has none."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            hint = stream_meant(str(path)) or "name a sensor file or a folder with sensor files"
            raise DataError("does not exist", path=path, hint=hint)
        files = matches("**/*", path.resolve()) if path.is_dir() else matches(glob.escape(path.name), path.parent)
        if not files:
            hint = "sensor files are .csv, .csv.gz, .txt, .parquet, .npy or .npz"
            raise DataError("has no sensor file", path=path, hint=hint)
        found += [file.absolute() for file in files]
    return sorted(set(found))


def stream_of(file: Path) -> Stream:
    """Arrays and tables with the axes x, y and z are vibration, other tables process sensors."""
    if data_suffix(file) in ARRAY_SUFFIXES:
        return "swinmae"
    try:
        names = {str(name).lower() for name in next(read_blocks(file, None)).frame.columns}
    except (DataError, OSError, ValueError, StopIteration):  # whoever reads it reports the fault
        return "patchtst"
    return "swinmae" if names >= _AXES else "patchtst"


def by_stream(files: Sequence[Path]) -> dict[Stream, list[Path]]:
    found: dict[Stream, list[Path]] = {stream: [] for stream in STREAMS}
    for file in files:
        found[stream_of(file)].append(file)
    return {stream: each for stream, each in found.items() if each}


def with_files(loaded: LoadedConfig, files: Sequence[Path]) -> tuple[LoadedConfig, list[SplitName]]:
    """The configuration that reads these files, and the splits that have some.

    Files named `test…` are the test split where others remain; the others train, validate and calibrate, in the shares
    of the configuration.
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
