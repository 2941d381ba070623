"""Whether recordings take the same course, as runs of a recipe do: their beginnings are similar, and differ from
their ends.

Suffixes: r recordings, p positions, c channels, n rows.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from core.data.recording import Recording

# Means of this many equal parts describe a recording. About so many rows of each part are read.
_POSITIONS, _ROWS = 16, 256
# The course of the other recordings explains at least this share of the variance of these means, in half of the
# channels: a value depends more on its position than on its recording. Without a common course, the share is negative.
_EXPLAINED = 0.5
# Two recordings may be similar by chance.
_FEWEST = 3


def have_same_course(recordings: Sequence[Recording]) -> bool:
    """Whether recordings of the same channels take the same course, at any pace."""
    if len(recordings) < _FEWEST or min(map(len, recordings)) < _POSITIONS:
        return False
    with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # a part without a value, a constant channel
        mean_rpc = np.stack([_means(recording.values_tc) for recording in recordings])
        of_all_rpc = mean_rpc - np.nanmean(mean_rpc, axis=(0, 1))
        of_others_rpc = (mean_rpc - np.nanmean(mean_rpc, axis=0)) * len(recordings) / (len(recordings) - 1)
        explained_c = 1 - np.nansum(of_others_rpc**2, axis=(0, 1)) / np.nansum(of_all_rpc**2, axis=(0, 1))
        return bool(np.nanmedian(explained_c) >= _EXPLAINED)


def _means(values_tc: np.ndarray) -> np.ndarray:
    """The mean of each part, (P, C); NaN if a channel has no value there."""
    bounds_p = np.linspace(0, len(values_tc), _POSITIONS + 1).astype(np.int64)
    return np.stack([_mean(values_tc[start:stop]) for start, stop in pairwise(bounds_p)])


def _mean(values_nc: np.ndarray) -> np.ndarray:
    return np.nanmean(values_nc[:: math.ceil(len(values_nc) / _ROWS)], axis=0, dtype=np.float64)
