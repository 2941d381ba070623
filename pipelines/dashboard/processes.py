"""Whether the process that wrote a file is still running."""

from __future__ import annotations

from datetime import datetime, timedelta

import psutil

# Maximum difference between the clock of processes and that of files.
_TOLERANCE = timedelta(seconds=1)


def is_alive(pid: int | None, seen: datetime | None) -> bool:
    """Whether the process `pid` of this host that last wrote at `seen` is still running. The id alone is not
    sufficient: another process may have it by now, which then started later.
    """
    if pid is None or not 0 < pid < 1 << 31 or seen is None:
        return False
    try:
        process = psutil.Process(pid)
        began = process.create_time()
        return process.status() != psutil.STATUS_ZOMBIE and began <= (seen + _TOLERANCE).timestamp()
    except psutil.Error:
        return False
