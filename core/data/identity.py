"""Digests of the data of a split, to find out whether it is that of an earlier run, and what changed."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from core.data.recording import Recording
from core.data.windows import WindowSet
from core.workspace import json_digest

_LISTED = 3


def digest_of_recording(recording: Recording) -> str:
    """The digest of the store, or of the values where the workspace has no store."""
    return recording.digest or hashlib.sha256(np.ascontiguousarray(recording.values_tc)).hexdigest()


def identity(windows: WindowSet) -> dict[str, Any]:
    """files: a digest of each file that the split has rows of, by its name; windows: how many there are, and a digest
    of their first rows."""
    of_file: dict[str, list[str]] = defaultdict(list)
    for index in windows.segments.recordings:
        recording = windows.series.recordings[index]
        of_file[recording.file_id.partition("#")[0]].append(digest_of_recording(recording))
    starts = hashlib.sha256(np.stack([windows.recording_of(), windows.local_starts()]).astype(np.int64).tobytes())
    return {
        "files": {name: json_digest(found) for name, found in of_file.items()},
        "windows": [len(windows), starts.hexdigest()],
    }


def digest_of_split(windows: WindowSet) -> str:
    """One digest of the rows and windows of a split: fingerprints of its recordings, its ranges in them, and the starts
    of its windows. It does not depend on the paths of the files."""
    segments, recordings = windows.segments, windows.series.recordings
    made_of = {  # the keys are part of the digest in stored detectors
        "recordings": [digest_of_recording(recordings[index]) for index in segments.recordings],
        "stretches": segments.local_k2.tolist(),
        "window": windows.window,
        "starts": hashlib.sha256(windows.local_starts().tobytes()).hexdigest(),
    }
    return hashlib.sha256(json.dumps(made_of).encode("utf-8")).hexdigest()


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """The differences of two results of `identity`, in words."""
    old, new = before["files"], now["files"]
    yield from _named("removed", [name for name in old if name not in new])
    yield from _named("new", [name for name in new if name not in old])
    yield from _named("changed", [name for name in old if name in new and old[name] != new[name]])
    if before["windows"] != now["windows"]:
        yield f"{before['windows'][0]} windows became {now['windows'][0]}, or start at other rows"


def _named(what: str, names: Sequence[str]) -> Iterator[str]:
    if names:
        more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        yield f"{what}: {', '.join(names[:_LISTED])}{more}"
