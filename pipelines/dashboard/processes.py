"""Whether whoever wrote a file still lives."""

from __future__ import annotations

from datetime import datetime, timedelta

import psutil

# Clocks of processes and of files differ by so much at most.
_TOLERANCE = timedelta(seconds=1)


def is_alive(pid: int | None, seen: datetime | None) -> bool:
    """Whether the process `pid` of this host that left a sign of life at `seen` still runs.

    Its number alone says nothing: after a restart another process may have it, which then began later.
    """
    if pid is None or not 0 < pid < 1 << 31 or seen is None:
        return False
    try:
        process = psutil.Process(pid)
        began = process.create_time()
        return process.status() != psutil.STATUS_ZOMBIE and began <= (seen + _TOLERANCE).timestamp()
    except psutil.Error:
        return False
