"""Shows running steps: on a terminal one line per step at the bottom; elsewhere one line per quarter of a training, and
one every five minutes."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tqdm import tqdm

from pipelines.steps.jobs import Job

log = logging.getLogger(__name__)

_SECONDS_BETWEEN_DRAWINGS, _SECONDS_BETWEEN_LINES = 0.5, 300.0


class Display:
    def __init__(self) -> None:
        self._on_terminal = sys.stderr.isatty()
        self._lines: list[tqdm] = []
        self._shown = time.monotonic()
        self._quarters: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._draw([])

    def show(self, jobs: Sequence[Job]) -> None:
        """Shows the progress of the jobs. It draws at fixed intervals, however often it is called."""
        now = time.monotonic()
        if now - self._shown < _SECONDS_BETWEEN_DRAWINGS:
            return
        if self._on_terminal:
            self._shown = now
            self._draw([f"{job.step.name}: {job.progress()}" for job in jobs])
            return
        is_time = now - self._shown >= _SECONDS_BETWEEN_LINES
        for job in jobs:
            quarter = job.quarters()
            if is_time or quarter > self._quarters.get(job.step.name, 0):
                self._shown = now
                log.info("%s: %s", job.step.title, job.progress())
            self._quarters[job.step.name] = quarter

    def _draw(self, lines: Sequence[str]) -> None:
        while len(self._lines) > len(lines):
            self._lines.pop().close()
        while len(self._lines) < len(lines):
            self._lines.append(tqdm(bar_format="{desc}", position=len(self._lines), leave=False, file=sys.stderr))
        for line, text in zip(self._lines, lines, strict=True):
            line.set_description_str(text)
