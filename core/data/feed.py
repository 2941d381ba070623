"""Batches of windows on the device of the computation, also from a series that does not fit in its memory."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from core.data.windows import Series, WindowSet
from core.devices.backend import to_device
from core.devices.memory import cache_limit_mb
from core.devices.plan import kind_of
from core.process_memory import MIB

log = logging.getLogger(__name__)


class Feed:
    """Scaled windows by index, on a device.

    A series that fits the device is moved there once, for all its window sets, and a batch is one gather. A larger one
    stays where it is: a thread gathers the expected next batch while the device computes, and the batch is copied
    asynchronously (from pinned memory on CUDA).
    """

    def __init__(self, windows: WindowSet, device: torch.device):
        fits = _fits(windows.series, device)
        self.windows = windows.to(device) if fits else windows
        self.device = device
        self._gatherer = None if fits else ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        self._expected: deque[torch.Tensor] = deque()
        self._prefetched: tuple[torch.Tensor, Future[torch.Tensor]] | None = None

    def batch(self, index_b: torch.Tensor) -> torch.Tensor:
        """Windows (B, T, C) float32, whether they were expected or not."""
        if self._gatherer is None:
            return self.windows.batch(index_b)
        gathered = self._take_prefetched(index_b)
        if self._expected and torch.equal(self._expected[0], index_b):
            self._expected.popleft()
        self._prefetch()
        return to_device(gathered, self.device)

    def expect(self, index_b_each: Iterable[torch.Tensor]) -> None:
        """The batches that are likely to be requested next, in this order; replaces the earlier expectation."""
        if self._gatherer is not None:
            self._expected = deque(index_b_each)
            self._prefetch()

    def _take_prefetched(self, index_b: torch.Tensor) -> torch.Tensor:
        """The prefetched batch; if it is another one, the requested batch is gathered now."""
        ahead, self._prefetched = self._prefetched, None
        if ahead is not None:
            gathered = ahead[1].result()  # also for another batch: only one thread gathers at a time
            if torch.equal(ahead[0], index_b):
                return gathered
        return self._gather(index_b)

    def _prefetch(self) -> None:
        if self._prefetched is None and self._expected:
            self._prefetched = self._expected[0], self._gatherer.submit(self._gather, self._expected[0])

    def _gather(self, index_b: torch.Tensor) -> torch.Tensor:
        gathered_btc = self.windows.batch(index_b)
        return gathered_btc.pin_memory() if self.device.type == "cuda" else gathered_btc


def _fits(series: Series, device: torch.device) -> bool:
    """Whether a series may be moved to the device, or is there already."""
    if series.is_on(device):
        return True
    limit_mb, size_mb = cache_limit_mb(kind_of(device)), series.rows_nc.nbytes / MIB
    if size_mb > limit_mb:
        log.info(
            "%s has %.0f MiB for data, and the series needs %.0f MiB: it stays in main memory, and each batch is "
            "copied while the previous one is computed", device, limit_mb, size_mb,
        )  # fmt: skip
    return size_mb <= limit_mb
