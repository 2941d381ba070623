"""The table of scores, the source of files, events, metrics and figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from core.data.blocks import release_pages
from core.data.labels import labels_of
from core.data.recording import NS_PER_S
from core.data.segments import recording_at
from core.data.windows import Series, WindowSet
from core.thinning import equal_runs
from inference.detector.split_scores import SplitScores
from inference.false_alarms import CalibrationSample

_LINES_AT_A_TIME = 2**17


def score_table(scores: SplitScores, windows: WindowSet, *, channels: Sequence[str], threshold: float) -> pd.DataFrame:
    """One line per score, in order of recording and row.

    windows: of the split, whose segments are in order and contain all scores.
    Columns: recording: file id · row: row in the recording, for a window its last row · segment: number of the
    segment · time: datetime64[ns], missing if the file has no time stamps · seconds: from the recording's start ·
    score: float32, NaN where unscored · threshold · alarm: score above the threshold ·
    label: 1 if at least half of the rows of an entry are anomalous, else 0; missing if the recording has no labels, and
    during maintenance · top_channel: the channel with the largest error.

    Raises DataError for a label file that does not fit its recording.
    """
    series = windows.series
    recording_s = recordings_of(series, scores.row_s)
    time_s = times_of(series, scores.row_s)
    start_r = start_times_of(series)
    stamped_r = np.array([recording.time_source == "timestamp" for recording in series.recordings])
    label_s = _labels(series, scores.row_s, scores.rows_per_entry)
    return pd.DataFrame(
        {
            "recording": pd.Categorical.from_codes(recording_s, [each.file_id for each in series.recordings]),
            "row": scores.row_s - series.offsets_r[recording_s],
            "segment": windows.segments.at(scores.row_s),
            "time": np.where(stamped_r[recording_s], time_s.view("datetime64[ns]"), np.datetime64("NaT", "ns")),
            "seconds": (time_s - start_r[recording_s]) / NS_PER_S,
            "score": scores.score_s,
            "threshold": threshold,
            "alarm": scores.score_s > threshold,
            "label": label_s,
            "top_channel": pd.Categorical.from_codes(scores.top_channel_s, list(channels)),
        }
    )


def ranked_recordings(table: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    """A row for each recording of a score table, the least normal first: `median` and `highest` score as multiples of
    the threshold, the share of `alarms`, and the number of `events`. Recordings without a score are last."""
    ratio = table["score"] / table["threshold"]
    of_recording = table.assign(ratio=ratio).groupby("recording", observed=True, sort=False)
    found = of_recording["ratio"].agg(median="median", highest="max")
    found["alarms"] = of_recording["alarm"].mean()
    found["events"] = events.groupby("recording", observed=True).size().reindex(found.index, fill_value=0)
    return found.sort_values(["median", "highest"], ascending=False, kind="stable").reset_index()


def sample_of(table: pd.DataFrame, *, span: int) -> CalibrationSample:
    """The scores of a table, without NaN, in order of time. span: smoothing span of the scores."""
    known = table[table["score"].notna()]
    segment_n, second_n = known["segment"].to_numpy(), known["seconds"].to_numpy()
    step = median_step(second_n, segment_n) or None
    return CalibrationSample(known["score"].to_numpy(), segment_n, seconds_per_score=step, span=span)


def median_step(time_n: np.ndarray, segment_n: np.ndarray) -> float | None:
    """The median time between neighbouring scores of the same segment, or of the same recording if `segment_n` is its
    index; None without such a pair."""
    step_m = np.diff(time_n)[np.diff(segment_n) == 0]
    return float(np.median(step_m)) if len(step_m) else None


def write_scores(table: pd.DataFrame, path: Path) -> None:
    """Writes a parquet file, a group of lines at a time, because the writer copies them in memory."""
    schema = pa.Schema.from_pandas(table, preserve_index=False)
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, len(table), _LINES_AT_A_TIME):
            lines = table.iloc[first : first + _LINES_AT_A_TIME]
            writer.write_table(pa.Table.from_pandas(lines, schema=schema, preserve_index=False))


def times_of(series: Series, row_s: np.ndarray) -> np.ndarray:
    """`time_ns` of rows of a series, grouped by recording: int64 (S,)."""
    time_s = np.empty(len(row_s), dtype=np.int64)
    for index, mine in _by_recording(series, row_s):
        time_ns = series.recordings[index].time_ns
        time_s[mine] = time_ns[row_s[mine] - series.offsets_r[index]]
        release_pages(time_ns)
    return time_s


def start_times_of(series: Series) -> np.ndarray:
    """`time_ns` of the first row of each recording, 0 if it has no rows: int64 (R,)."""
    return np.array([recording.time_ns[0] if len(recording) else 0 for recording in series.recordings])


def _labels(series: Series, row_s: np.ndarray, span: int) -> pd.arrays.IntegerArray:
    """Nullable Int8 (S,). Only labels of recordings that have scores are read."""
    anomalous_s, unknown_s = np.zeros(len(row_s), dtype=np.int8), np.ones(len(row_s), dtype=bool)
    for index, mine in _by_recording(series, row_s):
        label_t = labels_of(series.recordings[index])
        if label_t is not None:
            row_n = row_s[mine] - series.offsets_r[index] + 1

            def count(is_t: np.ndarray, row_n: np.ndarray = row_n) -> np.ndarray:
                before_t = np.append(0, np.cumsum(is_t))
                return before_t[row_n] - before_t[row_n - span]

            anomalous_s[mine] = 2 * count(label_t == 1) >= span
            unknown_s[mine] = count(label_t < 0) > 0
    return pd.arrays.IntegerArray(anomalous_s, unknown_s)


def _by_recording(series: Series, row_s: np.ndarray) -> Iterator[tuple[int, slice]]:
    """The index of each recording with rows in `row_s`, and the slice of `row_s` with its rows. `row_s` must be grouped
    by recording."""
    recording_s = recordings_of(series, row_s)
    return ((int(recording_s[first]), slice(first, stop)) for first, stop in equal_runs(recording_s))


def recordings_of(series: Series, row_s: np.ndarray) -> np.ndarray:
    """Index of each row's recording: int32 (S,)."""
    return recording_at(series.offsets_r, row_s).astype(np.int32)
