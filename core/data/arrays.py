"""Arrays of `.npy` and `.npz` files, read in blocks."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import BinaryIO, NamedTuple

import numpy as np

from core.data.blocks import BLOCK_BYTES
from core.data.files import in_time, refuse_bomb, refuse_large
from core.errors import DataError, WriteError, first_line

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class Array(NamedTuple):
    """An array of a file: its shape, and its numbers in order, in blocks of float32 (n,)."""

    shape: tuple[int, ...]
    numbers: Iterator[np.ndarray]


@contextmanager
def array_of(path: Path, key: str | None, scratch: Path | None) -> Iterator[Array]:
    """The array of an `.npy` file, or the array `key` of an `.npz` file.

    Raises DataError for anything but real numbers: objects are never unpickled, because that runs code.
    """
    try:
        with ExitStack() as opened:
            if key is None:
                file = opened.enter_context(path.open("rb"))
                num_bytes = path.stat().st_size
            else:
                archive = opened.enter_context(zipfile.ZipFile(path))
                member = _member(archive, key, path)
                refuse_bomb(path, member.file_size)
                file, num_bytes = opened.enter_context(archive.open(member)), member.file_size
            array = _array(file, num_bytes, path, scratch)
            yield array._replace(numbers=in_time(path, array.numbers))
    except WriteError:
        raise
    # RuntimeError: an encrypted member, or a compression that Python does not support.
    except (ValueError, OSError, EOFError, LookupError, zipfile.BadZipFile, zlib.error, RuntimeError) as error:
        kind = "np.save" if key is None else "np.savez, as an .npz file"
        hint = f"save plain numbers with {kind}"
        raise DataError(f"cannot be read: {first_line(error)}", path=path, hint=hint) from error


def _member(archive: zipfile.ZipFile, key: str, path: Path) -> zipfile.ZipInfo:
    names = [name.removesuffix(".npy") for name in archive.namelist()]
    if key not in names:
        raise DataError(f"no array {key!r}, only {names[:12]}", path=path, hint=f"save the records as {key!r}")
    return archive.getinfo(f"{key}.npy")


def _array(file: BinaryIO, num_bytes: int, path: Path, scratch: Path | None) -> Array:
    """The array in a stream of `num_bytes`, after a check of its header."""
    version = np.lib.format.read_magic(file)
    read_header = _HEADERS.get(version)
    if read_header is None:
        raise ValueError(f"version {version} of the npy format")
    try:
        shape, by_column, dtype = read_header(file)
    except (SyntaxError, TokenError, RecursionError, MemoryError) as error:  # of the parser of the header
        raise ValueError(f"the header is not valid: {first_line(error)}") from error
    if dtype.kind not in "iuf":
        kind = "objects, which are never unpickled" if dtype.hasobject else f"{dtype}"
        raise DataError(f"contains {kind}, not real numbers", path=path, hint="save float32 values with np.save")
    declared = math.prod(shape) * dtype.itemsize
    if declared > num_bytes - file.tell():
        raise DataError(
            f"is truncated: shape {shape} needs {declared} bytes, the file has {num_bytes - file.tell()}",
            path=path,
            hint="copy the file again",
        )
    if not declared:
        raise DataError(f"shape {shape} has no samples", path=path, hint="remove the file from data.splits")
    if by_column and len(shape) > 1:
        refuse_large(path, declared + 4 * math.prod(shape))
        file.seek(0)
        whole = np.lib.format.read_array(file, allow_pickle=False)
        return Array(shape, iter([_as_float32(whole.reshape(-1))]))
    refuse_large(path, (declared if scratch is None else 0) + 4 * math.prod(shape), scratch)
    return Array(shape, _numbers(file, declared, dtype, math.prod(shape[1:]) * dtype.itemsize))


def _numbers(file: BinaryIO, num_bytes: int, dtype: np.dtype, row_bytes: int) -> Iterator[np.ndarray]:
    """Blocks of complete rows."""
    size = max(1, BLOCK_BYTES // row_bytes) * row_bytes
    for start in range(0, num_bytes, size):
        block = file.read(min(size, num_bytes - start))
        yield _as_float32(np.frombuffer(block, dtype=dtype))


def _as_float32(number_n: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # beyond float32 is infinite, which is read as missing
        return number_n.astype(np.float32)
