"""Windows over recordings: all recordings are concatenated in one tensor, and a window is stored as its first row.

Importing this module does not import torch, so that a stored detector can be used without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np

from core.data.blocks import Pages
from core.data.recording import Recording
from core.data.scaling import Scaler
from core.data.segments import Segments, offsets_of, recording_at

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Series:
    """Recordings, concatenated.

    rows_nc: float32 (N, C), contiguous, the rows of all recordings in order, in the sensors' own units; NaN is missing.
        It may be in a memory-mapped file.
    offsets_r: int64 (R + 1,): recording r has the rows offsets_r[r] to offsets_r[r + 1].
    scaler: scales each batch of windows; None leaves the values as they are.
    pages: the pages of a memory-mapped file that are in memory.
    scratch: for long arrays that are computed from the rows (`core.data.blocks`).
    on_device: the rows on another device; None is the CPU.
    """

    rows_nc: np.ndarray
    recordings: tuple[Recording, ...]
    offsets_r: np.ndarray
    scaler: Scaler | None = None
    pages: Pages = field(default_factory=Pages, compare=False)
    scratch: Path | None = field(default=None, compare=False)
    on_device: torch.Tensor | None = field(default=None, repr=False, compare=False)
    _copies: WeakValueDictionary[torch.device, Series] = field(
        default_factory=WeakValueDictionary, init=False, repr=False, compare=False
    )

    @classmethod
    def of(
        cls,
        recordings: Sequence[Recording],
        values_nc: np.ndarray,
        scaler: Scaler | None = None,
        scratch: Path | None = None,
    ) -> Series:
        """`values_nc`: the rows of all recordings, float32 (N, C); copied only if it is not contiguous."""
        values_nc = np.ascontiguousarray(values_nc)
        return cls(values_nc, tuple(recordings), offsets_of(map(len, recordings)), scaler, Pages(values_nc), scratch)

    @cached_property
    def values_nc(self) -> torch.Tensor:
        """The rows as a tensor; on the CPU without a copy."""
        import torch

        return torch.from_numpy(self.rows_nc) if self.on_device is None else self.on_device

    def to(self, device: torch.device) -> Series:
        """The series on a device: one copy, shared by all users, and freed after the last one."""
        if device == self.values_nc.device:
            return self
        copy = self._copies.get(device)
        if copy is None:
            copy = self._copies[device] = replace(self, on_device=self.values_nc.to(device), pages=Pages(None))
        return copy

    def is_on(self, device: torch.device) -> bool:
        """Whether `to` would not have to copy."""
        return device == self.values_nc.device or device in self._copies

    def scaled(self, values_btc: np.ndarray) -> np.ndarray:
        """A batch of windows in scaled units: float32 (B, T, C)."""
        if self.scaler is None:
            return values_btc
        center_c, rest_c, scale_c = self.scaler.columns()
        return np.clip((values_btc - center_c - rest_c) / scale_c, -self.scaler.clip, self.scaler.clip)

    def scaled_(self, values_btc: torch.Tensor) -> torch.Tensor:
        """The same in place."""
        if self.scaler is None:
            return values_btc
        center_c, rest_c, scale_c = self._scaling
        return values_btc.sub_(center_c).sub_(rest_c).div_(scale_c).clamp_(-self.scaler.clip, self.scaler.clip)

    @cached_property
    def _scaling(self) -> tuple[torch.Tensor, ...]:
        import torch

        return tuple(torch.from_numpy(each_c).to(self.values_nc.device) for each_c in self.scaler.columns())


@dataclass(frozen=True)
class WindowSet:
    """Windows of equal length over a series.

    starts_w: int64 (W,) rows of the series where windows start; windows never cross a recording, a gap or a split.
    segments_k2: int64 (K, 2) half-open row ranges without a gap that the windows were cut from, also those too short
        for a window; None takes each recording as one segment.
    """

    series: Series
    starts_w: np.ndarray
    window: int
    segments_k2: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.starts_w)

    @cached_property
    def segments(self) -> Segments:
        """The row ranges without a gap, in the order they were given."""
        offsets_r = self.series.offsets_r
        rows_k2 = np.stack([offsets_r[:-1], offsets_r[1:]], axis=1) if self.segments_k2 is None else self.segments_k2
        return Segments.of(rows_k2, offsets_r)

    @cached_property
    def _view_nf(self) -> torch.Tensor:
        """Every possible window (N - T + 1, T · C), as a view of the values."""
        values_nc = self.series.values_nc
        num_rows, num_channels = values_nc.shape
        shape = (max(num_rows - self.window + 1, 0), self.window * num_channels)
        return values_nc.as_strided(shape, (num_channels, 1), values_nc.storage_offset())

    def batch(self, index_b: torch.Tensor) -> torch.Tensor:
        """Scaled windows (B, T, C) float32 on the series' device, by one gather."""
        import torch

        starts_b = torch.from_numpy(self.starts_w)[index_b].to(self.series.values_nc.device)
        batch_bf = self._view_nf.index_select(0, starts_b)
        self.series.pages.count_read(batch_bf.nbytes)
        return self.series.scaled_(batch_bf.unflatten(1, (self.window, -1)))

    def arrays(self, size: int) -> Iterator[np.ndarray]:
        """All windows in order, `size` at a time, without torch: float32 (B, T, C) with the values of `batch`."""
        for first in range(0, len(self), size):
            starts_b = self.starts_w[first : first + size]
            values_btc = self.series.rows_nc[starts_b[:, np.newaxis] + np.arange(self.window)]
            self.series.pages.count_read(values_btc.nbytes)
            yield self.series.scaled(values_btc)

    def recording_of(self) -> np.ndarray:
        """Index of each window's recording, (W,)."""
        return recording_at(self.series.offsets_r, self.starts_w)

    def local_starts(self) -> np.ndarray:
        """Starts of the windows, counted from the first row of their recording: int64 (W,)."""
        return self.starts_w - self.series.offsets_r[self.recording_of()]

    def file_of(self) -> np.ndarray:
        """Number of each window's file, ascending, (W,): a set has many recordings."""
        paths = [recording.path for recording in self.series.recordings]
        number_r = np.cumsum([0, *(before != path for before, path in pairwise(paths))])
        return number_r[self.recording_of()]

    def subset(self, index_b: np.ndarray) -> WindowSet:
        return replace(self, starts_w=self.starts_w[index_b])

    def evenly_spaced(self, most: int) -> WindowSet:
        """At most this many of the windows, at equal distances."""
        if len(self) <= most:
            return self
        return self.subset(np.linspace(0, len(self) - 1, most).round().astype(np.int64))

    def to(self, device: torch.device) -> WindowSet:
        return replace(self, series=self.series.to(device))
