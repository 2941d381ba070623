"""What a person sees of running steps: on a terminal a line for each at the bottom, elsewhere one now and then."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tqdm import tqdm

from core.progress import SECONDS_BETWEEN_LINES
from pipelines.steps.jobs import Job

log = logging.getLogger(__name__)

_SECONDS_BETWEEN_DRAWINGS = 0.5


class Display:
    def __init__(self) -> None:
        self._on_terminal = sys.stderr.isatty()
        self._lines: list[tqdm] = []
        self._shown = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._draw([])

    def show(self, jobs: Sequence[Job]) -> None:
        """To be called often: it draws when it is time."""
        wait = _SECONDS_BETWEEN_DRAWINGS if self._on_terminal else SECONDS_BETWEEN_LINES
        if time.monotonic() - self._shown < wait:
            return
        self._shown = time.monotonic()
        told = [f"{job.step.name}: {job.progress()}" for job in jobs]
        if self._on_terminal:
            self._draw(told)
        else:
            for line in told:
                log.info("%s", line)

    def _draw(self, told: Sequence[str]) -> None:
        while len(self._lines) > len(told):
            self._lines.pop().close()
        while len(self._lines) < len(told):
            self._lines.append(tqdm(bar_format="{desc}", position=len(self._lines), leave=False, file=sys.stderr))
        for line, text in zip(self._lines, told, strict=True):
            line.set_description_str(text)
