"""Which recordings are judged by the same measure: each by its own past, where each has one.

Machines differ, and so does one machine from day to day. Suffixes: n row, k stretch, r recording, s score entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from core.data.dataset import PartName
from core.data.windows import WindowSet
from inference.part_scores import PartScores

# With so many normal rows each, recordings are judged by their own past alone.
OWN_ROWS = 256
# The quantile of normal scores that is made equal in all groups.
_LEVEL = 0.9
_LEAST_LEVEL = 1e-6

Membership = Callable[[np.ndarray], np.ndarray]


def groups_of(parts: Mapping[PartName, WindowSet]) -> list[tuple[np.ndarray, Membership]]:
    """The groups of a data set: its normal stretches (K, 2), and which rows of other stretches are its own.

    Where each recording to be scored has `OWN_ROWS` normal rows, it is a group of its own; else all are one.
    """
    offsets_r = parts["test"].series.offsets_r
    normal_k2 = np.concatenate([part.stretches for name, part in parts.items() if name != "test"])
    normal_k2 = normal_k2[np.argsort(normal_k2[:, 0])]
    recording_k = _recording(normal_k2, offsets_r)
    rows_r = np.bincount(recording_k, weights=normal_k2[:, 1] - normal_k2[:, 0], minlength=len(offsets_r) - 1)
    scored = np.unique(_recording(parts["test"].stretches, offsets_r))
    each_alone = len(scored) > 1 and bool((rows_r[scored] >= OWN_ROWS).all())
    groups = [np.array([recording]) for recording in scored] if each_alone else [np.arange(len(rows_r))]

    def membership(group: np.ndarray) -> Membership:
        def of_group(stretches_k2: np.ndarray) -> np.ndarray:
            mine_k = np.isin(_recording(stretches_k2, offsets_r), group)
            return np.repeat(mine_k, stretches_k2[:, 1] - stretches_k2[:, 0])

        return of_group

    return [(normal_k2[np.isin(recording_k, group)], membership(group)) for group in groups]


def rows_of(stretches_k2: np.ndarray) -> np.ndarray:
    """The rows of stretches (K, 2), one after the other: int64 (S,)."""
    lengths_k = stretches_k2[:, 1] - stretches_k2[:, 0]
    return np.repeat(stretches_k2[:, 0] - np.cumsum(lengths_k) + lengths_k, lengths_k) + np.arange(lengths_k.sum())


def alike(
    calibration: PartScores, test: PartScores, parts: Mapping[PartName, WindowSet]
) -> tuple[PartScores, PartScores]:
    """Row scores of both parts, scaled so that a normal score is as large in every group: one threshold then serves.

    A group's scale is a high quantile of its calibration scores. With one group nothing changes.
    """
    groups = [of_group for _, of_group in groups_of(parts)]
    if len(groups) == 1:
        return calibration, test
    scale = {
        name: np.ones(len(scores.score_s), dtype=np.float32)
        for name, scores in (("calibration", calibration), ("test", test))
    }
    for of_group in groups:
        mine = of_group(parts["calibration"].stretches)
        known_s = calibration.score_s[mine & ~np.isnan(calibration.score_s)]
        level = max(float(np.quantile(known_s, _LEVEL)), _LEAST_LEVEL) if len(known_s) else 1.0
        scale["calibration"][mine] = scale["test"][of_group(parts["test"].stretches)] = level
    usual = np.float32(np.median(scale["calibration"]))
    return _scaled(calibration, usual / scale["calibration"]), _scaled(test, usual / scale["test"])


def _scaled(scores: PartScores, factor_s: np.ndarray) -> PartScores:
    return replace(
        scores,
        score_s=scores.score_s * factor_s,
        channel_error_sc=scores.channel_error_sc * factor_s[:, np.newaxis],
    )


def _recording(stretches_k2: np.ndarray, offsets_r: np.ndarray) -> np.ndarray:
    return np.searchsorted(offsets_r, stretches_k2[:, 0], side="right") - 1
