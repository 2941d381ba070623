"""Exact medians and percentiles of more numbers than memory holds, by passes that count 16 bits of their order each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

Blocks = Callable[[], Iterable[np.ndarray]]
"""Gives the same numbers at each call, some at a time: float32 or int64 (n,), without NaN."""

_BITS = 16
# So many numbers are sorted in memory.
_FEW = 2**22


def median(numbers: Blocks, count: int) -> float:
    """As `np.median` of all `count` numbers; NaN where there are none."""
    if count <= _FEW:
        found = list(numbers())
        return np.median(np.concatenate(found)) if count else np.nan
    middle = order_statistics(numbers, [(count - 1) // 2, count // 2])
    return np.mean(middle)


def percentiles(numbers: Blocks, count: int, percents: Sequence[float]) -> np.ndarray:
    """As `np.percentile` of all `count` numbers in 64 bit; NaN where there are none."""
    if count <= _FEW:
        found = list(numbers())
        return (
            np.percentile(np.concatenate(found).astype(np.float64), percents)
            if count
            else np.full(len(percents), np.nan)
        )
    place_p = np.array(percents) / 100 * (count - 1)
    below_p = np.floor(place_p).astype(np.int64)
    ranks = [*below_p.tolist(), *np.minimum(below_p + 1, count - 1).tolist()]
    low_p, high_p = np.split(order_statistics(numbers, ranks).astype(np.float64), 2)
    share_p, step_p = place_p - below_p, high_p - low_p
    return np.where(share_p < 0.5, low_p + step_p * share_p, high_p - step_p * (1 - share_p))


def order_statistics(numbers: Blocks, ranks: Sequence[int]) -> np.ndarray:
    """The numbers that would stand at these places if all were sorted, (len(ranks),)."""
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
    """What `_keys` made them of."""
    sign = key_n.dtype.type(1 << 8 * dtype.itemsize - 1)
    if dtype.kind == "i":
        return (key_n ^ sign).view(dtype)
    return np.where(key_n & sign, key_n ^ sign, ~key_n).view(dtype)
