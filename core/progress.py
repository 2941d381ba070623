"""Progress of long work: a bar on a terminal or in a notebook, a line every half minute in a log, or nothing on
request."""

from __future__ import annotations

import logging
import sys
import time
from types import TracebackType
from typing import Literal, Self

from tqdm import tqdm

from core.notebook import LiveOutput, in_notebook

log = logging.getLogger(__name__)

Mode = Literal["auto", "bar", "lines", "off"]
SECONDS_BETWEEN_LINES = 30.0
# A notebook shows no bar for short work, and redraws a bar only as often as a browser can handle.
_SECONDS_BEFORE_BAR, _SECONDS_BETWEEN_DRAWINGS = 0.5, 0.2


def span(seconds: float) -> str:
    """`42 s`, `3 min 20 s` or `2 h 5 min`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


class ConsoleHandler(logging.StreamHandler):
    """Writes log lines above a progress bar instead of through it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            tqdm.write(self.format(record), file=self.stream)
        except Exception:
            self.handleError(record)


class Progress:
    """Counts to `total`; use as a context manager and call `advance`."""

    def __init__(self, total: int, label: str, *, unit: str, mode: Mode = "auto"):
        self.total, self.label, self.unit, self.done, self.note = total, label, unit, 0, ""
        self.mode = _watched_mode() if mode == "auto" else mode
        self._started = 0.0
        self._meter = _METERS["page" if self.mode == "bar" and in_notebook() else self.mode](self)

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        self._meter.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._meter.close()

    def advance(self, count: int = 1, note: str = "") -> None:
        self.done += count
        self.note = note
        self._meter.moved(count)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    @property
    def seconds_left(self) -> float:
        """Time left at the mean speed so far; valid after the first advance."""
        return self.seconds / max(self.done, 1) * (self.total - self.done)


# -------------------------------------------------------------------------------------------- the ways to show progress
class _Silence:
    """Shows nothing."""

    def __init__(self, progress: Progress):
        self.progress = progress

    def open(self) -> None: ...
    def moved(self, count: int) -> None: ...
    def close(self) -> None: ...


class _Lines(_Silence):
    def open(self) -> None:
        self._last = time.monotonic()

    def moved(self, count: int) -> None:
        now, progress = time.monotonic(), self.progress
        if now - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            log.info(
                "%s: %d of %d %s, %.0f s left %s",
                progress.label, progress.done, progress.total, progress.unit, progress.seconds_left, progress.note,
            )  # fmt: skip


class _Bar(_Silence):
    """On a terminal."""

    def open(self) -> None:
        progress = self.progress
        self._bar = tqdm(total=progress.total, desc=progress.label, unit=f" {progress.unit}", file=sys.stderr)

    def moved(self, count: int) -> None:
        if self.progress.note:
            self._bar.set_postfix_str(self.progress.note, refresh=False)
        self._bar.update(count)

    def close(self) -> None:
        self._bar.close()


class _PageBar(_Silence):
    """In a notebook, in one area of the output of the cell."""

    def open(self) -> None:
        self._output, self._drawn, self._last_note = None, time.monotonic(), ""

    def moved(self, count: int) -> None:
        self._last_note = self.progress.note or self._last_note
        wait = _SECONDS_BEFORE_BAR if self._output is None else _SECONDS_BETWEEN_DRAWINGS
        if time.monotonic() - self._drawn >= wait:
            self._draw(f"{tqdm.format_interval(self.progress.seconds_left)} left")

    def close(self) -> None:
        """Removes a bar that is full, so that it does not separate the log lines before it from those after it."""
        if self._output is None:
            return
        if self.progress.done >= self.progress.total:
            self._output.clear()
        else:
            self._draw(f"stopped after {tqdm.format_interval(self.progress.seconds)}")

    def _draw(self, time_text: str) -> None:
        progress = self.progress
        count = f"{progress.done} of {progress.total} {progress.unit}"
        speed = f"{progress.done / max(progress.seconds, 1e-9):.3g} {progress.unit}/s"
        text = " · ".join(filter(None, (count, speed, time_text, self._last_note)))
        self._output = self._output or LiveOutput()
        self._output.show_bar(progress.label, progress.done / max(progress.total, 1), text)
        self._drawn = time.monotonic()


_METERS: dict[str, type[_Silence]] = {"off": _Silence, "lines": _Lines, "bar": _Bar, "page": _PageBar}


def _watched_mode() -> Mode:
    """Whether output goes to a terminal or notebook, as opposed to a pipe or log file."""
    return "bar" if sys.stderr.isatty() or in_notebook() else "lines"
