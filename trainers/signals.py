"""Stopping on request: the first signal lets the step in hand finish and a checkpoint be written."""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType, TracebackType
from typing import Self

log = logging.getLogger(__name__)

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """While active, SIGINT and SIGTERM set `reason`; a second SIGINT aborts as usual.

    Python delivers signals to the main thread only; elsewhere this watches nothing.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self.interrupted = False
        self._previous: dict[int, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._on_signal) for number in _STOP_SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.reason is not None:
            raise KeyboardInterrupt
        self.reason = f"received {signal.Signals(number).name}"
        self.interrupted = number == signal.SIGINT
        log.warning("%s: saving a checkpoint after this step (Ctrl-C again aborts)", self.reason)
