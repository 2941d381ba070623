"""Labels of a recording, for evaluation only: from a label file, otherwise from spans that a user labelled on the
dashboard, otherwise from the label of the complete file. Maintenance that a user labelled is always left out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from core.data.files import data_stem, is_present
from core.data.recording import NOT_A_TIME, NS_PER_S, Recording
from core.data.tables import read_table, time_column
from core.data.timestamps import parse_times
from core.errors import DataError

log = logging.getLogger(__name__)

_LABEL_COLUMNS = ("anomaly", "is_anomaly", "label", "is_fault", "fault")  # best first
_FAULT_COLUMN = "fault"
_MAINTENANCE = "maintenance"
_LABEL_SUFFIXES = (".labels.csv", ".labels.csv.gz")


def labels_of(recording: Recording) -> np.ndarray | None:
    """int8 (T,): 1 is anomalous, 0 normal, -1 maintenance that a user labelled; None if the recording has no label.

    A label file has one row per sensor row (`timestamp,anomaly`) or one per fault (`start,end[,fault]`: time stamps,
    or seconds from the start of the recording; both ends belong to the fault, an empty end is that of the recording).
    Rows are matched by time stamp where both files have them, so a cleaned recording keeps its labels.

    Raises DataError if the label file does not fit the recording.
    """
    label_t = _labels_of(recording)
    spans = [span for span in recording.labelled if span.label == _MAINTENANCE]
    if label_t is None or not spans:
        return label_t
    label_t = label_t.copy()
    for span in spans:
        label_t[slice(*recording.rows_of(span))] = -1
    return label_t


def _labels_of(recording: Recording) -> np.ndarray | None:
    path = label_file(recording.path)
    if path is None and any(span.label != _MAINTENANCE for span in recording.labelled):
        return _from_annotations(recording)
    if path is None:
        return None if recording.healthy is None else np.full(len(recording), not recording.healthy, dtype=np.int8)
    if "#" in recording.file_id:
        raise DataError("a set of records cannot have a label file", path=path, hint='write "label" into dataset.json')
    table = read_table(path).frame
    names = {name.lower(): name for name in table.columns}
    if {"start", "end"} <= names.keys():
        return _from_intervals(recording, table[names["start"]], table[names["end"]], path)
    column = next((names[name] for name in _LABEL_COLUMNS if name in names), None)
    if column is None:
        raise DataError(
            f"its columns are {', '.join(names)}", path=path, hint="write timestamp,anomaly or start,end[,fault]"
        )
    return _from_rows(recording, table, column, path)


def _from_annotations(recording: Recording) -> np.ndarray:
    """Rows that no fault covers count as normal."""
    label_t = np.zeros(len(recording), dtype=np.int8)
    for span in recording.labelled:  # the newest is last
        label_t[slice(*recording.rows_of(span))] = span.label == "fault"
    return label_t


def fault_names(recording: Recording, spans: Sequence[tuple[float, float]]) -> list[str | None]:
    """The most frequent value of the label file's column `fault` in each span; None without such a column or value.
    spans: (start, end) in seconds from the start of the recording."""
    path = label_file(recording.path)
    table = read_table(path).frame if path is not None else pd.DataFrame()
    names = {name.lower(): name for name in table.columns}
    if _FAULT_COLUMN not in names or pd.api.types.is_numeric_dtype(table[names[_FAULT_COLUMN]]):
        return [None] * len(spans)
    if {"start", "end"} <= names.keys():
        bounds = pd.concat([table[names["start"]], table[names["end"]]], ignore_index=True)
        first_ns, last_ns = _interval_times(recording, bounds, path).reshape(2, -1)
        last_ns = np.where(last_ns == NOT_A_TIME, np.iinfo(np.int64).max, last_ns)
    else:
        time, _ = time_column(table, "auto", path)
        if time is None:
            return [None] * len(spans)
        first_ns = last_ns = parse_times(time).time_ns
    fault = table[names[_FAULT_COLUMN]].astype("string").str.strip().replace("", pd.NA)
    found: list[str | None] = []
    for span in spans:
        begin_ns, end_ns = (int(recording.time_ns[0]) + round(seconds * NS_PER_S) for seconds in span)
        named = fault[(first_ns <= end_ns) & (last_ns >= begin_ns)].dropna()
        found.append(str(named.mode().iloc[0]) if len(named) else None)
    return found


def label_file(path: Path) -> Path | None:
    """The label file of a sensor file, if there is one: `a.labels.csv` or `a.labels.csv.gz` for `a.csv.gz`."""
    candidates = (path.with_name(data_stem(path) + suffix) for suffix in _LABEL_SUFFIXES)
    return next((candidate for candidate in candidates if is_present(candidate)), None)


def _from_rows(recording: Recording, table: pd.DataFrame, column: str, path: Path) -> np.ndarray:
    label_n = _zero_or_one(table[column], path)
    time, _ = time_column(table, "auto", path)
    times = parse_times(time) if time is not None else None
    if recording.time_source == "timestamp" and times is not None and times.source == "timestamp":
        by_time = _matched if recording.resampled_from_hz is None else _last_before
        return by_time(recording, times.time_ns, label_n, path)
    ratio, rate, tolerance = 1.0, "", 0.0
    if (from_hz := recording.resampled_from_hz) is not None:
        ratio, rate = recording.sampling_rate_hz / from_hz, f", resampled from {from_hz:g} Hz"
        tolerance = max(ratio, 1.0)
    if abs(len(label_n) * ratio - len(recording)) > tolerance:
        raise DataError(
            f"{len(label_n)} labels for {len(recording)} rows of {recording.file_id}{rate}",
            path=path,
            hint="give both files time stamps, or one label per row",
        )
    return label_n[np.minimum((np.arange(len(recording)) / ratio).astype(np.int64), len(label_n) - 1)]


def _last_before(recording: Recording, label_ns: np.ndarray, label_n: np.ndarray, path: Path) -> np.ndarray:
    """Labels of resampled rows: each is that of the last row measured at or before it."""
    order_n = np.argsort(label_ns, kind="stable")
    stamp_n, step_ns = label_ns[order_n], NS_PER_S / recording.resampled_from_hz
    outside_t = (recording.time_ns < stamp_n[0]) | (recording.time_ns > stamp_n[-1] + step_ns)
    if outside_t.any():
        raise DataError(
            f"{int(outside_t.sum())} of {len(recording)} rows of {recording.file_id} are outside of its time range",
            path=path,
            hint="label every row, or write intervals: start,end",
        )
    return label_n[order_n][np.searchsorted(stamp_n, recording.time_ns, side="right") - 1]


def _matched(recording: Recording, label_ns: np.ndarray, label_n: np.ndarray, path: Path) -> np.ndarray:
    """Labels by time stamp; a stamp labelled twice is anomalous if one of its labels is. Rows without a time get 0."""
    if np.array_equal(label_ns, recording.time_ns):
        return label_n
    stamp_ns, group_n = np.unique(label_ns, return_inverse=True)
    worst_n = np.zeros(len(stamp_ns), dtype=np.int8)
    np.maximum.at(worst_n, group_n, label_n)
    place_t = np.minimum(np.searchsorted(stamp_ns, recording.time_ns), len(stamp_ns) - 1)
    timed_t = recording.time_ns != NOT_A_TIME
    lost_t = timed_t & (stamp_ns[place_t] != recording.time_ns)
    if lost_t.any():
        first = int(np.argmax(lost_t))
        raise DataError(
            f"{int(lost_t.sum())} of {len(recording)} rows of {recording.file_id} have no label, first row {first + 1} "
            f"({np.datetime64(int(recording.time_ns[first]), 'ns')})",
            path=path,
            hint="label every row, or write intervals: start,end",
        )
    return np.where(timed_t, worst_n[place_t], 0).astype(np.int8)


def _zero_or_one(column: pd.Series, path: Path) -> np.ndarray:
    number_n = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    wrong_n = ~np.isin(number_n, (0, 1))
    if wrong_n.any():
        first = int(np.argmax(wrong_n))
        raise DataError(
            f"'{column.iloc[first]}' is neither 0 nor 1",
            path=path,
            row=first + 2,
            column=str(column.name),
            hint="write 0 or 1",
        )
    return number_n.astype(np.int8)


def _from_intervals(recording: Recording, start: pd.Series, end: pd.Series, path: Path) -> np.ndarray:
    if not len(start):
        return np.zeros(len(recording), dtype=np.int8)
    first_ns, last_ns = _interval_times(recording, pd.concat([start, end], ignore_index=True), path).reshape(2, -1)
    open_n = end.isna().to_numpy() & (last_ns == NOT_A_TIME)
    last_ns = np.where(open_n, np.iinfo(np.int64).max, last_ns)
    wrong_n = (first_ns == NOT_A_TIME) | (last_ns < first_ns)
    if wrong_n.any():
        row = int(np.argmax(wrong_n))
        raise DataError(
            f"'{start.iloc[row]}' to '{end.iloc[row]}' is not an interval",
            path=path,
            row=row + 2,
            hint="write start before end",
        )
    _warn_of_faults_elsewhere(recording, start, first_ns, last_ns, path)
    # A row is anomalous while more faults have started than ended; rows without a time are before every fault.
    started_t = np.searchsorted(np.sort(first_ns), recording.time_ns, side="right")
    ended_t = np.searchsorted(np.sort(last_ns), recording.time_ns, side="left")
    return (started_t > ended_t).astype(np.int8)


def _warn_of_faults_elsewhere(
    recording: Recording, start: pd.Series, first_ns: np.ndarray, last_ns: np.ndarray, path: Path
) -> None:
    """Logs faults without a row, which no event can find: their dates or time zone are often wrong."""
    time_t = recording.time_ns[recording.time_ns != NOT_A_TIME]
    empty_n = np.searchsorted(time_t, first_ns, side="left") >= np.searchsorted(time_t, last_ns, side="right")
    if not empty_n.any() or not time_t.size:
        return
    row, (begin, end) = int(np.argmax(empty_n)), (np.datetime64(int(each), "s") for each in time_t[[0, -1]] // NS_PER_S)
    log.warning(
        "%s: %d of %d faults contain no row of %s (%s to %s), the first is %r in row %d: compare dates and time zones",
        path.name, empty_n.sum(), len(empty_n), recording.file_id, begin, end, str(start.iloc[row]), row + 2,
    )  # fmt: skip


def _interval_times(recording: Recording, bounds: pd.Series, path: Path) -> np.ndarray:
    """int64 ns of starts and ends; numbers too small for an epoch are seconds from the start of the recording."""
    seconds = pd.to_numeric(bounds, errors="coerce")
    if seconds.notna().any() and seconds.abs().max() < 1e8:
        valid_ns = recording.time_ns[recording.time_ns != NOT_A_TIME]
        start_ns = int(valid_ns.min()) if valid_ns.size else 0
        second_n = seconds.to_numpy(dtype=np.float64, na_value=np.nan)
        offset_ns = np.rint(np.nan_to_num(second_n) * NS_PER_S).astype(np.int64)
        return np.where(np.isnan(second_n), NOT_A_TIME, start_ns + offset_ns)
    if recording.time_source != "timestamp":
        raise DataError(
            f"intervals are time stamps, but {recording.file_id} has none",
            path=path,
            hint="write start and end as seconds from the recording's start",
        )
    return parse_times(bounds).time_ns
