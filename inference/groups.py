"""Which recordings are judged by the same measure: each by its own past, where each has one.

Machines differ, and so does one machine from day to day. A group has a key: the file id of a recording that is judged
alone, or `POOLED`. Suffixes: n row, k stretch, r recording, s score entry.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from core.data.blocks import gathered, slices
from core.data.dataset import PartName
from core.data.segments import recording_at
from core.data.windows import WindowSet
from inference.part_scores import PartScores

# The key of all recordings that are not judged alone.
POOLED = ""
# With so many normal rows each, recordings are judged by their own past alone.
OWN_ROWS = 256
_LEAST_LEVEL = 1e-6
_VALUES_AT_A_TIME = 2**20

Membership = Callable[[np.ndarray], np.ndarray]


class Group(NamedTuple):
    """normal_k2: its normal stretches, in order. holds: which of other stretches (K, 2) are its own, bool (K,)."""

    key: str
    normal_k2: np.ndarray
    holds: Membership


def recordings_in(windows: WindowSet) -> list[str]:
    """File ids of the recordings that have rows in a part, in order."""
    return [windows.series.recordings[index].file_id for index in windows.segments.recordings]


def judged_alone(normal: Iterable[WindowSet]) -> tuple[str, ...]:
    """The recordings that are each judged by their own past: those with `OWN_ROWS` normal rows, and more rows after
    them. Which other recordings are scored does not matter."""
    rows: dict[int, int] = {}
    last: dict[int, int] = {}
    for windows in normal:
        series, segments = windows.series, windows.segments
        for index, (start, stop) in zip(segments.recording_k.tolist(), segments.rows_k2.tolist(), strict=True):
            rows[index] = rows.get(index, 0) + stop - start
            last[index] = max(last.get(index, 0), stop)
    return tuple(
        series.recordings[index].file_id
        for index, count in sorted(rows.items())
        if count >= OWN_ROWS and series.offsets_r[index + 1] - last[index] >= windows.window
    )


def groups(normal: Collection[WindowSet], alone: Collection[str]) -> list[Group]:
    """A group for each recording judged alone; without any, the one of all."""
    series = next(iter(normal)).series
    normal_k2 = np.concatenate([part.segments.rows_k2 for part in normal])
    normal_k2 = normal_k2[np.argsort(normal_k2[:, 0])]
    place = {recording.file_id: index for index, recording in enumerate(series.recordings)}
    everyone = np.arange(len(series.offsets_r) - 1)

    def group(key: str, members: np.ndarray) -> Group:
        def holds(stretches_k2: np.ndarray) -> np.ndarray:
            return np.isin(recording_at(series.offsets_r, stretches_k2[:, 0]), members)

        return Group(key, normal_k2[holds(normal_k2)], holds)

    return [group(key, np.array([place[key]])) for key in alone] or [group(POOLED, everyone)]


def groups_of(parts: Mapping[PartName, WindowSet]) -> list[tuple[np.ndarray, Membership]]:
    """The groups of a data set: its normal stretches (K, 2), and which rows of other stretches are its own."""
    normal = normal_of(parts).values()
    found = groups(normal, judged_alone(normal))
    return [(group.normal_k2, partial(_rows_held, group)) for group in found]


def _rows_held(group: Group, stretches_k2: np.ndarray) -> np.ndarray:
    return np.repeat(group.holds(stretches_k2), stretches_k2[:, 1] - stretches_k2[:, 0])


def normal_of(parts: Mapping[PartName, WindowSet]) -> dict[PartName, WindowSet]:
    """The parts that hold normal data: all but the test."""
    return {name: part for name, part in parts.items() if name != "test"}


def keys_of(windows: WindowSet, alone: Collection[str]) -> list[str]:
    """The group of each stretch of a part, `alone` being the recordings that are one of their own: K keys."""
    recordings = windows.series.recordings
    names = (recordings[index].file_id for index in windows.segments.recording_k)
    return [name if name in alone else POOLED for name in names]


def rows_of(stretches_k2: np.ndarray) -> np.ndarray:
    """The rows of stretches (K, 2), one after the other: int64 (S,)."""
    lengths_k = stretches_k2[:, 1] - stretches_k2[:, 0]
    return np.repeat(stretches_k2[:, 0] - np.cumsum(lengths_k) + lengths_k, lengths_k) + np.arange(lengths_k.sum())


# --------------------------------------------------------------------------------------------------------------- levels
@dataclass(frozen=True)
class Levels:
    """How high the normal row scores of each group are, their root mean square, by its key; empty where all are one
    group. usual: the level that all are brought to."""

    level: Mapping[str, np.float32]
    usual: np.float32

    def alike(self, scores: PartScores, windows: WindowSet) -> PartScores:
        """Row scores of a part, scaled so that a normal score is as large in every group: one threshold then serves."""
        if not self.level:
            return scores
        level_k = np.array([self.level[key] for key in keys_of(windows, self.level)], dtype=np.float32)
        return _scaled(scores, self.usual / np.repeat(level_k, lengths_of(windows)), windows.series.room)


def level_of(score_n: np.ndarray) -> float:
    """Root mean square: nearer to the high scores than a mean, and steadier than a quantile of a hundred of them. NaN
    where nothing is scored."""
    known_n = score_n[~np.isnan(score_n)].astype(np.float64)
    return max(float(np.sqrt(np.mean(known_n**2))), _LEAST_LEVEL) if len(known_n) else np.nan


def fit_levels(
    score_s: np.ndarray, second_s: np.ndarray, windows: WindowSet, alone: Collection[str]
) -> tuple[np.ndarray, Levels]:
    """The levels of calibration scores, and these scores made alike, each half of a recording by the level of the
    other: divided by their own level they would look steadier than new scores will. NaN for recordings that are not
    judged alone. second_s: bool (S,), the second half of each recording.

    A level is drawn towards that of all recordings as far as the halves of a recording differ (James and Stein,
    Estimation with Quadratic Loss, 1961): where recordings do not differ by more than chance, all have the same.
    """
    if not alone:
        return score_s, Levels({}, np.float32(1.0))
    key_s = np.repeat(np.array(keys_of(windows, alone), dtype=object), lengths_of(windows))
    mine = {key: key_s == key for key in alone}
    log_kh = np.log(
        [[level_of(score_s[mine_s & half_s]) for half_s in (~second_s, second_s)] for mine_s in mine.values()]
    )
    log_k = np.log([level_of(score_s[mine_s]) for mine_s in mine.values()])
    known_k, halves_k = ~np.isnan(log_k), ~np.isnan(log_kh.sum(axis=1))
    usual = float(log_k[known_k].mean()) if known_k.any() else 0.0
    noise = float(np.square(log_kh[halves_k, 0] - log_kh[halves_k, 1]).mean()) / 2 if halves_k.any() else np.inf
    spread = max(float(log_k[known_k].var(ddof=1)) - noise / 2, 0.0) if known_k.sum() > 1 else 0.0

    def drawn(log_level: np.ndarray, noise: float) -> np.ndarray:
        weight = spread / (spread + noise) if spread else 0.0
        return np.exp(usual + weight * np.nan_to_num(log_level - usual))

    level_k, level_kh = drawn(log_k, noise / 2), drawn(log_kh, noise)
    scale_s = np.full(len(score_s), np.nan)
    for mine_s, level_h in zip(mine.values(), level_kh, strict=True):
        scale_s[mine_s] = np.where(second_s[mine_s], level_h[0], level_h[1])
    levels = Levels(
        {key: np.float32(level) for key, level in zip(mine, level_k, strict=True)}, np.float32(np.exp(usual))
    )
    return (score_s * (np.exp(usual) / scale_s)).astype(np.float32), levels


def _scaled(scores: PartScores, factor_s: np.ndarray, room: Path | None) -> PartScores:
    error_sc = scores.channel_error_sc
    pieces = slices(error_sc, num_values=_VALUES_AT_A_TIME)
    scaled_sc = gathered((error_sc[piece] * factor_s[piece, np.newaxis] for piece in pieces), room)
    return replace(scores, score_s=scores.score_s * factor_s, channel_error_sc=scaled_sc)


def lengths_of(windows: WindowSet) -> np.ndarray:
    """Rows of each stretch of a part, int64 (K,)."""
    return windows.segments.lengths_k
