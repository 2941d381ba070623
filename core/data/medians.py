"""Exact medians and percentiles of arrays larger than memory, by radix selection of 16 bits in each pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

Blocks = Callable[[], Iterable[np.ndarray]]
"""Returns the same numbers at each call, in blocks: float32 or int64 (n,), without NaN."""

_BITS = 16
# Maximum number of numbers that are sorted in memory.
_FEW = 2**22


def median(numbers: Blocks, count: int) -> float:
    """`np.median` of all `count` numbers, in float64; NaN where there are none."""
    if not count:
        return math.nan
    ranks = [(count - 1) // 2, count // 2]
    middle = (
        np.partition(np.concatenate(list(numbers())), ranks)[ranks]
        if count <= _FEW
        else (order_statistics(numbers, ranks))
    )
    return float(np.mean(middle, dtype=np.float64))  # in float32 the sum of two large numbers is infinite


def percentiles(numbers: Blocks, count: int, percents: Sequence[float]) -> np.ndarray:
    """`np.percentile` of all `count` numbers in float64; NaN where there are none."""
    if not count:
        return np.full(len(percents), np.nan)
    if count <= _FEW:
        return np.percentile(np.concatenate(list(numbers())).astype(np.float64), percents)
    place_p = np.array(percents) / 100 * (count - 1)
    below_p = np.floor(place_p).astype(np.int64)
    ranks = [*below_p.tolist(), *np.minimum(below_p + 1, count - 1).tolist()]
    low_p, high_p = np.split(order_statistics(numbers, ranks).astype(np.float64), 2)
    share_p, step_p = place_p - below_p, high_p - low_p
    return np.where(share_p < 0.5, low_p + step_p * share_p, high_p - step_p * (1 - share_p))


def order_statistics(numbers: Blocks, ranks: Sequence[int]) -> np.ndarray:
    """The numbers at these ranks (from 0) in ascending order, (len(ranks),)."""
    prefixes, left = [0] * len(ranks), list(ranks)
    dtype = next(iter(numbers())).dtype
    num_bits = 8 * dtype.itemsize
    for shift in range(num_bits - _BITS, -1, -_BITS):
        counts = {prefix: np.zeros(2**_BITS, dtype=np.int64) for prefix in prefixes}
        for block in numbers():
            key_n = _keys(block)
            for prefix, count_k in counts.items():
                mine_n = key_n if shift + _BITS == num_bits else key_n[key_n >> (shift + _BITS) == prefix]
                count_k += np.bincount((mine_n >> shift & (2**_BITS - 1)).astype(np.intp), minlength=2**_BITS)
        for place, prefix in enumerate(prefixes):
            up_to_k = np.cumsum(counts[prefix])
            digit = int(np.searchsorted(up_to_k, left[place], side="right"))
            left[place] -= int(up_to_k[digit - 1]) if digit else 0
            prefixes[place] = prefix << _BITS | digit
    return _numbers(np.array(prefixes, dtype=f"u{dtype.itemsize}"), dtype)


def _keys(number_n: np.ndarray) -> np.ndarray:
    """Unsigned integers in the order of the numbers."""
    bits = 8 * number_n.dtype.itemsize
    unsigned, sign = np.dtype(f"u{number_n.dtype.itemsize}"), 1 << bits - 1
    key_n = np.ascontiguousarray(number_n).view(unsigned)
    if number_n.dtype.kind == "i":
        return key_n ^ unsigned.type(sign)
    return np.where(key_n & unsigned.type(sign), ~key_n, key_n | unsigned.type(sign))


def _numbers(key_n: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The inverse of `_keys`."""
    sign = key_n.dtype.type(1 << 8 * dtype.itemsize - 1)
    if dtype.kind == "i":
        return (key_n ^ sign).view(dtype)
    return np.where(key_n & sign, key_n ^ sign, ~key_n).view(dtype)
