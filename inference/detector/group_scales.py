"""The scale of scores in each group of recordings, so that one threshold is valid for all groups.

Suffixes: k group, s score entry.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from core.data.blocks import gathered, slices
from core.data.windows import WindowSet
from inference.detector.split_scores import SplitScores
from inference.groups import POOLED, keys_of

_SMALLEST_SCALE = 1e-6
# A recording has changed within the calibration data if the ratio of its halves is an outlier among the recordings: its
# modified z-score is above this. Limit and smallest number are those of Iglewicz and Hoaglin (How to Detect and Handle
# Outliers, 1993).
_OUTLIER, _FEWEST_RECORDINGS = 3.5, 10
# The median absolute deviation of a normal distribution with a standard deviation of 1.
_OF_NORMAL = 0.6744897501960817
_VALUES_AT_A_TIME = 2**20


@dataclass(frozen=True)
class GroupScales:
    """scale: root mean square of the reference row scores of each group, by its key; empty if there is only one group.
    usual: the common scale to which all groups are normalised."""

    scale: Mapping[str, np.float32]
    usual: np.float32

    def normalised(self, scores: SplitScores, windows: WindowSet) -> SplitScores:
        """Row scores of a split, scaled so that reference scores are equally large in every group."""
        if not self.scale:
            return scores
        scale_k = np.array([self.scale[key] for key in keys_of(windows, self.scale)], dtype=np.float32)
        return _scaled(scores, self.usual / np.repeat(scale_k, windows.segments.lengths_k), windows.series.scratch)

    def normalised_rows(self, scores: SplitScores, file_id: str) -> SplitScores:
        """The same for rows of one recording."""
        if not self.scale:
            return scores
        scale = self.scale[file_id if file_id in self.scale else POOLED]
        return _scaled(scores, np.full(len(scores.score_s), self.usual / scale), None)


def scale_of(score_n: np.ndarray) -> float:
    """Root mean square of scores without NaN: high scores have more weight than in a mean, and it varies less than a
    quantile of a hundred scores. NaN without any score."""
    known_n = score_n[~np.isnan(score_n)].astype(np.float64)
    return max(float(np.sqrt(np.mean(known_n**2))), _SMALLEST_SCALE) if len(known_n) else np.nan


def fit_group_scales(
    score_s: np.ndarray, second_s: np.ndarray, windows: WindowSet, own_past: Collection[str]
) -> tuple[np.ndarray, GroupScales, tuple[str, ...]]:
    """The normalised calibration scores (S,), the scales, and the keys of recordings that have changed within the
    calibration data. Each half of a recording is divided by the scale of the other half: divided by its own scale, it
    would vary less than new scores. NaN for recordings that have changed, because a threshold for them would hide the
    faults of all others, and for those that are not scored per recording. second_s: bool (S,), the second half of each
    recording.

    A scale is shrunk towards the mean of all recordings, the more the halves of a recording differ (James and Stein,
    Estimation with Quadratic Loss, 1961). If recordings do not differ by more than chance, all have the same scale.
    """
    if not own_past:
        return score_s, GroupScales({}, np.float32(1.0)), ()
    key_s = np.repeat(np.array(keys_of(windows, own_past), dtype=object), windows.segments.lengths_k)
    mine = {key: key_s == key for key in own_past}
    log_kh = np.log(
        [[scale_of(score_s[mine_s & half_s]) for half_s in (~second_s, second_s)] for mine_s in mine.values()]
    )
    log_k = np.log([scale_of(score_s[mine_s]) for mine_s in mine.values()])
    is_changed_k = _outliers(log_kh[:, 1] - log_kh[:, 0])
    known_k, halves_k = ~np.isnan(log_k) & ~is_changed_k, ~np.isnan(log_kh.sum(axis=1)) & ~is_changed_k
    usual = float(log_k[known_k].mean()) if known_k.any() else 0.0
    noise = float(np.square(log_kh[halves_k, 0] - log_kh[halves_k, 1]).mean()) / 2 if halves_k.any() else np.inf
    spread = max(float(log_k[known_k].var(ddof=1)) - noise / 2, 0.0) if known_k.sum() > 1 else 0.0

    def shrunk(log_scale: np.ndarray, noise: float) -> np.ndarray:
        weight = spread / (spread + noise) if spread else 0.0
        return np.exp(usual + weight * np.nan_to_num(log_scale - usual))

    scale_k, scale_kh = shrunk(log_k, noise / 2), shrunk(log_kh, noise)
    scale_s = np.full(len(score_s), np.nan)
    for mine_s, scale_h, is_changed in zip(mine.values(), scale_kh, is_changed_k, strict=True):
        if not is_changed:
            scale_s[mine_s] = np.where(second_s[mine_s], scale_h[0], scale_h[1])
    scales = GroupScales(
        {key: np.float32(scale) for key, scale in zip(mine, scale_k, strict=True)}, np.float32(np.exp(usual))
    )
    changed = tuple(key for key, is_changed in zip(mine, is_changed_k, strict=True) if is_changed)
    return (score_s * (np.exp(usual) / scale_s)).astype(np.float32), scales, changed


def _outliers(value_k: np.ndarray) -> np.ndarray:
    """Which values are outliers, bool (K,); none of too few. NaN is no outlier."""
    known_k = value_k[~np.isnan(value_k)]
    if len(known_k) < _FEWEST_RECORDINGS:
        return np.zeros(len(value_k), dtype=bool)
    distance_k = np.abs(value_k - np.median(known_k))
    # As scipy.stats.median_abs_deviation with scale="normal", which takes a second to import.
    return distance_k > _OUTLIER * np.nanmedian(distance_k) / _OF_NORMAL


def _scaled(scores: SplitScores, factor_s: np.ndarray, scratch: Path | None) -> SplitScores:
    error_sc = scores.channel_error_sc
    pieces = slices(error_sc, num_values=_VALUES_AT_A_TIME)
    scaled_sc = gathered((error_sc[piece] * factor_s[piece, np.newaxis] for piece in pieces), scratch)
    return replace(scores, score_s=scores.score_s * factor_s, channel_error_sc=scaled_sc)
