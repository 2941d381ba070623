"""Follows the files of a stream and scores new rows in real time.

In each round, at most `limit` new rows of each file are read, so that memory does not depend on the number of new rows.
Then scores and events are appended, and at most once per `STORE_EVERY_S` the state of all files is stored. A thread
writes to the disk, so that a slow disk does not delay scores.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from core.config.schema import AnyConfig
from core.config.scoring import ALARM_SETTINGS
from core.data.files import matches
from core.errors import LandfallError, UsageError
from core.workspace import atomic_file, json_digest, relative
from inference.watch.followed_file import FollowedFile
from inference.watch.journal import Journal
from inference.watch.live_document import LiveDocument
from inference.watch.monitor import Monitor, Scored
from inference.watch.state_file import read_state, write_state

if TYPE_CHECKING:
    from inference.watch.followed_recording import FollowedRecording

log = logging.getLogger(__name__)

STORE_EVERY_S, LOOK_FOR_FILES_EVERY_S, TABLE_EVERY_S = 5.0, 1.0, 60.0
_TIMES = ("start", "end", "peak_time")


@dataclass(frozen=True)
class WatchPaths:
    """The output files."""

    events: Path
    table: Path
    scores: Path
    state: Path
    delivered: Path

    @classmethod
    def of(cls, config: AnyConfig, *, root: Path) -> WatchPaths:
        folder, stream = root / config.logging.artifacts_dir / "watch", config.stream
        return cls(
            events=folder / f"{stream}_events.jsonl",
            table=folder / f"{stream}_events.parquet",
            scores=folder / f"{stream}_scores.jsonl",
            state=folder / f"{stream}_state.bin",
            delivered=folder / f"{stream}_delivered.json",
        )


class Watch:
    """patterns: glob patterns of the files to follow, by default `data.splits.test.files`. keeps_scores: whether every
    score is appended to a file, not only events. limit: rows of a file per round. finished_after_s: seconds without new
    rows after which a file has ended. complete_after_s: seconds without a change after which a recording of vibration
    is complete.
    """

    def __init__(
        self, monitor: Monitor, *, root: Path, keeps_scores: bool, limit: int = 1000, finished_after_s: float = 3600.0,
        complete_after_s: float = 5.0, patterns: Sequence[str] | None = None,
    ):  # fmt: skip
        config = monitor.config
        self.paths = WatchPaths.of(config, root=root)
        self._monitor, self._limit = monitor, limit
        self._finished_after_s, self._complete_after_s = finished_after_s, complete_after_s
        self._data_root = (root / config.data.root).resolve()
        splits = config.data.splits
        self._patterns = splits.test.files if patterns is None else tuple(patterns)
        reference = (*splits.train.files, *splits.validation.files, *splits.calibration.files)
        self._reference = set(self._matching(reference))
        self._files: dict[Path, FollowedFile | FollowedRecording] = {}
        self._left_out: set[Path] = set()
        self._keeps_scores = keeps_scores
        self._identity = state_digest(monitor)
        self._stored_at = self._looked_at = self._tabled_at = -np.inf
        self._is_tabled = False  # whether the table has all closed events
        self._is_stored = True
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="state of a monitor")
        self._writing: Future[None] | None = None
        self._events = Journal(self.paths.events, ("id", "state"))
        self._scores = Journal(self.paths.scores, ("recording", "row")) if keeps_scores else None
        self._live = LiveDocument(root, config.stream, monitor.detector.threshold.value, self.paths.events)
        if self.paths.state.is_file():
            self._resume()
        else:
            self.store()

    def round(self, *, is_complete: bool = False) -> bool:
        """Scores the new rows, at most `limit` of each file. Returns whether there were any.

        is_complete: whether a last line without a line break is a complete row.
        """
        self._look_for_files()
        found = False
        for path, file in [each for each in self._files.items() if each[0] not in self._left_out]:
            try:
                scored = file.advance(self._limit, is_complete=is_complete)
                if scored is None and not file.is_idle and self._is_silent(path):
                    scored = file.end()
            except FileNotFoundError:
                log.info("%s was removed: it has ended", file.file_id)
                scored = [] if file.is_idle else file.end()
                del self._files[path]
            except (LandfallError, OSError) as error:
                log.warning("%s; it is not followed any more", error)
                self._left_out.add(path)
                continue
            if scored is not None:
                found = True
                self._write(scored)
        self._is_stored &= not found
        if not self._is_stored and time.monotonic() - self._stored_at > STORE_EVERY_S and self._has_written():
            self._store()
        if time.monotonic() - self._tabled_at > TABLE_EVERY_S:
            self._write_table()
        self._live.refresh()
        return found

    def finish(self) -> None:
        """Ends all files: scores the remaining rows and closes open events."""
        for path, file in self._files.items():
            if path not in self._left_out and not file.is_idle:
                self._write(file.end())
        self.store()
        self._write_table()
        self._live.refresh(ended=True)

    def store(self) -> None:
        """Writes journals and state to the disk. Raises WriteError if they cannot be written."""
        self._store()
        self._writing.result()

    def _store(self) -> None:
        """The same in the background, after a write that is still running."""
        journals = {"events": self._events} | ({"scores": self._scores} if self._scores else {})
        header = {
            "detector": self._identity,
            "journals": {name: journal.state() for name, journal in journals.items()},
            "files": [relative(path, self._data_root) for path in self._files],
        }
        arrays = {str(at): file.state() for at, file in enumerate(self._files.values())}

        def write() -> None:
            for journal in journals.values():
                journal.sync()
            write_state(self.paths.state, header, arrays)

        self._writing = self._disk.submit(write)
        self._stored_at, self._is_stored = time.monotonic(), True

    def _has_written(self) -> bool:
        """Whether the last state is on the disk. Raises WriteError if it could not be written."""
        if self._writing is None or not self._writing.done():
            return self._writing is None
        self._writing.result()
        return True

    # ------------------------------------------------------------------------------------------------------------ state
    def _resume(self) -> None:
        header, arrays = read_state(self.paths.state)
        if header["detector"] != self._identity:
            hint = f"move {self.paths.state.parent} away to begin again at the first row of each file"
            raise UsageError("the state was stored with another detector, configuration or channels", hint=hint)
        if self._keeps_scores != ("scores" in header["journals"]):
            hint = f"move {self.paths.state.parent} away, or start as before"
            raise UsageError("--scores has changed since the state was stored", hint=hint)
        self._events.resume(header["journals"]["events"])
        if self._scores is not None:
            self._scores.resume(header["journals"]["scores"])
        for at, name in enumerate(header["files"]):
            file = self._follow(self._data_root / name)
            file.restore(arrays[str(at)])
        log.info("continuing with %d files", len(self._files))

    # ------------------------------------------------------------------------------------------------------------ files
    def _matching(self, patterns: Sequence[str]) -> Iterator[Path]:
        for pattern in patterns:
            yield from matches(pattern, self._data_root)

    def _look_for_files(self) -> None:
        if time.monotonic() - self._looked_at < LOOK_FOR_FILES_EVERY_S:
            return
        self._looked_at = time.monotonic()
        found = set(self._matching(self._patterns))
        for path in [path for path, file in self._files.items() if file.is_idle and path not in found]:
            del self._files[path]  # so that the state does not grow without limit
        for path in sorted(found):
            if path in self._files or path in self._left_out:
                continue
            if path in self._reference:
                log.warning(
                    "%s is not followed: the detector was fitted to it; write new rows to a new file, or score it "
                    "with `landfall score`", path,
                )  # fmt: skip
                self._left_out.add(path)
            else:
                log.info("following %s", self._follow(path).file_id)

    def _follow(self, path: Path) -> FollowedFile | FollowedRecording:
        file_id = relative(path, self._data_root)
        if self._monitor.recordings is None:
            self._files[path] = FollowedFile(self._monitor, path, file_id)
        else:
            from inference.watch.followed_recording import FollowedRecording

            complete_after_s = self._complete_after_s
            self._files[path] = FollowedRecording(self._monitor, path, file_id, complete_after_s=complete_after_s)
        return self._files[path]

    def _is_silent(self, path: Path) -> bool:
        return time.time() - path.stat().st_mtime > self._finished_after_s

    # ----------------------------------------------------------------------------------------------------------- output
    def _write(self, scored: list[Scored]) -> None:
        for each in scored:
            self._live.add_scores(each)
            for report in each.reports:
                self._events.add(report)
                self._is_tabled &= report["state"] != "closed"
                log.info("event %s: %s", report["state"], report["sentence"])
            if self._scores is not None:
                for line in _score_lines(each, self._monitor):
                    self._scores.add(line)
        self._events.flush()
        if self._scores is not None:
            self._scores.flush()

    def _write_table(self) -> None:
        if not self._is_tabled:
            _write_closed_events(self.paths.events, self.paths.table)
        self._tabled_at, self._is_tabled = time.monotonic(), True


def _score_lines(scored: Scored, monitor: Monitor) -> Iterator[dict[str, Any]]:
    threshold = monitor.detector.threshold.value
    times: Sequence[str | None] = [None] * len(scored.row_n)
    if scored.time_n is not None:
        times = np.datetime_as_string(scored.time_n.view("datetime64[ns]"), unit="ms").tolist()
    for at, (row, score) in enumerate(zip(scored.row_n.tolist(), scored.score_n.tolist(), strict=True)):
        top = scored.top_channel_n[at]
        yield {
            "recording": scored.recording,
            "row": row,
            "time": times[at],
            "score": None if np.isnan(score) else score,
            "alarm": score > threshold,
            "top_channel": monitor.channels[top] if top >= 0 else None,
        }


def _write_closed_events(events: Path, target: Path) -> None:
    """Closed events as a parquet file, for tools that read tables. events: the file of JSON lines. target: replaced
    atomically; it is not written without a closed event."""
    with events.open(encoding="utf-8") as file:
        closed = [report for report in map(json.loads, file) if report["state"] == "closed"]
    if not closed:
        return
    table = pd.DataFrame(closed).drop(columns="state")
    table = table.assign(**{name: pd.to_datetime(table[name], format="ISO8601") for name in _TIMES})
    with atomic_file(target) as part:
        table.to_parquet(part, index=False)


def state_digest(monitor: Monitor) -> str:
    """Digest of everything that affects scores and events: a state can only be continued with the same digest."""
    detector, config = monitor.detector, monitor.config
    made_of = {
        "checkpoint": detector.checkpoint_sha256,
        "settings": dict(detector.settings),
        "events": config.scoring.model_dump(mode="json", include=ALARM_SETTINGS),
        "data": dict(detector.data),
        "threshold": detector.threshold.value,
        "weight": detector.model_weight,
        "channels": monitor.channels,
        "gap": [config.data.gap_factor, monitor.step_s],
        "timestamp": config.data.timestamp,
    }
    return json_digest(made_of)
