"""The metrics of the data quality report, computed in a few passes over the blocks of each channel.

Values stay below `core.data.sentinels.SENTINEL` (1e38), so a step between two of them fits float32; anything larger
than a step is computed in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from core.config.schema import Stream
from core.data.blocks import blocks, by_column
from core.data.medians import median
from core.data.recording import NOT_A_TIME, NS_PER_S, Recording
from core.data.sampling import sampling_rate, steps

_MAD_TO_SIGMA = 1.4826
# A channel of at most this many levels is a state, a set point or a counter, which is often at its extremes.
_DISCRETE_LEVELS = 16
# Smallest scale of a channel's steps, as a share of its level: float32 noise is a thousand times below it.
_STEP_FLOOR = 1e-4
# Above this share of steps that move, the moves of a channel that mostly holds its value set its scale.
_HABITUAL_MOVES = 0.01
# Above this share of steps that change the level, such changes are normal operation, not a defect.
_RECURRING_CHANGES = 0.002
# Steps above this many robust standard deviations change the level, or are spikes if the next step reverses at least
# this share of them.
_LARGE_STEP, _REVERSED = 10.0, 0.7
_LARGEST, _TINY = (float(bound) for bound in (np.finfo(np.float32).max, np.finfo(np.float32).tiny))


def measure(
    raw: Recording,
    clean: Recording,
    *,
    stream: Stream,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """JSON values that the quality rules compare with their limits.

    raw: the recording as it was read; clean: the same after `core.data.cleaning.cleaned`. The sampling rate of the time
    stamps is compared with that of the recording, which its sidecar may declare. `notes` say what was left out or read
    as missing, and which rows were dropped.
    """
    num_missing = sum(int(np.count_nonzero(np.isnan(block))) for block in blocks(raw.values_tc))
    columns = zip(clean.channels, by_column([clean.values_tc], scratch), strict=True)
    channels = {name: channel_metrics(values_t, clean.gap_g) for name, values_t in columns}
    constant = sum(metrics["constant"] for metrics in channels.values())
    return {
        **_time_metrics(raw, clean, stream),
        "constant_channel_ratio": constant / max(1, len(channels)),
        "channels": channels,
        "notes": list(clean.notes),
        "missing_ratio": num_missing / raw.values_tc.size if raw.values_tc.size else 1.0,
    }


def _time_metrics(raw: Recording, clean: Recording, stream: Stream) -> dict[str, Any]:
    rows, time_ns, gap_g, declared_hz = len(raw), clean.time_ns, clean.gap_g, raw.sampling_rate_hz
    num_valid = sum(int(np.count_nonzero(block != NOT_A_TIME)) for block in blocks(raw.time_ns))
    backward = sum(int(np.count_nonzero(step_n < 0)) for step_n in steps(raw.time_ns))
    measured_hz = None
    if raw.time_source == "timestamp":
        measured_hz = sampling_rate(time_ns if backward else raw.time_ns, quantised=stream == "swinmae")
    return {
        "rows": rows,
        "duration_s": float(time_ns[-1] - time_ns[0]) / NS_PER_S if len(time_ns) else 0.0,
        "time_source": raw.time_source,
        "invalid_timestamp_ratio": 1.0 - num_valid / rows if rows else 1.0,
        "non_monotonic_ratio": backward / max(1, num_valid - 1),
        "duplicate_ratio": (num_valid - len(clean)) / max(1, num_valid),
        "gap_count": len(gap_g),
        "longest_gap_s": float((time_ns[gap_g] - time_ns[gap_g - 1]).max(initial=0)) / NS_PER_S,
        "sampling_rate_hz": measured_hz,
        "declared_rate_hz": declared_hz,
        "sampling_rate_mismatch": abs(measured_hz / declared_hz - 1.0) if measured_hz and declared_hz else None,
    }


# ----------------------------------------------------------------------------------------------------------- a channel
def channel_metrics(values_t: np.ndarray, gap_g: np.ndarray) -> dict[str, Any]:
    """JSON values; None if one does not apply. gap_g: int64 (G,) rows that follow a gap."""
    observed, differences = partial(_observed, values_t), partial(_steps, values_t, gap_g)
    summaries = [(len(n), n.min(), n.max(), n.sum(dtype=np.float64)) for n in observed() if len(n)]
    num_rows, num_observed = len(values_t), sum(count for count, _, _, _ in summaries)
    metrics: dict[str, Any] = {
        "missing_ratio": (num_rows - num_observed) / num_rows if num_rows else 1.0,
        "constant": False,
        "stuck_ratio": _longest_run(values_t) / max(1, num_rows),
        "largest_jump_sigma": None,
        "clipping_ratio": None,
        "flat_ratio": None,
        "minimum": None,
        "maximum": None,
        "rms": None,
    }
    if not num_observed:
        return metrics
    low, high = min(each for _, each, _, _ in summaries), max(each for _, _, each, _ in summaries)
    mean = sum(total for _, _, _, total in summaries) / num_observed
    deviation = math.sqrt(sum(np.square(block - mean).sum() for block in observed()) / num_observed)
    metrics |= {"minimum": float(low), "maximum": float(high), "rms": deviation}
    num_steps, num_flat = (
        sum(counts) for counts in zip(*((len(n), int((n == 0).sum())) for n in differences()), strict=True)
    )
    if num_steps:
        metrics["flat_ratio"] = num_flat / num_steps
    if low == high:
        metrics["constant"] = num_observed > 1
        return metrics
    if num_steps:
        level = abs(median(observed, num_observed)) or float(max(abs(low), abs(high)))  # a switch is mostly 0
        metrics["largest_jump_sigma"] = _largest_jump(differences, num_steps, level)
    clipped = sum(int(((block == low) | (block == high)).sum()) for block in observed()) / num_observed
    metrics["clipping_ratio"] = None if _is_discrete(observed, clipped) else clipped
    return metrics


Numbers = Callable[[], Iterator[np.ndarray]]


def _observed(values_t: np.ndarray) -> Iterator[np.ndarray]:
    return (block[~np.isnan(block)] for block in blocks(values_t))


def _steps(values_t: np.ndarray, gap_g: np.ndarray) -> Iterator[np.ndarray]:
    """Differences of neighbouring values, where both are observed and no gap is between them."""
    row = 0
    for block in blocks(values_t, overlap=1):
        with np.errstate(invalid="ignore"):  # a signalling NaN of a damaged file
            step_n = np.diff(block)
        first, last = np.searchsorted(gap_g, [row + 1, row + 1 + len(step_n)])
        step_n[gap_g[first:last] - row - 1] = np.nan
        yield step_n[~np.isnan(step_n)]
        row += len(step_n)


def _longest_run(values_t: np.ndarray) -> int:
    """Length of the longest run of one repeated value; missing values are not equal to each other."""
    longest, row, last_edge = 0, 0, -1
    for block in blocks(values_t, overlap=1):
        edge_n = row + np.flatnonzero(block[1:] != block[:-1])
        longest = max(longest, int(np.diff(edge_n, prepend=last_edge).max(initial=0)))
        last_edge = int(edge_n[-1]) if len(edge_n) else last_edge
        row += len(block) - 1
    longest = max(longest, len(values_t) - 1 - last_edge)
    return longest if longest > 1 else 0


def _largest_jump(steps: Numbers, count: int, level: float) -> float:
    """Largest step in robust standard deviations of the channel's own steps.

    The scale is the median absolute deviation. If that is 0, because most steps are 0, the scale is the median of the
    steps that are not 0 if there are many, else the floor: a single jump of a constant channel is large, the regular
    switching of a valve is not. In the same way, recurring changes of level are compared with each other. A spike,
    which the next sample reverses, is always compared with the scale of the steps.
    """
    floor = max(_STEP_FLOOR * level, math.sqrt(_TINY))
    typical = np.float64(median(steps, count))

    def sizes() -> Iterator[np.ndarray]:
        return (np.minimum(np.abs(step_n - typical), _LARGEST).astype(np.float32) for step_n in steps())

    def moves() -> Iterator[np.ndarray]:
        return (size_n[size_n > floor] for size_n in sizes())

    scale = _MAD_TO_SIGMA * median(sizes, count)
    if scale <= floor:
        num_moves = sum(map(len, moves()))
        scale = _MAD_TO_SIGMA * median(moves, num_moves) if num_moves > _HABITUAL_MOVES * count else floor
    large = np.float64(_LARGE_STEP * scale)

    def level_changes() -> Iterator[np.ndarray]:
        """Sizes of the large steps that the next sample does not reverse."""
        return (np.abs(step_n[~_is_reversed(step_n) & (np.abs(step_n) > large)]) for step_n in steps())

    largest_spike = _largest(np.abs(step_n[_is_reversed(step_n)]) for step_n in steps())
    num_changes = sum(map(len, level_changes()))
    change_scale = scale
    if num_changes > _RECURRING_CHANGES * count:
        change_scale = max(scale, _MAD_TO_SIGMA * median(level_changes, num_changes))
    largest_other = _largest(sizes()) if not num_changes else 0.0
    return max(largest_spike / scale, _largest(level_changes()) / change_scale, min(largest_other / scale, _LARGE_STEP))


def _largest(sizes: Iterator[np.ndarray]) -> float:
    """The largest size, 0 if there are none. A Python float, because in float32 its quotient by a small scale may be
    infinite."""
    return float(max(size_n.max(initial=0.0) for size_n in sizes))


def _is_reversed(step_n: np.ndarray) -> np.ndarray:
    """Whether a step and its neighbour are a spike: opposite signs and nearly equal sizes."""
    one_n, next_n = step_n[:-1], step_n[1:]
    smaller_n, larger_n = np.minimum(np.abs(one_n), np.abs(next_n)), np.maximum(np.abs(one_n), np.abs(next_n))
    spike_n = ((one_n < 0) != (next_n < 0)) & (smaller_n > _REVERSED * larger_n)
    reversed_n = np.zeros(len(step_n), dtype=bool)
    reversed_n[:-1] |= spike_n
    reversed_n[1:] |= spike_n
    return reversed_n


def _is_discrete(observed: Numbers, clipped: float) -> bool:
    """Whether the channel has only a few levels. The first values decide where they can: sorting a channel is slow."""
    if clipped == 0 or len(np.unique(next(observed())[:4096])) > _DISCRETE_LEVELS:
        return False
    levels = np.empty(0, dtype=np.float32)
    for block in observed():
        levels = np.union1d(levels, block)
        if len(levels) > _DISCRETE_LEVELS:
            return False
    return True
