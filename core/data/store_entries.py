"""Entries of the store: folders of arrays that are written once, completely or not at all.

    <entry>/*.npy          read memory-mapped
    <entry>/about.json     facts of the writer, and the SHA-256 of each array
    <entry>/sound.json     sizes and times of the arrays when their digests were last verified

Hashing gigabytes at each start would take too long. Therefore the digests are verified only if sizes or times have
changed: after an entry was copied, restored from a backup or modified. A change on the disk that the file system does
not report is not detected.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from core.data.blocks import blocks
from core.reading import json_object_or_none, read_json_object
from core.workspace import sha256_of, temporary_folder, write_json

log = logging.getLogger(__name__)

UNREADABLE = (OSError, EOFError, ValueError, KeyError, TypeError)
"""Errors of `read_entry` for an entry that is missing, damaged or changed."""

_ABOUT, _SOUND = "about.json", "sound.json"


def write_entry(entry: Path, arrays: Mapping[str, Sequence[np.ndarray]], about: Mapping[str, Any]) -> None:
    """Writes an entry; one that another process has written is kept. arrays: by file name, each as pieces to
    concatenate."""
    with _atomic_folder(entry) as part:
        part.mkdir()
        digests = {name: _write_rows(part / name, pieces) for name, pieces in arrays.items()}
        write_json(part / _ABOUT, {**about, "sha256": digests})
        _record_verified(part, digests)


def read_entry(entry: Path) -> tuple[Mapping[str, Any], dict[str, np.ndarray]]:
    """The facts of its writer, and its arrays. Raises one of `UNREADABLE`."""
    about = read_json_object(entry / _ABOUT)
    digests = about["sha256"]
    if json_object_or_none(entry / _SOUND) != _states_of(entry, digests):
        for name, digest in digests.items():
            if sha256_of(entry / name) != digest:
                raise ValueError(f"{name} has changed")
        _record_verified(entry, digests)
    return about, {name: _mapped(entry / name) for name in digests}


def _record_verified(entry: Path, names: Iterable[str]) -> None:
    try:
        write_json(entry / _SOUND, _states_of(entry, names))
    except OSError:  # a read-only store
        log.debug("cannot record that %s was verified", entry, exc_info=True)


def _states_of(entry: Path, names: Iterable[str]) -> dict[str, dict[str, int]]:
    return {name: state_of(entry / name) for name in names}


def _mapped(path: Path) -> np.ndarray:
    """A copy-on-write array: tensors must be writable, and the file must not change."""
    return np.load(path, mmap_mode="c", allow_pickle=False)


def _write_rows(path: Path, parts: Sequence[np.ndarray]) -> str:
    """Writes arrays to one file, concatenated, without a copy of all in memory; returns its SHA-256."""
    header = {
        "descr": np.lib.format.dtype_to_descr(parts[0].dtype),
        "fortran_order": False,
        "shape": (sum(map(len, parts)), *parts[0].shape[1:]),
    }
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, header)
    digest = hashlib.sha256(head.getvalue())
    with path.open("wb") as file:
        file.write(head.getvalue())
        for block in (block for part in parts for block in blocks(part)):
            whole = np.ascontiguousarray(block)
            digest.update(whole)
            file.write(whole.data)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


@contextmanager
def _atomic_folder(path: Path) -> Iterator[Path]:
    """A path in a new hidden folder; in the end it is renamed to `path`, unless that exists by then."""
    with temporary_folder(path) as folder:
        yield folder / path.name
        if not path.exists():
            try:
                (folder / path.name).rename(path)
            except OSError:
                if not path.exists():
                    raise


def state_of(path: Path) -> dict[str, int]:
    """Size and times of a file, which change with it."""
    state = path.stat()
    return {"bytes": state.st_size, "modified_ns": state.st_mtime_ns, "changed_ns": state.st_ctime_ns}
