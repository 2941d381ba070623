"""A recording: one uninterrupted act of measuring, as it came from one file (or one record of a set)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

NOT_A_TIME = np.iinfo(np.int64).min
# Sampling rates this close are one: the clocks of loggers differ by as much.
RATE_TOLERANCE = 0.01


@dataclass(frozen=True)
class Recording:
    """Sensor values in file order, with their times.

    values_tc: float32 (T, C); NaN is a missing value.
    time_ns: int64 (T,) nanoseconds, since 1970 where the file has time stamps, else since the recording's start;
        `NOT_A_TIME` where a time stamp could not be read. Not necessarily monotonic: quality judges that, and
        `core.data.quality.cleaned` mends it.
    sampling_rate_hz: samples per second where declared or found from the time stamps, else None.
    time_source: where `time_ns` comes from.
    file_id: the path relative to the workspace, `#n` appended for record n of a set.
    healthy: True or False where the publisher labels the whole recording, else None. Never seen by training.
    notes: what the reader decided by itself, one sentence each; the caller logs them.
    resampled_from_hz: the rate it was measured at, where `core.data.resampling` made another of it.
    digest: of everything the recording was made of (`core.data.store`); empty where nobody asked.
    """

    file_id: str
    path: Path
    values_tc: np.ndarray
    time_ns: np.ndarray
    channels: tuple[str, ...]
    sampling_rate_hz: float | None
    time_source: Literal["timestamp", "sampling_rate", "index"]
    healthy: bool | None = None
    notes: tuple[str, ...] = field(default=())
    resampled_from_hz: float | None = None
    digest: str = ""

    def __len__(self) -> int:
        return len(self.values_tc)
