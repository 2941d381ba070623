"""`training_dashboard/data/live/<stream>.json`: what a browser watches while a run trains."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from core.config.schema import Stream
from core.thinning import kept
from core.workspace import write_text

log = logging.getLogger(__name__)

PAGE = "training_dashboard/index.html"
FOLDER = "training_dashboard/data/live"
MAX_STEPS = 2_000
SHORTEST_PAUSE_S = 1.0
# Of the time of training; a slow disk makes the pauses longer, never the run slower.
LARGEST_SHARE = 0.003


class LiveFile:
    """The state of a run, written again and again: at most once a second, and for at most `LARGEST_SHARE` of the time.

    Only a workspace with the page gets one. A folder that cannot be written costs a warning, once, and nothing else.
    """

    def __init__(self, root: Path, stream: Stream):
        self.path = root / FOLDER / f"{stream}.json"
        self._enabled = (root / PAGE).is_file()
        self._epochs: list[str] = []
        self._steps: list[tuple[float, str]] = []
        self._next = 0.0

    def restart(self) -> None:
        """Forgets the records so far."""
        self._epochs, self._steps = [], []

    def add(self, records: Iterable[tuple[Mapping[str, Any], str]]) -> None:
        """Epoch and step records, each with its line of JSON; steps become fewer where they grow too many."""
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
        """Writes the file if it is time to, or if this is the `last` word. Raises nothing."""
        started = time.perf_counter()
        if not self._enabled or (started < self._next and not last):
            return
        try:
            write_text(self.path, self._text(status))
        except OSError as error:
            self._enabled = False
            log.warning("the dashboard shows this run only when it is over: %s", error)
        ended = time.perf_counter()
        self._next = ended + max(SHORTEST_PAUSE_S, (ended - started) / LARGEST_SHARE)

    def _text(self, status: Mapping[str, Any]) -> str:
        """Records are in JSON already, so that a refresh costs no more than joining them."""
        steps = ",".join(line for _, line in self._steps)
        return f'{json.dumps(status)[:-1]}, "history": [{",".join(self._epochs)}], "step_history": [{steps}]}}\n'
