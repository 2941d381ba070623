"""The number of CPU threads of a process: at most its usable cores, and fewer while other processes use the same cores.

The threads of one operation wait for each other. If another process uses the core of one of them, all wait, and the
operation takes longer than with a single thread (docs/performance.md has measurements). `use` and `adapt` therefore
compare what other processes take of the cores with what is left, and leave the rest to them. A deterministic run cannot
change its number, which decides the order of sums: it leaves one core free from the start, and reports a load that
exceeds it.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Mapping

import psutil

from core.devices.host import affinity

log = logging.getLogger(__name__)

ENVIRONMENT_LIMIT = "OMP_NUM_THREADS"
# Time between two readings of the load of other processes. The system counts processor time in hundredths of a second.
FIRST_LOOK_S = 0.25
INTERVAL_S = 1.0
# Load of other processes on a core, as a share, above which the core counts as used by them. A process that computes
# all the time gets at least half of the core it shares; a browser or an editor takes less than that.
SPARE_SHARE = 0.4
# Processes of a lower priority count: Linux gives each session its share, whatever the priorities within it.
_BUSY_FIELDS = ("user", "nice", "system", "irq", "interrupt", "softirq", "dpc", "steal")


def thread_limit(
    cores: int,
    *,
    processes: int = 1,
    max_threads: int = 0,
    is_fixed: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> tuple[int, str]:
    """The maximum number of threads of one of `processes`, and the reason: the smallest of its share of the usable
    `cores`, `max_threads` of the configuration (0: no limit) and OMP_NUM_THREADS.

    is_fixed: the number cannot follow the load. A single process leaves one core to others if the user set no limit.
    """
    limits = []
    if (own := environment_limit(environ)) is not None:
        limits.append((own, f"{ENVIRONMENT_LIMIT} = {own}"))
    if max_threads:
        limits.append((max_threads, f"max_threads = {max_threads}"))
    share, reason = max(1, cores // processes), f"{cores} usable cores"
    if processes > 1:
        reason += f" for {processes} processes"
    elif is_fixed and not limits and share > 1:
        share, reason = share - 1, f"{reason}, one left to other processes"
    return min([(share, reason), *limits], key=lambda limit: limit[0])


def environment_limit(environ: Mapping[str, str]) -> int | None:
    """The first number of OMP_NUM_THREADS, which may be a list with one for each level; None if there is none."""
    first = environ.get(ENVIRONMENT_LIMIT, "").split(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else None


class CoreUse:
    """The load of other processes on the cores that this process may use."""

    def __init__(self) -> None:
        self.cores = affinity()
        self._before = self._readings()

    def others(self) -> float:
        """Mean number of cores in use by other processes since the last call."""
        before, self._before = self._before, self._readings()
        wall, busy, own = (now - then for now, then in zip(self._before, before, strict=True))
        return max(0.0, (busy - own) / wall) if wall > 0 else 0.0

    def _readings(self) -> tuple[float, float, float]:
        """Seconds of the clock, of all processes on these cores, and of this process."""
        per_core = psutil.cpu_times(percpu=True)
        busy = sum(
            getattr(times, field, 0.0)
            for core, times in enumerate(per_core)
            if core in self.cores
            for field in _BUSY_FIELDS
        )
        return time.monotonic(), busy, time.process_time()


class Threads:
    """The number of threads of this process, from 1 to `most`, depending on the cores that other processes leave free.

    is_fixed: the number stays at `most`; the first load that exceeds the rest of the cores is reported.
    """

    def __init__(
        self, most: int, *, core_use: CoreUse, set_number: Callable[[int], object], is_fixed: bool = False
    ) -> None:
        self.most = self.number = most
        self.is_fixed = is_fixed
        self._core_use = core_use
        self._set_number = set_number
        self._looked_at = time.monotonic()
        self._is_reported = False

    def adapt(self) -> None:
        """Reads the load of other processes if the last reading is `INTERVAL_S` ago. Call it between operations."""
        if time.monotonic() - self._looked_at >= INTERVAL_S:
            self.look()

    def look(self) -> None:
        """Changes the number if the load since the last reading requires it."""
        self._looked_at = time.monotonic()
        others, cores = self._core_use.others(), len(self._core_use.cores)
        number = min(self.most, max(1, math.floor(cores - others + SPARE_SHARE)))
        if number == self.number:
            return
        if not self.is_fixed:
            level = logging.DEBUG if self._is_reported else logging.INFO
            message = "computing with %d of %d threads: other processes use %.1f of %d cores"
            log.log(level, message, number, self.most, others, cores)
            self.number = number
            self._set_number(number)
        elif not self._is_reported:
            log.warning(
                "slower: other processes use %.1f of %d cores, and the %d threads of this run wait for each other. "
                "Their number stays, because it affects the last digits; `max_threads=%d` is faster during the load",
                others, cores, self.most, number,
            )  # fmt: skip
        self._is_reported = True


# ------------------------------------------------------------------------------------------------------ of this process
_threads: Threads | None = None


def use(most: int, *, is_fixed: bool = False) -> None:
    """Computes with `most` threads from now on, with fewer while other processes use the cores.

    is_fixed: the number stays, for results that are the same in every digit: how an operation is divided among threads
    decides the order of its sums. A load that makes the threads wait is reported.
    """
    global _threads
    import torch

    torch.set_num_threads(most)
    _threads = None
    if most > 1:
        try:
            _threads = Threads(most, core_use=CoreUse(), set_number=torch.set_num_threads, is_fixed=is_fixed)
        except (OSError, psutil.Error) as error:
            log.info("the number of threads stays: this system hides the use of its cores (%s)", error)
            return
        time.sleep(FIRST_LOOK_S)
        _threads.look()


def forget() -> None:
    """The number of threads follows the load no more."""
    global _threads
    _threads = None


def adapt() -> None:
    """For compute loops, between two batches: adapts to the cores that other processes leave free."""
    if _threads is not None:
        _threads.adapt()
