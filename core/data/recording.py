"""A recording: one uninterrupted measurement, as it came from one file or from one record of a set."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

NS_PER_S = 1_000_000_000
NOT_A_TIME = np.iinfo(np.int64).min
# Sampling rates that differ by at most this share are one rate: the clocks of loggers differ by as much.
RATE_TOLERANCE = 0.01


class LabelledSpan(NamedTuple):
    """A span of a recording that a user labelled, in seconds from its start. label: `fault`, `false alarm` or
    `maintenance`."""

    start: float
    end: float
    label: str


def _no_rows() -> np.ndarray:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Recording:
    """Sensor values with their times.

    values_tc: float32 (T, C); NaN is a missing value.
    time_ns: int64 (T,) nanoseconds, since 1970 where the file has time stamps, else since the recording's start;
        `NOT_A_TIME` where a time stamp could not be read. A reader keeps the order of the file;
        `core.data.cleaning.cleaned` sorts it.
    sampling_rate_hz: samples per second where declared or found from the time stamps, else None.
    time_source: where `time_ns` comes from.
    file_id: the path relative to the workspace, `#n` appended for record n of a set.
    healthy: True or False where the publisher labels the whole recording, else None. Training does not use it.
    notes: automatic decisions of the reader, one sentence each; the caller logs them.
    resampled_from_hz: the measured rate, if `core.data.resampling` changed it.
    digest: of everything the recording was made of (`core.data.store`); empty without a store.
    gap_g: int64 (G,) rows that follow a gap in time, ascending (`core.data.cleaning`).
    labelled: spans that a user labelled on the dashboard (`core.data.annotations`).
    operating_point: of vibration, the values of `data.context_channels` (`core.data.operating_points`).
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
    gap_g: np.ndarray = field(default_factory=_no_rows)
    labelled: tuple[LabelledSpan, ...] = ()
    operating_point: tuple[float, ...] = ()

    def __len__(self) -> int:
        return len(self.values_tc)

    def rows_of(self, span: LabelledSpan) -> tuple[int, int]:
        """Half-open range of the rows within a span."""
        first_ns = int(self.time_ns[0]) if len(self) else 0
        start_ns, end_ns = (first_ns + round(seconds * NS_PER_S) for seconds in (span.start, span.end))
        start, stop = np.searchsorted(self.time_ns, [start_ns, end_ns + 1])
        return int(start), int(stop)

    @property
    def segments_s2(self) -> np.ndarray:
        """Half-open row ranges without a gap, int64 (S, 2), that cover all rows."""
        bounds = np.concatenate([[0], self.gap_g, [len(self)]])
        return np.stack([bounds[:-1], bounds[1:]], axis=1)[: len(self.gap_g) + (len(self) > 0)]
