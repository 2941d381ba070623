"""Numbers as JSON holds them: rounded to what a reader can use, and null where there is none."""

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
