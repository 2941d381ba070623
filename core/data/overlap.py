"""Which rows of its recordings a split has, so that another command can say whether it is given the same rows.

A recording is recognised by its values, not by its name: a copy, another format and a log that has grown since are the
same recording. Suffixes: k segment.
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

# Of a recording with time stamps so many rows are looked at, a power of two: it may have grown since.
_HEAD = 2**12


@dataclass(frozen=True)
class SharedRows:
    """Rows `start` to `stop` (exclusive) of a recording that two splits share."""

    recording: Recording
    start: int
    stop: int

    def __str__(self) -> str:
        return f"{self.start} to {self.stop} of {self.recording.file_id}"


def rows_of(windows: WindowSet) -> list[dict[str, Any]]:
    """For each recording that a split has rows of: how it is recognised (`head`, number of rows, and `sha256` of them;
    0 stands for all), and its half-open row ranges (`segments`), in order."""
    return [
        {**_identity(recording, _head_of(recording)), "segments": segments}
        for recording, segments in _segments(windows)
    ]


def shared_rows(before: Iterable[Mapping[str, Any]], windows: WindowSet) -> list[SharedRows]:
    """The rows of a split that are among those of another. before: what `rows_of` gave of that."""
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
    """Recordings of a split, and their row ranges; ranges that touch are one."""
    series = windows.series
    index_k = np.searchsorted(series.offsets_r, windows.stretches[:, 0], side="right") - 1
    for index in np.unique(index_k).tolist():
        mine_k2 = windows.stretches[index_k == index] - series.offsets_r[index]
        yield series.recordings[index], _united(mine_k2.tolist())


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
    """Of the first `head` rows with their time stamps; without time stamps of all values, for many may begin alike."""
    digest = hashlib.sha256(" ".join(recording.channels).encode())
    if head:
        digest.update(np.ascontiguousarray(recording.time_ns[:head]))
        digest.update(np.ascontiguousarray(recording.values_tc[:head]))
    else:
        for block in blocks(recording.values_tc):
            digest.update(np.ascontiguousarray(block))
    return {"head": head, "sha256": digest.hexdigest()}
