"""Stopping on request: a signal or the wall-time limit lets the step in hand finish and a checkpoint be written."""

from __future__ import annotations

import functools
import logging
import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Self

import psutil

log = logging.getLogger(__name__)

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Kept free before the limit, beyond the time of the next step: for the checkpoint and for what runs after training.
_RESERVE_SHARE, _LONGEST_RESERVE_S = 0.02, 60.0


class StopRequest:
    """While active, SIGINT and SIGTERM set `reason`; a second SIGINT aborts as usual.

    Python delivers signals to the main thread only; elsewhere this watches nothing but the time.
    timeout_hours: wall time the whole process may take, counted from its start, as a batch system counts.
    """

    def __init__(self, timeout_hours: float | None = None) -> None:
        self.reason: str | None = None
        self.interrupted = False
        self._previous: dict[int, object] = {}
        self._timeout_hours = timeout_hours

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._on_signal) for number in _STOP_SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def is_due(self, next_seconds: float) -> bool:
        """Whether to stop now: asked to, or the next piece of work, of that length, would not end before the limit."""
        if self.reason is None and self._timeout_hours is not None:
            limit = self._timeout_hours * 3600
            reserve = min(limit * _RESERVE_SHARE, _LONGEST_RESERVE_S)
            if seconds_since_start() + next_seconds + reserve > limit:
                self.reason = f"the wall-time limit of {self._timeout_hours:g} h is near"
        return self.reason is not None

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.reason is not None:
            raise KeyboardInterrupt
        self.reason = f"received {signal.Signals(number).name}"
        self.interrupted = number == signal.SIGINT
        log.warning("%s: saving a checkpoint after this step (Ctrl-C again aborts)", self.reason)


def seconds_since_start() -> float:
    """Wall time since this process began."""
    return time.time() - _process_start()


@functools.cache
def _process_start() -> float:
    return psutil.Process().create_time()
