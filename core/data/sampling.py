"""The sampling rate from time stamps, and evenly spaced times for a recording without any."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from core.data.blocks import BLOCK_BYTES, blocks, gathered
from core.data.medians import median
from core.data.recording import NOT_A_TIME, NS_PER_S


def sampling_rate(time_ns: np.ndarray, *, quantised: bool = False) -> float | None:
    """Samples per second from time stamps (T,) in file order; None if no step goes forward.

    The median step is correct where rows were lost. `quantised` takes the mean of the steps that are not gaps, which is
    correct where the stamps are coarser than the sampling (kilohertz data with stamps in milliseconds).
    """
    forward = partial(_forward_steps, time_ns)
    count = sum(map(len, forward()))
    if not count:
        return None
    step = float(median(forward, count))
    if quantised:
        sums = [(int(step_n.sum()), len(step_n)) for step_n in map(partial(_no_gaps, 10 * step), steps(time_ns))]
        step = sum(total for total, _ in sums) / sum(number for _, number in sums)
    return NS_PER_S / step


def steps(time_ns: np.ndarray) -> Iterator[np.ndarray]:
    """Differences of consecutive readable time stamps, in blocks of int64 (n,)."""
    before = np.empty(0, dtype=np.int64)
    for block in blocks(time_ns):
        known_n = np.concatenate([before, block[block != NOT_A_TIME]])
        yield np.diff(known_n)
        before = known_n[-1:]


def _forward_steps(time_ns: np.ndarray) -> Iterator[np.ndarray]:
    return (step_n[step_n > 0] for step_n in steps(time_ns))


def _no_gaps(longest: float, step_n: np.ndarray) -> np.ndarray:
    return step_n[(step_n >= 0) & (step_n <= longest)]


def even_times(rows: int, rate_hz: float, *, start_ns: int = 0, scratch: Path | None = None) -> np.ndarray:
    """int64 (rows,) nanoseconds of evenly spaced samples."""
    size = BLOCK_BYTES // 8
    places = (np.arange(first, min(first + size, rows)) for first in range(0, rows, size))
    return gathered(_evenly(places, rate_hz, start_ns), scratch) if rows else np.empty(0, dtype=np.int64)


def _evenly(places: Iterable[np.ndarray], rate_hz: float, start_ns: int) -> Iterator[np.ndarray]:
    return (start_ns + np.rint(place_n * (NS_PER_S / rate_hz)).astype(np.int64) for place_n in places)
