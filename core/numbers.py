"""Numbers for readers: rounded to useful digits, null in JSON if missing, sizes with units, in aligned columns."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


def decimals_for(scale: float, significant: int) -> int:
    """Decimal places that give numbers of this size the requested significant digits."""
    if not math.isfinite(scale) or scale == 0:
        return significant
    return max(0, significant - 1 - math.floor(math.log10(abs(scale))))


def listed(values: np.ndarray, decimals: int) -> list[Any]:
    """Nested lists with the dimensions of the array; None for values that are not finite."""
    import numpy as np

    rounded = np.asarray(values, dtype=np.float64).round(decimals)
    if np.isfinite(rounded).all():
        return rounded.tolist()
    return np.where(np.isfinite(rounded), rounded, None).tolist()


def plain(value: float, significant: int = 3) -> str:
    """The requested significant digits, without an exponent: `1.04`, `12.3`, `1,280,000`."""
    if not math.isfinite(value) or value == 0:
        return f"{value:.0f}"
    rounded = float(f"{value:.{significant - 1}e}")  # before counting the places: 9.996 becomes 10.0
    return f"{rounded:,.{decimals_for(rounded, significant)}f}"


def finite(value: Any) -> Any:
    """None for NaN and infinity, which JSON does not have; any other value as it is."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def counted(number: int, noun: str) -> str:
    """`1 event`, `2 events`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def ratio_in_words(ratio: float) -> str:
    """A ratio: `1.04`, `12.3`, `283`; `< 0.01` and `> 1,000` outside this range."""
    if ratio > 1_000:
        return "> 1,000"
    return plain(ratio) if ratio >= 1 or ratio == 0 else "< 0.01" if ratio < 0.01 else f"{ratio:.2f}"


def in_percent(share: float) -> str:
    """A share in whole percent: `67 %`."""
    return f"{100 * share:.0f} %"


def duration_in_words(seconds: float) -> str:
    """In a readable unit: `43 ms`, `2.2 s`, `3 min`, `1.5 h`, `12 days`."""
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{_brief(seconds / size)} {unit}"
    return f"{_brief(seconds)} s" if seconds >= 1 or seconds == 0 else f"{_brief(1e3 * seconds)} ms"


def _brief(value: float) -> str:
    """One decimal below 10, unless it is 0."""
    return f"{value:.1f}".removesuffix(".0") if value < 9.95 else f"{value:,.0f}"


def size_in_words(num_bytes: float) -> str:
    """`50.0 GB`, or `3.2 MB` below a gigabyte."""
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.1f} MB"


def gib(mebibytes: float) -> str:
    """A size in MiB, in the unit of memory: `23.5 GiB`."""
    return f"{mebibytes / 1024:.1f} GiB"


def aligned(rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> list[str]:
    """The rows as lines, with columns of equal width. right: numbers of the columns that are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    pads = [str.rjust if column in right else str.ljust for column in range(len(widths))]
    return ["  ".join(pad(*cell) for pad, *cell in zip(pads, row, widths, strict=True)).rstrip() for row in rows]
