"""Signals that ask a command to stop, handled from its first line on, before slow imports.

Batch systems restart a job only after exit code 75. Before the command runs, an exception would not be caught, and
during imports it may be lost or leave a module incomplete; therefore the process ends immediately. While the command
runs, `SignalStop` is raised, until work that can be saved (`core.stopping`) handles the signals. After the command, its
exit code is known, and signals are ignored. Imports only the standard library and `core.errors`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from core.errors import EXIT_INTERRUPTED, EXIT_RESUMABLE

# SLURM sends SIGUSR1 shortly before the time limit, a terminal that is closed SIGHUP; Windows has neither.
_NAMES = ("SIGINT", "SIGTERM", "SIGUSR1", "SIGHUP")
STOP_SIGNALS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))
# Functions to call if the process ends immediately: they remove leftover files, such as locks.
RELEASES: list[Callable[[], None]] = []
_AFTER_DESTRUCTOR_S = 0.01
_raises = _is_hung_up = False
_other_hook = sys.unraisablehook
_exit_code_of: Callable[[int], int] = int
_IMPORTING = frozenset({"importlib._bootstrap", "_frozen_importlib"})


class SignalStop(KeyboardInterrupt):
    """A stop request. Not an Exception, because code that catches all errors of a driver would catch it."""

    def __init__(self, number: int):
        super().__init__(f"received {signal.Signals(number).name}")
        self.number = number


def install_signal_handlers(ended: Callable[[int], int] | None = None) -> None:
    """Installs the handlers of a command; call it first, in the main thread. In other threads it does nothing.

    ended: maps the exit code of the command to that of the process if it ends immediately; None keeps the function of
    an earlier call.
    """
    global _exit_code_of, _other_hook
    if threading.current_thread() is not threading.main_thread():
        return
    if ended is not None:
        _exit_code_of = ended

    def on_signal(number: int, frame: FrameType | None) -> None:
        if is_repeated(number):
            return
        if _raises and not _is_importing(frame):
            raise KeyboardInterrupt if number == signal.SIGINT else SignalStop(number)
        code = EXIT_INTERRUPTED if number == signal.SIGINT else EXIT_RESUMABLE
        try:
            for release in RELEASES:
                release()
            sys.stderr.write(f"stopped: received {signal.Signals(number).name}; there was nothing to save yet\n")
            sys.stderr.flush()
            code = _exit_code_of(code)
        finally:
            os._exit(code)

    for number in STOP_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as with `nohup` and background jobs of a shell
            signal.signal(number, on_signal)
    if sys.unraisablehook is not _send_again:
        _other_hook, sys.unraisablehook = sys.unraisablehook, _send_again


def stop_signals() -> list[int]:
    """Those to handle while work runs. Under `nohup`, a closed terminal does not stop it."""
    return [number for number in STOP_SIGNALS if not (is_hangup(number) and signal.getsignal(number) == signal.SIG_IGN)]


def is_hangup(number: int) -> bool:
    """Whether it says that the terminal was closed."""
    return number == getattr(signal, "SIGHUP", None)


def is_repeated(number: int) -> bool:
    """Whether it says again that the terminal was closed: a shell repeats what the system sent, and a second exception
    would end the cleaning up after the first. Call it once for each signal."""
    global _is_hung_up
    if not is_hangup(number):
        return False
    was_hung_up, _is_hung_up = _is_hung_up, True
    return was_hung_up


def raise_signals() -> None:
    """Call this when the command starts: from now on, exceptions are caught."""
    global _raises
    _raises = True


def ignore_signals() -> None:
    """Call this when the command has ended: an exception would come while Python removes its objects."""
    if threading.current_thread() is threading.main_thread():
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def _send_again(lost: sys.UnraisableHookArgs) -> None:
    """Python drops what is raised in a destructor or a callback of the garbage collector: the stop request would be
    lost, and its traceback printed."""
    if isinstance(lost.exc_value, KeyboardInterrupt):
        number = getattr(lost.exc_value, "number", signal.SIGINT)
        number = signal.SIGTERM if is_hangup(number) else number  # a second SIGHUP would be ignored
        threading.Thread(target=_send_when_heard, args=(number,), daemon=True).start()
    else:
        _other_hook(lost)


def _send_when_heard(number: int) -> None:
    """Sends a signal to this process when `_send_again` has returned, because what is raised in it is dropped too."""
    main = threading.main_thread().ident
    while True:
        time.sleep(_AFTER_DESTRUCTOR_S)
        if all(frame.f_code is not _send_again.__code__ for frame in _with_callers(sys._current_frames().get(main))):
            break
    os.kill(os.getpid(), number)


def _is_importing(frame: FrameType | None) -> bool:
    return any(each.f_globals.get("__name__") in _IMPORTING for each in _with_callers(frame))


def _with_callers(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
