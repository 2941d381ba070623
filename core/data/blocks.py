"""Arrays larger than memory: read in blocks of rows, and written to temporary files without a name.

Pages of memory-mapped files that were read are released, so that the memory of a process does not grow with its files.

In this package, `scratch` is the folder for long temporary arrays, in files without a name; None keeps them in memory.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO

import numpy as np

from core.workspace import writing

# Bytes of a block.
BLOCK_BYTES = 2**22
# Maximum number of bytes of an array in memory; larger ones are in a file.
IN_MEMORY = 2**24
# Bytes read from a mapped file before its pages are released. For each page, the system maps a dozen neighbours too.
_RELEASED_AFTER = 2**23


def blocks(array: np.ndarray, *, overlap: int = 0) -> Iterator[np.ndarray]:
    """All rows of an array in blocks; each block but the last also has the first `overlap` rows of the next.

    The pages of a memory-mapped array are released before the next block.
    """
    size = max(1, BLOCK_BYTES // max(1, array[:1].nbytes))
    for start in range(0, len(array), size):
        yield array[start : start + size + overlap]
        if len(array) > size:
            release_pages(array)


def slices(*arrays: np.ndarray, num_values: int) -> Iterator[slice]:
    """Slices of the rows of arrays of equal length; each slice has about `num_values` values of the first array.

    The pages of memory-mapped arrays are released before the next slice.
    """
    first = arrays[0]
    size = max(1, num_values // max(1, math.prod(first.shape[1:])))
    for start in range(0, len(first), size):
        yield slice(start, min(start + size, len(first)))
        for array in arrays:
            release_pages(array)


def release_pages(array: np.ndarray) -> None:
    """Releases the pages of a memory-mapped array from this process; the system may keep them in its cache. Changes of
    a copy-on-write array (all but those of `blank`) are lost."""
    mapped = _mapping_of(array)
    if mapped is not None and hasattr(mapped, "madvise"):
        mapped.madvise(mmap.MADV_DONTNEED)


class Pages:
    """Releases the pages of a memory-mapped array after every `_RELEASED_AFTER` bytes that were read from it: a process
    that cuts windows does not grow by the size of the file."""

    def __init__(self, array: np.ndarray | None = None):
        self.array = array if array is not None and _mapping_of(array) is not None else None
        self._num_bytes = 0

    def count_read(self, num_bytes: int) -> None:
        """Counts bytes that were read, and releases the pages of the array after enough of them."""
        if self.array is None:
            return
        self._num_bytes += num_bytes
        if self._num_bytes > _RELEASED_AFTER:
            release_pages(self.array)
            self._num_bytes = 0


def pieces(values_nc: np.ndarray, rows_k2: np.ndarray, size: int) -> Iterator[tuple[int, np.ndarray]]:
    """The rows of row ranges (K, 2), in order, at most `size` at a time, with the number of their range. The pages of a
    memory-mapped array are released."""
    pages = Pages(values_nc)
    for number, (start, stop) in enumerate(rows_k2.tolist()):
        for first in range(start, stop, size):
            rows_nc = values_nc[first : min(first + size, stop)]
            yield number, rows_nc
            pages.count_read(rows_nc.nbytes)


def _mapping_of(array: np.ndarray) -> mmap.mmap | None:
    base = array
    while base is not None and not isinstance(base, mmap.mmap):
        base = getattr(base, "base", None)
    return base


class Rows:
    """An array that is built block by block: in memory while it is short or without a `scratch`, else in a file in
    `scratch` that has no name and is deleted with the array.

    Raises WriteError if the disk is full.
    """

    def __init__(self, scratch: Path | None):
        self.scratch = scratch
        self._blocks: list[np.ndarray] = []
        self._num_bytes = self._num_rows = 0
        self._file = None

    def add(self, block: np.ndarray) -> None:
        self._num_bytes, self._num_rows = self._num_bytes + block.nbytes, self._num_rows + len(block)
        self._blocks.append(block)
        if self.scratch is not None and self._num_bytes > IN_MEMORY:
            with writing(self.scratch / "rows"):
                self._write()

    def whole(self) -> np.ndarray:
        """All rows, in order. Call it once, after the last `add`."""
        if self._file is None:
            return self._blocks[0] if len(self._blocks) == 1 else np.concatenate(self._blocks)
        like = self._blocks[0]
        with writing(self.scratch / "rows"), self._file as file:
            file.flush()
            return np.memmap(file, dtype=like.dtype, mode="c", shape=(self._num_rows, *like.shape[1:]))

    def _write(self) -> None:
        if self._file is None:
            self._file = _without_name(self.scratch)  # `whole` closes it
        for block in self._blocks:
            self._file.write(np.ascontiguousarray(block).data)
        self._blocks = [block[:0] for block in self._blocks[:1]]


def _without_name(scratch: Path) -> IO[bytes]:
    """Also creates the folder: the store may be deleted while it is in use."""
    scratch.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryFile(dir=scratch)


def gathered(parts: Iterable[np.ndarray], scratch: Path | None) -> np.ndarray:
    """Blocks of rows as one array."""
    rows = Rows(scratch)
    for part in parts:
        rows.add(part)
    return rows.whole()


def blank(shape: tuple[int, ...], scratch: Path | None) -> np.ndarray:
    """float32 zeros that may be overwritten in any order: in memory while the array is short or without a `scratch`,
    else in a file in `scratch` that has no name and is deleted with the array.

    Raises WriteError if the disk is full. The space is reserved immediately: the process would be killed if it wrote to
    a page without space.
    """
    num_bytes = math.prod(shape) * np.dtype(np.float32).itemsize
    if scratch is None or num_bytes <= IN_MEMORY:
        return np.zeros(shape, np.float32)
    with writing(scratch / "rows"), _without_name(scratch) as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, num_bytes)
        return np.memmap(file, dtype=np.float32, mode="r+", shape=shape)


def by_column(parts_tc: Sequence[np.ndarray], scratch: Path | None) -> np.ndarray:
    """The columns (C, T) of the rows of all parts, each contiguous."""
    num_rows, num_columns = sum(map(len, parts_tc)), parts_tc[0].shape[1]
    itemsize, dtype = parts_tc[0].itemsize, parts_tc[0].dtype
    if scratch is None or num_rows * num_columns * itemsize <= IN_MEMORY:
        return np.ascontiguousarray((parts_tc[0] if len(parts_tc) == 1 else np.concatenate(parts_tc)).T)
    with writing(scratch / "columns"), _without_name(scratch) as file:
        file.truncate(num_rows * num_columns * itemsize)
        start = 0
        for block in (block for part_tc in parts_tc for block in blocks(part_tc)):
            for column, values_n in enumerate(np.ascontiguousarray(block.T)):
                file.seek(itemsize * (column * num_rows + start))
                file.write(values_n.data)
            start += len(block)
        file.flush()
        return np.memmap(file, dtype=dtype, mode="c", shape=(num_columns, num_rows))


def as_one(parts: Sequence[np.ndarray], scratch: Path | None) -> np.ndarray:
    """Arrays (n, …), concatenated; a view if they are adjacent in memory already, as the records of a set are."""
    if are_adjacent(parts):
        first = parts[0]
        return np.lib.stride_tricks.as_strided(first, (sum(map(len, parts)), *first.shape[1:]), first.strides)
    return gathered((block for part in parts for block in blocks(part)), scratch)


def are_adjacent(parts: Sequence[np.ndarray]) -> bool:
    """Whether arrays (n, …) are contiguous in memory, one after the other."""
    if not all(part.flags.c_contiguous and part.shape[1:] == parts[0].shape[1:] for part in parts):
        return False
    starts = [part.__array_interface__["data"][0] for part in parts]
    base = parts[0].base
    return all(
        start + part.nbytes == following and after.base is base
        for (start, part), (following, after) in pairwise(zip(starts, parts, strict=True))
    )
