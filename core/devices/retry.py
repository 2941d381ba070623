"""Out-of-memory errors: recognises them, and repeats the work in smaller micro-batches."""

from __future__ import annotations

import errno
import logging
import math
from collections.abc import Callable
from typing import TypeVar

import torch

from core.config.execution import DeviceKind
from core.devices.backend import backend
from core.errors import LandfallError, first_line

log = logging.getLogger(__name__)

T = TypeVar("T")

# Parts of a RuntimeError's message, in lower case, on platforms without an exception class for it.
_EXHAUSTED = (
    "out of memory",  # CUDA, ROCm, MPS and XPU, from allocator and driver
    "_alloc_failed",  # cuBLAS, cuDNN, cuFFT, cuSOLVER, hipBLAS
    "out_of_device_memory",  # Level Zero, below XPU
    "out_of_host_memory",
    "resource_exhausted",  # XLA
    "invalid buffer size",  # MPS, one tensor larger than Metal allows
    "can't allocate memory",  # CPU
    "not enough memory",  # CPU, on Windows
    "bad_alloc",  # C++
    "could not create a primitive",  # oneDNN: no memory for its kernel or scratch
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on whatever device: the same work on a smaller batch may succeed.

    oneDNN has one message for that and for unsupported operations: an error at every batch size is the latter.
    """
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and any(text in str(error).lower() for text in _EXHAUSTED)


def until_it_fits(
    work: Callable[[int], T], size: int, *, kind: DeviceKind, undo: Callable[[], None] = lambda: None
) -> tuple[T, int]:
    """The result of `work(size)`, and the size that fitted.

    work: does all the work in micro-batches of at most `size` windows. If memory runs out, `undo` restores the state
    before it and the size is halved. Raises LandfallError if a single window does not fit, and every other error
    unchanged.
    """
    while True:
        try:
            return work(size), size
        except (RuntimeError, MemoryError, OSError) as error:
            if not is_out_of_memory(error):
                raise
            problem = first_line(error)
        # Outside of the handler: the error's traceback keeps the memory in use.
        if size == 1:
            raise LandfallError(
                f"out of memory with a micro-batch of one window: {problem}",
                hint="set training.gradient_checkpointing=true or model.size=reduced, or use a device with more memory",
            )
        size = math.ceil(size / 2)
        log.warning("out of memory (%s): the micro-batch is now %d; the same windows are computed again", problem, size)
        undo()
        backend(kind).empty_cache()
