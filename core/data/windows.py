"""Windows over recordings: all series lie back to back in one tensor, and a window is only its start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from core.data.recording import Recording


@dataclass(frozen=True)
class Series:
    """Recordings back to back.

    values_nc: float32 (N, C), the rows of all recordings in order; NaN is missing. It may lie on any device.
    offsets_r: int64 (R + 1,): recording r has the rows offsets_r[r] to offsets_r[r + 1].
    """

    values_nc: torch.Tensor
    recordings: tuple[Recording, ...]
    offsets_r: np.ndarray

    @classmethod
    def of(cls, recordings: Sequence[Recording], values: Sequence[np.ndarray]) -> Series:
        offsets_r = np.concatenate([[0], np.cumsum([len(recording) for recording in recordings])]).astype(np.int64)
        return cls(torch.from_numpy(np.concatenate(values)), tuple(recordings), offsets_r)

    def to(self, device: torch.device) -> Series:
        return Series(self.values_nc.to(device), self.recordings, self.offsets_r)


@dataclass(frozen=True)
class WindowSet:
    """Windows of equal length over a series.

    starts_w: int64 (W,) rows of the series where windows begin; windows never cross a recording, a gap or a part.
    stretches_s2: int64 (S, 2) half-open row ranges without a gap that the windows were cut from, also those too short
        for a window; None takes each recording as one stretch.
    """

    series: Series
    starts_w: torch.Tensor
    window: int
    stretches_s2: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.starts_w)

    @cached_property
    def _view_nct(self) -> torch.Tensor:
        """Every possible window (N - T + 1, C, T) without a copy."""
        return self.series.values_nc.unfold(0, self.window, 1)

    def batch(self, index_b: torch.Tensor) -> torch.Tensor:
        """Windows (B, T, C) float32 on the series' device: one gather, then a transposed view."""
        starts_b = self.starts_w[index_b].to(self.series.values_nc.device)
        return self._view_nct[starts_b].transpose(1, 2)

    def batches(self, size: int) -> Iterator[torch.Tensor]:
        """All windows in order, `size` at a time."""
        for index_b in torch.arange(len(self)).split(size):
            yield self.batch(index_b)

    def recording_of(self) -> np.ndarray:
        """Index of each window's recording, (W,)."""
        return np.searchsorted(self.series.offsets_r, self.starts_w.numpy(), side="right") - 1

    def subset(self, index_b: torch.Tensor) -> WindowSet:
        return replace(self, starts_w=self.starts_w[index_b])

    def to(self, device: torch.device) -> WindowSet:
        return replace(self, series=self.series.to(device))


def window_starts(stretches_s2: np.ndarray, window: int, stride: int, *, cover_end: bool = False) -> np.ndarray:
    """Starts of the windows inside each half-open stretch (S, 2), int64 (W,).

    `cover_end` adds a last window flush with the end of a stretch, so that scoring leaves no row out.
    """
    starts = []
    for first, stop in stretches_s2:
        last = stop - window
        if last < first:
            continue
        inside = np.arange(first, last + 1, stride, dtype=np.int64)
        starts.append(np.append(inside, last) if cover_end and inside[-1] != last else inside)
    return np.concatenate(starts) if starts else np.empty(0, dtype=np.int64)
