"""Scores over time in two depths: bins, few enough to load at once, and every score in parts, for those who zoom."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from core.config.schema import Stream
from core.numbers import decimals_for, listed
from core.workspace import compact_json, write_text
from pipelines.dashboard.detail_documents import RecordingSeries, Series, SeriesPart
from pipelines.dashboard.documents import SCHEMA_VERSION
from pipelines.dashboard.inputs import SCORES, Problems, explain, read_model
from pipelines.dashboard.state_documents import AnomalyEvent

if TYPE_CHECKING:
    import numpy as np

MAX_BINS = 2_000
# Over all recordings: many short recordings share what one long one may have.
MAX_TOTAL_BINS = 40_000
FEWEST_BINS = 50
POINTS_PER_PART = 50_000
_COLUMNS = ("recording", "time", "seconds", "score", "threshold", "label")
_STRETCH = "stretch"
# Read at a time.
_ROWS = 1 << 16
_SIGNIFICANT = 5
# Series of an earlier form are made anew.
_FORMAT = 2
# What Arrow's errors are, without importing it.
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, NotImplementedError)
_MICROSECONDS = 6


class _Edges:
    """Where runs begin and, in turn, are over, of points that come in blocks: index, and second before and at each."""

    def __init__(self) -> None:
        self._blocks: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._points, self._is_inside, self._second = 0, False, 0.0

    def add(self, second_n: np.ndarray, inside_n: np.ndarray) -> None:
        import numpy as np

        edge_e = np.flatnonzero(np.diff(np.concatenate([[self._is_inside], inside_n])))
        before = np.concatenate([[self._second if self._points else second_n[0]], second_n])
        self._blocks.append((edge_e + self._points, before[edge_e], second_n[edge_e]))
        self._points, self._is_inside, self._second = self._points + len(second_n), inside_n[-1], second_n[-1]

    def all(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of every edge, with the end of a run that the last point is in."""
        import numpy as np

        end = ([self._points], [self._second], [self._second]) if self._is_inside else ([], [], [])
        return tuple(
            np.concatenate([*parts, last]) for parts, last in zip(zip(*self._blocks, strict=True), end, strict=True)
        )


@dataclass
class _Recording:
    """What a first reading of a recording's scores says of it. points: its scores and breaks. pauses: where there is no
    score; labelled: where its label says anomaly."""

    name: str
    start: str | None
    scores: int = 0
    points: int = 0
    pauses: _Edges = field(default_factory=_Edges)
    labelled: _Edges = field(default_factory=_Edges)


@dataclass(frozen=True)
class _Block:
    """Some successive points of a recording. Where a stretch ends there is one without a score: the line breaks there.

    start: the recording's clock at second 0, or None. threshold: the table's. scores: how many of the points are rows.
    """

    name: str
    is_first: bool
    start: str | None
    threshold: float
    scores: int
    second_n: np.ndarray
    score_n: np.ndarray
    labelled_n: np.ndarray


def export_series(
    root: Path, stream: Stream, events: Sequence[AnomalyEvent], data: Path, problems: Problems
) -> str | None:
    """Writes the scores of a stream below `data`; gives the document's name, None where there is no readable table.

    Nothing is computed where the last export saw the same table and events.
    """
    source, name = root / SCORES / f"{stream}_scores.parquet", f"series/{stream}.json"
    try:
        table = source.open("rb")
    except FileNotFoundError:
        return None
    except OSError as error:
        problems.add(source, explain(error))
        return None
    with table:  # both readings are of the same rows, also where meanwhile another table, or none, has its name
        signature = _signature(table, events)
        known = read_model(data / name, Series, problems)
        if known is not None and known.signature == signature and _has_all(known, data):
            return name
        try:
            threshold, recordings = _survey(table)
        except _UNREADABLE as error:
            problems.add(source, explain(error))
            return None
        series = Series(
            stream=stream,
            threshold=threshold,
            recordings=list(_series(table, recordings, threshold, stream, events, data)),
            signature=signature,
        )
    write_text(data / name, series.model_dump_json() + "\n")
    return name


def _has_all(series: Series, data: Path) -> bool:
    return all((data / file).is_file() for file in files_of(series))


def files_of(series: Series) -> Iterator[str]:
    """The parts a series leads to."""
    return (part.file for recording in series.recordings for part in recording.details)


def _signature(table: BinaryIO, events: Sequence[AnomalyEvent]) -> str:
    facts = os.fstat(table.fileno())
    named = " ".join(f"{event.id}:{event.recording}" for event in events)
    return f"format {_FORMAT} {facts.st_size} {facts.st_mtime_ns} {named}"


def _survey(table: BinaryIO) -> tuple[float, list[_Recording]]:
    """The threshold and the recordings. Raises an error of `_UNREADABLE` for a file that is no score table."""
    import numpy as np

    threshold, recordings = math.nan, list[_Recording]()
    for block in _blocks(table):
        threshold = block.threshold
        if block.is_first:
            recordings.append(_Recording(block.name, block.start))
        recording = recordings[-1]
        recording.scores += block.scores
        recording.points += len(block.second_n)
        recording.pauses.add(block.second_n, np.isnan(block.score_n))
        recording.labelled.add(block.second_n, block.labelled_n)
    if not recordings:
        raise ValueError("holds no scores")
    return threshold, recordings


def _blocks(table: BinaryIO) -> Iterator[_Block]:
    """The table's points, each block of one recording."""
    import numpy as np
    import pyarrow.parquet as pq

    name, threshold, before = None, None, None
    known = pq.ParquetFile(table)
    later = [_STRETCH] if _STRETCH in known.schema_arrow.names else []
    for batch in _batches(known, [*_COLUMNS, *later]):
        names, code_s = _codes(batch["recording"])
        second_s, score_s, labelled_s = _values(batch)
        stretch_s = _array(batch[_STRETCH]) if later else np.zeros(len(code_s), dtype=np.int64)
        threshold = float(batch["threshold"][0].as_py()) if threshold is None else threshold
        bounds = [0, *(np.flatnonzero(np.diff(code_s)) + 1).tolist(), len(code_s)]
        for first, last in pairwise(bounds):
            is_first, name = names[code_s[first]] != name, names[code_s[first]]
            before = None if is_first else before
            part = slice(first, last)
            points = _with_breaks(before, second_s[part], score_s[part], labelled_s[part], stretch_s[part])
            start = _clock(batch["time"][first].as_py(), second_s[first]) if is_first else None
            yield _Block(name, is_first, start, threshold, last - first, *points)
            before = second_s[last - 1], stretch_s[last - 1]


def _batches(known: Any, columns: Sequence[str]) -> Iterator[Any]:
    """Of a parquet file. Asked for all of its groups of rows at once, PyArrow keeps what it has read of each."""
    for group in range(known.num_row_groups):
        yield from known.iter_batches(_ROWS, row_groups=[group], columns=columns)


def _codes(recording: Any) -> tuple[list[str], np.ndarray]:
    """Names, and of each row which of them."""
    import pyarrow as pa

    if not pa.types.is_dictionary(recording.type):
        recording = recording.dictionary_encode()
    return recording.dictionary.to_pylist(), _array(recording.indices)


def _values(batch: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Seconds, scores, and whether a label says anomaly, of each row."""
    import numpy as np
    import pyarrow.compute as pc

    score_s = _array(batch["score"]).astype(np.float64)
    score_s[~np.isfinite(score_s)] = np.nan
    return _array(batch["seconds"]), score_s, _array(pc.fill_null(batch["label"], 0)) == 1


def _array(column: Any) -> np.ndarray:
    return column.to_numpy(zero_copy_only=False)


def _with_breaks(
    before: tuple[float, int] | None,
    second_n: np.ndarray,
    score_n: np.ndarray,
    labelled_n: np.ndarray,
    stretch_n: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Seconds, scores and labels, and where a stretch ends a score that nobody gave.

    before: second and stretch of the row before, if it is of the same recording.
    """
    import numpy as np

    second, stretch = before or (second_n[0], stretch_n[0])
    at = np.flatnonzero(np.diff(np.concatenate([[stretch], stretch_n])))
    middle = (np.concatenate([[second], second_n])[at] + second_n[at]) / 2
    return np.insert(second_n, at, middle), np.insert(score_n, at, np.nan), np.insert(labelled_n, at, False)


def _clock(time: Any, seconds: float) -> str | None:
    """The recording's clock at its start, from that of a score so many seconds later."""
    if time is None:
        return None
    from pandas import Timedelta, Timestamp

    return (Timestamp(time) - Timedelta(seconds=float(seconds))).isoformat(timespec="milliseconds")


# ---------------------------------------------------------------------------------------------------------- recordings
def _series(
    table: BinaryIO,
    recordings: Sequence[_Recording],
    threshold: float,
    stream: Stream,
    events: Sequence[AnomalyEvent],
    data: Path,
) -> Iterator[RecordingSeries]:
    """Reads the table once more: by now it is known which scores make a bin."""
    num_bins = max(FEWEST_BINS, min(MAX_BINS, MAX_TOTAL_BINS // len(recordings)))
    decimals = decimals_for(threshold, _SIGNIFICANT)
    blocks, parts = _blocks(table), 0
    for recording in recordings:
        bins = _Bins(recording, num_bins)
        points = _points_of(recording, blocks, bins)
        details = []
        if recording.points > num_bins:
            details = list(_write_parts(data, f"series/{stream}", parts, points, decimals))
            parts += len(details)
        for _ in points:  # what was not written
            pass
        t, low, high = bins.listed(decimals)
        yield RecordingSeries(
            name=recording.name,
            start=recording.start,
            points=recording.scores,
            t=t,
            low=low,
            high=high,
            labels=_stretches(recording.labelled),
            events=sorted(event.id for event in events if event.recording == recording.name),
            details=details,
        )


def _points_of(recording: _Recording, blocks: Iterator[_Block], bins: _Bins) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Seconds and scores of the next blocks, which are the recording's, on their way into bins."""
    left = recording.points
    while left:
        block = next(blocks)
        bins.add(block.second_n, block.score_n)
        left -= len(block.second_n)
        yield block.second_n, block.score_n


class _Bins:
    """Middle, lowest and highest of each bin; the longest pauses have bins of their own, so that the line breaks."""

    def __init__(self, recording: _Recording, most: int):
        import numpy as np

        points, num_bins = recording.points, min(most, recording.points)
        edge_e, before_e, at_e = recording.pauses.all()
        pause_p, end_p = edge_e[::2], edge_e[1::2]
        longest_p = np.argsort(-(at_e[1::2] - before_e[::2]), kind="stable")[: most // 4]
        first_b = np.union1d(
            np.arange(num_bins) * points // num_bins, np.concatenate([pause_p[longest_p], end_p[longest_p]])
        )
        self._first_b = first_b[first_b < points].astype(np.int64)
        self._last_b = np.append(self._first_b[1:], points) - 1
        self._from_b, self._to_b, self._low_b, self._high_b = np.full((4, len(self._first_b)), np.nan)
        self._points = 0

    def add(self, second_n: np.ndarray, score_n: np.ndarray) -> None:
        """The next points."""
        import numpy as np

        begin, end = self._points, self._points + len(second_n)
        touched = slice(*np.searchsorted(self._first_b, [begin, end - 1], side="right") - [1, 0])
        first_b, last_b = self._first_b[touched] - begin, self._last_b[touched] - begin
        for whole_b, ufunc in ((self._low_b, np.fmin), (self._high_b, np.fmax)):
            whole_b[touched] = ufunc(whole_b[touched], ufunc.reduceat(score_n, np.maximum(first_b, 0)))
        for whole_b, index_b in ((self._from_b, first_b), (self._to_b, last_b)):
            is_here = (index_b >= 0) & (index_b < len(second_n))
            whole_b[touched][is_here] = second_n[index_b[is_here]]
        self._points = end

    def listed(self, decimals: int) -> tuple[list[float], list[float | None], list[float | None]]:
        middle_b = (self._from_b + self._to_b) / 2
        return middle_b.round(_MICROSECONDS).tolist(), listed(self._low_b, decimals), listed(self._high_b, decimals)


def _stretches(inside: _Edges) -> list[tuple[float, float]]:
    """First and last second of each run of scores that are inside."""
    _, before_e, at_e = inside.all()
    bounds = zip(at_e[::2].tolist(), before_e[1::2].tolist(), strict=True)
    return [(round(first, _MICROSECONDS), round(last, _MICROSECONDS)) for first, last in bounds]


def _write_parts(
    data: Path, folder: str, number: int, points: Iterator[tuple[np.ndarray, np.ndarray]], decimals: int
) -> Iterator[SeriesPart]:
    """Every score, a file per stretch; written without validation, which would take longer than the rest."""
    for second_n, score_n in _in_parts(points):
        t, score = second_n.round(_MICROSECONDS).tolist(), listed(score_n, decimals)
        document = {"schema_version": SCHEMA_VERSION, "t": t, "score": score}
        file = f"{folder}/{number}.json"
        write_text(data / file, compact_json(document))
        yield SeriesPart(file=file, from_s=t[0], to_s=t[-1], points=len(t))
        number += 1


def _in_parts(points: Iterator[tuple[np.ndarray, np.ndarray]]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The same in parts of `POINTS_PER_PART`, and a rest."""
    import numpy as np

    second_n, score_n = np.empty(0), np.empty(0)
    for second_m, score_m in points:
        second_n, score_n = np.concatenate([second_n, second_m]), np.concatenate([score_n, score_m])
        while len(second_n) >= POINTS_PER_PART:
            yield second_n[:POINTS_PER_PART], score_n[:POINTS_PER_PART]
            second_n, score_n = second_n[POINTS_PER_PART:], score_n[POINTS_PER_PART:]
    if len(second_n):
        yield second_n, score_n
