"""Channels that only increase, such as a time or a meter: every later value is outside of the training data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.data.recording import Recording
from core.data.splits import Span

# About so many rows of a recording are compared.
_ROWS = 20_000
# A channel that never decreases is a meter if it increases so often; a recipe has fewer steps.
_MANY_INCREASES = 20


def counters(training: Sequence[tuple[Recording, Span]], channels: Sequence[str]) -> list[str]:
    """The channels that count in the rows to train on. Most steps increase in each recording, or many in all of them: a
    meter may be rounded."""
    values = [
        recording.values_tc[span.start : span.stop : max(1, (span.stop - span.start) // _ROWS)]
        for recording, span in sorted(training, key=lambda each: each[0].time_ns[0])
    ]
    return [name for c, name in enumerate(channels) if _counts([values_nc[:, c] for values_nc in values])]


def _counts(values: Sequence[np.ndarray]) -> bool:
    """values: of one channel in each recording, in order of time."""
    known = [values_n[np.isfinite(values_n)].astype(np.float64) for values_n in values]
    changes = [np.diff(values_n) for values_n in known]
    if not changes or any((change_n < 0).any() for change_n in changes):
        return False
    change_n = np.diff(np.concatenate(known))
    is_meter = not (change_n < 0).any() and (change_n > 0).sum() >= _MANY_INCREASES
    return is_meter or all(2 * (change_n > 0).sum() > len(change_n) for change_n in changes)
