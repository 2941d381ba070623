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
import torch

from core.devices.process import command_start
from core.errors import UsageError
from trainers.distributed import World

log = logging.getLogger(__name__)

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Kept free before the limit, beyond the time of the next step: for the checkpoint and for what runs after training.
_RESERVE_SHARE, _LONGEST_RESERVE_S = 0.02, 60.0
# Time between two questions whether to stop, where several processes train together.
_MEETING_S = 5.0


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
        if self._is_past(0.0):
            hours = seconds_since_start() / 3600
            raise UsageError(
                f"this process has run for {hours:.1f} h, timeout_hours = {self._timeout_hours:g}",
                hint="restart the kernel or the command, or raise timeout_hours",
            )
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
        if self.reason is None and self._is_past(next_seconds):
            self.reason = f"the wall-time limit of {self._timeout_hours:g} h is near"
        return self.reason is not None

    def _is_past(self, next_seconds: float) -> bool:
        if self._timeout_hours is None:
            return False
        limit = self._timeout_hours * 3600
        return seconds_since_start() + next_seconds + min(limit * _RESERVE_SHARE, _LONGEST_RESERVE_S) > limit

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.reason is not None:
            raise KeyboardInterrupt
        self.reason = f"received {signal.Signals(number).name}"
        self.interrupted = number == signal.SIGINT
        log.warning("%s: saving a checkpoint after this step (Ctrl-C again aborts)", self.reason)


class Meeting:
    """Where the processes of a run ask each other, before a step, whether to stop: all of them or none.

    Each answer waits for the device, so a few seconds pass between two meetings; all processes count the same steps.
    """

    def __init__(self, stop: StopRequest, world: World, device: torch.device):
        self.stop, self.world, self.device = stop, world, device
        self._interval, self._left = 1, 0

    def must_stop(self, *, step_seconds: float, validation_seconds: float, steps_left: int) -> bool:
        """step_seconds, validation_seconds: expected; steps_left: before the next validation."""
        if self.world.is_alone:
            return self.stop.is_due(step_seconds + validation_seconds * (steps_left == 1))
        if self._left > 0:
            self._left -= 1
            return False
        until_next = step_seconds * self._interval + validation_seconds * (steps_left <= self._interval)
        votes = torch.tensor([float(self.stop.is_due(until_next)), step_seconds], device=self.device)
        stopping, seconds = self.world.add(votes).tolist()
        self._interval = max(1, int(_MEETING_S * self.world.size / max(seconds, 1e-3)))
        self._left = self._interval - 1
        if stopping and self.stop.reason is None:
            self.stop.reason = "another process was asked to stop"
        return stopping > 0


def seconds_since_start() -> float:
    """Wall time since the command began, for a process that it started too; else since this process began."""
    return time.time() - (command_start() or _process_start())


@functools.cache
def _process_start() -> float:
    return psutil.Process().create_time()
