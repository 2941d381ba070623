"""Process settings that make the same arithmetic faster on a CPU; off by `tune: false` (LANDFALL_TUNE=0).

Every training step allocates tensors of tens of megabytes and frees them again. glibc maps each one and returns it
immediately, so the kernel clears its pages before every use. With `mallopt`, the process keeps freed memory. Results do
not change by a bit. docs/performance.md has measurements, also of rejected alternatives.

mallopt(3), https://man7.org/linux/man-pages/man3/mallopt.3.html
"""

from __future__ import annotations

import ctypes
import logging
import platform
from functools import cache

log = logging.getLogger(__name__)

# Constants of <malloc.h>.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
_KEPT_BYTES = 2**31 - 1  # the largest value mallopt takes
_GROWTH_BYTES = 64 * 2**20


@cache
def tune_process() -> None:
    """Applies the settings for this platform once in a process, and logs them.

    The process keeps freed memory until it ends or `process_memory.release` is called.
    """
    if platform.libc_ver()[0] != "glibc":
        log.info("freed memory is returned to the system: the allocator of this platform has no mallopt")
        return
    mallopt = ctypes.CDLL(None).mallopt
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, _KEPT_BYTES), (_M_TOP_PAD, _GROWTH_BYTES))
    if all(mallopt(name, value) for name, value in settings):
        log.info("freed memory is kept for the next step (off by tune=false)")
    else:
        log.warning("freed memory is returned to the system: mallopt rejected its settings")
