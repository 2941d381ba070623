"""`training_dashboard/data/live/watch-<stream>.json`: the document of a running monitor for the dashboard."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from core.config.schema import Stream
from core.livefile import PacedFile
from core.workspace import compact_json, utc_now
from inference.watch.monitor import Scored

# Maximum numbers of events and files that are shown, the newest first. Without new data, the document is written every
# `HEARTBEAT_S`.
MOST_EVENTS, MOST_FILES, HEARTBEAT_S = 50, 500, 30.0


class LiveDocument:
    """events: the file of events of earlier processes, of which the newest are shown."""

    def __init__(self, root: Path, stream: Stream, threshold: float, events: Path):
        self._file = PacedFile(root, f"watch-{stream}")
        self._head = {"schema_version": 1, "stream": stream, "threshold": threshold, "started_at": utc_now()}
        self._events: dict[str, dict[str, Any]] = {}
        self._files: dict[str, dict[str, Any]] = {}
        self._has_news, self._written_at = True, -np.inf
        if events.is_file():
            with events.open(encoding="utf-8") as lines:
                for line in lines:
                    if line.endswith("\n"):
                        self._add(json.loads(line))

    def add_scores(self, scored: Scored) -> None:
        """Adds events, and the newest score of a recording."""
        for report in scored.reports:
            self._add(report)
        if not len(scored.row_n):
            return
        score, time_n = float(scored.score_n[-1]), scored.time_n
        before = self._files.pop(scored.recording, {"rows": 0, "alarms": 0})
        self._files[scored.recording] = {
            "recording": scored.recording,
            "time": None if time_n is None else str(np.datetime_as_string(time_n[-1:].view("datetime64[ns]"), "ms")[0]),
            "score": None if np.isnan(score) else score,
            "alarm": score > self._head["threshold"],
            "rows": before["rows"] + len(scored.row_n),
            "alarms": before["alarms"] + int((scored.score_n > self._head["threshold"]).sum()),
        }
        _keep_newest(self._files, MOST_FILES)
        self._has_news = True

    def refresh(self, *, ended: bool = False) -> None:
        """Writes the document if there is new data, or after `HEARTBEAT_S`. Never raises."""
        now = time.monotonic()
        if self._has_news or ended or now - self._written_at > HEARTBEAT_S:
            self._file.write(lambda: self._text("completed" if ended else "running"), last=ended)

    def _text(self, state: str) -> str:
        self._has_news, self._written_at = False, time.monotonic()
        shown = {"events": list(self._events.values())[::-1], "files": list(self._files.values())}
        return compact_json({**self._head, "state": state, "updated_at": utc_now(), **shown})

    def _add(self, report: dict[str, Any]) -> None:
        self._events.pop(report["id"], None)
        self._events[report["id"]] = report
        _keep_newest(self._events, MOST_EVENTS)
        self._has_news = True


def _keep_newest(entries: dict[str, Any], most: int) -> None:
    while len(entries) > most:
        del entries[next(iter(entries))]
