"""Readers: from sensor files to recordings, with their channels, times and sampling rate.

A recording has no labels: label files are read by `core.data.labels` only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from core.config.schema import Data, Stream
from core.data.arrays import Array, array_of
from core.data.blocks import Rows, blocks
from core.data.channels import Channels
from core.data.files import (
    TABLE_SUFFIXES,
    data_suffix,
    refuse_foreign,
    refuse_large,
)
from core.data.recording import NOT_A_TIME, RATE_TOLERANCE, Recording
from core.data.sampling import even_times, sampling_rate, steps
from core.data.sentinels import Sentinels
from core.data.sidecars import declared_rate, facts_of, is_healthy
from core.data.tables import Table, read_blocks, read_table, time_column
from core.data.timestamps import TIME_NAMES, Times, parse_times
from core.errors import DataError
from core.workspace import relative

_AXES = ("x", "y", "z")
_AXIS = re.compile(
    r"(?:(?:acc|accel|acceleration|vib|vibration)[ _.-]?)?([xyz])(?:[ _.-]?(?:axis|acc|accel))?"
    r"(?:[ _]?[\[(]?(?:g|m/s2|m/s\^2|m/s²)[\])]?)?",
    re.IGNORECASE,
)
# Above this share of repeated stamps, the clock of a vibration file is coarser than its sampling.
_COARSE_CLOCK = 0.2
# Memory to parse one time stamp of text.
_BYTES_PER_STAMP = 300


class Source(NamedTuple):
    """A file to read, with the facts of its sidecar."""

    path: Path
    stream: Stream
    settings: Data
    scratch: Path | None
    facts: dict[str, Any]


class _Read(NamedTuple):
    """The content of a file: values (T, C), or (records, T, C) of a set, and the times if the file has any."""

    values: np.ndarray
    channels: tuple[str, ...]
    times: Times | None
    notes: list[str]


def read_recordings(
    path: Path, *, root: Path, stream: Stream, settings: Data, scratch: Path | None = None
) -> list[Recording]:
    """Reads one sensor file in blocks; an `.npz` set has many recordings, every other file one.

    Raises DataError with the file, with row and column where they are known, and with a remedy.
    """
    reader = READERS[stream].get(data_suffix(path))
    if reader is None:
        kinds = ", ".join(READERS[stream])
        raise DataError(f"the {stream} stream does not read this kind of file", path=path, hint=f"it reads {kinds}")
    if not path.is_file():
        raise DataError("the file does not exist", path=path, hint=f"see the folder {path.parent}")
    refuse_foreign(path)
    source, file_id = Source(path, stream, settings, scratch, facts_of(path)), relative(path, root)
    read = reader(source)
    if read.values.ndim == 2:
        return [_recording(source, read, file_id, read.values)]
    return [_recording(source, read, f"{file_id}#{number}", values_tc) for number, values_tc in enumerate(read.values)]


def _recording(source: Source, read: _Read, file_id: str, values_tc: np.ndarray) -> Recording:
    time_ns, rate_hz, time_source, notes = _timing(source, read, len(values_tc))
    return Recording(
        file_id=file_id,
        path=source.path,
        values_tc=values_tc,
        time_ns=time_ns,
        channels=read.channels,
        sampling_rate_hz=rate_hz,
        time_source=time_source,
        healthy=is_healthy(source.facts),
        notes=(*read.notes, *notes),
    )


# ------------------------------------------------------------------------------------------------------------- readers
def _read_fdc_table(source: Source) -> _Read:
    return _from_tables(source, read_blocks(source.path, source.scratch), source.settings.channels)


def _from_tables(source: Source, tables: Iterable[Table], chosen: Sequence[str]) -> _Read:
    """chosen: names of channels; none takes all."""
    path, scratch = source.path, source.scratch
    channels, times, notes = None, _TimeColumn(path, source.settings.timestamp, scratch), {}
    for table in tables:
        if table.frame.empty:
            raise DataError("the table has no rows", path=path, hint="remove it from data.splits or export it again")
        time_names = times.add(table)
        if channels is None:
            exclude = source.settings.exclude
            channels = Channels(
                table, time_names=time_names, chosen=chosen, exclude=exclude, path=path, scratch=scratch
            )
        channels.add(table)
        notes |= dict.fromkeys(table.notes)
    values_tc, names, found = channels.whole()
    whole = times.whole()
    return _Read(values_tc, names, whole, [*notes, *found, *(whole.notes if whole else ())])


class _TimeColumn:
    """The time stamps of a table that is read in blocks. If a block alone does not determine their form, such as the
    order of day and month, the column is read again as a whole."""

    def __init__(self, path: Path, wanted: str, scratch: Path | None):
        self.path, self.wanted = path, wanted
        self._rows = Rows(scratch)
        self._found: list[tuple[tuple[str, ...], Times]] = []  # for each block, without its times
        self._num_rows, self._can_be_read, self._first = 0, False, None

    def add(self, table: Table) -> tuple[str, ...]:
        """The names of the time columns."""
        column, names = time_column(table.frame, self.wanted, self.path)
        times = None
        if column is not None:
            times = _noted(parse_times(column), names, self.wanted)
            self._rows.add(times.time_ns)
            self._can_be_read |= bool((times.time_ns != NOT_A_TIME).any())
            self._first = self._first or (column.iloc[0], table.first_row)
            times = replace(times, time_ns=np.empty(0, dtype=np.int64))  # a slice would keep all of it
        self._found.append((names, times))
        self._num_rows += len(table.frame)
        return names

    def whole(self) -> Times | None:
        names, times = self._found[0]
        if times is None:
            return None
        kinds = {(columns, each.source, each.notes) for columns, each in self._found}
        if len(self._found) > 1 and (len(kinds) > 1 or times.by_majority):
            refuse_large(self.path, _BYTES_PER_STAMP * self._num_rows)
            every_name = {name for names, _ in self._found for name in names}
            column, names = time_column(read_table(self.path, every_name).frame, self.wanted, self.path)
            times = _noted(parse_times(column), names, self.wanted)
        else:
            times = replace(times, time_ns=self._rows.whole())
        if not self._can_be_read:
            cell, row = self._first
            raise DataError(
                f"no time stamp can be read; the first is {cell!r}",
                path=self.path,
                row=row,
                column=" + ".join(names),
                hint="write ISO time stamps, or name another column in data.timestamp",
            )
        return times


def _noted(times: Times, names: Sequence[str], wanted: str) -> Times:
    """The times, with a note on a time column that was found by its content."""
    if wanted != "auto" or names[0].lower() in TIME_NAMES:
        return times
    columns = " and ".join(map(repr, names))
    return replace(times, notes=(*times.notes, f"column{'s' * (len(names) > 1)} {columns} read as the time stamps"))


def _read_vibration_table(source: Source) -> _Read:
    tables = read_blocks(source.path, source.scratch)
    first = next(tables)
    axes = {match[1].lower(): name for name in first.frame.columns if (match := _AXIS.fullmatch(name))}
    chosen = source.settings.channels or tuple(axes[axis] for axis in _AXES if axis in axes)
    if not chosen:
        raise DataError(
            f"no column is an axis x, y or z; the file has {', '.join(first.frame.columns[:12])}",
            path=source.path,
            hint="name the columns of the axes in data.channels",
        )
    read = _from_tables(source, chain([first], tables), chosen)
    if source.settings.channels:
        return read
    return read._replace(channels=tuple(axis for axis in _AXES if axes.get(axis) in read.channels))


def _read_array(source: Source) -> _Read:
    with array_of(source.path, None, source.scratch) as array:
        shape = array.shape
        if len(shape) == 2 and shape[0] <= 3 < shape[1]:
            hint = "save the array transposed, as (T, axes)"
            raise DataError(f"shape {shape} is (axes, T)", path=source.path, hint=hint)
        if len(shape) not in (1, 2) or (*shape, 1)[1] > 3:
            hint = "save (T,) or (T, 1 to 3 axes)"
            raise DataError(f"shape {shape} is not a recording", path=source.path, hint=hint)
        return _from_array(source, array._replace(shape=(shape[0], (*shape, 1)[1])))


def _read_set(source: Source) -> _Read:
    with array_of(source.path, "x", source.scratch) as array:
        if len(array.shape) != 3 or array.shape[2] > 3:
            hint = "save x as (records, T, 1 to 3 axes)"
            raise DataError(f"x has shape {array.shape}", path=source.path, hint=hint)
        return _from_array(source, array)


READERS: dict[Stream, dict[str, Callable[[Source], _Read]]] = {
    "patchtst": dict.fromkeys(TABLE_SUFFIXES, _read_fdc_table),
    "swinmae": {**dict.fromkeys(TABLE_SUFFIXES, _read_vibration_table), ".npy": _read_array, ".npz": _read_set},
}


def _from_array(source: Source, array: Array) -> _Read:
    path, settings = source.path, source.settings
    notes, num_axes = [], array.shape[-1]
    axes = tuple(source.facts.get("axes") or ())
    channels = axes if len(axes) == num_axes else _AXES[:num_axes]
    if axes and channels != axes:
        notes.append(f"the sidecar names {len(axes)} axes, the array has {num_axes}: they are called {channels}")
    if missing := [name for name in settings.channels if name not in channels]:
        raise DataError("no such axis", path=path, column=missing[0], hint=f"its axes are {', '.join(channels)}")
    chosen = [name for name in settings.channels or channels if name not in settings.exclude]
    columns = [channels.index(name) for name in chosen]
    rows, sentinels, first_row = Rows(source.scratch), Sentinels(len(chosen)), 1
    for number_n in array.numbers:
        block = number_n.reshape(-1, *array.shape[1:])
        block = block if chosen == list(channels) else block[..., columns]
        sentinels.remove_(block, first_row)
        first_row += len(block)
        rows.add(block)
    notes += sentinels.notes(dict(enumerate(chosen)), unit="row" if len(array.shape) == 2 else "record")
    return _Read(rows.whole(), tuple(chosen), None, notes)


# --------------------------------------------------------------------------------------------------------------- times
def _timing(
    source: Source, read: _Read, rows: int
) -> tuple[np.ndarray, float | None, Literal["timestamp", "sampling_rate", "index"], list[str]]:
    """Times (T,), sampling rate, source of the times, and notes.

    The rate of the sidecar has priority over the time stamps, and these over `data.sampling_rate_hz`.
    """
    is_vibration, scratch = source.stream == "swinmae", source.scratch
    stamped = read.times is not None and read.times.source == "timestamp"
    rate_hz, notes = _rate(
        {
            "its sidecar": declared_rate(source.path, source.facts),
            "its time stamps": sampling_rate(read.times.time_ns, quantised=is_vibration) if stamped else None,
            "data.sampling_rate_hz": source.settings.sampling_rate_hz,
        }
    )
    if stamped:
        time_ns = read.times.time_ns
        if is_vibration and rate_hz and _clock_is_coarse(time_ns):
            notes.append(
                "the time stamps are coarser than the sampling: the samples are spaced evenly from the first one"
            )
            time_ns = even_times(rows, rate_hz, start_ns=int(time_ns[0]), scratch=scratch)
        return time_ns, rate_hz, "timestamp", notes
    if rate_hz:
        return even_times(rows, rate_hz, scratch=scratch), rate_hz, "sampling_rate", notes
    if is_vibration:
        raise DataError(
            "the sampling rate is unknown",
            path=source.path,
            hint='write {"sampling_rate_hz": …} into a JSON file of the same name, or into dataset.json for all files '
            "of the folder; or append data.sampling_rate_hz=… to each command",
        )
    if read.times is None:
        return even_times(rows, 1.0, scratch=scratch), None, "index", [*notes, "no time column: rows are numbered"]
    return read.times.time_ns, None, "index", notes


def _rate(claims: dict[str, float | None]) -> tuple[float | None, list[str]]:
    """The first known rate, with a note on each later one that disagrees."""
    known = {origin: rate for origin, rate in claims.items() if rate is not None}
    if not known:
        return None, []
    (origin, rate_hz), *others = known.items()
    notes = [
        f"sampling rate {rate_hz:g} Hz taken from {origin}; {other} would be {claim:g} Hz"
        for other, claim in others
        if abs(claim / rate_hz - 1) > RATE_TOLERANCE
    ]
    if not notes and origin != "its time stamps":
        notes = [f"sampling rate {rate_hz:g} Hz taken from {origin}"]
    return rate_hz, notes


def _clock_is_coarse(time_ns: np.ndarray) -> bool:
    if any((block == NOT_A_TIME).any() for block in blocks(time_ns)):
        return False
    backward, standing, count = (sum(found) for found in zip(*map(_kinds_of_steps, steps(time_ns)), strict=True))
    return not backward and count > 0 and standing / count > _COARSE_CLOCK


def _kinds_of_steps(step_n: np.ndarray) -> tuple[int, int, int]:
    return int((step_n < 0).sum()), int((step_n == 0).sum()), len(step_n)
