"""Scores over time in two depths: bins, few enough to load at once, and every score in parts, for those who zoom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
_SIGNIFICANT = 5
# Series of an earlier form are made anew.
_FORMAT = 2
# What Arrow's errors are, without importing it.
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, NotImplementedError)
_MICROSECONDS = 6


@dataclass(frozen=True)
class _Table:
    """The columns of a score table. Suffix s: a score.

    bounds: of each recording its first score, and the end. starts: of each recording its clock at second 0, or None.
    stretch_s: number of the rows without a gap; all alike where the table is older than that column.
    """

    names: Sequence[str]
    starts: Sequence[str | None]
    bounds: Sequence[int]
    second_s: np.ndarray
    score_s: np.ndarray
    labelled_s: np.ndarray
    stretch_s: np.ndarray
    threshold: float

    def recording(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Seconds, scores and labels from `first` to before `last`, and where a stretch ends a score that nobody gave:
        the line breaks there."""
        import numpy as np

        part = slice(first, last)
        second_n, at = self.second_s[part], np.flatnonzero(np.diff(self.stretch_s[part])) + 1
        middle = (second_n[at - 1] + second_n[at]) / 2
        return (
            np.insert(second_n, at, middle),
            np.insert(self.score_s[part], at, np.nan),
            np.insert(self.labelled_s[part], at, False),
        )


def export_series(
    root: Path, stream: Stream, events: Sequence[AnomalyEvent], data: Path, problems: Problems
) -> str | None:
    """Writes the scores of a stream below `data`; gives the document's name, None where there is no readable table.

    Nothing is computed where the last export saw the same table and events.
    """
    source, name = root / SCORES / f"{stream}_scores.parquet", f"series/{stream}.json"
    try:
        signature = _signature(source, events)
    except FileNotFoundError:
        return None
    known = read_model(data / name, Series, problems)
    if known is not None and known.signature == signature and all((data / file).is_file() for file in files_of(known)):
        return name
    try:
        table = _read(source)
    except _UNREADABLE as error:
        problems.add(source, explain(error))
        return None
    series = Series(
        stream=stream,
        threshold=table.threshold,
        recordings=list(_recordings(table, stream, events, data)),
        signature=signature,
    )
    write_text(data / name, series.model_dump_json() + "\n")
    return name


def files_of(series: Series) -> Iterator[str]:
    """The parts a series leads to."""
    return (part.file for recording in series.recordings for part in recording.details)


def _signature(source: Path, events: Sequence[AnomalyEvent]) -> str:
    """Raises FileNotFoundError."""
    facts = source.stat()
    named = " ".join(f"{event.id}:{event.recording}" for event in events)
    return f"format {_FORMAT} {facts.st_size} {facts.st_mtime_ns} {named}"


def _read(source: Path) -> _Table:
    """Raises an error of `_UNREADABLE` for a file that is no score table."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    with source.open("rb") as file:
        known = pq.ParquetFile(file)
        later = [_STRETCH] if _STRETCH in known.schema_arrow.names else []
        columns = known.read(columns=[*_COLUMNS, *later]).combine_chunks()
    if columns.num_rows == 0:
        raise ValueError("holds no scores")
    recording = columns["recording"].combine_chunks()
    if not pa.types.is_dictionary(recording.type):
        recording = recording.dictionary_encode()
    code_s = recording.indices.to_numpy(zero_copy_only=False)
    first = [0, *(np.flatnonzero(np.diff(code_s)) + 1).tolist()]
    second_s = columns["seconds"].to_numpy()
    score_s = columns["score"].to_numpy().astype(np.float64)
    score_s[~np.isfinite(score_s)] = np.nan
    names = recording.dictionary.to_pylist()
    return _Table(
        names=[names[code_s[at]] for at in first],
        starts=[_clock(columns["time"][at].as_py(), second_s[at]) for at in first],
        bounds=[*first, len(code_s)],
        second_s=second_s,
        score_s=score_s,
        labelled_s=pc.fill_null(columns["label"], 0).to_numpy() == 1,
        stretch_s=columns[_STRETCH].to_numpy() if later else np.zeros(len(code_s), dtype=np.int64),
        threshold=float(columns["threshold"][0].as_py()),
    )


def _clock(time: Any, seconds: float) -> str | None:
    """The recording's clock at its start, from that of a score so many seconds later."""
    if time is None:
        return None
    from pandas import Timedelta, Timestamp

    return (Timestamp(time) - Timedelta(seconds=float(seconds))).isoformat(timespec="milliseconds")


# ---------------------------------------------------------------------------------------------------------- recordings
def _recordings(table: _Table, stream: Stream, events: Sequence[AnomalyEvent], data: Path) -> Iterator[RecordingSeries]:
    bins = max(FEWEST_BINS, min(MAX_BINS, MAX_TOTAL_BINS // len(table.names)))
    decimals = decimals_for(table.threshold, _SIGNIFICANT)
    parts = 0
    for name, start, first, last in zip(table.names, table.starts, table.bounds, table.bounds[1:], strict=False):
        second_n, score_n, labelled_n = table.recording(first, last)
        details = []
        if len(score_n) > bins:
            details = list(_write_parts(data, f"series/{stream}", parts, second_n, score_n, decimals))
            parts += len(details)
        t, low, high = _bins(second_n, score_n, bins, decimals)
        yield RecordingSeries(
            name=name,
            start=start,
            points=last - first,
            t=t,
            low=low,
            high=high,
            labels=_stretches(second_n, labelled_n),
            events=sorted(event.id for event in events if event.recording == name),
            details=details,
        )


def _bins(
    second_n: np.ndarray, score_n: np.ndarray, bins: int, decimals: int
) -> tuple[list[float], list[float | None], list[float | None]]:
    """Middle, lowest and highest of each bin; the longest pauses have bins of their own, so that the line breaks."""
    import numpy as np

    first_b = np.arange(min(bins, len(score_n))) * len(score_n) // min(bins, len(score_n))
    pause_p, end_p = _runs(np.isnan(score_n))
    length_p = second_n[np.minimum(end_p, len(second_n) - 1)] - second_n[np.maximum(pause_p - 1, 0)]
    longest_p = np.argsort(-length_p, kind="stable")[: bins // 4]
    first_b = np.union1d(first_b, np.concatenate([pause_p[longest_p], end_p[longest_p]]))
    first_b = first_b[first_b < len(score_n)]
    last_b = np.append(first_b[1:], len(score_n)) - 1
    middle_b = (second_n[first_b] + second_n[last_b]) / 2
    low_b, high_b = (ufunc.reduceat(score_n, first_b) for ufunc in (np.fmin, np.fmax))
    return middle_b.round(_MICROSECONDS).tolist(), listed(low_b, decimals), listed(high_b, decimals)


def _stretches(second_n: np.ndarray, inside_n: np.ndarray) -> list[tuple[float, float]]:
    """First and last second of each run of scores that are inside."""
    first_r, end_r = _runs(inside_n)
    bounds = zip(second_n[first_r].tolist(), second_n[end_r - 1].tolist(), strict=True)
    return [(round(first, _MICROSECONDS), round(last, _MICROSECONDS)) for first, last in bounds]


def _runs(inside_n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each run of those inside begins, and where it is over."""
    import numpy as np

    edge_e = np.flatnonzero(np.diff(np.concatenate([[False], inside_n, [False]]).astype(np.int8)))
    return edge_e[::2], edge_e[1::2]


def _write_parts(
    data: Path, folder: str, number: int, second_n: np.ndarray, score_n: np.ndarray, decimals: int
) -> Iterator[SeriesPart]:
    """Every score, a file per stretch; written without validation, which would take longer than the rest."""
    for first in range(0, len(score_n), POINTS_PER_PART):
        part = slice(first, first + POINTS_PER_PART)
        t, score = second_n[part].round(_MICROSECONDS).tolist(), listed(score_n[part], decimals)
        document = {"schema_version": SCHEMA_VERSION, "t": t, "score": score}
        file = f"{folder}/{number}.json"
        write_text(data / file, compact_json(document))
        yield SeriesPart(file=file, from_s=t[0], to_s=t[-1], points=len(t))
        number += 1
