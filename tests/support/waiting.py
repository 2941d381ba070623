"""Waiting for a condition: on a busy machine, no fixed time is long enough."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import psutil

# A machine that runs ten times as much as it can is still faster.
PATIENCE_S = 60.0


def until(condition: Callable[[], Any], *, patience_s: float = PATIENCE_S) -> Any:
    """The first true value of the condition; fails if there is none in time."""
    deadline = time.monotonic() + patience_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {patience_s:g} s"
        time.sleep(0.01)
    return found


def is_gone(pid: int) -> bool:
    """Whether a process has ended; its parent may not have asked for its exit code yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def when(condition: Callable[[], Any], action: Callable[[], Any]) -> None:
    """Calls the action in a thread as soon as the condition holds; without that, never."""

    def wait() -> None:
        until(condition)
        action()

    threading.Thread(target=wait, daemon=True).start()
