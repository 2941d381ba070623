"""When memory runs out after all: the same work again, in smaller parts."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TypeVar

from core.config.execution import DeviceKind
from core.devices.backend import backend, is_out_of_memory
from core.errors import LandfallError

log = logging.getLogger(__name__)

T = TypeVar("T")


def until_it_fits(
    work: Callable[[int], T], size: int, *, kind: DeviceKind, undo: Callable[[], None] = lambda: None
) -> tuple[T, int]:
    """What `work(size)` gives, and the size that fitted.

    work: does the whole work in parts of at most `size` windows. Where memory runs out, `undo` brings back the state
    from before and the size is halved. Raises LandfallError where a single window does not fit, and every other error
    as it is.
    """
    while True:
        try:
            return work(size), size
        except (RuntimeError, MemoryError, OSError) as error:
            if not is_out_of_memory(error):
                raise
            problem = str(error).strip().partition("\n")[0]
        # Outside of the handler: as long as the error lives, its traceback keeps what filled the memory.
        if size == 1:
            raise LandfallError(
                f"out of memory with one window at a time: {problem}",
                hint="set training.gradient_checkpointing=true or model.size=reduced, or use a device with more memory",
            )
        size = math.ceil(size / 2)
        log.warning("out of memory (%s): now %d windows at a time; the same ones are tried again", problem, size)
        undo()
        backend(kind).empty_cache()
