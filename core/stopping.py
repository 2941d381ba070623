"""Stopping on request: signals and the wall-time limit, for work that can be saved and for work that cannot."""

from __future__ import annotations

import _thread
import functools
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self

import psutil

from core.errors import LandfallError, StoppedError, UsageError
from core.signals import SignalStop, is_repeated, stop_signals

log = logging.getLogger(__name__)

# Start time of the command by `time.monotonic`, which all processes of a machine share and no clock setting changes.
# The time limit of a command also applies to kernels and training processes that it starts.
_STARTED_AT = "_LANDFALL_STARTED_AT"
# Reserve before the limit, in addition to the next step: for the checkpoint and for the work after training.
_RESERVE_SHARE, _LONGEST_RESERVE_S = 0.02, 60.0
# Work that has used more than this share of the limit will probably not finish within a complete limit.
_MAX_SHARE_OF_LIMIT = 0.5


class StopRequest:
    """While active, SIGTERM, SIGUSR1, SIGHUP and the wall-time limit end the work immediately with StoppedError, as
    Ctrl-C does with KeyboardInterrupt, because there is nothing to save.

    Inside `deferred` they, and SIGINT, only set `reason`, and the work checks `is_due`; a second SIGINT aborts. Python
    delivers signals to the main thread only; in other threads only `is_due` checks the time.

    timeout_hours: maximum wall time of the process, counted from its start, as in a batch system.
    keeps_nothing: a new start repeats all work. If the time limit ends such work after more than half of the time, it
    is a failure, because a restart would not get further.
    """

    def __init__(self, timeout_hours: float | None = None, *, keeps_nothing: bool = False) -> None:
        self.reason: str | None = None
        self.interrupted = False
        self._previous: dict[int, object] = {}
        self._timeout_hours, self._keeps_nothing = timeout_hours, keeps_nothing
        self._is_deferred = self._is_over_limit = False
        self._alarm: threading.Timer | None = None

    def __enter__(self) -> Self:
        self._began = seconds_since_start()
        if self._is_past(0.0):
            self._refuse()
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.getsignal(number) for number in stop_signals()}
            try:
                for number in self._previous:
                    signal.signal(number, self._on_signal)
                self._set_alarm()
            except BaseException as error:
                self.__exit__(type(error), error, error.__traceback__)
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_deferred = True  # otherwise a signal would end this and leave the handlers
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm.join()
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if isinstance(error, SignalStop):
            raise self._ended().with_traceback(trace) from None

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Within the context, a request only sets `reason`: the work continues until it checks `is_due`, and can save
        its state."""
        self._is_deferred = True
        try:
            yield
        finally:
            self._is_deferred = False

    def is_due(self, next_seconds: float) -> bool:
        """Whether to stop now: on request, or because the next unit of work, of `next_seconds`, would not end before
        the limit."""
        if self.reason is None and self._is_past(next_seconds):
            self.reason = self._near_limit
        return self.reason is not None

    # ---------------------------------------------------------------------------------------------------------- signals
    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if is_repeated(number):
            return
        if number == signal.SIGINT and (self.reason is not None or not self._is_deferred):
            raise KeyboardInterrupt
        if self.reason is None:
            self.reason = f"received {signal.Signals(number).name}"
        if not self._is_deferred:
            raise SignalStop(number)
        self.interrupted = number == signal.SIGINT
        log.warning("%s: saving a checkpoint after this step (Ctrl-C again aborts)", self.reason)

    def _ended(self) -> LandfallError:
        if self._is_over_limit and self._keeps_nothing:
            had_hours = (seconds_since_start() - self._began) / 3600
            if had_hours > _MAX_SHARE_OF_LIMIT * self._timeout_hours:
                return LandfallError(
                    f"{self.reason} and the work, which started {had_hours:.2g} h ago, is not complete",
                    hint="a restart would not get further: raise timeout_hours, or use less data",
                )
        return StoppedError(self.reason, None)

    def _refuse(self) -> None:
        """Raises StoppedError near the limit, and UsageError beyond it: a batch system would have ended such an old
        process, so it is that of a notebook."""
        if self._began < self._timeout_hours * 3600:
            raise StoppedError(self._near_limit, None)
        raise UsageError(
            f"this process has run for {self._began / 3600:.1f} h, timeout_hours = {self._timeout_hours:g}",
            hint="restart the kernel or the command, or raise timeout_hours",
        )

    # ------------------------------------------------------------------------------------------------------------- time
    @property
    def _near_limit(self) -> str:
        return f"the wall-time limit of {self._timeout_hours:g} h is near"

    def _seconds_left(self) -> float:
        limit = self._timeout_hours * 3600
        return limit - min(limit * _RESERVE_SHARE, _LONGEST_RESERVE_S) - seconds_since_start()

    def _is_past(self, next_seconds: float) -> bool:
        return self._timeout_hours is not None and next_seconds > self._seconds_left()

    def _set_alarm(self) -> None:
        """Sets a timer that also ends work without checks, such as reading, measuring a batch size or scoring."""
        if self._timeout_hours is None:
            return
        self._alarm = threading.Timer(min(self._seconds_left(), threading.TIMEOUT_MAX), self._on_limit)
        self._alarm.daemon = True
        self._alarm.start()

    def _on_limit(self) -> None:
        if not self._is_deferred:
            self.reason, self._is_over_limit = self._near_limit, True
            if hasattr(signal, "pthread_kill"):  # also interrupts a waiting call
                signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)
            else:
                _thread.interrupt_main(signal.SIGTERM)


def seconds_since_start() -> float:
    """Wall time since the command started, also for its child processes; otherwise since this process started."""
    return time.monotonic() - (float(os.environ.get(_STARTED_AT, 0)) or _process_start())


@functools.cache
def _process_start() -> float:
    """Start time on the monotonic clock; the system clock is read once."""
    return time.monotonic() - (time.time() - psutil.Process().create_time())


def start_clock() -> None:
    """The command of this process starts now, unless another process has started it."""
    os.environ.setdefault(_STARTED_AT, str(time.monotonic()))


def restart_clock() -> None:
    """The next command of this process starts now: its wall-time limit does not count earlier ones."""
    os.environ[_STARTED_AT] = str(time.monotonic())


def without_start(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for a process whose time limit counts from its own start."""
    return {name: value for name, value in environ.items() if name != _STARTED_AT}
