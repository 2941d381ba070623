"""The rows of a split, stored so that another command can find out whether it gets the same rows.

A recording is identified by its values, not by its name: a copy, another format and a log that has grown since are the
same recording.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.data.blocks import blocks
from core.data.recording import Recording
from core.data.windows import WindowSet

# Rows at the start that identify a recording with time stamps, a power of two: it may have grown since.
_HEAD = 2**12


@dataclass(frozen=True)
class SharedRows:
    """Rows `start` to `stop` (exclusive) of a recording that two splits share."""

    recording: Recording
    start: int
    stop: int

    def __str__(self) -> str:
        return f"{self.start} to {self.stop} of {self.recording.file_id}"


def row_ranges(windows: WindowSet) -> list[dict[str, Any]]:
    """For each recording that a split has rows of: its identity (`head`, a number of rows or 0 for all, and `sha256` of
    them), and the half-open row ranges (`segments`), in order."""
    return [
        {**_identity(recording, _head_of(recording)), "segments": segments}
        for recording, segments in _segments(windows)
    ]


def shared_rows(before: Iterable[Mapping[str, Any]], windows: WindowSet) -> list[SharedRows]:
    """The rows of a split that are also in another. before: what `row_ranges` returned for that one."""
    known: dict[tuple[int, str], list[list[int]]] = defaultdict(list)
    for entry in before:
        known[entry["head"], entry["sha256"]] += entry["segments"]
    heads = sorted({head for head, _ in known})
    found = []
    for recording, segments in _segments(windows):
        usable = [head for head in heads if head <= len(recording) and (head > 0) == _is_stamped(recording)]
        identities = [_identity(recording, head) for head in usable]
        others = [segment for each in identities for segment in known.get((each["head"], each["sha256"]), ())]
        found += [SharedRows(recording, start, stop) for start, stop in _intersection(segments, others)]
    return found


def _segments(windows: WindowSet) -> Iterator[tuple[Recording, list[list[int]]]]:
    """Recordings of a split, and their row ranges; ranges that touch are joined."""
    segments = windows.segments
    for index in segments.recordings:
        yield windows.series.recordings[index], _united(segments.local_k2[segments.recording_k == index].tolist())


def _united(ranges: Iterable[list[int]]) -> list[list[int]]:
    united: list[list[int]] = []
    for start, stop in sorted(ranges):
        if united and start <= united[-1][1]:
            united[-1][1] = max(stop, united[-1][1])
        else:
            united.append([start, stop])
    return united


def _intersection(one: Iterable[list[int]], other: Iterable[list[int]]) -> list[list[int]]:
    others = _united(other)
    both = ([max(start, first), min(stop, last)] for start, stop in one for first, last in others)
    return _united([start, stop] for start, stop in both if start < stop)


def _is_stamped(recording: Recording) -> bool:
    return recording.time_source == "timestamp"


def _head_of(recording: Recording) -> int:
    return min(_HEAD, 2 ** (len(recording).bit_length() - 1)) if _is_stamped(recording) else 0


def _identity(recording: Recording, head: int) -> dict[str, Any]:
    """The digest of the first `head` rows with their time stamps; without time stamps, of all rows, because several
    recordings may begin with equal values."""
    digest = hashlib.sha256(" ".join(recording.channels).encode())
    if head:
        digest.update(np.ascontiguousarray(recording.time_ns[:head]))
        digest.update(np.ascontiguousarray(recording.values_tc[:head]))
    else:
        for block in blocks(recording.values_tc):
            digest.update(np.ascontiguousarray(block))
    return {"head": head, "sha256": digest.hexdigest()}
