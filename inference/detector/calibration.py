"""Calibration data in halves, so that what is fitted to one half is tested on the other.

Suffixes: s score entry, k segment, w window.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from core.data.segments import lengths_of
from core.data.windows import WindowSet
from inference.detector.score_table import recordings_of, start_times_of
from inference.entries import SplitErrors


def second_half(windows: WindowSet, errors: SplitErrors, own_past: Collection[str]) -> np.ndarray:
    """Which entries of the calibration split belong to its second half: bool (S,).

    For each recording that is scored per recording: its second half. For the others: the newer files, because new data
    comes in complete files; if there is only one file, its second half.
    own_past: file ids of the recordings that are scored per recording.
    """
    series = windows.series
    recording_s = recordings_of(series, errors.row_s)
    second_s = np.zeros(len(recording_s), dtype=bool)
    paths = {}  # a file may hold many recordings, which are similar
    others = []
    for index in np.unique(recording_s):
        recording = series.recordings[index]
        if recording.file_id in own_past:
            _cut(second_s, recording_s == index)
        else:
            others.append(index)
            paths.setdefault(recording.path, []).append(index)
    if not others:
        return second_s
    mine_s = np.isin(recording_s, others)
    if len(paths) < 2:
        _cut(second_s, mine_s)
        return second_s
    start_r = start_times_of(series)
    files = sorted(paths.values(), key=lambda indices: start_r[indices[0]])
    size_f = np.array([np.isin(recording_s, indices).sum() for indices in files])
    first = int(np.argmin(np.abs(np.cumsum(size_f)[:-1] - size_f.sum() / 2))) + 1
    second_s |= np.isin(recording_s, np.concatenate(files[first:]))
    return second_s


def _cut(second_s: np.ndarray, mine_s: np.ndarray) -> None:
    """Marks the second half of the entries."""
    entries = np.flatnonzero(mine_s)
    second_s[entries[len(entries) // 2 :]] = True


def restricted(windows: WindowSet, errors: SplitErrors, chosen_s: np.ndarray) -> tuple[WindowSet, SplitErrors]:
    """A split restricted to some of its entries, with the errors of these. chosen_s: bool (S,)."""
    if errors.rows_per_entry > 1:  # windows
        windows = windows.subset(np.flatnonzero(chosen_s))
        segment_s = windows.file_of()
    else:
        row_m = errors.row_s[chosen_s]
        ends = (np.diff(row_m) != 1) | (np.diff(errors.segment_s[chosen_s]) != 0)
        first_k = np.concatenate([[0], np.flatnonzero(ends) + 1])
        segments_k2 = np.stack([row_m[first_k], row_m[np.append(first_k[1:], len(row_m)) - 1] + 1], axis=1)
        segment_s = np.repeat(np.arange(len(segments_k2)), lengths_of(segments_k2))
        windows = _inside(windows, replace(windows, segments_k2=segments_k2), windows.window)
    error_sc = None if errors.error_sc is None else errors.error_sc[chosen_s]
    return windows, replace(errors, error_sc=error_sc, row_s=errors.row_s[chosen_s], segment_s=segment_s)


def windows_ending_in(windows: WindowSet, half: WindowSet) -> WindowSet:
    """One half of a split, with all windows of the split whose newer half is in it. These are more windows than those
    that are completely inside. For scores of process sensors that do not look ahead."""
    return _inside(windows, half, windows.window // 2)


def _inside(windows: WindowSet, part: WindowSet, rows: int) -> WindowSet:
    """`part` of a split with those of its windows whose last `rows` rows are in one segment of the part."""
    segments, stop_w = part.segments, windows.starts_w + windows.window
    segment_w = np.clip(segments.at(stop_w - 1), 0, None)
    inside_w = (stop_w - rows >= segments.start_k[segment_w]) & (stop_w <= segments.stop_k[segment_w])
    return replace(part, starts_w=windows.starts_w[inside_w])
