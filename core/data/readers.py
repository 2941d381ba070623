"""Sensor files into recordings: which reader, which channels, which times and sampling rate.

Labels never enter a recording: label files are read by `core.data.labels` only.
"""

from __future__ import annotations

import math
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np
import pandas as pd

from core.config.schema import Data, Stream
from core.data.files import (
    TABLE_SUFFIXES,
    data_suffix,
    declared_rate,
    expand,
    facts_of,
    is_healthy,
    matches,
    refuse_foreign,
    refuse_large,
)
from core.data.recording import NOT_A_TIME, RATE_TOLERANCE, Recording
from core.data.tables import Table, channels_of, read_table, time_column
from core.data.timestamps import Times, even_times, parse_times, sampling_rate
from core.errors import DataError
from core.workspace import relative

__all__ = ["READERS", "expand", "matches", "read_recordings"]

_AXES = ("x", "y", "z")
_AXIS = re.compile(
    r"(?:(?:acc|accel|acceleration|vib|vibration)[ _.-]?)?([xyz])(?:[ _.-]?(?:axis|acc|accel))?"
    r"(?:[ _]?[\[(]?(?:g|m/s2|m/s\^2|m/s²)[\])]?)?",
    re.IGNORECASE,
)
# Above this share of repeated stamps, the clock of a vibration file is coarser than its sampling.
_COARSE_CLOCK = 0.2
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_recordings(path: Path, *, root: Path, stream: Stream, settings: Data) -> list[Recording]:
    """Reads one sensor file; an `.npz` set holds many recordings, every other file one.

    Raises DataError naming the file, the row and column where known, and the way out.
    """
    suffix = data_suffix(path)
    reader = READERS[stream].get(suffix)
    if reader is None:
        kinds = ", ".join(READERS[stream])
        raise DataError(f"the {stream} stream does not read this kind of file", path=path, hint=f"it reads {kinds}")
    if not path.is_file():
        raise DataError("the file does not exist", path=path, hint=f"look into {path.parent}")
    refuse_foreign(path)
    read = reader(path, settings)
    return [_recording(path, root, stream, settings, read, values_tc, record) for record, values_tc in _records(read)]


class _Read(NamedTuple):
    """What a reader found: values (T, C), or (records, T, C) of a set, and the times if the file has any."""

    values: np.ndarray
    channels: tuple[str, ...]
    times: Times | None
    notes: list[str]
    facts: dict[str, Any]


def _records(read: _Read) -> Iterable[tuple[int | None, np.ndarray]]:
    return [(None, read.values)] if read.values.ndim == 2 else enumerate(read.values)


def _recording(
    path: Path, root: Path, stream: Stream, settings: Data, read: _Read, values_tc: np.ndarray, record: int | None
) -> Recording:
    time_ns, rate_hz, source, notes = _timing(path, len(values_tc), read, stream, settings)
    return Recording(
        file_id=relative(path, root) + ("" if record is None else f"#{record}"),
        path=path,
        values_tc=values_tc,
        time_ns=time_ns,
        channels=read.channels,
        sampling_rate_hz=rate_hz,
        time_source=source,
        healthy=is_healthy(read.facts),
        notes=(*read.notes, *notes),
    )


# ------------------------------------------------------------------------------------------------------------- readers
def _read_fdc_table(path: Path, settings: Data) -> _Read:
    return _from_table(_filled(read_table(path), path), path, settings)


def _from_table(table: Table, path: Path, settings: Data) -> _Read:
    time, names = time_column(table.frame, settings.timestamp, path)
    values_tc, channels, notes = channels_of(
        table, time_names=names, chosen=settings.channels, exclude=settings.exclude, path=path
    )
    times = None if time is None else _times(time, names, table.first_row, path)
    return _Read(values_tc, channels, times, [*table.notes, *notes, *(times.notes if times else ())], facts_of(path))


def _times(column: pd.Series, names: tuple[str, ...], first_row: int, path: Path) -> Times:
    times = parse_times(column)
    if (times.time_ns == NOT_A_TIME).all():
        raise DataError(
            f"no time stamp can be read, not even the first, {column.iloc[0]!r}",
            path=path,
            row=first_row,
            column=" + ".join(names),
            hint="write ISO time stamps, or name another column in data.timestamp",
        )
    return times


def _read_vibration_table(path: Path, settings: Data) -> _Read:
    table = _filled(read_table(path), path)
    axes = {match[1].lower(): name for name in table.frame.columns if (match := _AXIS.fullmatch(name))}
    chosen = settings.channels or tuple(axes[axis] for axis in _AXES if axis in axes)
    if not chosen:
        raise DataError(
            f"no column is an axis x, y or z; the file has {', '.join(table.frame.columns[:12])}",
            path=path,
            hint="name the columns of the axes in data.channels",
        )
    read = _from_table(table, path, settings.model_copy(update={"channels": chosen}))
    if settings.channels:
        return read
    return read._replace(channels=tuple(axis for axis in _AXES if axes.get(axis) in read.channels))


def _read_array(path: Path, settings: Data) -> _Read:
    values = _load(path)
    values_tc = values[:, None] if values.ndim == 1 else values
    if values_tc.ndim == 2 and values_tc.shape[0] <= 3 < values_tc.shape[1]:
        raise DataError(f"shape {values.shape} is (axes, T)", path=path, hint="save the array transposed, as (T, axes)")
    if values_tc.ndim != 2 or values_tc.shape[1] > 3:
        raise DataError(f"shape {values.shape} is no recording", path=path, hint="save (T,) or (T, 1 to 3 axes)")
    return _from_array(values_tc, path, settings)


def _read_set(path: Path, settings: Data) -> _Read:
    values_ntc = _load(path, key="x")
    if values_ntc.ndim != 3 or values_ntc.shape[2] > 3:
        raise DataError(f"x has shape {values_ntc.shape}", path=path, hint="save x as (records, T, 1 to 3 axes)")
    return _from_array(values_ntc, path, settings)


Reader = Callable[[Path, Data], _Read]
READERS: dict[Stream, dict[str, Reader]] = {
    "patchtst": dict.fromkeys(TABLE_SUFFIXES, _read_fdc_table),
    "swinmae": {**dict.fromkeys(TABLE_SUFFIXES, _read_vibration_table), ".npy": _read_array, ".npz": _read_set},
}


def _filled(table: Table, path: Path) -> Table:
    if table.frame.empty:
        raise DataError("the table has no rows", path=path, hint="remove it from data.parts or export it again")
    return table


def _load(path: Path, key: str | None = None) -> np.ndarray:
    """An array of real numbers as float32, or that of this name in a set; objects are refused, for unpickling them runs
    code."""
    try:
        if key is None:
            with path.open("rb") as file:
                loaded = _array(file, path.stat().st_size, path)
        else:
            with zipfile.ZipFile(path) as archive:
                loaded = _member(archive, key, path)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        kind = "np.save" if key is None else "np.savez, as an .npz file"
        raise DataError(f"cannot be read: {error}", path=path, hint=f"save plain numbers with {kind}") from error
    if loaded.size == 0:
        raise DataError(f"shape {loaded.shape} holds no samples", path=path, hint="remove the file from data.parts")
    with np.errstate(over="ignore"):
        return loaded.astype(np.float32, copy=False)


def _member(archive: zipfile.ZipFile, key: str, path: Path) -> np.ndarray:
    names = [name.removesuffix(".npy") for name in archive.namelist()]
    if key not in names:
        raise DataError(f"no array {key!r}, only {names[:12]}", path=path, hint=f"save the records as {key!r}")
    info = archive.getinfo(f"{key}.npy")
    with archive.open(info) as file:
        return _array(file, info.file_size, path)


def _array(file: BinaryIO, num_bytes: int, path: Path) -> np.ndarray:
    """The array in a stream of so many bytes, after a look at what its header promises."""
    version = np.lib.format.read_magic(file)
    read_header = _HEADERS.get(version)
    if read_header is None:
        raise ValueError(f"version {version} of the npy format")
    shape, _, dtype = read_header(file)
    if dtype.kind not in "iuf":
        kind = "objects, which are never unpickled" if dtype.hasobject else f"{dtype}"
        raise DataError(f"holds {kind}, no real numbers", path=path, hint="save float32 values with np.save")
    promised = math.prod(shape) * dtype.itemsize
    if promised > num_bytes - file.tell():
        raise DataError(
            f"is cut short: shape {shape} takes {promised} bytes, {num_bytes - file.tell()} are there",
            path=path,
            hint="copy the file again",
        )
    refuse_large(path, promised + 4 * math.prod(shape))
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)


def _from_array(values: np.ndarray, path: Path, settings: Data) -> _Read:
    facts, notes = facts_of(path), []
    axes = tuple(facts.get("axes") or ())
    channels = axes if len(axes) == values.shape[-1] else _AXES[: values.shape[-1]]
    if axes and channels != axes:
        notes.append(f"the sidecar names {len(axes)} axes, the array has {values.shape[-1]}: axes called {channels}")
    if missing := [name for name in settings.channels if name not in channels]:
        raise DataError("no such axis", path=path, column=missing[0], hint=f"its axes are {', '.join(channels)}")
    chosen = [name for name in settings.channels or channels if name not in settings.exclude]
    if chosen != list(channels):
        values = values[..., [channels.index(name) for name in chosen]]
    infinite = np.isinf(values)
    if infinite.any():
        values = np.where(infinite, np.float32(np.nan), values)
        notes.append(f"{int(infinite.sum())} values, infinite or beyond 32 bit, read as missing")
    return _Read(values, tuple(chosen), None, notes, facts)


# --------------------------------------------------------------------------------------------------------------- times
def _timing(
    path: Path, rows: int, read: _Read, stream: Stream, settings: Data
) -> tuple[np.ndarray, float | None, Literal["timestamp", "sampling_rate", "index"], list[str]]:
    """Times (T,), sampling rate, where the times come from, and notes.

    The rate in a file's JSON wins over its time stamps, and those over `data.sampling_rate_hz`.
    """
    stamped = read.times is not None and read.times.source == "timestamp"
    rate_hz, notes = _rate(
        {
            "its JSON": declared_rate(path, read.facts),
            "its time stamps": sampling_rate(read.times.time_ns, quantised=stream == "swinmae") if stamped else None,
            "data.sampling_rate_hz": settings.sampling_rate_hz,
        }
    )
    if stamped:
        time_ns = read.times.time_ns
        if stream == "swinmae" and rate_hz and _clock_is_coarse(time_ns):
            notes.append("the time stamps are coarser than the sampling: samples spaced evenly from the first one")
            time_ns = even_times(rows, rate_hz, start_ns=int(time_ns[0]))
        return time_ns, rate_hz, "timestamp", notes
    if rate_hz:
        return even_times(rows, rate_hz), rate_hz, "sampling_rate", notes
    if stream == "swinmae":
        raise DataError(
            "the sampling rate is not known",
            path=path,
            hint='write {"sampling_rate_hz": …} into a JSON file of the same name, or set data.sampling_rate_hz',
        )
    if read.times is None:
        return even_times(rows, 1.0), None, "index", [*notes, "no time column: rows are numbered"]
    return read.times.time_ns, None, "index", notes


def _rate(claims: dict[str, float | None]) -> tuple[float | None, list[str]]:
    """The first claim in order of priority, with a note on each later one that disagrees."""
    known = {origin: rate for origin, rate in claims.items() if rate is not None}
    if not known:
        return None, []
    (origin, rate_hz), *others = known.items()
    notes = [
        f"sampling rate {rate_hz:g} Hz taken from {origin}, although {other} says {claim:g} Hz"
        for other, claim in others
        if abs(claim / rate_hz - 1) > RATE_TOLERANCE
    ]
    if not notes and origin != "its time stamps":
        notes = [f"sampling rate {rate_hz:g} Hz taken from {origin}"]
    return rate_hz, notes


def _clock_is_coarse(time_ns: np.ndarray) -> bool:
    step_n = np.diff(time_ns)
    return not (time_ns == NOT_A_TIME).any() and bool(np.all(step_n >= 0)) and (step_n == 0).mean() > _COARSE_CLOCK
