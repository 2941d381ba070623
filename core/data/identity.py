"""What a part of the data is made of, as digests: whether it is the same as in an earlier run, or what changed."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from core.data.recording import Recording
from core.data.windows import Series, WindowSet

_NAMED = 3


def digest_of_recording(recording: Recording) -> str:
    """That of the store, else of the values: a workspace may keep no store."""
    return recording.digest or hashlib.sha256(np.ascontiguousarray(recording.values_tc)).hexdigest()


def identity(windows: WindowSet) -> dict[str, Any]:
    """files: a digest for each that the part has rows of, by its name; windows: how many there are, and a digest of
    where in the files they begin."""
    series, index_w = windows.series, windows.recording_of()
    of_file: dict[str, list[str]] = defaultdict(list)
    for index in _recordings_of(windows, series):
        recording = series.recordings[index]
        of_file[recording.file_id.partition("#")[0]].append(digest_of_recording(recording))
    starts_w = windows.starts_w.numpy() - series.offsets_r[index_w]
    cut = hashlib.sha256(np.stack([index_w, starts_w]).astype(np.int64).tobytes())
    return {
        "files": {name: hashlib.sha256(json.dumps(found).encode()).hexdigest() for name, found in of_file.items()},
        "windows": [len(windows), cut.hexdigest()],
    }


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """In words, for two results of `identity`; nothing where they are the same."""
    old, new = before["files"], now["files"]
    yield from _told("gone", [name for name in old if name not in new])
    yield from _told("new", [name for name in new if name not in old])
    yield from _told("changed", [name for name in old if name in new and old[name] != new[name]])
    if before["windows"] != now["windows"]:
        yield f"{before['windows'][0]} windows became {now['windows'][0]}, or begin elsewhere"


def _told(what: str, names: Sequence[str]) -> Iterator[str]:
    if names:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        yield f"{what}: {', '.join(names[:_NAMED])}{more}"


def _recordings_of(windows: WindowSet, series: Series) -> list[int]:
    """Also of those too short for a window."""
    first_k = windows.stretches[:, 0]
    return np.unique(np.searchsorted(series.offsets_r, first_k, side="right") - 1).tolist()
