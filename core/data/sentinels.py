"""Sentinels: values that programmable logic controllers (PLCs) and loggers write for a missing value."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

SENTINEL = 1e38
"""A value of this magnitude or more is a sentinel, such as ±FLT_MAX. No sensor measures such values, and the sum or
difference of two of them would overflow float32."""

# Rows that a note lists by number.
_LISTED_ROWS = 5


class Sentinels:
    """Replaces the sentinels of `num_channels` channels by NaN, block by block, and records their rows."""

    def __init__(self, num_channels: int):
        self.count_c = np.zeros(num_channels, dtype=np.int64)
        self._rows: list[list[int]] = [[] for _ in range(num_channels)]

    def remove_(self, block: np.ndarray, first_row: int) -> None:
        """Changes the block (n, …, C), float32, in place. first_row: the number of the first of its n rows."""
        found = np.abs(block) >= SENTINEL
        if not found.any():
            return
        block[found] = np.nan
        found_nc = found.reshape(len(found), -1, found.shape[-1])
        self.count_c += found_nc.sum(axis=(0, 1))
        for channel in np.flatnonzero(found_nc.any(axis=(0, 1))):
            rows, missing = self._rows[channel], _LISTED_ROWS - len(self._rows[channel])
            rows += (first_row + np.flatnonzero(found_nc[:, :, channel].any(axis=1))[:missing]).tolist()

    def notes(self, names: Mapping[int, str], *, unit: str = "row") -> list[str]:
        """One sentence for each channel of `names` (by its place) that had sentinels. unit: what `first_row` counts."""
        return [self._note(name, channel, unit) for channel, name in names.items() if self.count_c[channel]]

    def _note(self, name: str, channel: int, unit: str) -> str:
        rows, count = self._rows[channel], int(self.count_c[channel])
        places = f"{unit}{'s' if len(rows) > 1 else ''} {', '.join(map(str, rows))}"
        return (
            f"column {name!r}: {count} {'values' if count > 1 else 'value'} read as missing, infinite or sentinels of "
            f"{SENTINEL:g} and more, in {places}{' and more' if count > len(rows) else ''}"
        )
