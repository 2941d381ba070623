"""What quality measures of one channel, however long it is: a few passes over it, some values at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from core.data.blocks import blocks
from core.data.medians import median

_MAD_TO_SIGMA = 1.4826
# A channel of so few levels is a state, a set point or a counter: sitting at its extremes is what it does.
_DISCRETE_LEVELS = 16
# Smallest scale of a channel's steps, as a share of its level: float32 noise is a thousand times below it.
_STEP_FLOOR = 1e-4
# From this share of steps that move, a channel that mostly holds its value is judged by the moves it makes.
_HABITUAL_MOVES = 0.01
# From this share of steps that change the level, such changes recur: they are operation, not a defect.
_RECURRING_CHANGES = 0.002
# Steps above so many robust standard deviations are changes of level or spikes, spikes where so much is taken back.
_LARGE_STEP, _TAKEN_BACK = 10.0, 0.7


def channel_metrics(values_t: np.ndarray, gap_g: np.ndarray) -> dict[str, Any]:
    """JSON values; None where one does not apply. gap_g: int64 (G,) rows whose step to the next is over a gap."""
    observed, steps = partial(_observed, values_t), partial(_steps, values_t, gap_g)
    num_rows, num_observed = len(values_t), sum(map(len, observed()))
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
    low = min(block.min() for block in observed() if len(block))
    high = max(block.max() for block in observed() if len(block))
    metrics |= {"minimum": float(low), "maximum": float(high), "rms": _deviation(observed, num_observed)}
    num_steps, num_flat = (
        sum(counts) for counts in zip(*((len(n), int((n == 0).sum())) for n in steps()), strict=True)
    )
    if num_steps:
        metrics["flat_ratio"] = num_flat / num_steps
    if low == high:
        metrics["constant"] = num_observed > 1
        return metrics
    if num_steps:
        level = float(np.abs(median(observed, num_observed)))
        metrics["largest_jump_sigma"] = _largest_jump(steps, num_steps, level)
    clipped = sum(int(((block == low) | (block == high)).sum()) for block in observed()) / num_observed
    metrics["clipping_ratio"] = None if _is_discrete(observed, clipped) else clipped
    return metrics


Numbers = Callable[[], Iterator[np.ndarray]]


def _observed(values_t: np.ndarray) -> Iterator[np.ndarray]:
    return (block[~np.isnan(block)] for block in blocks(values_t))


def _steps(values_t: np.ndarray, gap_g: np.ndarray) -> Iterator[np.ndarray]:
    """From each value to the next, where both are observed and no gap lies between."""
    row = 0
    for block in blocks(values_t, overlap=1):
        step_n = np.diff(block)
        first, last = np.searchsorted(gap_g, [row, row + len(step_n)])
        step_n[gap_g[first:last] - row] = np.nan
        yield step_n[~np.isnan(step_n)]
        row += len(step_n)


def _deviation(observed: Numbers, count: int) -> float:
    """The standard deviation."""
    mean = sum(block.sum(dtype=np.float64) for block in observed()) / count
    return float(np.sqrt(sum(np.square(block - mean).sum() for block in observed()) / count))


def _longest_run(values_t: np.ndarray) -> int:
    """Length of the longest run of one repeated value; a missing value repeats nothing."""
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

    The scale is the median absolute deviation. Where that is 0, because most steps are 0, it is the median of the
    moves if moving is a habit of the channel, else the floor: so one jump of a channel that otherwise holds still
    stands out, and the five-hundredth switch of a valve does not. In the same way, changes of level of a recipe, which
    recur, are compared with each other. A spike, which is back with the next sample, is never a habit.
    """
    floor = max(_STEP_FLOOR * level, math.sqrt(float(np.finfo(np.float32).tiny)))
    usual = median(steps, count)

    def sizes() -> Iterator[np.ndarray]:
        return (np.abs(step_n - usual) for step_n in steps())

    def moves() -> Iterator[np.ndarray]:
        return (size_n[size_n > floor] for size_n in sizes())

    scale = _MAD_TO_SIGMA * float(median(sizes, count))
    if scale <= floor:
        num_moves = sum(map(len, moves()))
        scale = _MAD_TO_SIGMA * float(median(moves, num_moves)) if num_moves > _HABITUAL_MOVES * count else floor

    def level_changes() -> Iterator[np.ndarray]:
        """Sizes of the large steps that the next sample does not take back."""
        return (np.abs(step_n[~_is_taken_back(step_n) & (np.abs(step_n) > _LARGE_STEP * scale)]) for step_n in steps())

    largest_spike = max(np.abs(step_n[_is_taken_back(step_n)]).max(initial=0.0) for step_n in steps())
    num_changes = sum(map(len, level_changes()))
    largest_change = max(size_n.max(initial=0.0) for size_n in level_changes())
    change_scale = scale
    if num_changes > _RECURRING_CHANGES * count:
        change_scale = max(scale, _MAD_TO_SIGMA * float(median(level_changes, num_changes)))
    largest_other = max(size_n.max(initial=0.0) for size_n in sizes()) if not num_changes else 0.0
    return float(max(largest_spike / scale, largest_change / change_scale, min(largest_other / scale, _LARGE_STEP)))


def _is_taken_back(step_n: np.ndarray) -> np.ndarray:
    """Whether a step and the next, or the one before, are a spike: of opposite sign and nearly equal size."""
    one_n, next_n = step_n[:-1], step_n[1:]
    smaller_n, larger_n = np.minimum(np.abs(one_n), np.abs(next_n)), np.maximum(np.abs(one_n), np.abs(next_n))
    spike_n = ((one_n < 0) != (next_n < 0)) & (smaller_n > _TAKEN_BACK * larger_n)
    taken_n = np.zeros(len(step_n), dtype=bool)
    taken_n[:-1] |= spike_n
    taken_n[1:] |= spike_n
    return taken_n


def _is_discrete(observed: Numbers, clipped: float) -> bool:
    """Whether the channel knows only a few levels. A stretch decides where it can, for sorting a channel is slow."""
    if clipped == 0 or len(np.unique(next(observed())[:4096])) > _DISCRETE_LEVELS:
        return False
    levels = np.empty(0, dtype=np.float32)
    for block in observed():
        levels = np.union1d(levels, block)
        if len(levels) > _DISCRETE_LEVELS:
            return False
    return True
