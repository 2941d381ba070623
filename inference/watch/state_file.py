"""The state of a monitor: one file with a JSON header, the bytes of arrays, and the sha256 of both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import OutputError
from core.workspace import write_bytes

FORMAT_VERSION = 3

Arrays = Mapping[str, np.ndarray]


def write_state(path: Path, header: Mapping[str, Any], arrays: Mapping[str, Arrays]) -> None:
    """Replaces the file atomically. header: JSON. arrays: by the name of their group.

    All arrays are one block of bytes: writing an archive of thousands of small arrays would be slower than scoring.
    """
    described = {
        group: {name: [array.dtype.str, array.shape] for name, array in of.items()} for group, of in arrays.items()
    }
    document = {"format_version": FORMAT_VERSION, **header, "arrays": described}
    text = json.dumps(document, allow_nan=False).encode("utf-8")
    body = b"".join(array.tobytes() for of in arrays.values() for array in of.values())
    content = len(text).to_bytes(8, "little") + text + body
    write_bytes(path, hashlib.sha256(content).digest() + content)


def read_state(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    """Header and arrays by group. Raises OutputError for a file that is damaged or of another version."""
    held = path.read_bytes()
    content = held[32:]
    if hashlib.sha256(content).digest() != held[:32]:
        raise _unusable(path, "is damaged or was changed: its sha256 differs from the stored one")
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    if header.pop("format_version") != FORMAT_VERSION:
        raise _unusable(path, "was written by another version of Landfall")
    arrays, at = {}, 8 + length
    for group, of in header.pop("arrays").items():
        arrays[group] = {}
        for name, (dtype, shape) in of.items():
            count = int(np.prod(shape, dtype=np.int64))
            arrays[group][name] = np.frombuffer(content, dtype, count, at).reshape(shape).copy()
            at += arrays[group][name].nbytes
    return header, arrays


def _unusable(path: Path, problem: str) -> OutputError:
    return OutputError(f"the state {path} {problem}", hint="remove it to begin again at the first row of each file")
