"""Which recordings are scored together: a recording with enough reference rows is scored per recording, all others are
scored as one group.

Machines differ, and so does one machine from day to day. A group has a key: the file id of a recording that is scored
per recording, or `POOLED`. Suffixes: n row, k segment, r recording, s score entry.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from core.data.segments import recording_at
from core.data.splits import SplitName
from core.data.windows import WindowSet

# The key of all recordings that are not scored per recording.
POOLED = ""
# Recordings with at least this many reference rows are scored per recording.
OWN_ROWS = 256

Membership = Callable[[np.ndarray], np.ndarray]


class Group(NamedTuple):
    """reference_k2: its reference segments (K, 2), in order. holds: computes which of given segments (K, 2) belong to
    the group, bool (K,)."""

    key: str
    reference_k2: np.ndarray
    holds: Membership


def recordings_in(windows: WindowSet) -> list[str]:
    """File ids of the recordings that have rows in a split, in order."""
    return [windows.series.recordings[index].file_id for index in windows.segments.recordings]


def scored_per_recording(reference: Iterable[WindowSet]) -> tuple[str, ...]:
    """File ids of the recordings with at least `OWN_ROWS` reference rows and a window of rows after them. The result
    for a recording does not depend on the other recordings."""
    rows: dict[int, int] = {}
    last: dict[int, int] = {}
    for windows in reference:
        series, segments = windows.series, windows.segments
        for index, (start, stop) in zip(segments.recording_k.tolist(), segments.rows_k2.tolist(), strict=True):
            rows[index] = rows.get(index, 0) + stop - start
            last[index] = max(last.get(index, 0), stop)
    return tuple(
        series.recordings[index].file_id
        for index, count in sorted(rows.items())
        if count >= OWN_ROWS and series.offsets_r[index + 1] - last[index] >= windows.window
    )


def groups(reference: Collection[WindowSet], own_past: Collection[str]) -> list[Group]:
    """A group for each recording that is scored per recording; if there is none, one group of all recordings."""
    series = next(iter(reference)).series
    reference_k2 = np.concatenate([split.segments.rows_k2 for split in reference])
    reference_k2 = reference_k2[np.argsort(reference_k2[:, 0])]
    place = {recording.file_id: index for index, recording in enumerate(series.recordings)}
    everyone = np.arange(len(series.offsets_r) - 1)

    def group(key: str, members: np.ndarray) -> Group:
        def holds(segments_k2: np.ndarray) -> np.ndarray:
            return np.isin(recording_at(series.offsets_r, segments_k2[:, 0]), members)

        return Group(key, reference_k2[holds(reference_k2)], holds)

    return [group(key, np.array([place[key]])) for key in own_past] or [group(POOLED, everyone)]


def reference_of(splits: Mapping[SplitName, WindowSet]) -> dict[SplitName, WindowSet]:
    """The splits with reference data: all except `test`."""
    return {name: split for name, split in splits.items() if name != "test"}


def keys_of(windows: WindowSet, own_past: Collection[str]) -> list[str]:
    """The key of the group of each segment of a split, K keys. own_past: file ids of the recordings that are scored per
    recording."""
    recordings = windows.series.recordings
    names = (recordings[index].file_id for index in windows.segments.recording_k)
    return [name if name in own_past else POOLED for name in names]
