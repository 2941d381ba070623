"""Process settings under which the same arithmetic takes less time on a CPU; off by `tune: false` (LANDFALL_TUNE=0).

Every training step allocates tensors of tens of megabytes and frees them again. glibc maps each one and returns it at
once, so the kernel clears its pages before every use. With `mallopt` freed memory stays with the process.
Not a bit of a result changes. docs/performance.md has what this gives, and what else was tried and left out.

mallopt(3), https://man7.org/linux/man-pages/man3/mallopt.3.html
"""

from __future__ import annotations

import ctypes
import logging
import platform
from functools import cache

log = logging.getLogger(__name__)

# Of <malloc.h>.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
_KEPT_BYTES = 2**31 - 1  # the largest value mallopt takes
_GROWTH_BYTES = 64 * 2**20


@cache
def tune_process() -> None:
    """Applies what helps on this platform, once in a process, and logs it.

    Memory that a run freed stays with the process until it ends or `process_memory.release` is called.
    """
    if platform.libc_ver()[0] != "glibc":
        log.info("freed memory goes back to the system: this platform's allocator has no mallopt")
        return
    mallopt = ctypes.CDLL(None).mallopt
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, _KEPT_BYTES), (_M_TOP_PAD, _GROWTH_BYTES))
    if all(mallopt(name, value) for name, value in settings):
        log.info("freed memory is kept for the next step (off by tune=false)")
    else:
        log.warning("freed memory goes back to the system: mallopt refused its settings")
