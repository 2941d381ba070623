"""Numbers for readers: rounded to what one can use, null in JSON where there is none, sizes in their unit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def decimals_for(scale: float, significant: int) -> int:
    """Decimal places that leave numbers of this size so many significant digits."""
    if not math.isfinite(scale) or scale == 0:
        return significant
    return max(0, significant - 1 - math.floor(math.log10(abs(scale))))


def listed(values: np.ndarray, decimals: int) -> list[Any]:
    """Lists in lists, as deep as the array; None for what is not finite."""
    rounded = np.asarray(values, dtype=np.float64).round(decimals)
    if np.isfinite(rounded).all():
        return rounded.tolist()
    return np.where(np.isfinite(rounded), rounded, None).tolist()


def size_in_words(num_bytes: float) -> str:
    """`50.0 GB`, below a gigabyte `3.2 MB`."""
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.1f} MB"
