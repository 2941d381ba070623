"""Selects few points of a long series that keep its shape, and finds runs in it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np


def kept(value_n: np.ndarray, limit: int) -> np.ndarray:
    """Positions of at most `limit` (5 or more) values, ascending: all of them if they are few, otherwise the first, the
    last, and for each segment the minimum, the maximum and the first non-finite value."""
    if len(value_n) <= limit:
        return np.arange(len(value_n))
    num_segments = (limit - 2) // 3
    edges = np.arange(num_segments + 1) * len(value_n) // num_segments
    found = {0, len(value_n) - 1}
    for first, last in pairwise(edges.tolist()):
        part_m = value_n[first:last]
        gap_m = ~np.isfinite(part_m)
        if gap_m.any():
            found.add(first + int(gap_m.argmax()))
        if not gap_m.all():
            found.add(first + int(np.where(gap_m, np.inf, part_m).argmin()))
            found.add(first + int(np.where(gap_m, -np.inf, part_m).argmax()))
    return np.array(sorted(found))


def runs_of(flag_n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Start and stop (exclusive) of each run of true values."""
    edge_e = np.flatnonzero(np.diff(np.concatenate([[False], flag_n, [False]])))
    return edge_e[::2], edge_e[1::2]


def equal_runs(value_n: np.ndarray) -> Iterator[tuple[int, int]]:
    """Start and stop (exclusive) of each run of equal values."""
    return pairwise([0, *(np.flatnonzero(np.diff(value_n)) + 1).tolist(), len(value_n)] if len(value_n) else [])
