"""Progress of long work: a bar where a person watches, a line every half minute in a log, nothing where asked."""

from __future__ import annotations

import logging
import sys
import time
from types import TracebackType
from typing import Literal, Self

from tqdm import tqdm

log = logging.getLogger(__name__)

Mode = Literal["auto", "bar", "lines", "off"]
SECONDS_BETWEEN_LINES = 30.0


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
        self.total, self.label, self.unit, self.done = total, label, unit, 0
        self._mode = _watched_mode() if mode == "auto" else mode
        self._bar: tqdm | None = None
        self._started = self._last_line = 0.0

    def __enter__(self) -> Self:
        self._started = self._last_line = time.monotonic()
        if self._mode == "bar":
            self._bar = tqdm(total=self.total, desc=self.label, unit=f" {self.unit}", file=sys.stderr)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self, count: int = 1, note: str = "") -> None:
        self.done += count
        if self._bar is not None:
            if note:
                self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(count)
        elif self._mode == "lines":
            now = time.monotonic()
            if now - self._last_line >= SECONDS_BETWEEN_LINES:
                self._last_line = now
                rate = self.done / (now - self._started)
                left = (self.total - self.done) / rate
                log.info("%s: %d of %d %s, %.0f s left %s", self.label, self.done, self.total, self.unit, left, note)


def _watched_mode() -> Mode:
    """A terminal and a notebook are watched; a pipe or a log file is not."""
    return "bar" if sys.stderr.isatty() or _in_notebook() else "lines"


def _in_notebook() -> bool:
    """Whether this process is a notebook's kernel; asking must not import IPython."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")
