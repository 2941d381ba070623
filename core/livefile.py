"""`training_dashboard/data/live/<name>.json`: documents that the dashboard reads while they change."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from core.config.schema import Stream
from core.page import LIVE, has_page
from core.thinning import kept
from core.workspace import write_text

log = logging.getLogger(__name__)

MAX_STEPS = 2_000
SHORTEST_PAUSE_S = 1.0
# Share of the training time. On a slow disk, writes become less frequent; training does not become slower.
LARGEST_SHARE = 0.003


class PacedFile:
    """A document that is written at most once per second, and for at most `LARGEST_SHARE` of the time.

    Only a workspace with the dashboard gets this file. A folder that cannot be written causes a single warning.
    """

    def __init__(self, root: Path, name: str):
        self.path = root / LIVE / f"{name}.json"
        self._enabled = has_page(root)
        self._next = 0.0

    def write(self, text: Callable[[], str], *, last: bool = False) -> None:
        """Writes the text if it is due, or if this is the `last` one. Never raises."""
        started = time.perf_counter()
        if not self._enabled or (started < self._next and not last):
            return
        try:
            write_text(self.path, text())
        except OSError as error:
            self._enabled = False
            log.warning("the dashboard does not show this run before it ends: %s", error)
        ended = time.perf_counter()
        self._next = ended + max(SHORTEST_PAUSE_S, (ended - started) / LARGEST_SHARE)


class LiveFile(PacedFile):
    """The state and the history of a run."""

    def __init__(self, root: Path, stream: Stream):
        super().__init__(root, stream)
        self._epochs: list[str] = []
        self._steps: list[tuple[float, str]] = []

    def restart(self) -> None:
        """Discards the records so far."""
        self._epochs, self._steps = [], []

    def add(self, records: Iterable[tuple[Mapping[str, Any], str]]) -> None:
        """Epoch and step records, each with its line of JSON; too many steps are thinned."""
        if not self._enabled:
            return
        for record, line in records:
            if record["kind"] == "epoch":
                self._epochs.append(line)
            elif record["kind"] == "step":
                loss = record["loss"]
                self._steps.append((float("nan") if loss is None else loss, line))
        if len(self._steps) > MAX_STEPS:
            loss_n = np.array([loss for loss, _ in self._steps])
            self._steps = [self._steps[index] for index in kept(loss_n, MAX_STEPS // 2).tolist()]

    def refresh(self, status: Mapping[str, Any], *, last: bool = False) -> None:
        """Writes status and history, like `write`."""
        self.write(partial(self._text, status), last=last)

    def _text(self, status: Mapping[str, Any]) -> str:
        """Records are stored as JSON, so that a refresh only joins them."""
        steps = ",".join(line for _, line in self._steps)
        return f'{json.dumps(status)[:-1]}, "history": [{",".join(self._epochs)}], "step_history": [{steps}]}}\n'
