"""Scores over time at two resolutions: bins, which are few and loaded first, and all scores in several files, for
zooming."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from core.config.schema import AnyConfig, Stream
from core.documents import SCHEMA_VERSION, explain
from core.numbers import decimals_for, listed
from core.thinning import runs_of
from core.workspace import compact_json, write_text
from inference.summary import ScoringPaths
from pipelines.dashboard.detail_documents import RecordingSeries, Series, SeriesPart
from pipelines.dashboard.state_documents import AnomalyEvent
from pipelines.problems import Problems, read_model

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

MAX_BINS = 2_000
# Limit for all recordings together.
MAX_TOTAL_BINS = 40_000
FEWEST_BINS = 50
POINTS_PER_PART = 50_000
_COLUMNS = ["recording", "segment", "time", "seconds", "score", "threshold", "label"]
# Names of columns in tables of earlier versions of Landfall; a column that a table does not have is not read.
_EARLIER_NAMES = {"stretch": "segment"}
_SIGNIFICANT = 5
# Series of an earlier format are created again.
_FORMAT = 2
# Base classes of Arrow's errors, without importing it.
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, NotImplementedError)
_MICROSECONDS = 6


@dataclass(frozen=True)
class _Recording:
    """The scores of a recording, with a NaN between two segments, so that the line is interrupted there.

    start: time stamp of the recording at second 0, or None. scores: number of its rows in the table.
    second_n, score_n: float64 (N,). labelled_n: bool (N,), true where the label says anomaly.
    """

    name: str
    start: str | None
    scores: int
    second_n: np.ndarray
    score_n: np.ndarray
    labelled_n: np.ndarray


def export_series(
    root: Path, config: AnyConfig, events: Sequence[AnomalyEvent], data: Path, problems: Problems
) -> str | None:
    """Writes the scores of a stream below `data`; returns the document's name, None if there is no readable table.
    Nothing is computed if table and events are those of the last export.
    """
    stream = config.stream
    source, name = ScoringPaths.of(config, root=root).scores, f"series/{stream}.json"
    try:
        table = source.open("rb")
    except FileNotFoundError:
        return None
    except OSError as error:
        problems.add(source, explain(error))
        return None
    with table:
        signature = _signature(table, events)
        known = read_model(data / name, Series, problems)
        is_current = known is not None and known.signature == signature
        if is_current and all((data / file).is_file() for file in detail_files(known)):
            return name
        try:
            threshold, recordings = _read(table)
        except _UNREADABLE as error:
            problems.add(source, explain(error))
            return None
        series = Series(
            stream=stream,
            threshold=threshold,
            recordings=list(_series(recordings, threshold, stream, events, data)),
            signature=signature,
        )
    write_text(data / name, series.model_dump_json() + "\n")
    return name


def detail_files(series: Series) -> Iterator[str]:
    """The detail files of a series."""
    return (part.file for recording in series.recordings for part in recording.details)


def _signature(table: BinaryIO, events: Sequence[AnomalyEvent]) -> str:
    facts = os.fstat(table.fileno())
    named = " ".join(f"{event.id}:{event.recording}" for event in events)
    return f"format {_FORMAT} {facts.st_size} {facts.st_mtime_ns} {named}"


def _read(table: BinaryIO) -> tuple[float, list[_Recording]]:
    """Threshold and recordings. Raises an error of `_UNREADABLE` for a file that is not a score table."""
    import pyarrow.parquet as pq

    scores = pq.ParquetFile(table).read([*_COLUMNS, *_EARLIER_NAMES]).to_pandas(split_blocks=True, self_destruct=True)
    scores = scores.rename(columns=_EARLIER_NAMES)
    if scores.empty:
        raise ValueError("contains no scores")
    by_recording = scores.groupby("recording", sort=False, observed=True)
    return float(scores["threshold"].iloc[0]), [_recording(str(name), rows) for name, rows in by_recording]


def _recording(name: str, rows: pd.DataFrame) -> _Recording:
    import numpy as np
    import pandas as pd

    second_n, score_n = rows["seconds"].to_numpy(), rows["score"].to_numpy().astype(np.float64)
    score_n[~np.isfinite(score_n)] = np.nan
    labelled_n = rows["label"].eq(1).fillna(False).to_numpy(dtype=bool)
    start, first = None, rows["time"].iloc[0]
    if not pd.isna(first):
        start = (pd.Timestamp(first) - pd.Timedelta(seconds=float(second_n[0]))).isoformat(timespec="milliseconds")
    ends = np.flatnonzero(np.diff(rows["segment"])) + 1
    middle = (second_n[ends - 1] + second_n[ends]) / 2
    return _Recording(
        name,
        start,
        len(rows),
        np.insert(second_n, ends, middle),
        np.insert(score_n, ends, np.nan),
        np.insert(labelled_n, ends, False),
    )


# ---------------------------------------------------------------------------------------------------------- recordings
def _series(
    recordings: Sequence[_Recording], threshold: float, stream: Stream, events: Sequence[AnomalyEvent], data: Path
) -> Iterator[RecordingSeries]:
    num_bins = max(FEWEST_BINS, min(MAX_BINS, MAX_TOTAL_BINS // len(recordings)))
    decimals, written = decimals_for(threshold, _SIGNIFICANT), 0
    for recording in recordings:
        details = []
        if len(recording.score_n) > num_bins:
            details = list(_write_parts(data, f"series/{stream}", written, recording, decimals))
            written += len(details)
        t_b, low_b, high_b = _bins(recording, num_bins)
        yield RecordingSeries(
            name=recording.name,
            start=recording.start,
            points=recording.scores,
            t=t_b.round(_MICROSECONDS).tolist(),
            low=listed(low_b, decimals),
            high=listed(high_b, decimals),
            labels=_labels(recording),
            events=sorted(event.id for event in events if event.recording == recording.name),
            details=details,
        )


def _bins(recording: _Recording, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Middle, minimum and maximum of each bin; the longest pauses are separate bins, where the line is interrupted."""
    import numpy as np

    second_n, score_n = recording.second_n, recording.score_n
    points = len(score_n)
    pause_p, end_p = runs_of(np.isnan(score_n))
    length_p = second_n[np.minimum(end_p, points - 1)] - second_n[np.maximum(pause_p - 1, 0)]
    longest_p = np.argsort(-length_p, kind="stable")[: most // 4]
    num_bins = min(most, points)
    equal_b = np.arange(num_bins) * points // num_bins
    first_b = np.union1d(equal_b, np.concatenate([pause_p[longest_p], end_p[longest_p]]))
    first_b = first_b[first_b < points]
    last_b = np.append(first_b[1:], points) - 1
    middle_b = (second_n[first_b] + second_n[last_b]) / 2
    return middle_b, np.fmin.reduceat(score_n, first_b), np.fmax.reduceat(score_n, first_b)


def _labels(recording: _Recording) -> list[tuple[float, float]]:
    """First and last second of each run of scores that are labelled anomalous."""
    first_r, stop_r = runs_of(recording.labelled_n)
    second_n = recording.second_n.round(_MICROSECONDS)
    return list(zip(second_n[first_r].tolist(), second_n[stop_r - 1].tolist(), strict=True))


def _write_parts(data: Path, folder: str, number: int, recording: _Recording, decimals: int) -> Iterator[SeriesPart]:
    """Every score, `POINTS_PER_PART` per file; written without validation, which would take most of the time."""
    for first in range(0, len(recording.score_n), POINTS_PER_PART):
        part = slice(first, first + POINTS_PER_PART)
        t = recording.second_n[part].round(_MICROSECONDS).tolist()
        document = {"schema_version": SCHEMA_VERSION, "t": t, "score": listed(recording.score_n[part], decimals)}
        file = f"{folder}/{number}.json"
        write_text(data / file, compact_json(document))
        yield SeriesPart(file=file, from_s=t[0], to_s=t[-1], points=len(t))
        number += 1
