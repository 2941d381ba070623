"""Memory of this process: current value, allocator, peak, and a limit. Does not import torch."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
import os
import platform
import re
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

log = logging.getLogger(__name__)

MIB = 2**20
_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")


def resident_mb() -> float:
    """Resident memory of this process, in MiB."""
    return psutil.Process().memory_info().rss / MIB


def release() -> None:
    """Returns freed memory that the C library keeps to the system; only glibc supports this."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


# Constants of <malloc.h>.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
_KEPT_BYTES = 2**31 - 1  # the largest value mallopt takes
_GROWTH_BYTES = 64 * 2**20


@functools.cache
def tune_process() -> None:
    """Lets the process keep the memory that it frees, once in a process, and logs it; off by `tune: false`
    (LANDFALL_TUNE=0).

    Every training step allocates tensors of tens of megabytes and frees them again. glibc maps each one and returns it
    immediately, so the kernel clears its pages before every use. With mallopt(3), the process keeps freed memory until
    it ends or `release` is called. Results do not change by a bit. docs/performance.md has measurements,
    also of rejected alternatives.
    """
    if platform.libc_ver()[0] != "glibc":
        log.info("freed memory is returned to the system: the allocator of this platform has no mallopt")
        return
    mallopt = ctypes.CDLL(None).mallopt
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, _KEPT_BYTES), (_M_TOP_PAD, _GROWTH_BYTES))
    if all(mallopt(name, value) for name, value in settings):
        log.info("freed memory is kept for later steps (tune=false turns this off)")
    else:
        log.warning("freed memory is returned to the system: mallopt rejected its settings")


# --------------------------------------------------------------------------------------------------------------- peaks
class HighWaterMark:
    """The peak counter of the Linux kernel: exact and without cost; before the first reset, it counts from the start of
    the process."""

    def reset(self) -> None:
        _CLEAR_REFS.write_text("5")  # proc(5): resets the high-water mark to the current value

    def peak_mb(self) -> float:
        return _status_mb("VmHWM")


class SampledPeak:
    """A thread reads the value every few milliseconds from the first reset on; a shorter peak can be missed.

    read: the current value in MiB. The thread ends with the meter.
    """

    def __init__(self, read: Callable[[], float], interval_s: float = 0.005):
        self._read, self._interval_s = read, interval_s
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._peak = 0.0

    def reset(self) -> None:
        with self._lock:
            self._peak = self._read()
            if self._thread is None:
                watched = (weakref.ref(self), self._interval_s)
                self._thread = threading.Thread(target=_watch, args=watched, name="memory peak", daemon=True)
                self._thread.start()

    def peak_mb(self) -> float:
        with self._lock:
            self._peak = max(self._peak, self._read())
            return self._peak


def _watch(meter: weakref.ref[SampledPeak], interval_s: float) -> None:
    while (watched := meter()) is not None:
        watched.peak_mb()
        del watched
        time.sleep(interval_s)


# Peak memory since the last reset, in MiB.
PeakMeter = HighWaterMark | SampledPeak


@functools.cache
def peak_meter() -> PeakMeter:
    """The best meter for the process on this system; shared, because a reset affects all users."""
    if os.access(_CLEAR_REFS, os.W_OK):
        return HighWaterMark()
    log.info("this system has no resettable memory peak of a process; it is sampled instead")
    return SampledPeak(resident_mb)


# --------------------------------------------------------------------------------------------------------------- limit
@contextlib.contextmanager
def limited(limit_mb: float) -> Iterator[None]:
    """A context in which an allocation beyond `limit_mb` MiB in RAM raises an out-of-memory error. Otherwise the kernel
    would kill the process when it writes to the memory.

    It is Linux' RLIMIT_DATA, which counts private writable address space. Existing memory counts with its part in RAM,
    new memory counts completely, written to or not, so the process stays within the limit. Child processes inherit it.
    If it cannot be set, there is no limit, and a warning gives the reason.

    One limitation: if the last half megabyte is too small for the code of a new kernel, oneDNN cannot create a kernel
    in this process again, or crashes. Tensors are larger, so they nearly always fail first.
    """
    with contextlib.ExitStack() as undo:
        try:
            undo.callback(_limit_data(limit_mb))
        except (LookupError, OSError, ValueError) as error:
            log.warning("no memory limit: %s", error.args[-1])
        yield


def _limit_data(limit_mb: float) -> Callable[[], None]:
    """Sets the limit and returns a function that removes it. Raises LookupError, OSError or ValueError if it cannot be
    set."""
    if sys.platform != "linux":
        raise LookupError(f"{sys.platform} does not support one for a process")
    import resource

    headroom = int((limit_mb - resident_mb()) * MIB)
    if headroom <= 0:
        raise LookupError(f"the process already holds more than {limit_mb:,.0f} MiB")
    before = soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = int(_status_mb("VmData") * MIB) + headroom
    if soft != resource.RLIM_INFINITY:
        wanted = min(wanted, soft)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
    return lambda: resource.setrlimit(resource.RLIMIT_DATA, before)


def _status_mb(field: str) -> float:
    """A memory figure of this process from proc(5)'s status file, in MiB. Raises LookupError if there is none."""
    match = re.search(rf"^{field}:\s*(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
    if match is None:
        raise LookupError(f"{_STATUS} has no {field}")
    return int(match[1]) / 1024
