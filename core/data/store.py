"""What was read from each sensor file, kept as memory-mapped float32, so that a file is parsed once.

An entry is addressed by what it was made of: the file's bytes, what the JSON beside it says, and the settings its
reader obeys. So no entry is ever out of date, a copy of a file shares its entry, and deleting the folder costs nothing
but time. Series too long for memory lie here too, and the scalers fitted on them.

    <store>/files/<digest of a path>.json      the digest of that file's bytes, and the size and times it had
    <store>/readings/<digest>/                 an entry (`core.data.entries`): values.npy (N, C), times.npy (N,)
    <store>/series/<digest>/                   an entry: several recordings back to back, values.npy (N, C)
    <store>/scalers/<digest>.json
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from core.config.schema import AnyConfig
from core.data.blocks import IN_MEMORY, as_one, lie_back_to_back
from core.data.dialects import sniff
from core.data.entries import UNREADABLE, read_entry, read_json, sha256_of, state_of, write_entry
from core.data.files import (
    PLAIN_TEXT_SUFFIXES,
    data_suffix,
    ends_in_nul,
    facts_of,
    refuse_foreign,
    refuse_large,
)
from core.data.quality import cleaned, measure
from core.data.recording import Recording
from core.data.resampling import resampled
from core.data.sampling import even_times
from core.data.scaling import Scaler
from core.errors import DataError
from core.numbers import size_in_words
from core.redaction import redacted_text
from core.workspace import relative, write_json

log = logging.getLogger(__name__)

# Counts up whenever readers, mending or metrics change what they give for the same file.
VERSION = 5

# A file written less than this before it was digested may be written again without a change of its times.
_SETTLED_NS = 2 * 10**9
_VALUES, _TIMES = "values.npy", "times.npy"


@dataclass(frozen=True)
class Reading:
    """One sensor file as it was read.

    recordings: mended (`core.data.quality.cleaned`) and, where asked for, resampled. metrics: what quality measured
    before that; None where it was not asked to.
    """

    recordings: tuple[Recording, ...]
    metrics: dict[str, Any] | None


class Store:
    """Reads sensor files through the store in `folder`; without one, reads them anew each time."""

    def __init__(self, folder: Path | None, *, limit_gb: float = 20.0):
        self.folder, self.limit_bytes = folder, limit_gb * 1e9
        self.num_known = 0
        self._added = self._failed = False

    @classmethod
    def of(cls, config: AnyConfig, root: Path) -> Store:
        folder = config.data.store_dir
        return cls(root / folder if folder else None, limit_gb=config.data.store_gb)

    # ------------------------------------------------------------------------------------------------------ recordings
    def read(self, path: Path, *, root: Path, config: AnyConfig) -> Reading:
        """The recordings of a file, with ids relative to `root`. Raises DataError as `read_recordings` does."""
        if self.folder is None or not path.is_file():
            return _read(path, root, config, None)
        self._refuse_unusable(path)
        before = state_of(path)
        digest = self._digest(path, config)
        entry = self.folder / "readings" / digest
        reading = _load(entry, path, root, digest)
        if reading is not None:
            self.num_known += 1
            return reading
        reading = _read(path, root, config, self.room())
        if any(map(len, reading.recordings)):
            with self._keeping("what was read"):
                if state_of(path) != before:
                    log.warning("%s was written to while it was read: what was read is not kept", path)
                    return reading
                _keep(reading, entry, is_set=reading.recordings[0].file_id != relative(path, root))
                self._added = True
                return _load(entry, path, root, digest) or reading
        return reading

    def _refuse_unusable(self, path: Path) -> None:
        """Raises DataError for a file that need not be digested: it takes minutes where a file is large."""
        refuse_foreign(path)
        if data_suffix(path) in PLAIN_TEXT_SUFFIXES and ends_in_nul(path):
            sniff(path, self.room())  # finds the row
        num_bytes = path.stat().st_size
        # What was configured before what the disk has left: whoever raises the one learns of both at once.
        if num_bytes > max(self.limit_bytes, IN_MEMORY):
            raise DataError(
                f"takes {size_in_words(num_bytes)}, more than the {size_in_words(self.limit_bytes)} the store may hold",
                path=path,
                hint="raise data.store_gb, on a disk with as much room (data.store_dir names it), or split the file by "
                "time; data.parts takes globs",
            )
        refuse_large(path, num_bytes, self.room())

    def room(self) -> Path | None:
        """Where what is longer than memory lies while it is read; None where nothing can be written."""
        if self.folder is None:
            return None
        with self._keeping("what is read"):
            self.folder.mkdir(parents=True, exist_ok=True)
            return self.folder if os.access(self.folder, os.W_OK) else None
        return None

    def _digest(self, path: Path, config: AnyConfig) -> str:
        """Of everything that decides what is read from a file."""
        data = config.data
        made_of = {
            "version": VERSION,
            "bytes": self.digest_of_bytes(path),
            "suffix": data_suffix(path),
            "facts": facts_of(path),
            "stream": config.stream,
            "reader": data.model_dump(
                mode="json",
                include={"timestamp", "channels", "exclude", "sampling_rate_hz", "resample_hz", "gap_factor"},
            ),
            "measured": config.dqvl.enabled,
        }
        return _digest_of(made_of)

    def digest_of_bytes(self, path: Path) -> str:
        """SHA-256 of a file: known from an earlier time, if the file has the size and the times it had then."""
        if self.folder is None:
            return sha256_of(path)
        full = path.resolve()
        record = self.folder / "files" / f"{_digest_of(str(full))}.json"
        state = state_of(full)
        known = read_json(record)
        if known is not None and known.get("state") == state and known.get("settled"):
            return str(known["sha256"])
        digest = sha256_of(full)
        settled = time.time_ns() - state["modified_ns"] > _SETTLED_NS and state_of(full) == state
        with self._keeping("the digest of a file"):
            write_json(record, {"path": redacted_text(str(full)), "state": state, "settled": settled, "sha256": digest})
        return digest

    # --------------------------------------------------------------------------------------------------------- series
    def joined(self, recordings: Sequence[Recording]) -> np.ndarray:
        """The values of all recordings, one after the other, float32 (N, C).

        Not copied where they lie like that already, as those of one file do; on disk where they would fill memory.
        """
        values = [recording.values_tc for recording in recordings]
        if lie_back_to_back(values) or sum(part.nbytes for part in values) <= IN_MEMORY:
            return as_one(values, None)
        digests = [recording.digest for recording in recordings]
        if self.folder is None or not all(digests):
            return as_one(values, self.room())
        entry = self.folder / "series" / _digest_of(digests)
        if not entry.is_dir():
            log.info("joining %d recordings of %.1f GB on disk, once", len(values), sum(v.nbytes for v in values) / 1e9)
            with self._keeping("the joined recordings"):
                write_entry(entry, {_VALUES: values}, {})
                self._added = True
        try:
            values_nc = read_entry(entry)[1][_VALUES]
        except UNREADABLE as error:
            log.warning("the joined recordings %s cannot be read (%s): joining them anew", entry.name[:12], error)
            _delete(entry)
            return as_one(values, self.room())
        _mark_used(entry)
        return values_nc

    def scaler(
        self, fit: Callable[[], Scaler], *, rows: Sequence[tuple[Recording, int, int]], **settings: Any
    ) -> Scaler:
        """What `fit` gives for some rows of recordings, from an earlier time if it was asked for the same."""
        if self.folder is None or not all(recording.digest for recording, _, _ in rows):
            return fit()
        made_of = [VERSION, [(recording.digest, start, stop) for recording, start, stop in rows], settings]
        path = self.folder / "scalers" / f"{_digest_of(made_of)}.json"
        known = read_json(path)
        if known is not None:
            return Scaler.from_dict(known)
        scaler = fit()
        with self._keeping("the scaler"):
            write_json(path, scaler.to_dict())
        return scaler

    # ------------------------------------------------------------------------------------------------------- the folder
    def forget_oldest(self) -> None:
        """Deletes what was not used for longest, until the store is below its limit; only after it has grown."""
        if not self._added:
            return
        kept = [path for kind in ("readings", "series") for path in (self.folder / kind).glob("[!.]*")]
        sizes, last_use = {}, {}
        for path in kept:
            with suppress(FileNotFoundError):  # another process forgets, too
                sizes[path], last_use[path] = _size_of(path), path.stat().st_mtime
        too_many = sum(sizes.values()) - self.limit_bytes
        for path in sorted(last_use, key=last_use.get):
            if too_many <= 0:
                break
            log.info(
                "the store %s is full: forgetting %s (%.1f MB); data.store_gb lets it keep more",
                self.folder, path.name[:12], sizes[path] / 1e6,
            )  # fmt: skip
            _delete(path)
            too_many -= sizes[path]

    @contextmanager
    def _keeping(self, what: str) -> Iterator[None]:
        """The store is a convenience: a full disk or a folder nobody may write to is told once, and stops nothing."""
        try:
            yield
        except OSError as error:
            level = logging.DEBUG if self._failed else logging.WARNING
            log.log(level, "%s is not kept in %s: %s; data.store_dir names another place", what, self.folder, error)
            self._failed = True


# ---------------------------------------------------------------------------------------------------------- one reading
def _read(path: Path, root: Path, config: AnyConfig, folder: Path | None) -> Reading:
    from core.data.readers import read_recordings  # brings pandas, which a known file does not need

    found = read_recordings(path, root=root, stream=config.stream, settings=config.data, folder=folder)
    metrics = None
    if config.dqvl.enabled:
        whole = _as_one(found, folder)
        metrics = measure(whole, stream=config.stream, gap_factor=config.data.gap_factor, folder=folder)
    mended = tuple(cleaned(recording, folder) for recording in found)
    if config.data.resample_hz is not None and config.stream == "swinmae":
        rate_hz, gap_factor = config.data.resample_hz, config.data.gap_factor
        mended = tuple(resampled(recording, rate_hz, gap_factor=gap_factor, folder=folder) for recording in mended)
    return Reading(mended, metrics)


def _as_one(found: Sequence[Recording], folder: Path | None) -> Recording:
    """The records of a set as one recording, so that a file has one quality report."""
    if len(found) == 1:
        return found[0]
    values_tc = as_one([recording.values_tc for recording in found], folder)
    rate_hz = found[0].sampling_rate_hz or 1.0
    return replace(found[0], values_tc=values_tc, time_ns=even_times(len(values_tc), rate_hz, folder=folder))


def _keep(reading: Reading, entry: Path, *, is_set: bool) -> None:
    """Writes an entry; one that another process has written meanwhile stays."""
    shared = reading.recordings[0]
    write_entry(
        entry,
        {
            _VALUES: [recording.values_tc for recording in reading.recordings],
            _TIMES: [recording.time_ns for recording in reading.recordings],
        },
        {
            "channels": shared.channels,
            "sampling_rate_hz": shared.sampling_rate_hz,
            "resampled_from_hz": shared.resampled_from_hz,
            "time_source": shared.time_source,
            "healthy": shared.healthy,
            "rows": [len(recording) for recording in reading.recordings],
            "notes": [recording.notes for recording in reading.recordings],
            "is_set": is_set,
            "metrics": reading.metrics,
        },
    )


def _load(entry: Path, path: Path, root: Path, digest: str) -> Reading | None:
    """What an entry holds, memory-mapped; None where there is none, or none that is whole."""
    if not entry.is_dir():
        return None
    try:
        told, arrays = read_entry(entry)
        values_nc, time_n = arrays[_VALUES], arrays[_TIMES]
        offsets_r = np.cumsum([0, *told["rows"]])
        if not len(values_nc) == len(time_n) == offsets_r[-1]:
            raise ValueError("its arrays have other lengths than it says")
        name = relative(path, root)
        recordings = tuple(
            Recording(
                file_id=f"{name}#{number}" if told["is_set"] else name,
                path=path,
                values_tc=values_nc[start:stop],
                time_ns=time_n[start:stop],
                channels=tuple(told["channels"]),
                sampling_rate_hz=told["sampling_rate_hz"],
                resampled_from_hz=told["resampled_from_hz"],
                time_source=told["time_source"],
                healthy=told["healthy"],
                notes=tuple(told["notes"][number]),
                digest=f"{digest}#{number}",
            )
            for number, (start, stop) in enumerate(pairwise(offsets_r.tolist()))
        )
        _mark_used(entry)
    except UNREADABLE as error:
        log.warning("the entry %s of the store cannot be read (%s): reading %s anew", entry.name[:12], error, path)
        _delete(entry)
        return None
    return Reading(recordings, told["metrics"])


# ---------------------------------------------------------------------------------------------------------------- files
def _digest_of(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=list).encode("utf-8")).hexdigest()


def _size_of(path: Path) -> int:
    files = path.iterdir() if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)


def _mark_used(entry: Path) -> None:
    try:
        os.utime(entry)
    except OSError:  # a store that may only be read
        log.debug("cannot mark %s as used", entry, exc_info=True)


def _delete(path: Path) -> None:
    """What another process has open on Windows stays until next time."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
