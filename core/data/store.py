"""The store: each sensor file after ingest, as memory-mapped float32, so that a file is parsed once.

The name of an entry is a digest of everything it depends on: the bytes of the file, its JSON sidecar, and the settings
of its reader. Therefore no entry is ever out of date, a copy of a file shares its entry, and the folder can be deleted
at any time. It also contains joined series that exceed the memory, and fitted scalers.

    <store>/files/<digest of a path>.json      the digest of that file's bytes, and the size and times it had
    <store>/readings/<digest>/                 an entry (`core.data.store_entries`): values.npy (N, C), times.npy (N,)
    <store>/series/<digest>/                   an entry: several recordings, concatenated, values.npy (N, C)
    <store>/scalers/<digest>.json
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from core.config.schema import AnyConfig
from core.data.blocks import IN_MEMORY, are_adjacent, as_one
from core.data.dialects import sniff
from core.data.files import (
    PLAIN_TEXT_SUFFIXES,
    data_suffix,
    ends_in_nul,
    refuse_foreign,
    refuse_large,
)
from core.data.ingest import Reading, ingest
from core.data.recording import Recording
from core.data.scaling import Scaler
from core.data.segments import offsets_of
from core.data.sidecars import facts_of
from core.data.store_entries import UNREADABLE, read_entry, state_of, write_entry
from core.errors import DataError
from core.numbers import size_in_words
from core.reading import json_object_or_none
from core.secrets.redaction import redacted_text
from core.workspace import json_digest, relative, sha256_of, write_json

log = logging.getLogger(__name__)

# Increases whenever readers, cleaning or metrics change their result for the same file.
VERSION = 10

# A file written less than this before it was digested may be written again without a change of its times.
_SETTLED_NS = 2 * 10**9
_VALUES, _TIMES = "values.npy", "times.npy"


class Store:
    """Reads sensor files through the store in `folder`; without one, parses them each time."""

    def __init__(self, folder: Path | None, *, limit_gb: float = 20.0):
        self.folder, self.limit_bytes = folder, limit_gb * 1e9
        self.num_cached = 0
        self._added = self._failed = False

    @classmethod
    def of(cls, config: AnyConfig, root: Path) -> Store:
        folder = config.data.store_dir
        return cls(root / folder if folder else None, limit_gb=config.data.store_gb)

    # ------------------------------------------------------------------------------------------------------ recordings
    def read(self, path: Path, *, root: Path, config: AnyConfig) -> Reading:
        """The recordings of a file, with ids relative to `root`. Raises DataError as `read_recordings` does."""
        if self.folder is None or not path.is_file():
            return ingest(path, root=root, config=config, scratch=None)
        self._refuse_unusable(path)
        before = state_of(path)
        digest = self._digest(path, config)
        entry = self.folder / "readings" / digest
        reading = _load(entry, path, root, digest)
        if reading is not None:
            self.num_cached += 1
            return reading
        reading = ingest(path, root=root, config=config, scratch=self.scratch())
        if any(map(len, reading.recordings)):
            with self._keeping("a reading"):
                if state_of(path) != before:
                    log.warning("%s was written to while it was read: the store does not keep it", path)
                    return reading
                _keep(reading, entry, is_set=reading.recordings[0].file_id != relative(path, root))
                self._added = True
                return _load(entry, path, root, digest) or reading
        return reading

    def _refuse_unusable(self, path: Path) -> None:
        """Raises DataError before the digest is computed, which takes minutes for a large file."""
        refuse_foreign(path)
        if data_suffix(path) in PLAIN_TEXT_SUFFIXES and ends_in_nul(path):
            sniff(path, self.scratch())  # finds the row
        num_bytes = path.stat().st_size
        if num_bytes > max(self.limit_bytes, IN_MEMORY):
            raise DataError(
                f"is {size_in_words(num_bytes)}, more than the {size_in_words(self.limit_bytes)} the store may take",
                path=path,
                hint="raise data.store_gb, if the disk of data.store_dir has the space, or split the file by time",
            )
        refuse_large(path, num_bytes, self.scratch())

    def scratch(self) -> Path | None:
        """The folder for arrays that exceed the memory; None if nothing can be written."""
        if self.folder is None:
            return None
        with self._keeping("a long array"):
            self.folder.mkdir(parents=True, exist_ok=True)
            return self.folder if os.access(self.folder, os.W_OK) else None
        return None

    def _digest(self, path: Path, config: AnyConfig) -> str:
        """Digest of everything that the reading of a file depends on."""
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
        return json_digest(made_of)

    def digest_of_bytes(self, path: Path) -> str:
        """SHA-256 of a file; cached as long as the file keeps its size and times."""
        if self.folder is None:
            return sha256_of(path)
        full = path.resolve()
        record = self.folder / "files" / f"{json_digest(str(full))}.json"
        state = state_of(full)
        known = json_object_or_none(record)
        if known is not None and known.get("state") == state and known.get("settled"):
            return str(known["sha256"])
        digest = sha256_of(full)
        settled = time.time_ns() - state["modified_ns"] > _SETTLED_NS and state_of(full) == state
        with self._keeping("the digest of a file"):
            write_json(record, {"path": redacted_text(str(full)), "state": state, "settled": settled, "sha256": digest})
        return digest

    # --------------------------------------------------------------------------------------------------------- series
    def joined(self, recordings: Sequence[Recording]) -> np.ndarray:
        """The values of all recordings, concatenated, float32 (N, C).

        A view if they are adjacent in memory already, as those of one file are; on disk if they exceed `IN_MEMORY`.
        """
        values = [recording.values_tc for recording in recordings]
        if are_adjacent(values) or sum(part.nbytes for part in values) <= IN_MEMORY:
            return as_one(values, None)
        digests = [recording.digest for recording in recordings]
        if self.folder is None or not all(digests):
            return as_one(values, self.scratch())
        entry = self.folder / "series" / json_digest(digests)
        if not entry.is_dir():
            log.info("joining %d recordings of %.1f GB on disk, once", len(values), sum(v.nbytes for v in values) / 1e9)
            with self._keeping("the joined recordings"):
                write_entry(entry, {_VALUES: values}, {})
                self._added = True
        try:
            values_nc = read_entry(entry)[1][_VALUES]
        except UNREADABLE as error:
            log.warning("the joined recordings %s cannot be read (%s): joining them again", entry.name[:12], error)
            _delete(entry)
            return as_one(values, self.scratch())
        _mark_used(entry)
        return values_nc

    def scaler(
        self, fit: Callable[[], Scaler], *, rows: Sequence[tuple[Recording, int, int]], **settings: Any
    ) -> Scaler:
        """The result of `fit` for some rows of recordings; cached for the same rows and settings."""
        if self.folder is None or not all(recording.digest for recording, _, _ in rows):
            return fit()
        made_of = [VERSION, [(recording.digest, start, stop) for recording, start, stop in rows], settings]
        path = self.folder / "scalers" / f"{json_digest(made_of)}.json"
        known = json_object_or_none(path)
        if known is not None:
            return Scaler.from_dict(known)
        scaler = fit()
        with self._keeping("the scaler"):
            write_json(path, scaler.to_dict())
        return scaler

    # ------------------------------------------------------------------------------------------------------- the folder
    def forget_oldest(self) -> None:
        """Deletes the least recently used entries until the store is below its limit; only after it has grown."""
        if not self._added:
            return
        kept = [path for kind in ("readings", "series") for path in (self.folder / kind).glob("[!.]*")]
        sizes, last_use = {}, {}
        for path in kept:
            with suppress(FileNotFoundError):  # another process deletes, too
                sizes[path], last_use[path] = _size_of(path), path.stat().st_mtime
        too_many = sum(sizes.values()) - self.limit_bytes
        for path in sorted(last_use, key=last_use.get):
            if too_many <= 0:
                break
            log.info(
                "the store %s is full: deleting %s (%.1f MB); raise data.store_gb to keep more",
                self.folder, path.name[:12], sizes[path] / 1e6,
            )  # fmt: skip
            _delete(path)
            too_many -= sizes[path]

    @contextmanager
    def _keeping(self, what: str) -> Iterator[None]:
        """The store is optional: a full disk or a read-only folder is logged once, and the run continues."""
        try:
            yield
        except OSError as error:
            level = logging.DEBUG if self._failed else logging.WARNING
            log.log(level, "%s is not kept in %s: %s; set data.store_dir to another folder", what, self.folder, error)
            self._failed = True


# ------------------------------------------------------------------------------------------------------------ entries
def _keep(reading: Reading, entry: Path, *, is_set: bool) -> None:
    """Writes an entry, unless another process has written it meanwhile."""
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
            "gaps": [recording.gap_g.tolist() for recording in reading.recordings],
            "notes": [recording.notes for recording in reading.recordings],
            "is_set": is_set,
            "metrics": reading.metrics,
        },
    )


def _load(entry: Path, path: Path, root: Path, digest: str) -> Reading | None:
    """An entry, memory-mapped; None if there is none, or if it is damaged."""
    if not entry.is_dir():
        return None
    try:
        about, arrays = read_entry(entry)
        values_nc, time_n = arrays[_VALUES], arrays[_TIMES]
        offsets_r = offsets_of(about["rows"])
        if not len(values_nc) == len(time_n) == offsets_r[-1]:
            raise ValueError("its arrays do not have the lengths of about.json")
        name = relative(path, root)
        recordings = tuple(
            Recording(
                file_id=f"{name}#{number}" if about["is_set"] else name,
                path=path,
                values_tc=values_nc[start:stop],
                time_ns=time_n[start:stop],
                channels=tuple(about["channels"]),
                sampling_rate_hz=about["sampling_rate_hz"],
                resampled_from_hz=about["resampled_from_hz"],
                time_source=about["time_source"],
                healthy=about["healthy"],
                notes=tuple(about["notes"][number]),
                digest=f"{digest}#{number}",
                gap_g=np.array(about["gaps"][number], dtype=np.int64),
            )
            for number, (start, stop) in enumerate(pairwise(offsets_r.tolist()))
        )
        _mark_used(entry)
    except UNREADABLE as error:
        log.warning("the entry %s of the store cannot be read (%s): parsing %s again", entry.name[:12], error, path)
        _delete(entry)
        return None
    return Reading(recordings, about["metrics"])


# ---------------------------------------------------------------------------------------------------------------- files
def _size_of(path: Path) -> int:
    files = path.iterdir() if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)


def _mark_used(entry: Path) -> None:
    try:
        os.utime(entry)
    except OSError:  # a read-only store
        log.debug("cannot mark %s as used", entry, exc_info=True)


def _delete(path: Path) -> None:
    """Deletes an entry or file; on Windows, a file that another process has open stays until the next deletion."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
