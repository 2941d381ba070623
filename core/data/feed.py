"""Batches of windows on the device that computes them, also of a series that has no room there."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from core.data.windows import WindowSet
from core.devices.backend import backend, to_device

log = logging.getLogger(__name__)

# Of a device's free memory a series may take; the rest is for the model and what it computes.
SHARE = 0.5


class Feed:
    """Scaled windows by index, on a device.

    A series that takes at most `SHARE` of the device's free memory moves there once, and a batch is one gather. A
    larger one stays where it is: a thread gathers the batch that is expected next while the device computes, and it
    is copied over without waiting (from pinned memory on CUDA).
    """

    def __init__(self, windows: WindowSet, device: torch.device):
        fits = _fits(windows.series.values_nc, device)
        self.windows = windows.to(device) if fits else windows
        self.device = device
        self._gatherer = None if fits else ThreadPoolExecutor(1, thread_name_prefix="batches ahead")
        self._expected: deque[torch.Tensor] = deque()
        self._ahead: tuple[torch.Tensor, Future[torch.Tensor]] | None = None

    def batch(self, index_b: torch.Tensor) -> torch.Tensor:
        """Windows (B, T, C) float32, whether they were expected or not."""
        if self._gatherer is None:
            return self.windows.batch(index_b)
        gathered = self._taken_ahead(index_b)
        if self._expected and torch.equal(self._expected[0], index_b):
            self._expected.popleft()
        self._look_ahead()
        return to_device(gathered, self.device)

    def expect(self, index_b_each: Iterable[torch.Tensor]) -> None:
        """Which batches are likely to be asked for next, in this order, in place of what was expected before."""
        if self._gatherer is not None:
            self._expected = deque(index_b_each)
            self._look_ahead()

    def _taken_ahead(self, index_b: torch.Tensor) -> torch.Tensor:
        """The batch that was gathered ahead, or another one that nobody expected."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            gathered = ahead[1].result()  # also of another batch: only one gathers at a time
            if torch.equal(ahead[0], index_b):
                return gathered
        return self._gather(index_b)

    def _look_ahead(self) -> None:
        if self._ahead is None and self._expected:
            self._ahead = self._expected[0], self._gatherer.submit(self._gather, self._expected[0])

    def _gather(self, index_b: torch.Tensor) -> torch.Tensor:
        gathered_btc = self.windows.batch(index_b)
        return gathered_btc.pin_memory() if self.device.type == "cuda" else gathered_btc


def _fits(values_nc: torch.Tensor, device: torch.device) -> bool:
    """Whether a series may lie on the device."""
    if values_nc.device == device:
        return True
    free_mb, _ = backend("tpu" if device.type == "xla" else device.type).memory_mb()
    taken_mb = values_nc.nbytes / 2**20
    if taken_mb <= SHARE * free_mb:
        return True
    log.info(
        "%s has %.0f MiB free, of which a series may take %.0f %%: this one of %.0f MiB stays where it is, and its "
        "batches come over one ahead", device, free_mb, 100 * SHARE, taken_mb,
    )  # fmt: skip
    return False
