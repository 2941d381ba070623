"""The number of CPU threads of a process. It is constant, because it decides the order of sums.

The threads of one operation wait for each other. If another process uses the core of one of them, all wait, and the
operation takes longer than with a single thread (docs/performance.md has measurements). A process therefore leaves one
core to others, unless the user gives a number.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

ENVIRONMENT_LIMIT = "OMP_NUM_THREADS"


def thread_limit(
    cores: int, *, processes: int = 1, max_threads: int = 0, environ: Mapping[str, str] = os.environ
) -> tuple[int, str]:
    """The number of threads of one of `processes`, and the reason: the smallest of its share of the usable `cores`,
    `max_threads` of the configuration (0: no limit) and OMP_NUM_THREADS.

    A single process leaves one core to others if the user set no limit.
    """
    limits = []
    if (own := environment_limit(environ)) is not None:
        limits.append((own, f"{ENVIRONMENT_LIMIT} = {own}"))
    if max_threads:
        limits.append((max_threads, f"max_threads = {max_threads}"))
    share, reason = max(1, cores // processes), f"{cores} usable cores"
    if processes > 1:
        reason += f" for {processes} processes"
    elif not limits and share > 1:
        share, reason = share - 1, f"{reason}, one left to other processes"
    return min([(share, reason), *limits], key=lambda limit: limit[0])


def environment_limit(environ: Mapping[str, str]) -> int | None:
    """The first number of OMP_NUM_THREADS, which may be a list with one for each level; None if there is none."""
    first = environ.get(ENVIRONMENT_LIMIT, "").split(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else None
